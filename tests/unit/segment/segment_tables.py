"""Tables of every type, and reading a segment back as rows, for the tests beside this file."""

import math
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from merlot.query.context import CancelToken
from merlot.query.filter.resolve import Live, Node, Resolver
from merlot.query.filter.run import FilterRun
from merlot.query.plan.binding import bind
from merlot.query.read.columns import SegmentColumns
from merlot.segment.arrow_types import arrow_schema, is_fixed_width
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import RowReader, Segment
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql.parse import parse
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

VALUES: dict[TypeName, st.SearchStrategy[Any]] = {
    TypeName.INT: st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
    TypeName.LONG: st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9),
    TypeName.FLOAT: st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]),
    TypeName.DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]),
    TypeName.BIG_DECIMAL: st.decimals(allow_nan=False, allow_infinity=False, places=3).map(plain_text),
    TypeName.BOOLEAN: st.booleans(),
    TypeName.TIMESTAMP: st.integers(-(2**53), 2**53),
    TypeName.STRING: st.text(max_size=6) | st.sampled_from(["", "é", "a\0", "\U0001f377", "￿"]),
    TypeName.JSON: st.sampled_from(["{}", "[1]", "null"]),
    TypeName.BYTES: st.binary(max_size=5),
}


def field_of(type_name: TypeName, *, multi_value: bool = False, name: str | None = None) -> FieldSpec:
    return FieldSpec(name=name or f"{type_name.lower()}{'s' * multi_value}", type=type_name, multi_value=multi_value)


def all_fields() -> tuple[FieldSpec, ...]:
    return tuple(field_of(name, multi_value=many) for many in (False, True) for name in VALUES)


def cells(field: FieldSpec) -> st.SearchStrategy[Any]:
    """One row's value of a field, null included."""
    if not field.multi_value:
        return st.none() | VALUES[field.type]
    return st.none() | st.lists(st.none() | VALUES[field.type], max_size=4)


def table_of(schema: TableSchema, columns: dict[str, list[Any]]) -> pa.Table:
    return pa.table(columns, schema=arrow_schema(schema))


def build(
    directory: Path, schema: TableSchema, rows: pa.Table, indexing: IndexingSpec | None = None, **more: Any
) -> BuiltSegment:
    request = BuildRequest(name="t_0", table="t", schema=schema, indexing=indexing or IndexingSpec(), **more)
    return build_segment(request, rows, directory)


def expected(field: FieldSpec, cell: Any) -> Any:
    """What a cell reads back as."""
    default = field.default_value
    if isinstance(default, Decimal):
        default = plain_text(default)
    if not field.multi_value:
        return default if cell is None else cell
    return [default] if cell is None else [default if value is None else value for value in cell]


def read_column(segment: Segment, field: FieldSpec) -> list[Any]:
    """All rows of a column as Python values, nulls as defaults."""
    column = segment.column(field.name)
    assert column is not None
    flat = _flat_values(column)
    if field.type is TypeName.BOOLEAN:
        flat = [bool(value) for value in flat]
    if not field.multi_value:
        return flat
    bounds = column.offsets().tolist()
    return [flat[start:stop] for start, stop in pairwise(bounds)]


def read_nulls(column: RowReader) -> list[bool]:
    if column.nulls is None:
        return [False] * column.num_docs
    bits = np.unpackbits(column.nulls.view(np.uint8), bitorder="little")
    return [bool(bit) for bit in bits[: column.num_docs]]


def same(left: Any, right: Any) -> bool:
    """Equality to the bit: NaN equals NaN, -0.0 differs from 0.0."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and left == right


def _flat_values(column: RowReader) -> list[Any]:
    if column.dictionary is not None:
        values = column.dictionary.arrow().to_pylist()
        return [values[dict_id] for dict_id in column.dict_ids().tolist()]
    if not is_fixed_width(column.type):
        return list(column.strings().to_pylist())
    return list(column.values().tolist())


def matching(path: Path, schema: TableSchema, where: str, *, negate: bool = False) -> tuple[Node, list[int]]:
    """How a file answers a condition, or its opposite, and the docs for which it holds."""
    segment = ImmutableSegment.open(path)
    columns = SegmentColumns(segment, schema)
    condition = bind(parse(f"SELECT COUNT(*) FROM t WHERE {where}"), schema).where
    node = Resolver(columns, null_handling=False).resolve(condition, negate=negate)
    return node, FilterRun(columns, False, CancelToken()).select(Live(node), 0, segment.num_docs).docs().tolist()
