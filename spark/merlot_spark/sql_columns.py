"""Columns of a source that SQL expressions see, and the rows that wait beside them.

Each batch goes through Spark as the columns that expressions name; its first row carries the whole batch, as an Arrow
stream. Spark keeps the order of rows within a task as long as it looks at them one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type

from merlot.errors import InvalidInputError
from merlot.ingest import arrays, casts
from merlot.ingest.source import names
from merlot.ingest.source.plan import SourcePlan
from merlot.spec.formats import BatchFormat
from merlot.spec.schema import FieldSpec
from merlot.spec.table import Table
from merlot.values.types import TypeName
from merlot_spark.expressions import Expressions

WAITING = "__merlot_waiting"
_LAST_MILLIS = (2**63 - 1) // 1_000
_WIDER: Mapping[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
"""Nearest type of Spark that holds every value, for each type that Spark lacks."""


@dataclass(frozen=True, slots=True)
class SqlColumns:
    """Types of the source's columns in SQL."""

    kinds: Mapping[str, pa.DataType]
    typed: Mapping[str, TypeName]
    """Columns of texts that are cast as the table casts them, with the type of their column."""

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the batches for Spark."""
        return pa.schema([(WAITING, pa.binary()), *self.kinds.items()])

    def show(self, rows: pa.Table) -> pa.RecordBatch:
        """Return a batch for Spark; its first row holds the rows themselves."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        waiting = pa.array([sink.getvalue().to_pybytes(), *[None] * (rows.num_rows - 1)], pa.binary())
        return pa.RecordBatch.from_arrays(
            [waiting, *(self._column(rows, name) for name in self.kinds)], schema=self.schema
        )

    def _column(self, rows: pa.Table, name: str) -> pa.Array:
        kind = self.kinds[name]
        if name not in rows.column_names:
            return pa.nulls(rows.num_rows, kind)
        values = arrays.plain(rows.column(name))
        if name in self.typed:
            cast = casts.cast(values, self.typed[name]).values
            return _microseconds(cast).cast(kind) if pa.types.is_timestamp(kind) else cast.cast(kind)
        if values.type == kind:
            return values
        if pa.types.is_string(kind):
            return casts.cast(values, TypeName.STRING).values
        return values.cast(kind, safe=False)


def of(planned: SourcePlan, table: Table, expressions: Expressions, referenced: Collection[str]) -> SqlColumns:
    """Return the columns of a source that expressions name, as far as the source has them."""
    fields = {field.name: field for field in table.spec.table_schema.fields if field.name not in expressions.derived}
    is_text = planned.request.format in (BatchFormat.CSV, BatchFormat.JSON)
    kinds: dict[str, pa.DataType] = {}
    typed: dict[str, TypeName] = {}
    wanted = [name for name in planned.request.columns if names.alike(name, referenced)]
    for name in wanted:
        if not is_text:
            if name in planned.types:
                kinds[name] = _common(planned.types[name])
        elif name in fields:
            kinds[name], is_typed = _of_text(fields[name])
            if is_typed:
                typed[name] = fields[name].type
        elif name in planned.types or planned.request.format is BatchFormat.JSON:
            kinds[name] = pa.string()
    return SqlColumns(kinds, typed)


def recombined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows that waited, each batch with the columns that Spark computed for it."""
    pending: list[pa.Table] = []
    for batch in batches:
        answers = pa.Table.from_batches([batch])
        begins = answers.column(WAITING).is_valid().to_numpy().nonzero()[0].tolist()
        bounds = [*begins, answers.num_rows]
        if bounds[0] and pending:
            pending.append(answers.slice(0, bounds[0]))
        for place, start in enumerate(begins):
            if pending:
                yield _joined(pending)
            pending = [answers.slice(start, bounds[place + 1] - start)]
    if pending:
        yield _joined(pending)


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    answers = pa.concat_tables(parts)
    rows = pa.ipc.open_stream(answers.column(WAITING)[0].as_buffer()).read_all()
    if rows.num_rows != answers.num_rows:
        raise InvalidInputError(f"expressions changed the number of rows from={rows.num_rows} to={answers.num_rows}")
    for name in answers.column_names:
        if name != WAITING:
            rows = rows.append_column(name, answers.column(name))
    return rows


def _of_text(field: FieldSpec) -> tuple[pa.DataType, bool]:
    """Return the SQL type of a text that becomes this column, and True if it is cast."""
    if field.multi_value:
        return pa.list_(pa.string()), False
    if field.type is TypeName.TIMESTAMP:
        return pa.timestamp("us", "UTC"), True
    if field.type in (TypeName.STRING, TypeName.JSON, TypeName.BIG_DECIMAL, TypeName.BYTES):
        return pa.string(), False
    return casts.CAST_TYPES[field.type], True


def _microseconds(millis: pa.Array) -> pa.Array:
    """Return instants in microseconds; those that 64 bits cannot hold become the first or the last that they can."""
    return pc.multiply(pc.max_element_wise(pc.min_element_wise(millis, _LAST_MILLIS), -_LAST_MILLIS), 1_000)


def _common(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return a type of Spark for the values of all these types; text if there is none."""
    try:
        schema = pa.unify_schemas([pa.schema([("", _wider(kind))]) for kind in kinds], promote_options="permissive")
        from_arrow_type(schema.field(0).type)
    except (pa.ArrowException, PySparkException):
        return pa.string()
    return schema.field(0).type


def _wider(kind: pa.DataType) -> pa.DataType:
    """Return an Arrow type that Spark knows and that holds every value of `kind`; instants to the microsecond."""
    if isinstance(kind, pa.ExtensionType):
        return _wider(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _wider(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_wider(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _wider(field.type)) for field in kind])
    return _WIDER.get(kind, kind)
