"""Check a Table's stream, as a plain document, for what CEL cannot express. Other rules are in
`merlot.spec.rules.stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from merlot.spec.manifest.problems import ManifestProblem
from merlot.uris import credentials_problem
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
Missing = Callable[[str, object], Iterator[ManifestProblem]]
"""Function of a path and a column's name: yields a problem if the schema has no such column."""

TEXT = (TypeName.STRING, TypeName.BYTES, TypeName.JSON)
METADATA_TYPES: Mapping[str, Collection[TypeName]] = {
    "key": TEXT,
    "headers": TEXT,
    "offset": (TypeName.LONG, TypeName.STRING),
    "timestamp": (TypeName.LONG, TypeName.TIMESTAMP, TypeName.STRING),
    "partition": (TypeName.INT, TypeName.LONG, TypeName.STRING),
}
PATH = "spec.ingestion.stream"


def check(spec: JsonObject, columns: Mapping[str, JsonObject], missing: Missing) -> Iterator[ManifestProblem]:
    """Yield the problems of a stream that CEL cannot find, and those between it and the table's columns."""
    stream = _mapping(_mapping(spec.get("ingestion")).get("stream"))
    registry = _mapping(stream.get("decoder")).get("schemaRegistry")
    yield from _check_credentials("topic", stream.get("topic"), "")
    yield from _check_credentials("decoder.schemaRegistry", registry, "; write basic.auth.user.info in the Secret")
    yield from _check_columns(stream, columns, missing)


def _check_credentials(path: str, uri: object, instead: str) -> Iterator[ManifestProblem]:
    if isinstance(uri, str) and (problem := credentials_problem(uri)) is not None:
        yield ManifestProblem(f"{PATH}.{path}", f"must not hold {problem}{instead}")


def _check_columns(
    stream: JsonObject, columns: Mapping[str, JsonObject], missing: Missing
) -> Iterator[ManifestProblem]:
    derived, metadata = _mapping(stream.get("derivedColumns")), _mapping(stream.get("metadata"))
    for name in derived:
        yield from missing(f"{PATH}.derivedColumns.{name}", name)
    for name, source in metadata.items():
        path = f"{PATH}.metadata.{name}"
        yield from missing(path, name)
        if name in derived:
            yield ManifestProblem(path, f"{PATH}.derivedColumns fills the column too; keep one")
        column = columns.get(name, {})
        allowed = METADATA_TYPES.get(str(source).partition(".")[0], ())
        if allowed and column.get("type") in list(TypeName) and column["type"] not in allowed:
            yield ManifestProblem(path, f"{source} fills a column of type {' or '.join(allowed)}, not {column['type']}")
        if column.get("multiValue") is True:
            yield ManifestProblem(path, f'column "{name}" is multi-valued; {source} is one value')


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}
