"""One order of any rows: whatever order they come in, what a segment stores of them comes out the same."""

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from merlot.ingest.row_order import ordered

NANS = np.array([0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0001], np.uint64).view(np.float64).tolist()
FLOATS = st.sampled_from([None, 0.0, -0.0, math.inf, -math.inf, *NANS]) | st.floats(allow_nan=False)
LISTS = st.none() | st.lists(st.sampled_from([0.0, -0.0, 1.5, math.nan, None]), max_size=3)
TEXT_LISTS = st.none() | st.lists(st.sampled_from(["", "a", "b", None]), max_size=3)
ROWS = st.tuples(
    st.sampled_from([None, 1, 2]), st.sampled_from([None, "", "x", "\u00e9"]), FLOATS, FLOATS, LISTS, TEXT_LISTS
)
TYPES = {
    "key": pa.int32(),
    "text": pa.string(),
    "double": pa.float64(),
    "float": pa.float32(),
    "doubles": pa.list_(pa.float64()),
    "texts": pa.list_(pa.string()),
}
LARGEST_FLOAT = float(np.finfo(np.float32).max)


def table_of(rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(TYPES)
    columns[3] = tuple(None if one is None or LARGEST_FLOAT < abs(one) < math.inf else one for one in columns[3])
    return pa.table({name: pa.array(column, TYPES[name]) for name, column in zip(TYPES, columns, strict=True)})


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12), st.randoms(use_true_random=False), st.sampled_from(list(TYPES)))
def test_the_order_of_the_source_leaves_no_trace(rows: list[tuple[object, ...]], chance: object, leading: str) -> None:
    table = table_of(rows * 2)
    places = list(range(table.num_rows))
    chance.shuffle(places)  # type: ignore[attr-defined]
    first = ordered(table, ["key", leading])
    second = ordered(table.take(pa.array(places)), ["key", leading])
    # Printed, numbers show the signs of zeros, and all NaNs are alike.
    assert repr(first.to_pylist()) == repr(second.to_pylist())
    assert sorted(map(repr, first.to_pylist())) == sorted(map(repr, table.to_pylist()))


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_leading_columns_come_first_and_nulls_before_values(rows: list[tuple[object, ...]]) -> None:
    found = ordered(table_of(rows), ["text", "double"])
    keys = [
        (text is not None, (text or "").encode(), number is not None, _place(number))
        for text, number in zip(found["text"].to_pylist(), found["double"].to_pylist(), strict=True)
    ]
    assert keys == sorted(keys)


def _place(number: float | None) -> tuple[bool, float, bool]:
    """NaN last, -0.0 before 0.0."""
    if number is None or math.isnan(number):
        return number is not None, 0.0, False
    return False, number, math.copysign(1.0, number) > 0
