"""Checks of an UpsertConfig that need more than one field, on the plain document, and those against its Table.

The same for what a Table says itself in spec.upsert.config: paths are of whichever document is at fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from merlot.spec.manifest.problems import Problem, suggestion
from merlot.spec.primary_key import is_whole
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.table import Table, TableSpec
from merlot.spec.upsert import UpsertConfig, UpsertConfigSpec
from merlot.spec.upserting import Enablement, HashFunction, PartialUpsertStrategy, SnapshotStore, UpsertMode, UpsertSpec
from merlot.values.durations import duration_ms
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
NUMBERS = (TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL)


COMPARED: Final = (TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BOOLEAN)
INLINE: Final = "spec.upsert.config"
NAMED: Final = "spec.upsert.configRef"
NOT_FOR_FIRST_ROWS: Final = (
    "deleteRecordColumn",
    "deletedKeysTtl",
    "dropOutOfOrderRecord",
    "outOfOrderRecordColumn",
)
"""What mode DEDUP has no use for."""
_TTL_NAMES: Final = ("primaryKeyTtl", "ttl", "TtlValue")


def check(document: JsonObject) -> Iterator[Problem]:
    """The problems between the fields of an UpsertConfig document."""
    return _check(_mapping(document.get("spec")))


def check_inline(table: JsonObject) -> Iterator[Problem]:
    """The problems of the spec.upsert of a Table document, as far as it says itself what it wants."""
    upsert = _mapping(table.get("upsert"))
    if len([name for name in ("configRef", "config") if name in upsert]) != 1:
        yield Problem("spec.upsert", "write configRef, or config: one of the two")
    if not _mapping(table.get("schema")).get("primaryKey"):
        yield Problem("spec.schema.primaryKey", "an upsert table needs one: it tells which rows replace each other")
    yield from _at(INLINE, _check(_mapping(upsert.get("config"))))


def _at(path: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    """With paths that begin there instead of with `spec`."""
    for problem in problems:
        yield replace(problem, path=path + problem.path.removeprefix("spec"))


def _check(spec: JsonObject) -> Iterator[Problem]:
    yield from _check_mode(spec)
    yield from _check_hash(spec)
    yield from _check_order(spec)
    yield from _check_ttl(spec)
    yield from _check_snapshots(spec)
    yield from _check_compaction(spec)
    yield from _check_consistency(spec)
    columns = spec.get("comparisonColumns")
    listed = columns if isinstance(columns, list) else []
    for place, name in enumerate(listed):
        path = f"spec.comparisonColumns[{place}]"
        if name in listed[:place]:
            yield Problem(path, f'"{name}" is named twice; keep one')
        if isinstance(name, str) and name in _mapping(spec.get("partialUpsertStrategies")):
            yield Problem(f"spec.partialUpsertStrategies.{name}", "a comparison column is never merged; remove it")


def _check_mode(spec: JsonObject) -> Iterator[Problem]:
    mode, columns = spec.get("mode"), spec.get("comparisonColumns")
    if mode not in (UpsertMode.FULL, UpsertMode.DEDUP):
        return
    does = "replaces whole rows" if mode == UpsertMode.FULL else "keeps first rows as they are"
    for key in ("partialUpsertStrategies", "defaultPartialUpsertStrategy"):
        if key in spec and spec[key] not in ({}, PartialUpsertStrategy.OVERWRITE):
            yield Problem(f"spec.{key}", f"{mode} {does}; write mode: PARTIAL, or remove it")
    if mode == UpsertMode.FULL:
        return
    for key in NOT_FOR_FIRST_ROWS:
        if spec.get(key) not in (None, False):
            yield Problem(f"spec.{key}", "mode DEDUP keeps the first row of a key, whatever comes; remove it")
    if isinstance(columns, list) and len(columns) > 1:
        yield Problem("spec.comparisonColumns", "mode DEDUP compares nothing: write the one column that keys expire by")


def _check_hash(spec: JsonObject) -> Iterator[Problem]:
    name = spec.get("hashFunction")
    if name in tuple(HashFunction) and name != HashFunction.NONE:
        text = f"{name} is not what keys are hashed by: short ones are kept whole, others as 128 bits of another hash"
        yield Problem("spec.hashFunction", f"{text}; remove it, answers are the same")


def _check_order(spec: JsonObject) -> Iterator[Problem]:
    if spec.get("dropOutOfOrderRecord") is True and "outOfOrderRecordColumn" in spec:
        text = "rows out of order are dropped, so none is left to be marked; remove it or dropOutOfOrderRecord"
        yield Problem("spec.outOfOrderRecordColumn", text)


def _check_ttl(spec: JsonObject) -> Iterator[Problem]:
    names = [name for name in _TTL_NAMES if name in spec]
    has_ttl = bool(names)
    columns = spec.get("comparisonColumns")
    if len(names) > 1:
        yield Problem(f"spec.{names[1]}", f"says what {names[0]} says; write one of them")
    if ("TtlUnit" in spec) != ("TtlValue" in spec):
        yield Problem("spec.TtlUnit", "TtlUnit and TtlValue go together; or write primaryKeyTtl, such as 1d")
    if has_ttl and isinstance(columns, list) and len(columns) > 1:
        yield Problem(f"spec.{names[0]}", f"needs one comparison column, a number or a time; there are {len(columns)}")
    if "maxFutureSkew" in spec and not has_ttl:
        yield Problem("spec.maxFutureSkew", "needs primaryKeyTtl; without it no key expires")
    yield from _check_skew(spec)
    if "deletedKeysTtl" in spec and "deleteRecordColumn" not in spec:
        yield Problem("spec.deletedKeysTtl", "needs deleteRecordColumn, which tells what is deleted")
    for name in ("skipLateEvents", "isSkipLateEvents"):
        if spec.get(name) is True and not has_ttl:
            yield Problem(f"spec.{name}", "needs primaryKeyTtl, which tells what is late")
    if spec.get("pruning", "COMMIT") in ("SCAN", "ROTATION") and not has_ttl:
        yield Problem("spec.pruning", "needs primaryKeyTtl; without it no key expires")
    if "pruningInterval" in spec and spec.get("pruning") != "SCAN":
        yield Problem("spec.pruningInterval", "only pruning: SCAN has an interval; remove it")


def _check_skew(spec: JsonObject) -> Iterator[Problem]:
    if ("maxFutureSkew" in spec) != ("messageTimeColumn" in spec):
        text = "maxFutureSkew and messageTimeColumn go together: one says how far ahead, the other of what"
        yield Problem("spec.maxFutureSkew", text)
    if "maxFutureSkew" in spec and str(spec["maxFutureSkew"]).isdecimal():
        yield Problem("spec.maxFutureSkew", "write a duration such as 10m; it is compared with the times of messages")
    if "maxFutureSkew" in spec and spec.get("dropOutOfOrderRecord") is True:
        text = "does not go with dropOutOfOrderRecord: rows that are dropped could make keys expire, and leave no trace"
        yield Problem("spec.maxFutureSkew", text)


def _check_snapshots(spec: JsonObject) -> Iterator[Problem]:
    if spec.get("snapshot", "DEFAULT") == "ENABLE":
        if spec.get("mode") == UpsertMode.DEDUP:
            text = "DEDUP has none: every row that is stored is valid, and a restart reads the keys; remove it"
            yield Problem("spec.snapshot", text)
        return
    if spec.get("snapshotStore", SnapshotStore.DEEP_STORE) != SnapshotStore.DEEP_STORE:
        yield Problem("spec.snapshotStore", "needs snapshot: ENABLE, or nothing is kept; remove it")
    if spec.get("preload") == "ENABLE":
        yield Problem("spec.preload", "needs snapshot: ENABLE, which are what keys are taken from")


def _check_compaction(spec: JsonObject) -> Iterator[Problem]:
    """Whoever builds the index anew reads what is stored: of rows that are gone it cannot know when keys expired,
    unless a checkpoint tells."""
    if spec.get("compaction") is None:
        return
    path = "spec.compaction"
    if spec.get("mode") == UpsertMode.DEDUP:
        yield Problem(path, "mode DEDUP stores no row that is replaced; remove it")
        return
    has_ttl = [name for name in (*_TTL_NAMES, "deletedKeysTtl") if name in spec]
    is_kept = spec.get("snapshot") == "ENABLE" and spec.get("snapshotStore", "DEEP_STORE") == "DEEP_STORE"
    if has_ttl and not is_kept:
        text = f"with {has_ttl[0]} needs snapshot: ENABLE, in the DEEP_STORE"
        yield Problem(path, f"{text}: which keys have expired is decided by rows that it removes")
    compaction = spec["compaction"]
    if has_ttl and isinstance(compaction, dict) and compaction.get("merge") is not None:
        yield Problem(f"{path}.merge", f"does not go with {has_ttl[0]} in this version; remove it: segments stay apart")
    if "maxFutureSkew" in spec:
        yield Problem(path, "does not go with maxFutureSkew: rows that it removes tell how far time has come")


def _check_consistency(spec: JsonObject) -> Iterator[Problem]:
    mode = spec.get("consistencyMode", "NONE")
    if mode not in ("SYNC", "SNAPSHOT"):
        return
    if spec.get("newSegmentTrackingTimeMs") == 0:
        yield Problem("spec.newSegmentTrackingTimeMs", f"consistencyMode {mode} needs more than 0")
    if spec.get("dropOutOfOrderRecord") is True:
        yield Problem("spec.dropOutOfOrderRecord", f"does not go with consistencyMode {mode}; remove one of them")
    if "outOfOrderRecordColumn" in spec:
        yield Problem("spec.outOfOrderRecordColumn", f"does not go with consistencyMode {mode}; remove one of them")


def against_table(spec: UpsertSpec, table: TableSpec) -> list[Problem]:
    """Why this table cannot be upserted like this; none if it can. Paths are of the UpsertConfig, or of the table if
    that says itself what it wants."""
    problems = [*_table_problems(spec, table), *_not_executed(spec)]
    is_inline = table.upsert is not None and table.upsert.config is not None
    return list(_at(INLINE, problems)) if is_inline else problems


def against_named(config: UpsertConfigSpec, table: Table) -> list[Problem]:
    """The same of an UpsertConfig that the table names, with the backfill that it asks for."""
    problems, filling = against_table(config, table.spec), config.backfill
    if filling is not None and filling.table == table.metadata.name and table.spec.ingestion.stream is None:
        text = f'table "{filling.table}" has no stream that could be read again; publish its segments again'
        problems.append(Problem("spec.backfill.table", text))
    return problems


class Settings(NamedTuple):
    """Upsert settings of a Table."""

    spec: UpsertSpec
    path: str
    """Path in the Table's document that declares or names them."""
    config: UpsertConfig | None = None
    """The UpsertConfig that they are of; None if the Table declares them itself."""

    def problems_of(self, table: Table) -> list[Problem]:
        """List why the Table cannot be upserted by these settings, with paths of the Table."""
        if self.config is None:
            return against_table(self.spec, table.spec)
        found = against_named(self.config.spec, table)
        return [Problem(self.path, f'"{self.config.metadata.name}" does not fit: {one}') for one in found]


def settings_of(table: Table, configs: Iterable[UpsertConfig | None]) -> Settings | None:
    """Return the upsert settings that a Table declares, or those of the UpsertConfig that it names; None if it has
    none yet. configs: known UpsertConfigs, in the order of preference; the first one of the name counts. Pure."""
    declared = table.spec.upsert
    if declared is None:
        return None
    if declared.config is not None:
        return Settings(declared.config, INLINE)
    for config in configs:
        if config is not None and config.metadata.name == declared.config_ref:
            return Settings(config.spec, NAMED, config)
    return None


def _not_executed(spec: UpsertSpec) -> Iterator[Problem]:
    """What would be accepted and ignored."""
    if spec.snapshot_store is SnapshotStore.SEGMENT:
        text = "SEGMENT does not exist: sealed files are not written to again; write DEEP_STORE or LOCAL"
        yield Problem("spec.snapshotStore", text)


def _table_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    if not table.table_schema.primary_key:
        yield Problem("spec", "the table has no schema.primaryKey, which tells rows of the same key")
    yield from _layout_problems(table)
    if table.ingestion.stream is None:
        yield from _batch_problems(spec)
    if not spec.comparison_columns and table.time_column is None:
        yield Problem("spec.comparisonColumns", "is missing, and the table has no timeColumn to compare by")
    for place, name in enumerate(spec.comparison_columns):
        path = f"spec.comparisonColumns[{place}]"
        yield from _single_value(path, name, table)
        field = table.table_schema.field(name)
        if field is not None and field.role is not FieldRole.DATE_TIME and field.type not in COMPARED:
            yield Problem(path, f'"{name}" is {field.type}; rows are compared by a number or a time')
    yield from _ttl_problems(spec, table)
    yield from _skew_problems(spec, table)
    yield from _hash_problems(spec, table)
    yield from _retention_problems(spec, table)
    if spec.delete_record_column is not None:
        types = (TypeName.BOOLEAN, TypeName.STRING, *NUMBERS)
        yield from _single_value("spec.deleteRecordColumn", spec.delete_record_column, table, types)
    if spec.out_of_order_record_column is not None:
        name = spec.out_of_order_record_column
        yield from _single_value("spec.outOfOrderRecordColumn", name, table, (TypeName.BOOLEAN,))
    yield from _merging_problems(spec, table)


def _layout_problems(table: TableSpec) -> Iterator[Problem]:
    """What the table would have to be otherwise: its rows come from a stream or from batches, each key in one
    partition, and those of a stream stay in the order in which they came."""
    ingestion, partitioning = table.ingestion, table.partitioning
    is_streamed = ingestion.stream is not None
    if is_streamed and ingestion.batch:
        text = "the table has ingestion.batch beside ingestion.stream; rows of an upsert table come by one of them"
        yield Problem("spec", text)
    if is_streamed and table.indexing.sorted_columns:
        names = ", ".join(table.indexing.sorted_columns)
        yield Problem("spec", f"the table has indexing.sortedColumns ({names}); rows stay in the order of the stream")
    if table.indexing.has_star_trees:
        field = "starTreeIndexConfigs" if table.indexing.star_tree_index_configs else "starTree"
        text = f"the table has indexing.{field}; rows that are replaced cannot be taken out of a star-tree"
        yield Problem("spec", text)
    if partitioning is None:
        text = "the table declares no partitioning; name the columns of the key by which producers choose a partition"
        yield Problem("spec", text)
        return
    if not is_streamed and len(partitioning.columns) > 1:
        names = ", ".join(partitioning.columns)
        yield Problem("spec", f"the table is partitioned by several columns ({names}); upserts of batches go by one")
    for name in partitioning.columns:
        if name not in table.table_schema.primary_key:
            text = f'the table is partitioned by "{name}", which is not in schema.primaryKey: rows of a key would part'
            yield Problem("spec", text)


def _batch_problems(spec: UpsertSpec) -> Iterator[Problem]:
    """What needs rows that come in an order: which rows of batches are valid follows from the segments there are."""
    why = "of a table without ingestion.stream"
    if spec.mode is not UpsertMode.FULL:
        yield Problem("spec.mode", f"{spec.mode} needs the order of a stream; write FULL {why}")
    if spec.time_to_live is not None:
        yield Problem(_ttl_path(spec), f"keys expire in the order of a stream; remove it {why}")
    asked: tuple[tuple[str, bool, str], ...] = (
        ("deletedKeysTtl", spec.deleted_keys_ttl is not None, "keys expire in the order of a stream"),
        ("dropOutOfOrderRecord", spec.drop_out_of_order_record, "rows of batches are stored already"),
        ("outOfOrderRecordColumn", spec.out_of_order_record_column is not None, "rows of batches are stored already"),
        ("snapshot", spec.snapshots_in is not None, "snapshots are of a stream's segments"),
        ("compaction", spec.compaction is not None, "compaction is of a stream's segments"),
    )
    for name, is_asked, text in asked:
        if is_asked:
            yield Problem(f"spec.{name}", f"{text}; remove it {why}")


def _ttl_path(spec: UpsertSpec) -> str:
    return f"spec.{'primaryKeyTtl' if spec.primary_key_ttl is not None else 'ttl'}"


def _ttl_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    if spec.time_to_live is None:
        return
    path = _ttl_path(spec)
    name = spec.comparison_columns[0] if spec.comparison_columns else table.time_column
    field = None if name is None else table.table_schema.field(name)
    if field is None:
        return
    is_time = field.role is FieldRole.DATE_TIME
    if spec.mode is UpsertMode.DEDUP and field.type in (TypeName.FLOAT, TypeName.DOUBLE):
        yield Problem(path, f'mode DEDUP expires keys by whole numbers and times; "{name}" is {field.type}')
    if not is_time and field.type not in NUMBERS:
        yield Problem(path, f'the comparison column "{name}" is {field.type}, no number and no time')
    elif not is_time and not spec.time_to_live.isdecimal():
        text = f'the comparison column "{name}" is no time; write a bare number in its units, not {spec.time_to_live}'
        yield Problem(path, text)
    elif is_time and spec.time_to_live.isdecimal():
        yield Problem(path, f'the comparison column "{name}" is a time; write a duration such as 30d or 12h')
    elif is_time and table.ingestion.stream is not None:
        flush = table.ingestion.stream.flush
        if duration_ms(spec.time_to_live) <= flush.age_ms:
            text = f"{spec.time_to_live} is not longer than ingestion.stream.flush.age, {flush.age}: keys would expire"
            yield Problem(path, f"{text} before their segment is sealed")


def _retention_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    if table.retention is None or table.ingestion.stream is None or spec.mode is UpsertMode.DEDUP:
        return
    if spec.snapshot is Enablement.DISABLE:
        text = f"the table has retention {table.retention}, and a restart would show rows again that removed ones hid"
        yield Problem("spec.snapshot", f"{text}; write ENABLE, or remove it")


def _hash_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    if spec.hash_function is HashFunction.NONE and not is_whole(table.table_schema):
        key = ", ".join(table.table_schema.primary_key)
        text = f"keys ({key}) do not fit into 16 bytes; they are kept as 128 bits of a hash: remove hashFunction"
        yield Problem("spec.hashFunction", text)


def _skew_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    name, stream = spec.message_time_column, table.ingestion.stream
    if name is None:
        return
    yield from _single_value("spec.messageTimeColumn", name, table, (TypeName.TIMESTAMP,))
    if stream is None or stream.metadata.get(name) != "timestamp":
        text = f'the table does not say ingestion.stream.metadata: {{{name}: timestamp}}, which fills "{name}"'
        yield Problem("spec.messageTimeColumn", text)
    if spec.comparison(table.time_column) != (table.time_column,):
        yield Problem("spec.maxFutureSkew", "needs the table's timeColumn as comparison column, which is never null")


def _merging_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    """Of strategies that are named, and of columns that the default does not fit."""
    for name, strategy in spec.partial_upsert_strategies.items():
        path = f"spec.partialUpsertStrategies.{name}"
        field = _field(table, name)
        if field is None:
            yield Problem(path, f'the table has no column "{name}"{suggestion(name, table.table_schema.names)}')
        elif name in table.table_schema.primary_key:
            yield Problem(path, "a column of the primary key is never merged; remove it")
        elif name in spec.comparison(table.time_column):
            yield Problem(path, "a comparison column is never merged; remove it")
        elif name in _deciding(spec):
            yield Problem(path, "a column that says what a row does to its key is never merged; remove it")
        elif (problem := _unfit(strategy, field)) is not None:
            yield Problem(path, problem)
    if spec.mode is not UpsertMode.PARTIAL:
        return
    decided: set[str | None] = {*table.table_schema.primary_key, *spec.comparison(table.time_column)}
    decided |= {*spec.partial_upsert_strategies, *_deciding(spec)}
    for field in table.table_schema.fields:
        problem = None if field.name in decided else _unfit(spec.default_partial_upsert_strategy, field)
        if problem is not None:
            text = f"{problem}; name its strategy in partialUpsertStrategies"
            yield Problem("spec.defaultPartialUpsertStrategy", text)


def _deciding(spec: UpsertSpec) -> tuple[str | None, ...]:
    """Columns that strategies do not count for."""
    return spec.delete_record_column, spec.out_of_order_record_column, spec.message_time_column


def _unfit(strategy: str, field: FieldSpec) -> str | None:
    """Why a column cannot be merged like this."""
    name, kind = field.name, f"{field.type}"
    match strategy:
        case PartialUpsertStrategy.APPEND | PartialUpsertStrategy.UNION if not field.multi_value:
            return f'{strategy} needs a multi-valued column; "{name}" has one value'
        case PartialUpsertStrategy.INCREMENT if field.multi_value or field.type not in NUMBERS:
            return f'INCREMENT needs a number; "{name}" is {kind}'
        case PartialUpsertStrategy.MAX | PartialUpsertStrategy.MIN if field.multi_value:
            return f'{strategy} needs one value per row; "{name}" is multi-valued'
    return None  # whether there is an entry point of a dotted name, servers know


def _single_value(path: str, name: str, table: TableSpec, types: tuple[TypeName, ...] = ()) -> Iterator[Problem]:
    field = _field(table, name)
    if field is None:
        yield Problem(path, f'the table has no column "{name}"{suggestion(name, table.table_schema.names)}')
    elif field.multi_value:
        yield Problem(path, f'"{name}" is multi-valued; it needs one value per row')
    elif types and field.type not in types:
        yield Problem(path, f'"{name}" is {field.type}; it needs {" or ".join(types)}')


def _field(table: TableSpec, name: str) -> FieldSpec | None:
    return table.table_schema.field(name)


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}
