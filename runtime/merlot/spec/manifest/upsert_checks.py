"""Check upsert settings against the Table that has them. A problem's path is that of the document at fault.

Rules between the settings themselves are in `merlot.spec.rules.upsert`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from merlot.spec.manifest.problems import ManifestProblem, suggestion
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.table import Table, TableSpec
from merlot.spec.upsert import UpsertConfig, UpsertConfigSpec
from merlot.spec.upserting import Enablement, PartialUpsertStrategy, UpsertMode, UpsertSpec
from merlot.values.durations import duration_ms
from merlot.values.types import TypeName

NUMBERS = (TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL)


COMPARED: Final = (TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BOOLEAN)
_TTL: Final = "spec.primaryKeyTtl"
INLINE: Final = "spec.upsert.config"
NAMED: Final = "spec.upsert.configRef"


def _at(path: str, problems: Iterable[ManifestProblem]) -> Iterator[ManifestProblem]:
    """Yield the problems with `path` in place of the leading `spec`."""
    for problem in problems:
        yield replace(problem, path=path + problem.path.removeprefix("spec"))


def against_table(spec: UpsertSpec, table: TableSpec) -> list[ManifestProblem]:
    """Return the reasons why this table cannot be upserted by these settings; empty if it can. Paths are those of the
    UpsertConfig, or of the table if it holds the settings itself."""
    problems = list(_table_problems(spec, table))
    is_inline = table.upsert is not None and table.upsert.config is not None
    return list(_at(INLINE, problems)) if is_inline else problems


def against_named(config: UpsertConfigSpec, table: Table) -> list[ManifestProblem]:
    """Do the same as `against_table` for an UpsertConfig that the table names, and check the backfill that it
    requests."""
    problems, filling = against_table(config, table.spec), config.backfill
    if filling is not None and filling.table == table.metadata.name and table.spec.ingestion.stream is None:
        text = f'table "{filling.table}" has no stream that could be read again; publish its segments again'
        problems.append(ManifestProblem("spec.backfill.table", text))
    return problems


class UpsertSettings(NamedTuple):
    """Upsert settings of a Table."""

    spec: UpsertSpec
    path: str
    """Path of the field of the Table that holds or names them."""
    config: UpsertConfig | None = None
    """UpsertConfig that holds them; None if the Table holds them itself."""

    def problems_of(self, table: Table) -> list[ManifestProblem]:
        """Return the reasons why the Table cannot be upserted by these settings, with paths of the Table."""
        if self.config is None:
            return against_table(self.spec, table.spec)
        problems = against_named(self.config.spec, table)
        return [
            ManifestProblem(self.path, f'"{self.config.metadata.name}" does not fit: {problem}') for problem in problems
        ]


def settings_of(table: Table, configs: Iterable[UpsertConfig | None]) -> UpsertSettings | None:
    """Return the upsert settings that a Table holds, or those of the UpsertConfig that it names; None if there are none
    yet. configs: candidates in order of preference; the first with the right name is taken."""
    declared = table.spec.upsert
    if declared is None:
        return None
    if declared.config is not None:
        return UpsertSettings(declared.config, INLINE)
    for config in configs:
        if config is not None and config.metadata.name == declared.config_ref:
            return UpsertSettings(config.spec, NAMED, config)
    return None


def _table_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    if not table.table_schema.primary_key:
        yield ManifestProblem("spec", "the table has no schema.primaryKey, which tells rows of the same key")
    yield from _layout_problems(table)
    if table.ingestion.stream is None:
        yield from _batch_problems(spec)
    if not spec.comparison_columns and table.time_column is None:
        yield ManifestProblem("spec.comparisonColumns", "is missing, and the table has no timeColumn to compare by")
    for place, name in enumerate(spec.comparison_columns):
        path = f"spec.comparisonColumns[{place}]"
        yield from _single_value(path, name, table)
        field = table.table_schema.field(name)
        if field is not None and field.role is not FieldRole.DATE_TIME and field.type not in COMPARED:
            yield ManifestProblem(path, f'"{name}" is {field.type}; rows are compared by a number or a time')
    yield from _ttl_problems(spec, table)
    yield from _skew_problems(spec, table)
    yield from _retention_problems(spec, table)
    if spec.delete_record_column is not None:
        types = (TypeName.BOOLEAN, TypeName.STRING, *NUMBERS)
        yield from _single_value("spec.deleteRecordColumn", spec.delete_record_column, table, types)
    if spec.out_of_order_record_column is not None:
        name = spec.out_of_order_record_column
        yield from _single_value("spec.outOfOrderRecordColumn", name, table, (TypeName.BOOLEAN,))
    yield from _merging_problems(spec, table)


def _layout_problems(table: TableSpec) -> Iterator[ManifestProblem]:
    """Yield a problem unless the table's layout allows upserts: rows come from a stream or from batches, a key stays in
    one partition, and rows of a stream stay in the order in which they came."""
    ingestion, partitioning = table.ingestion, table.partitioning
    is_streamed = ingestion.stream is not None
    if is_streamed and ingestion.batch:
        text = "the table has ingestion.batch beside ingestion.stream; rows of an upsert table come by one of them"
        yield ManifestProblem("spec", text)
    if is_streamed and table.indexing.sorted_columns:
        names = ", ".join(table.indexing.sorted_columns)
        yield ManifestProblem(
            "spec", f"the table has indexing.sortedColumns ({names}); rows stay in the order of the stream"
        )
    if table.indexing.has_star_trees:
        field = "starTreeIndexConfigs" if table.indexing.star_tree_index_configs else "starTree"
        text = f"the table has indexing.{field}; rows that are replaced cannot be taken out of a star-tree"
        yield ManifestProblem("spec", text)
    if partitioning is None:
        text = "the table declares no partitioning; name the columns of the key by which producers choose a partition"
        yield ManifestProblem("spec", text)
        return
    if not is_streamed and len(partitioning.columns) > 1:
        names = ", ".join(partitioning.columns)
        yield ManifestProblem(
            "spec", f"the table is partitioned by several columns ({names}); upserts of batches go by one"
        )
    for name in partitioning.columns:
        if name not in table.table_schema.primary_key:
            text = f'the table is partitioned by "{name}", which is not in schema.primaryKey: rows of a key would part'
            yield ManifestProblem("spec", text)


def _batch_problems(spec: UpsertSpec) -> Iterator[ManifestProblem]:
    """Yield a problem for each setting that needs ordered rows. Batches have no order: which of their rows are valid
    follows from the existing segments."""
    why = "of a table without ingestion.stream"
    if spec.mode is not UpsertMode.FULL:
        yield ManifestProblem("spec.mode", f"{spec.mode} needs the order of a stream; write FULL {why}")
    if spec.primary_key_ttl is not None:
        yield ManifestProblem(_TTL, f"keys expire in the order of a stream; remove it {why}")
    refused: tuple[tuple[str, bool, str], ...] = (
        ("deletedKeysTtl", spec.deleted_keys_ttl is not None, "keys expire in the order of a stream"),
        ("dropOutOfOrderRecord", spec.drop_out_of_order_record, "rows of batches are stored already"),
        ("outOfOrderRecordColumn", spec.out_of_order_record_column is not None, "rows of batches are stored already"),
        ("snapshot", spec.snapshots_in is not None, "snapshots are of a stream's segments"),
        ("compaction", spec.compaction is not None, "compaction is of a stream's segments"),
    )
    for name, is_asked, text in refused:
        if is_asked:
            yield ManifestProblem(f"spec.{name}", f"{text}; remove it {why}")


def _ttl_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    name = spec.comparison_columns[0] if spec.comparison_columns else table.time_column
    field = None if name is None else table.table_schema.field(name)
    if field is None:
        return
    for path, ttl in ((_TTL, spec.primary_key_ttl), ("spec.deletedKeysTtl", spec.deleted_keys_ttl)):
        problem = None if ttl is None else _unit_problem(ttl, field)
        if problem is not None:
            yield ManifestProblem(path, problem)
    if spec.primary_key_ttl is not None:
        yield from _expiry_problems(spec, spec.primary_key_ttl, field, table)


def _unit_problem(ttl: str, field: FieldSpec) -> str | None:
    """Return why a time to live cannot be measured by a comparison column; None if it can."""
    match field.role is FieldRole.DATE_TIME, ttl.isdecimal():
        case False, _ if field.type not in NUMBERS:
            return f'the comparison column "{field.name}" is {field.type}, no number and no time'
        case False, False:
            return f'the comparison column "{field.name}" is no time; write a bare number in its units, not {ttl}'
        case True, True:
            return f'the comparison column "{field.name}" is a time; write a duration such as 30d or 12h'
    return None


def _expiry_problems(spec: UpsertSpec, ttl: str, field: FieldSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    if spec.mode is UpsertMode.DEDUP and field.type in (TypeName.FLOAT, TypeName.DOUBLE):
        text = f'mode DEDUP expires keys by whole numbers and times; "{field.name}" is {field.type}'
        yield ManifestProblem(_TTL, text)
    is_measured_in_time = field.role is FieldRole.DATE_TIME and not ttl.isdecimal()
    if is_measured_in_time and table.ingestion.stream is not None:
        flush = table.ingestion.stream.flush
        if duration_ms(ttl) <= flush.age_ms:
            text = f"{ttl} is not longer than ingestion.stream.flush.age, {flush.age}: keys would expire"
            yield ManifestProblem(_TTL, f"{text} before their segment is sealed")


def _retention_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    if table.retention is None or table.ingestion.stream is None or spec.mode is UpsertMode.DEDUP:
        return
    if spec.snapshot is Enablement.DISABLE:
        text = f"the table has retention {table.retention}, and a restart would show rows again that removed ones hid"
        yield ManifestProblem("spec.snapshot", f"{text}; write ENABLE, or remove it")


def _skew_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    name, stream = spec.message_time_column, table.ingestion.stream
    if name is None:
        return
    yield from _single_value("spec.messageTimeColumn", name, table, (TypeName.TIMESTAMP,))
    if stream is None or stream.metadata.get(name) != "timestamp":
        text = f'the table does not say ingestion.stream.metadata: {{{name}: timestamp}}, which fills "{name}"'
        yield ManifestProblem("spec.messageTimeColumn", text)
    if spec.comparison(table.time_column) != (table.time_column,):
        yield ManifestProblem(
            "spec.maxFutureSkew", "needs the table's timeColumn as comparison column, which is never null"
        )


def _merging_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    """Yield the problems of declared merge strategies, and of columns for which the default strategy is unfit."""
    for name, strategy in spec.partial_upsert_strategies.items():
        path = f"spec.partialUpsertStrategies.{name}"
        field = _field(table, name)
        if field is None:
            yield ManifestProblem(path, f'the table has no column "{name}"{suggestion(name, table.table_schema.names)}')
        elif name in table.table_schema.primary_key:
            yield ManifestProblem(path, "a column of the primary key is never merged; remove it")
        elif name in spec.comparison(table.time_column):
            yield ManifestProblem(path, "a comparison column is never merged; remove it")
        elif name in _deciding(spec):
            yield ManifestProblem(path, "a column that says what a row does to its key is never merged; remove it")
        elif (problem := _unfit(strategy, field)) is not None:
            yield ManifestProblem(path, problem)
    if spec.mode is not UpsertMode.PARTIAL:
        return
    decided: set[str | None] = {*table.table_schema.primary_key, *spec.comparison(table.time_column)}
    decided |= {*spec.partial_upsert_strategies, *_deciding(spec)}
    for field in table.table_schema.fields:
        problem = None if field.name in decided else _unfit(spec.default_partial_upsert_strategy, field)
        if problem is not None:
            text = f"{problem}; name its strategy in partialUpsertStrategies"
            yield ManifestProblem("spec.defaultPartialUpsertStrategy", text)


def _deciding(spec: UpsertSpec) -> tuple[str | None, ...]:
    """Return the columns to which strategies never apply."""
    return spec.delete_record_column, spec.out_of_order_record_column, spec.message_time_column


def _unfit(strategy: str, field: FieldSpec) -> str | None:
    """Return why a column cannot be merged by this strategy; None if it can."""
    name, kind = field.name, f"{field.type}"
    match strategy:
        case PartialUpsertStrategy.APPEND | PartialUpsertStrategy.UNION if not field.multi_value:
            return f'{strategy} needs a multi-valued column; "{name}" has one value'
        case PartialUpsertStrategy.INCREMENT if field.multi_value or field.type not in NUMBERS:
            return f'INCREMENT needs a number; "{name}" is {kind}'
        case PartialUpsertStrategy.MAX | PartialUpsertStrategy.MIN if field.multi_value:
            return f'{strategy} needs one value per row; "{name}" is multi-valued'
    return None  # whether there is an entry point of a dotted name, servers know


def _single_value(
    path: str, name: str, table: TableSpec, types: tuple[TypeName, ...] = ()
) -> Iterator[ManifestProblem]:
    field = _field(table, name)
    if field is None:
        yield ManifestProblem(path, f'the table has no column "{name}"{suggestion(name, table.table_schema.names)}')
    elif field.multi_value:
        yield ManifestProblem(path, f'"{name}" is multi-valued; it needs one value per row')
    elif types and field.type not in types:
        yield ManifestProblem(path, f'"{name}" is {field.type}; it needs {" or ".join(types)}')


def _field(table: TableSpec, name: str) -> FieldSpec | None:
    return table.table_schema.field(name)
