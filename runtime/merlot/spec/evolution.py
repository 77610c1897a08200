"""Decide what may change on a live table: a pure comparison of two specs.

Allowed without a restart: adding a column (older segments answer its default value), widening a type without loss, and
everything that only affects the future (replication, retention, indexing, partitioning, ingestion, limits, tenants).
Refused: whatever would change the meaning of existing segments. A dimension that is widened therefore keeps its default
null value, which would otherwise become that of the wider type.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from pydantic.alias_generators import to_camel

from merlot.spec.manifest.problems import ManifestProblem
from merlot.spec.schema import WIDER_TYPES, FieldSpec
from merlot.spec.shape import LIMITED
from merlot.spec.stream import StreamIngestion
from merlot.spec.table import TableSpec
from merlot.spec.upserting import UpsertSpec
from merlot.values.types import TypeName

DECIDES_ROWS = (
    "mode",
    "comparison_columns",
    "delete_record_column",
    "partial_upsert_strategies",
    "default_partial_upsert_strategy",
)
"""Fields of upsert settings that cannot change."""

NEW_TABLE = "create a table under another name and ingest again"


def compare(old: TableSpec, new: TableSpec) -> tuple[ManifestProblem, ...]:
    """Return the reasons why a live table cannot become `new`; empty if it can, without a restart."""
    return tuple(chain(_compare_columns(old, new), _compare_table(old, new)))


def can_widen(old: TypeName, new: TypeName) -> bool:
    """Return True if `new` can hold every value of `old`."""
    return old == new or new in WIDER_TYPES.get(old, frozenset())


def _compare_columns(old: TableSpec, new: TableSpec) -> Iterator[ManifestProblem]:
    for field in old.table_schema.fields:
        if field.name not in new.table_schema.names:
            yield ManifestProblem(
                "spec.schema.fields",
                f"column {field.name!r} is gone; keep it, since segments hold it and queries may name it",
            )
    for position, field in enumerate(new.table_schema.fields):
        before = old.table_schema.field(field.name)
        if before is not None:
            yield from _compare_field(f"spec.schema.fields[{position}]", before, field)


def _compare_field(path: str, old: FieldSpec, new: FieldSpec) -> Iterator[ManifestProblem]:
    column = f"column {old.name!r}"
    if not can_widen(old.type, new.type):
        wider = ", ".join(sorted(WIDER_TYPES.get(old.type, ())))
        allowed = f"keep {old.type} or widen it to {wider}" if wider else f"keep {old.type}"
        message = f"{column} is {old.type} and cannot become {new.type}; {allowed}, or add a column"
        yield ManifestProblem(f"{path}.type", message)
    if old.multi_value != new.multi_value:
        shape = "multi-valued" if old.multi_value else "single-valued"
        yield ManifestProblem(f"{path}.multiValue", f"{column} is {shape} and stays so; add a column under a new name")
    if old.role != new.role:
        yield ManifestProblem(
            f"{path}.role", f"{column} is a {old.role} and cannot become a {new.role}; keep {old.role}"
        )
    if (old.format or "TIMESTAMP") != (new.format or "TIMESTAMP"):
        message = f"{column} holds values as {old.format}, which cannot be read as {new.format}; keep {old.format}"
        yield ManifestProblem(f"{path}.format", message)
    if can_widen(old.type, new.type) and old.role == new.role and old.default_value != new.default_value:
        value = old.default_value
        default = f"defaultNullValue: {value.hex() if isinstance(value, bytes) else value}"
        shown = f"left out, or {default}" if old.default_null_value is None and old.type is new.type else default
        message = f"segments already store the default of {column}; keep it as it was ({shown})"
        yield ManifestProblem(f"{path}.defaultNullValue", message)


def _compare_table(old: TableSpec, new: TableSpec) -> Iterator[ManifestProblem]:
    if old.time_column != new.time_column:
        before, after = old.time_column or "none", new.time_column or "none"
        yield ManifestProblem("spec.timeColumn", f"cannot change from {before} to {after}; {NEW_TABLE}")
    if old.table_schema.primary_key != new.table_schema.primary_key:
        before = ", ".join(old.table_schema.primary_key) or "none"
        yield ManifestProblem("spec.schema.primaryKey", f"cannot change (it is: {before}); {NEW_TABLE}")
    if old.ingestion.days_per_segment != new.ingestion.days_per_segment:
        days = f"from {old.ingestion.days_per_segment} to {new.ingestion.days_per_segment}"
        message = f"cannot change {days}: rows would be both in segments of the one and of the other; {NEW_TABLE}"
        yield ManifestProblem("spec.ingestion.daysPerSegment", message)
    before, after = _deep_store(old), _deep_store(new)
    if before != after:
        message = f"cannot change from {before} to {after}: the segments' files are in the former; {NEW_TABLE}"
        yield ManifestProblem("spec.deepStore.uri", message)
    if old.push_type != new.push_type:
        yield ManifestProblem("spec.pushType", f"cannot change from {old.push_type} to {new.push_type}; {NEW_TABLE}")
    if (old.upsert is None) != (new.upsert is None):
        action = "be added" if old.upsert is None else "be taken away"
        yield ManifestProblem("spec.upsert", f"cannot {action}: rows that are there would change; {NEW_TABLE}")
    elif old.upsert is not None and new.upsert is not None and old.upsert.config and new.upsert.config:
        yield from compare_upserts(old.upsert.config, new.upsert.config, "spec.upsert.config")
        yield from compare_compared(old, new, new.upsert.config)
    if old.upsert is not None and new.upsert is not None and old.ingestion.stream is None:
        yield from _compare_batch_upserts(old, new)
    yield from _compare_streams(old.ingestion.stream, new.ingestion.stream)


def compare_upserts(old: UpsertSpec, new: UpsertSpec, path: str) -> Iterator[ManifestProblem]:
    """Yield a problem for each changed setting that decides which row of a key is the newest, or what becomes of it."""
    for name in DECIDES_ROWS:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            declared = _as_declared(before)
            message = f"cannot change on tables that have rows: keep it ({declared}), or {NEW_TABLE}"
            yield ManifestProblem(f"{path}.{to_camel(name)}", message)


def _as_declared(value: object) -> str:
    """Return a setting as a manifest writes it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {item}" for name, item in value.items()) or "none"
    if isinstance(value, Collection) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return str(value or "none")


def compare_compared(old: TableSpec, new: TableSpec, upsert: UpsertSpec) -> Iterator[ManifestProblem]:
    """Yield a problem for each key or comparison column whose type or maximum length changes. Stored rows would then
    have other keys, or another order."""
    compared = upsert.comparison_columns or ((old.time_column,) if old.time_column else ())
    for name in dict.fromkeys((*old.table_schema.primary_key, *compared)):
        before, after = old.table_schema.field(name), new.table_schema.field(name)
        if before is None or after is None:
            continue
        decides = f"column {name!r} decides which row of a key is the newest one"
        if before.type is not after.type:
            yield ManifestProblem("spec.schema.fields", f"{decides}: keep {before.type}; {NEW_TABLE}")
        elif before.type in LIMITED and before.longest != after.longest:
            yield ManifestProblem("spec.schema.fields", f"{decides}: keep maxLength {before.longest}; {NEW_TABLE}")


def _compare_batch_upserts(old: TableSpec, new: TableSpec) -> Iterator[ManifestProblem]:
    """Yield a problem if the partitioning changes, since rows of a key meet only in segments of one partition, or if a
    stream is added."""
    if new.ingestion.stream is not None:
        yield ManifestProblem("spec.ingestion.stream", f"cannot be added to an upsert table of batches; {NEW_TABLE}")
    before, after = (None if spec.partitioning is None else spec.partitioning.columns for spec in (old, new))
    if before != after:
        message = f"cannot change: segments of an upsert table are partitioned as it was; {NEW_TABLE}"
        yield ManifestProblem("spec.partitioning.columns", message)


def _compare_streams(old: StreamIngestion | None, new: StreamIngestion | None) -> Iterator[ManifestProblem]:
    """Yield a problem if the stream changes, since offsets in segments are valid for one stream only."""
    if old is None:
        return
    if new is None:
        message = "the stream is gone; keep it, since segments go on where they ended (pause it to consume no more)"
        yield ManifestProblem("spec.ingestion.stream", message)
        return
    for name in ("type", "topic", "start"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            message = f"cannot change from {before} to {after}: segments hold offsets; {NEW_TABLE}"
            yield ManifestProblem(f"spec.ingestion.stream.{name}", message)


def _deep_store(spec: TableSpec) -> str:
    """Return the deep store's URI without options, such as its region."""
    declared = spec.deep_store_uri
    return "the cluster's own" if declared is None else declared.partition("?")[0].rstrip("/")
