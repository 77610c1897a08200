"""Random segments of every kind, merging them, and reading what came out, for the tests beside this file."""

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.time_formats import instants, read_time, stored_time, time_fields
from tests.unit.segment.segment_tables import VALUES, read_column, read_nulls, table_of

from merlot.merge.plan import MergePlan, MetricAggregation
from merlot.merge.task import run
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.indexing import IndexingSpec, PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values import periods
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

DAY_MS = 86_400_000
ROOM = 1 << 30
Cells = dict[str, list[Any]]

TIMES = (
    FieldSpec(name="at", type=TypeName.TIMESTAMP, role=FieldRole.DATE_TIME),
    FieldSpec(name="at", type=TypeName.LONG, role=FieldRole.DATE_TIME, format="EPOCH|SECONDS"),
    FieldSpec(name="at", type=TypeName.INT, role=FieldRole.DATE_TIME, format="EPOCH|HOURS"),
    FieldSpec(name="at", type=TypeName.STRING, role=FieldRole.DATE_TIME, format="SIMPLE_DATE_FORMAT|yyyyMMddHH|UTC"),
    FieldSpec(name="at", type=TypeName.INT, role=FieldRole.DATE_TIME, format="SIMPLE_DATE_FORMAT|yyyyMMdd|UTC"),
)
METRICS = (
    FieldSpec(name="ints", type=TypeName.INT, role=FieldRole.METRIC),
    FieldSpec(name="longs", type=TypeName.LONG, role=FieldRole.METRIC, default_null_value=1),
    FieldSpec(name="floats", type=TypeName.FLOAT, role=FieldRole.METRIC),
    FieldSpec(name="doubles", type=TypeName.DOUBLE, role=FieldRole.METRIC),
    FieldSpec(name="decimals", type=TypeName.BIG_DECIMAL, role=FieldRole.METRIC),
)
DIMENSIONS = tuple(
    FieldSpec(name=f"d_{name.lower()}{'s' * many}", type=name, multi_value=many)
    for many in (False, True)
    for name in VALUES
)
EXACT_NUMBERS: dict[TypeName, st.SearchStrategy[Any]] = {
    TypeName.INT: st.integers(-1000, 1000),
    TypeName.LONG: st.integers(-(2**50), 2**50) | st.integers(-5, 5),
    TypeName.FLOAT: st.integers(-1000, 1000).map(lambda number: number / 8),
    TypeName.DOUBLE: st.integers(-(10**6), 10**6).map(lambda number: number / 1024),
    TypeName.BIG_DECIMAL: st.decimals(-(10**9), 10**9, places=3, allow_nan=False).map(plain_text),
}
"""Numbers whose sums are exact in any order."""


@dataclass
class Inputs:
    """Some segments of one table, and the rows in them as the schema of today sees them."""

    schema: TableSchema = field(repr=False)
    built: list[BuiltSegment] = field(repr=False)
    rows: Cells
    paths: list[Path] = field(init=False)

    def __post_init__(self) -> None:
        self.paths = [segment.path for segment in self.built]


Pools = dict[tuple[str, TypeName], list[Any]]
"""Values that rows are drawn from, by column and type: few, so that rows meet, in a segment and across segments."""


@st.composite
def segment_cells(draw: Any, schema: TableSchema, pools: Pools | None = None) -> Cells:
    """Rows of one segment."""
    pools = {} if pools is None else pools
    number = draw(st.integers(0, 12))
    cells: Cells = {}
    for one in schema.fields:
        pool = pools.get((one.name, one.type))
        if pool is None:
            pool = pools[one.name, one.type] = draw(pool_of(one))
        cells[one.name] = draw(st.lists(st.sampled_from(pool), min_size=number, max_size=number))
    return cells


@st.composite
def pool_of(draw: Any, one: FieldSpec) -> list[Any]:
    if one.role is FieldRole.DATE_TIME:
        base = draw(instants())
        near = draw(st.lists(st.just(base) | st.integers(base, base + 2 * DAY_MS), min_size=1, max_size=4))
        return [stored_time(one, millis) for millis in near]
    values = EXACT_NUMBERS[one.type] if one.role is FieldRole.METRIC else VALUES[one.type]
    if one.multi_value:
        values = st.lists(st.none() | values, max_size=3)
    return draw(st.lists(st.none() | values, min_size=1, max_size=3))  # type: ignore[no-any-return]


@st.composite
def schemas(draw: Any, time: FieldSpec | None = None) -> TableSchema:
    """A time, some dimensions, all metrics."""
    dimensions = draw(st.lists(st.sampled_from(DIMENSIONS), max_size=4, unique=True))
    return TableSchema(fields=(time or draw(time_fields()), *dimensions, *METRICS))


def older(schema: TableSchema, lost: Sequence[str], narrow: bool) -> TableSchema:
    """The schema before columns were added and numbers were widened."""
    narrower = {TypeName.LONG: TypeName.INT, TypeName.DOUBLE: TypeName.FLOAT, TypeName.BIG_DECIMAL: TypeName.INT}
    kept = []
    for one in schema.fields:
        if one.name in lost:
            continue
        changes = one.model_dump()
        if narrow and one.name.startswith("d_") and one.type in narrower:
            changes["type"] = narrower[one.type]
        kept.append(FieldSpec.model_validate(changes))
    return TableSchema(fields=tuple(kept))


def seen_today(now: FieldSpec, before: FieldSpec | None, cells: list[Any], number: int) -> list[Any]:
    """Cells of an older column as the table has them now; null where there was no column."""
    if before is None:
        return [None] * number
    return [None if cell is None else widened(now, before, cell) for cell in cells]


def widened(now: FieldSpec, before: FieldSpec, cell: Any) -> Any:
    """A stored value under a wider type; what stood for a null in a list stays what it was."""
    if isinstance(cell, list):
        return [widened(now, before, before.default_value if one is None else one) for one in cell]
    return plain_text(Decimal(cell)) if now.type is TypeName.BIG_DECIMAL else cell


def built(
    directory: Path, name: str, schema: TableSchema, cells: Cells, indexing: IndexingSpec, **more: Any
) -> BuiltSegment:
    indexing = indexing.model_copy(
        update={"sorted_columns": tuple(one for one in indexing.sorted_columns if one in schema.names)}
    )
    request = BuildRequest(name=name, table="t", schema=schema, indexing=indexing, time_column="at", **more)
    return build_segment(request, table_of(schema, cells), directory)


@st.composite
def tables(
    draw: Any, directory: Any, schema: TableSchema, indexing: IndexingSpec, claims: Sequence[PartitioningSpec] = ()
) -> Inputs:
    """Some segments, of today's schema and older ones, each by one of some partitionings, or by none."""
    folder: Path = directory
    found: list[BuiltSegment] = []
    rows: Cells = {one.name: [] for one in schema.fields}
    pools: Pools = {}
    for place in range(draw(st.integers(1, 4))):
        lost = draw(st.sets(st.sampled_from([one.name for one in schema.fields[1:]]), max_size=2))
        then = older(schema, sorted(lost), draw(st.booleans()))
        cells = draw(segment_cells(then, pools))
        known = [one for one in claims if set(one.columns) <= set(then.names)]
        partitioning = draw(st.sampled_from([None, *known]))
        found.append(built(folder, f"in_{place}", then, cells, indexing, partitioning=partitioning))
        number = len(cells["at"])
        for one in schema.fields:
            rows[one.name] += seen_today(one, then.field(one.name), cells.get(one.name, []), number)
    return Inputs(schema, found, rows)


def windows_of(inputs: Inputs, bucket: str) -> tuple[tuple[int, int], ...]:
    """The buckets that rows are in."""
    time, period = inputs.schema.fields[0], periods.parse(bucket)
    starts = {period.floor(read_time(time, value)) for value in inputs.rows["at"]}
    return tuple((start, period.next(start)) for start in sorted(starts))


def merge(plan: MergePlan, paths: Sequence[Path], directory: Path, memory_bytes: int = ROOM) -> list[BuiltSegment]:
    """Run a merge that nobody watches."""
    return run(plan, paths, directory, lambda phase, rows, size: None, lambda: False, memory_bytes)


def plan_of(schema: TableSchema, **more: Any) -> MergePlan:
    return MergePlan(table="t", schema=schema, time_column="at", **more)


def summed(function: str) -> MetricAggregation:
    return MetricAggregation(function=function)


def partitioned(column: str, number: int, enforce: str = "repartition") -> PartitioningSpec:
    columns = {column: {"functionName": "Murmur", "numPartitions": number}}
    return PartitioningSpec.model_validate({"columns": columns, "enforce": enforce})


def read_rows(segment: BuiltSegment, schema: TableSchema) -> list[tuple[Any, ...]]:
    """Rows of a segment as tokens that compare to the bit; null is None."""
    with ImmutableSegment.open(segment.path, verify=True) as opened:
        columns = []
        for one in schema.fields:
            reader = opened.column(one.name)
            assert reader is not None
            values = read_column(opened, one)
            columns.append(
                [None if null else token(value) for value, null in zip(values, read_nulls(reader), strict=True)]
            )
    return list(zip(*columns, strict=True))


def tokens(schema: TableSchema, rows: Cells) -> Counter[tuple[Any, ...]]:
    """Rows as `read_rows` reads them back."""
    columns = [[cell_token(one, cell) for cell in rows[one.name]] for one in schema.fields]
    return Counter(zip(*columns, strict=True))


def cell_token(one: FieldSpec, cell: Any) -> Any:
    if cell is None:
        return None
    default = one.default_value
    stand_in = plain_text(default) if isinstance(default, Decimal) else default
    if one.multi_value:
        return token([stand_in if value is None else value for value in cell])
    if one.type is TypeName.FLOAT:
        cell = struct.unpack("<f", struct.pack("<f", cell))[0]
    return token(cell)


def token(value: Any) -> Any:
    """Something that is equal where a value is equal to the bit."""
    if isinstance(value, list):
        return tuple(token(one) for one in value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if hasattr(value, "timestamp"):
        return value
    return value
