"""One order of a lot's rows: whatever order they come in, what a segment stores of them comes out the same."""

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlot.errors import InvalidInputError
from merlot.segment.build.rows import BuildColumn
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.spec.table import TableSpec
from merlot_spark.lots import groups

NANS = np.array([0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0001], np.uint64).view(np.float64).tolist()
FLOATS = st.sampled_from([None, 0.0, -0.0, math.inf, -math.inf, *NANS]) | st.floats(allow_nan=False)
LISTS = st.none() | st.lists(st.sampled_from([0.0, -0.0, 1.5, math.nan, None]), max_size=3)
TEXT_LISTS = st.none() | st.lists(st.sampled_from(["", "a", "b", None]), max_size=3)
TEXTS = st.sampled_from([None, "null", "", "x", "\u00e9"])
ROWS = st.tuples(st.sampled_from([1, 2]), TEXTS, FLOATS, LISTS, TEXT_LISTS)
TYPES = {
    "$key0": pa.int32(),
    "text": pa.string(),
    "double": pa.float64(),
    "doubles": pa.list_(pa.float64()),
    "texts": pa.list_(pa.string()),
}
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "text", "type": "STRING"},
            {"name": "double", "type": "DOUBLE"},
            {"name": "doubles", "type": "DOUBLE", "multiValue": True},
            {"name": "texts", "type": "STRING", "multiValue": True},
        ]
    }
)
Row = tuple[Any, ...]


def spec_of(*sorted_columns: str) -> TableSpec:
    return TableSpec(table_schema=SCHEMA, indexing=IndexingSpec(sorted_columns=sorted_columns))


def table_of(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table({name: pa.array(column, TYPES[name]) for name, column in zip(TYPES, columns, strict=True)})


def stored(rows: pa.Table, spec: TableSpec) -> list[tuple[tuple[int, ...], list[Row]]]:
    """Rows of each group, as a segment stores them."""
    return [
        (group.key, list(zip(*map(cells, group.columns()), strict=True))) for group in groups(rows, spec, ["$key0"])
    ]


def cells(column: BuildColumn) -> list[tuple[Any, bool]]:
    values = column.values.tolist() if isinstance(column.values, np.ndarray) else column.values.to_pylist()
    if column.offsets is not None:
        ends = column.offsets.tolist()
        values = [values[start:stop] for start, stop in itertools.pairwise(ends)]
    nulls = np.zeros(column.num_docs, bool)
    if column.nulls is not None:
        nulls = np.unpackbits(column.nulls.view(np.uint8), count=column.num_docs, bitorder="little").astype(bool)
    return list(zip(values, nulls.tolist(), strict=True))


@settings(deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=12),
    st.randoms(use_true_random=False),
    st.sampled_from([(), ("text",), ("double", "text")]),
)
def test_the_order_of_the_source_leaves_no_trace(rows: list[Row], chance: Any, leading: tuple[str, ...]) -> None:
    shuffled = rows * 2
    chance.shuffle(shuffled)
    spec = spec_of(*leading)
    # Printed, numbers show the signs of zeros, and all NaNs are alike.
    assert repr(stored(table_of(rows * 2), spec)) == repr(stored(table_of(shuffled), spec))


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_each_group_has_its_rows_by_the_sorted_columns(rows: list[Row]) -> None:
    found = stored(table_of(rows), spec_of("text", "double"))
    assert [key for key, _ in found] == [(key,) for key in sorted({row[0] for row in rows})]
    for (key,), group in found:
        assert len(group) == sum(row[0] == key for row in rows)
        keys = [(text.encode(), _place(number)) for (text, _), (number, _), _, _ in group]
        assert keys == sorted(keys)


def test_rows_cannot_be_sorted_by_lists() -> None:
    with pytest.raises(InvalidInputError, match="cannot be sorted by this column column=texts"):
        stored(table_of([(1, "a", 1.0, [1.0], ["a"])]), spec_of("texts"))


def _place(number: float) -> tuple[bool, float, bool]:
    """NaN last, -0.0 before 0.0."""
    if math.isnan(number):
        return True, 0.0, False
    return False, number, math.copysign(1.0, number) > 0
