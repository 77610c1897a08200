"""Manifests that differ from a table's in one field each: every field of a TableSpec and of the models that say what
a segment holds.

The values are drawn from the fields' annotations, so that a new field is varied as soon as it is declared. What a type
does not tell, such as an expression or a format, is in `TEXTS`; a field without a value that makes a valid manifest
fails `test_shape`, which names it.
"""

from __future__ import annotations

import itertools
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from merlot.spec import manifest
from merlot.spec.indexing import PartitionFunctionSpec, PartitioningSpec
from merlot.spec.ingestion import IngestionSpec
from merlot.spec.model import SpecModel
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import Table, TableSpec

Place = tuple[type[SpecModel], str]
"""A model and its field."""
Path = tuple[str | int, ...]

APPEND: Final = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: day, type: LONG, role: dateTime, format: EPOCH|DAYS, granularity: DAYS|1}
      - {name: city, type: STRING}
      - {name: rides, type: LONG}
      - {name: miles, type: INT, role: metric}
      - {name: share, type: FLOAT}
      - {name: tags, type: STRING, multiValue: true}
    primaryKey: [city]
  timeColumn: at
  partitioning: {columns: {city: {functionName: Murmur, numPartitions: 2}}}
  pushType: APPEND
  indexing:
    starTreeIndexConfigs: [{dimensionsSplitOrder: [city, rides], functionColumnPairs: [SUM__miles]}]
  ingestion:
    daysPerSegment: 1
    batch:
      - {name: a, sourceUri: a.csv, format: CSV, csv: {header: true}, overwrite: {start: 2024-01-01, end: 2024-01-09}}
  tenants: {broker: {resources: {}}, server: {resources: {}}}
  deepStore: {uri: 'file:///lake/merlot'}
"""
UPSERT: Final = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: day, type: LONG, role: dateTime, format: EPOCH|DAYS}
      - {name: city, type: STRING}
      - {name: rides, type: LONG}
      - {name: miles, type: INT, role: metric}
      - {name: share, type: FLOAT}
      - {name: tags, type: STRING, multiValue: true}
      - {name: gone, type: BOOLEAN}
    primaryKey: [city]
  timeColumn: at
  partitioning: {columns: {city: {functionName: Murmur, numPartitions: 2}}}
  upsert: {config: {mode: FULL}}
"""
HYBRID: Final = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: sent, type: TIMESTAMP, role: dateTime}
      - {name: day, type: LONG, role: dateTime, format: EPOCH|DAYS}
      - {name: city, type: STRING}
      - {name: rides, type: LONG}
      - {name: miles, type: INT, role: metric}
      - {name: share, type: FLOAT}
      - {name: tags, type: STRING, multiValue: true}
  timeColumn: at
  partitioning: {columns: {rides: {functionName: Murmur3, numPartitions: 2, functionConfig: {seed: '9'}}}}
  ingestion:
    batch: [{sourceUri: a.csv, format: CSV}]
    timeBoundary: {unit: 1d}
    stream:
      type: kafka
      topic: trips
      properties: {bootstrap.servers: 'kafka:9092'}
      decoder: {type: JSON}
"""
BASES: Final = {"append": APPEND, "upsert": UPSERT, "hybrid": HYBRID}
COLUMNS: Final = ("at", "day", "city", "rides", "miles", "share", "tags", "gone", "sent", "more")
WORDS: Final = (
    *("a", "7d", "2", "true", "1d", "0d", "1Gi", "0 3 * * *", "earliest", "latest", "2024-01-02", "2024-01-05"),
    *("rides > 0", "rides + 1", "key", "Modulo", "HashCode", "EPOCH|HOURS", "EPOCH|DAYS", "DAYS|7", "kafka", "files"),
    *("COUNT__*", "time", "file:///lake/other", "file:///topic", "http://registry:8081", "acme.Trip", "q", ";"),
    *('"string"', "Q2hlY2s="),
)
"""Texts that fields without a narrower type are given; one that a field does not take makes no valid manifest."""


ATTEMPTS: Final = 120
"""Values that are tried of one field."""
MOST: Final = 4
"""Variants of one field of one base."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A manifest that differs from its base in one field."""

    base: str
    path: str
    """Path of the field, columns by their names."""
    position: str
    """The same with columns by their numbers, as problems of manifests have it."""
    place: Place
    value: str
    """The value that it has instead, as JSON."""
    table: Table

    @property
    def id(self) -> str:
        return f"{self.base}-{self.path}={self.value}"


@cache
def base(name: str) -> Table:
    (found,) = manifest.load_tables(BASES[name])
    return found


def in_own_store(table: Table) -> Table:
    """The table with its files in the cluster's own deep store."""
    return table.model_copy(update={"spec": table.spec.model_copy(update={"deep_store": None})})


def places() -> set[Place]:
    """Every field that is varied: not those that hold a model whose fields are varied one by one, nor the tenants,
    which name processes."""
    holding = {(TableSpec, "table_schema"), (TableSpec, "ingestion"), (TableSpec, "tenants")}
    return {(model, name) for model in WALKED for name in model.model_fields} - holding


@cache
def every() -> tuple[Variant, ...]:
    """All variants of all bases, each spec of a base once."""
    return tuple(variant for name in BASES for variant in variants(name))


def variants(name: str) -> Iterator[Variant]:
    spec = base(name).spec
    seen = {spec.model_dump_json()}
    document = json.dumps(manifest.dump(base(name)))
    for place, path, values in _varied(spec, ("spec",)):
        num_found = 0
        for value in itertools.islice(values, ATTEMPTS):
            table = _loaded(document, path, value)
            if table is not None and (text := table.spec.model_dump_json()) not in seen:
                seen.add(text)
                num_found += 1
                yield Variant(
                    base=name,
                    path=path_text(path, spec),
                    position=_joined(path),
                    place=place,
                    value=json.dumps(value),
                    table=table,
                )
            if num_found == MOST:
                break


def _loaded(document: str, path: Path, value: Any) -> Table | None:
    """Return the manifest with a value in place of another, or None if that is no valid manifest."""
    changed = json.loads(document)
    _put(changed, path, value)
    try:
        Table.model_validate(changed)  # most values end here, in a tenth of the time
        return manifest.load_document(changed)
    except (ValidationError, manifest.ManifestError):
        return None


def path_text(path: Path, spec: TableSpec) -> str:
    """`spec.schema.fields[city].type`."""
    if path[:3] == ("spec", "schema", "fields") and len(path) > 3:
        field = spec.table_schema.fields[int(path[3])]
        rest = "".join(f".{one}" for one in path[4:])
        return f"spec.schema.fields[{field.name}]{rest}"
    return _joined(path)


def _joined(path: Path) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)[1:]


WALKED: Final = (TableSpec, TableSchema, FieldSpec, IngestionSpec, PartitioningSpec, PartitionFunctionSpec)
"""Models whose fields are varied one by one; of all others the field that holds them is."""


def _varied(model: SpecModel, path: Path) -> Iterator[tuple[Place, Path, Iterator[Any]]]:
    """Every field at and below a model, with values to try."""
    for name, field in type(model).model_fields.items():
        own = (*path, field.alias or to_camel(name))
        value = getattr(model, name)
        yield (type(model), name), own, _values(field.annotation, field.metadata, value)
        yield from _below(value, own)


def _below(value: Any, path: Path) -> Iterator[tuple[Place, Path, Iterator[Any]]]:
    if isinstance(value, WALKED):
        yield from _varied(value, path)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _below(one, (*path, key))
    elif isinstance(value, tuple):
        for number, one in enumerate(value):
            yield from _below(one, (*path, number))


def _values(annotation: Any, metadata: Any, value: Any = None, depth: int = 0) -> Iterator[Any]:
    """JSON that the type may take, most of it other than the value."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _values(arguments[0], arguments[1:], value, depth)
    elif origin in (Union, types.UnionType):
        for one in arguments:
            yield from [None] if one is type(None) else _values(one, (), value, depth)
    elif origin is tuple:
        yield from _lists(arguments[0], value, depth)
    elif origin is not None and issubclass(origin, Mapping):
        yield from _mappings(arguments, value, depth)
    elif isinstance(annotation, type):
        yield from _scalars(annotation, metadata, value, depth)
    else:
        raise TypeError(f"no values are known of a field of type {annotation}")


def _scalars(annotation: type, metadata: Any, value: Any, depth: int) -> Iterator[Any]:
    if issubclass(annotation, SpecModel):
        if depth < 3 and not isinstance(value, WALKED):
            yield from _documents(annotation, value, depth + 1)
    elif issubclass(annotation, Enum):
        yield from [one.value for one in annotation if one is not value]
    elif annotation is bool:
        yield not value
    elif annotation in (int, float):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else 1
        bounds = [getattr(one, name) for one in metadata for name in ("ge", "le") if hasattr(one, name)]
        bounds += [bound for one in metadata for inner in getattr(one, "metadata", ()) for bound in _bounds(inner)]
        yield from [number + 1, number - 1, 7, 0.5, *bounds]
    elif annotation is str:
        yield from [*COLUMNS, *WORDS]
    elif annotation is dict:
        yield {"metadata": {"labels": {"a": "b"}}}
    else:
        raise TypeError(f"no values are known of a field of type {annotation}")


def _bounds(constraint: Any) -> list[Any]:
    return [getattr(constraint, name) for name in ("ge", "le") if hasattr(constraint, name)]


def _documents(model: type[SpecModel], value: Any, depth: int) -> Iterator[Any]:
    """Objects of a model: the present one with one of its own fields changed, or with nothing but what it needs."""
    if isinstance(value, model):
        for name, field in model.model_fields.items():
            own = _plain(value)
            yield from ({**own, field.alias or to_camel(name): one} for one in _few(field, getattr(value, name)))
        return
    needed = {
        field.alias or to_camel(name): list(_values(field.annotation, field.metadata, None, depth))
        for name, field in model.model_fields.items()
        if field.is_required()
    }
    for number in range(max(map(len, needed.values()), default=1)):
        yield {name: found[number % len(found)] for name, found in needed.items()}
    yield from _cross(needed)


def _few(field: FieldInfo, value: Any) -> Iterator[Any]:
    """Some values of a field of a model that is not walked; none of models within it."""
    if not isinstance(value, SpecModel):
        yield from itertools.islice(_values(field.annotation, field.metadata, value, 3), 3)


def _cross(needed: Mapping[str, list[Any]]) -> Iterator[Any]:
    """Each value of the first field with each of the second, where two are needed."""
    if len(needed) == 2:
        (first, ones), (second, others) = needed.items()
        yield from ({first: one, second: other} for one in ones for other in others)


def _lists(item: Any, value: Any, depth: int) -> Iterator[Any]:
    now = [_plain(one) for one in value or ()]
    found = list(_values(item, (), None, depth))
    if now:
        yield from (now[1:], now[::-1])
        yield from ([*now, one] for one in found)
    yield from ([one] for one in found)


def _mappings(arguments: Any, value: Any, depth: int) -> Iterator[Any]:
    now = {key: _plain(one) for key, one in (value or {}).items()}
    keys = list(_values(arguments[0], (), None, depth))
    found = list(_values(arguments[1], (), None, depth))
    if now:
        yield {}
    # A key decides mostly whether a value fits: each key with each of the first values, and the reverse.
    yield from ({**now, key: one} for key in keys[: len(COLUMNS)] for one in found[:40])
    yield from ({key: one} for key in keys[len(COLUMNS) :] for one in found[:4])


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(value, SpecModel) else value


def _put(document: Any, path: Path, value: Any) -> None:
    for one in path[:-1]:
        document = document[one]
    if value is None:
        document.pop(path[-1], None)
    else:
        document[path[-1]] = value
