"""Check a Table, as a plain document, for what CEL cannot express, or not within its cost limits.

The checks read the document instead of the models: a problem in one field must not hide problems in others. Malformed
values are skipped, because the models report them. Other rules are in `merlot.spec.rules.table`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from merlot.errors import InvalidInputError
from merlot.ids import OFFLINE_SUFFIX, REALTIME_SUFFIX
from merlot.schemes import SCHEMES, scheme_named
from merlot.spec import partition_functions, pruners
from merlot.spec.indexing import INDEX_KINDS, PartitionFunctionSpec
from merlot.spec.manifest import derived_checks, hybrid_checks, star_tree_checks, stream_checks
from merlot.spec.manifest.problems import ManifestProblem, suggestion
from merlot.spec.rules.table import HAS_NO_CREDENTIALS
from merlot.uris import credentials_problem, option_problems, scheme_of
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
_TYPES = frozenset(TypeName)


@dataclass(frozen=True)
class _Columns:
    """Declared columns as they are written: a missing attribute is None and is not checked."""

    by_name: Mapping[str, JsonObject]

    def is_multi_value(self, name: str) -> bool:
        return self.by_name.get(name, {}).get("multiValue") is True

    def type_of(self, name: str) -> object:
        return self.by_name.get(name, {}).get("type")

    def missing(self, path: str, name: object) -> Iterator[ManifestProblem]:
        """Yield a problem if the schema has no such column."""
        if isinstance(name, str) and self.by_name and name not in self.by_name:
            yield ManifestProblem(path, f'no column "{name}" in spec.schema.fields{suggestion(name, self.by_name)}')


def check(document: JsonObject) -> Iterator[ManifestProblem]:
    """Yield the problems between the fields of a Table document."""
    spec = _mapping(document.get("spec"))
    schema = _mapping(spec.get("schema"))
    columns = _Columns(
        {str(field["name"]): field for field in _objects(schema.get("fields")) if isinstance(field.get("name"), str)}
    )
    yield from _check_name(document)
    yield from _check_repeated_columns(schema)
    yield from _check_primary_key(schema, columns)
    yield from _check_indexing(_mapping(spec.get("indexing")), columns)
    yield from _check_partitioning(_mapping(spec.get("partitioning")), columns)
    yield from _check_batches(_mapping(spec.get("ingestion")), columns)
    yield from stream_checks.check(spec, columns.by_name, columns.missing)
    yield from hybrid_checks.check(spec, columns.by_name)
    yield from _check_uri("spec.deepStore.uri", _mapping(spec.get("deepStore")).get("uri"), "secretRef")
    yield from _check_pruners(spec)
    yield from _check_containers(_mapping(spec.get("tenants")))


def _check_name(document: JsonObject) -> Iterator[ManifestProblem]:
    name = _mapping(document.get("metadata")).get("name")
    for suffix in (OFFLINE_SUFFIX, REALTIME_SUFFIX):
        if isinstance(name, str) and name.upper().endswith(suffix):  # SQL and rights know names in any case
            right = name[: -len(suffix)] or "another name"
            yield ManifestProblem("metadata.name", f'"{suffix}" is added by the cluster; write {right}')


def _check_containers(tenants: JsonObject) -> Iterator[ManifestProblem]:
    """Yield a problem for each container of a pod template that is not the container of its role."""
    for role in ("server", "broker"):
        template = _mapping(_mapping(tenants.get(role)).get("podTemplate"))
        for position, container in enumerate(_objects(_mapping(template.get("spec")).get("containers"))):
            if container.get("name") in ("server", "broker") and container["name"] != role:
                path = f"spec.tenants.{role}.podTemplate.spec.containers[{position}].name"
                yield ManifestProblem(path, f"the container of these pods is {role}; there is no other")


def _check_repeated_columns(schema: JsonObject) -> Iterator[ManifestProblem]:
    seen: dict[str, str] = {}
    for position, field in enumerate(_list(schema.get("fields"))):
        name = _mapping(field).get("name")
        if not isinstance(name, str):
            continue
        path = f"spec.schema.fields[{position}].name"
        before = seen.get(name.lower())
        if before == name:
            yield ManifestProblem(path, f'column "{name}" is declared twice; keep one')
        elif before is not None:
            yield ManifestProblem(path, f'column "{name}" differs from "{before}" in case only; SQL would mix them up')
        seen.setdefault(name.lower(), name)


def _check_primary_key(schema: JsonObject, columns: _Columns) -> Iterator[ManifestProblem]:
    for position, name in enumerate(_list(schema.get("primaryKey"))):
        path = f"spec.schema.primaryKey[{position}]"
        yield from columns.missing(path, name)
        yield from _repeated(path, schema.get("primaryKey"), position)
        if isinstance(name, str) and columns.is_multi_value(name):
            yield ManifestProblem(path, f'column "{name}" is multi-valued; a key has one value per row')


def _check_indexing(indexing: JsonObject, columns: _Columns) -> Iterator[ManifestProblem]:
    for key in ("sortedColumns", *map(to_camel, INDEX_KINDS), "noDictionary"):
        for position, name in enumerate(_list(indexing.get(key))):
            path = f"spec.indexing.{key}[{position}]"
            yield from columns.missing(path, name)
            yield from _repeated(path, indexing.get(key), position)
            if key == "sortedColumns" and isinstance(name, str) and columns.is_multi_value(name):
                yield ManifestProblem(path, f'column "{name}" is multi-valued and has no order')
    for name in _mapping(indexing.get("bloomFpp")):
        if name not in _list(indexing.get("bloom")):
            yield ManifestProblem(
                f"spec.indexing.bloomFpp.{name}", f'add "{name}" to spec.indexing.bloom, or remove it here'
            )
    raw = {name for name in _list(indexing.get("noDictionary")) if isinstance(name, str)}
    encodings = _mapping(indexing.get("encodings"))
    for name, encoding in encodings.items():
        path = f"spec.indexing.encodings.{name}"
        yield from columns.missing(path, name)
        if name in raw and encoding != "RAW":
            yield ManifestProblem(path, f'{encoding} contradicts spec.indexing.noDictionary, which also names "{name}"')
    raw |= {name for name, encoding in encodings.items() if encoding == "RAW"}
    for kind in INDEX_KINDS:
        yield from _check_index(kind, _list(indexing.get(to_camel(kind))), columns, raw)
    yield from _check_compression(indexing, columns)
    yield from derived_checks.check(indexing, columns.by_name, columns.missing)
    yield from star_tree_checks.check(indexing, columns.by_name, raw, columns.missing)


def _check_index(kind: str, names: list[Any], columns: _Columns, raw: set[str]) -> Iterator[ManifestProblem]:
    """Yield a problem for each column that cannot have an index of this kind."""
    rule = INDEX_KINDS[kind]
    for position, name in enumerate(names):
        if not isinstance(name, str):
            continue
        path, type_name = f"spec.indexing.{to_camel(kind)}[{position}]", columns.type_of(name)
        if isinstance(type_name, str) and type_name in _TYPES and type_name not in rule.types:
            taken = ", ".join(sorted(rule.types))
            yield ManifestProblem(path, f'column "{name}" is {type_name}; a {kind} index is of {taken}')
        elif name in raw and type_name not in rule.raw_types:
            article = "an" if kind[0] in "aeiou" else "a"
            yield ManifestProblem(
                path, f'{article} {kind} index needs a dictionary; take "{name}" out of here, or out of the raw columns'
            )
        if columns.is_multi_value(name) and not rule.takes_lists:
            yield ManifestProblem(path, f'column "{name}" is multi-valued; a {kind} index has one value per row')


def _check_compression(indexing: JsonObject, columns: _Columns) -> Iterator[ManifestProblem]:
    dictionary = {name for name, encoding in _mapping(indexing.get("encodings")).items() if encoding == "DICTIONARY"}
    for name, compression in _mapping(indexing.get("compression")).items():
        path = f"spec.indexing.compression.{name}"
        yield from columns.missing(path, name)
        if name in dictionary and compression != "NONE":
            yield ManifestProblem(
                path, f"only raw columns are compressed; write encodings: {{{name}: RAW}}, or remove it"
            )


def _check_partitioning(partitioning: JsonObject, columns: _Columns) -> Iterator[ManifestProblem]:
    for name, function in _mapping(partitioning.get("columns")).items():
        path = f"spec.partitioning.columns.{name}"
        yield from columns.missing(path, name)
        if columns.is_multi_value(name):
            yield ManifestProblem(path, f'column "{name}" is multi-valued; a partition needs one value per row')
        if columns.type_of(name) in (TypeName.FLOAT, TypeName.DOUBLE):
            yield ManifestProblem(path, f'column "{name}" is {columns.type_of(name)}; partition by an exact type')
        try:
            spec = PartitionFunctionSpec.model_validate(function, by_alias=True, by_name=False)
            partition_functions.get(spec)
        except ValidationError:
            continue
        except InvalidInputError as error:
            yield ManifestProblem(path, str(error))


def _check_batches(ingestion: JsonObject, columns: _Columns) -> Iterator[ManifestProblem]:
    batches = _list(ingestion.get("batch"))
    names = [_mapping(batch).get("name", "default") for batch in batches]
    for position, batch in enumerate(map(_mapping, batches)):
        path = f"spec.ingestion.batch[{position}]"
        if names[position] in names[:position]:
            yield ManifestProblem(f"{path}.name", f'two sources are named "{names[position]}"; give each its own name')
        for name in _mapping(batch.get("derivedColumns")):
            yield from columns.missing(f"{path}.derivedColumns.{name}", name)
        uri = batch.get("sourceUri")
        scheme = scheme_of(uri) if isinstance(uri, str) else ""
        if scheme and scheme_named(scheme) is None:
            schemes = ", ".join(f"{row.name}://" for row in SCHEMES)
            yield ManifestProblem(f"{path}.sourceUri", f'unknown scheme "{scheme}"; write {schemes} or a path')
        yield from _check_uri(f"{path}.sourceUri", uri, "the environment of the job")


def _check_uri(path: str, uri: object, instead: str) -> Iterator[ManifestProblem]:
    """Yield a problem if a URI holds credentials, since it is stored, shown and logged. instead: where they belong."""
    if not isinstance(uri, str):
        return
    if not HAS_NO_CREDENTIALS.holds({"self": uri}):
        return  # a rule says so
    if (problem := credentials_problem(uri)) is not None:
        yield ManifestProblem(path, f"must not hold {problem}; credentials belong into {instead}")
    elif scheme_of(uri) and "://" not in uri:
        yield ManifestProblem(path, f'"{uri}" lacks slashes; write {scheme_of(uri)}://')
    else:
        is_glob = not path.endswith("deepStore.uri")
        yield from (ManifestProblem(path, text) for text in option_problems(uri, is_glob=is_glob))


def _check_pruners(spec: JsonObject) -> Iterator[ManifestProblem]:
    """Yield a problem for each pruner that no installed package offers."""
    for position, name in enumerate(_list(_mapping(spec.get("routing")).get("segmentPruners"))):
        if isinstance(name, str) and pruners.is_own(name) and not pruners.is_known(name):
            path = f"spec.routing.segmentPruners[{position}]"
            yield ManifestProblem(path, f'unknown segment pruner "{name}"; no installed package offers it')


def _repeated(path: str, names: object, position: int) -> Iterator[ManifestProblem]:
    if _list(names)[position] in _list(names)[:position]:
        yield ManifestProblem(path, f'"{_list(names)[position]}" is named twice; keep one')


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> list[JsonObject]:
    return [item for item in _list(value) if isinstance(item, dict)]
