"""A column of several segments as one says what its parts say, row by row."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import budget

from merlot.segment.arrow_types import STORED_DTYPES
from merlot.segment.build.coding import code
from merlot.segment.concat import (
    ColumnRows,
    concat_coded,
    concat_columns,
    concat_nulls,
    concat_offsets,
    concat_values,
)
from merlot.segment.index.dict_ids import id_dtype
from merlot.segment.index.dictionary import of_values
from merlot.values.types import TypeName

VALUES: dict[TypeName, st.SearchStrategy[Any]] = {
    TypeName.INT: st.integers(-(1 << 31), (1 << 31) - 1),
    TypeName.LONG: st.integers(-(1 << 63), (1 << 63) - 1),
    TypeName.DOUBLE: st.floats(allow_nan=False),
    TypeName.STRING: st.text(max_size=5),
    TypeName.BYTES: st.binary(max_size=5),
    TypeName.BIG_DECIMAL: st.one_of(
        st.integers(-(10**30), 10**30), st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100)
    ).map(lambda number: format(Decimal(number).normalize() + 0, "f")),
}
KEYS: dict[TypeName, Callable[[Any], Any]] = {
    TypeName.BIG_DECIMAL: Decimal,
    TypeName.DOUBLE: lambda value: (value, math.copysign(1, value)),  # -0.0 is just below 0.0
}


def stored(type_name: TypeName, values: list[Any]) -> Any:
    if type_name in STORED_DTYPES:
        return np.array(values, STORED_DTYPES[type_name])
    return pa.array(values, pa.binary() if type_name is TypeName.BYTES else pa.string())


def plain(values: Any) -> list[Any]:
    return list(values.tolist() if isinstance(values, np.ndarray) else values.to_pylist())


@pytest.mark.parametrize("type_name", VALUES, ids=str)
@settings(max_examples=budget.count("MERLOT_CONCAT_CASES", quick=20, every=1000))
@given(data=st.data())
def test_coded_parts_become_one_dictionary_that_ascends(type_name: TypeName, data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.lists(VALUES[type_name], min_size=1, max_size=6), min_size=1, max_size=5))
    coded = [code(type_name, stored(type_name, part)) for part in parts]
    for one in coded:
        one.ids.flags.writeable = False
    joined = concat_coded(type_name, [one.values for one in coded], [one.ids for one in coded])
    values = plain(joined.values)
    key = KEYS.get(type_name, lambda value: value)
    rows = [value for part in parts for value in part]
    assert [values[place] for place in joined.ids] == rows
    assert plain(concat_values([stored(type_name, part) for part in parts])) == rows
    assert [key(value) for value in values] == sorted({key(value) for value in values})
    assert joined.ids.dtype == id_dtype(len(values))
    dictionary = of_values(type_name, joined.values)
    assert len(dictionary) == len(values)
    assert plain(dictionary.arrow() if dictionary.numeric is None else dictionary.numeric) == values
    assert plain(concat_values([stored(type_name, part) for part in parts])) == [
        value for part in parts for value in part
    ]


def test_texts_of_wide_and_narrow_offsets_are_one_array() -> None:
    joined: Any = concat_values([pa.array(["a"]), pa.array(["b", "c"], pa.large_string())])
    assert (joined.type, joined.to_pylist()) == (pa.large_string(), ["a", "b", "c"])


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4))
def test_offsets_cut_the_rows_that_the_parts_cut(parts: list[list[int]]) -> None:
    offsets = [np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32) for counts in parts]
    assert np.diff(concat_offsets(offsets)).tolist() == [count for counts in parts for count in counts]


@given(st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), min_size=1, max_size=4)), min_size=1, max_size=4))
def test_nulls_of_parts_without_a_bitmap_are_none(parts: list[tuple[bool, list[bool]]]) -> None:
    bitmaps = [np.array(rows, np.bool_) if has_bitmap else None for has_bitmap, rows in parts]
    found = concat_nulls(bitmaps, [len(rows) for _, rows in parts])
    if all(bitmap is None for bitmap in bitmaps):
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == [is_null and has_bitmap for has_bitmap, rows in parts for is_null in rows]


def rows_with(values: Any, *, ids: Any = None, offsets: Any = None, nulls: Any = None) -> ColumnRows:
    num_rows = len(values if ids is None else ids) if offsets is None else len(offsets) - 1
    return ColumnRows(num_rows=num_rows, values=values, ids=ids, offsets=offsets, nulls=nulls)


def test_parts_with_dictionaries_keep_one_and_parts_without_take_theirs_away() -> None:
    first = rows_with(np.array([3, 7]), ids=np.array([1, 0, 1], np.uint8), nulls=np.array([False, True, False]))
    second = rows_with(np.array([5, 7]), ids=np.array([0, 1], np.uint8))
    raw = rows_with(np.array([9]))
    coded = concat_columns(TypeName.LONG, [first, second])
    assert coded.ids is not None
    assert plain(coded.values) == [3, 5, 7]
    assert plain(coded.plain()) == [7, 3, 7, 5, 7]
    assert plain(coded.nulls) == [False, True, False, False, False]
    mixed = concat_columns(TypeName.LONG, [first, raw])
    assert mixed.ids is None
    assert (mixed.num_rows, plain(mixed.values)) == (4, [7, 3, 7, 9])
    assert plain(mixed.nulls) == [False, True, False, False]


def test_rows_of_several_values_keep_their_bounds() -> None:
    first = rows_with(pa.array(["a", "b"]), ids=np.array([1, 0, 1], np.uint8), offsets=np.array([0, 2, 3]))
    second = rows_with(pa.array(["c"]), offsets=np.array([0, 0, 1]))
    both = concat_columns(TypeName.STRING, [first, second])
    assert (both.num_rows, plain(both.values), plain(both.offsets)) == (4, ["b", "a", "b", "c"], [0, 2, 3, 3, 4])
