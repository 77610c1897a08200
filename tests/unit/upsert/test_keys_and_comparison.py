"""Keys told apart whatever their columns are, and comparison values that order as the values do."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.errors import InvalidInputError
from merlot.kernels.upsert import NULL
from merlot.segment.arrow_types import arrow_type
from merlot.spec.schema import FieldSpec
from merlot.upsert import keys
from merlot.upsert.comparison import LARGEST, NOTHING, ComparisonColumn, ordered, ordered_back
from merlot.upsert.keys import KeyColumns, Keys

VALUES: dict[str, list[Any]] = {
    "INT": [0, 1, -1, 2**31 - 1, None],
    "LONG": [0, 1, -1, 2**32, -(2**63) + 1, None],
    "FLOAT": [0.5, -0.5, 1e30],
    "DOUBLE": [0.5, -0.5, 1e300],
    "BOOLEAN": [True, False],
    "TIMESTAMP": [1, -1, 2**40],
    "STRING": ["", "a", "ab", "b", None],
    "BYTES": [b"", b"a", b"ab", b"x" * 40],
    "BIG_DECIMAL": ["1", "10"],
}


def field(name: str, type_: str, **more: Any) -> FieldSpec:
    return FieldSpec.model_validate({"name": name, "type": type_, **more})


def keys_of(types: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Keys:
    fields = [field(f"column{place}", type_) for place, type_ in enumerate(types)]
    columns = {
        one.name: pa.chunked_array([pa.array([row[place] for row in rows], arrow_type(one))])
        for place, one in enumerate(fields)
    }
    return KeyColumns(fields).of(pa.table(columns))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_different_keys_have_different_bits_and_equal_ones_the_same(size: int) -> None:
    for types in itertools.combinations(VALUES, size):
        rows = list(itertools.product(*(VALUES[type_] for type_ in types)))
        found = keys_of(types, rows)
        pairs = set(zip(found.high.tolist(), found.low.tolist(), strict=True))
        assert len(pairs) == len(rows), types
        again = keys_of(types, rows[::-1])
        assert (again.high[::-1] == found.high).all()
        assert (again.low[::-1] == found.low).all()


def test_a_null_key_is_the_default_value_of_its_column() -> None:
    found = keys_of(("STRING", "INT"), [(None, None), ("null", -(2**31))])
    assert found.high[0] == found.high[1]
    assert found.low[0] == found.low[1]


def test_keys_that_fit_into_sixteen_bytes_are_kept_whole() -> None:
    types = {("LONG", "LONG"): True, ("INT", "LONG", "INT"): True, ("INT",) * 4: True, ("STRING",): False}
    types |= {("LONG", "INT", "LONG"): False, ("INT", "INT", "LONG", "BOOLEAN"): False}
    for names, is_whole in types.items():
        assert KeyColumns([field(f"c{place}", name) for place, name in enumerate(names)]).is_whole == is_whole


def test_nobody_knows_where_a_key_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever could choose keys of one home would make all of them as slow as a list."""
    for types, rows in ((("LONG",), [(1,)]), (("STRING",), [("a",)]), (("LONG", "LONG", "LONG"), [(1, 2, 3)])):
        found = keys_of(types, rows)
        with monkeypatch.context() as patched:
            patched.setattr(keys, "_SALT", np.array([1, 2, 3, 4], np.uint64))
            other = keys_of(types, rows)
        assert (found.high[0], found.low[0]) != (other.high[0], other.low[0])


def test_key_words_are_spread_over_all_shards() -> None:
    found = keys_of(("LONG",), [(number,) for number in range(6400)])
    counts = np.bincount(found.low & 63, minlength=64)
    assert counts.min() > 50
    assert np.unique(found.high >> 32).size > 6390


@given(st.lists(st.floats(), max_size=20))
def test_doubles_order_as_integers(numbers: list[float]) -> None:
    values = ordered(np.array(numbers))
    by_value = sorted(range(len(numbers)), key=lambda place: (math.isnan(numbers[place]), numbers[place], place))
    assert np.argsort(values, kind="stable").tolist() == by_value
    np.testing.assert_array_equal(ordered_back(values), np.array(numbers) + 0.0)
    assert not (values == NULL).any()


COLUMNS: list[tuple[dict[str, Any], list[Any], list[int]]] = [
    ({"type": "INT"}, [3, None, -4], [3, NULL, -4]),
    ({"type": "TIMESTAMP", "role": "dateTime"}, [86_400_000, None], [86_400_000, NULL]),
    ({"type": "STRING", "role": "dateTime", "format": "EPOCH|SECONDS"}, ["10", None, "9"], [10_000, NULL, 9_000]),
    (
        {"type": "STRING", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|MMddyyyy"},
        ["01021970", "01011971"],
        [86_400_000, 365 * 86_400_000],
    ),
    ({"type": "INT", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|yyyyMMdd"}, [19700103], [2 * 86_400_000]),
    ({"type": "BOOLEAN"}, [True, False, None], [1, 0, NULL]),
]


@pytest.mark.parametrize(("spec", "given_values", "expected"), COLUMNS, ids=[str(case[0]) for case in COLUMNS])
def test_comparison_values_and_back(spec: dict[str, Any], given_values: list[Any], expected: list[int]) -> None:
    one = field("at", **{"type_": spec["type"], **{key: value for key, value in spec.items() if key != "type"}})
    column = ComparisonColumn(one)
    rows = pa.table({"at": pa.array(given_values, arrow_type(one))})
    values = column.values(rows)
    assert values.tolist() == expected
    empty = pa.table({"at": pa.nulls(len(expected), arrow_type(one))})
    assert column.filled(empty, values).column("at") == rows.column("at")
    assert column.filled(rows, values).schema == rows.schema


def test_a_time_to_live_is_in_units_of_the_column_rounded_up() -> None:
    days = ComparisonColumn(field("at", "INT", role="dateTime", format="EPOCH|DAYS"))
    assert (days.to_live("25h"), days.to_live("2d"), days.to_live("7")) == (2, 2, 7)
    seconds = ComparisonColumn(field("at", "LONG", role="dateTime", format="1:SECONDS:EPOCH"))
    assert seconds.to_live("1h") == 3600
    micros = ComparisonColumn(field("at", "LONG", role="dateTime", format="EPOCH|MICROSECONDS"))
    assert micros.to_live("1s") == 1_000_000
    assert micros.below(np.array([5, -5]), micros.to_live("999999999w")).tolist() == [5 - LARGEST, NOTHING]
    assert micros.limits(np.array([5, -1]), 1).tolist() == [6_000, micros.largest]
    pattern = ComparisonColumn(field("at", "STRING", role="dateTime", format="SIMPLE_DATE_FORMAT|yyyyMMdd"))
    assert pattern.to_live("1d") == 86_400_000
    with pytest.raises(InvalidInputError, match="no time"):
        ComparisonColumn(field("version", "LONG")).to_live("1h")


@settings(max_examples=examples(50))
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=5), st.integers(0, 100))
def test_bounds_of_doubles_are_as_far_below_as_the_time_to_live(numbers: list[float], distance: int) -> None:
    column = ComparisonColumn(field("version", "DOUBLE"))
    below = column.below(ordered(np.array(numbers)), distance)
    assert ordered_back(below).tolist() == [number - distance for number in numbers]


def test_bounds_of_integers_stop_at_the_smallest() -> None:
    column = ComparisonColumn(field("version", "LONG"))
    assert column.below(np.array([NOTHING, NOTHING + 5, 10]), 7).tolist() == [NOTHING, NOTHING, 3]
    assert column.below(np.array([5]), None).tolist() == [NOTHING]


@pytest.mark.parametrize("spec", [{"type": "STRING"}, {"type": "BYTES"}, {"type": "LONG", "multiValue": True}])
def test_columns_without_an_order_in_time_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="comparison column must be"):
        ComparisonColumn(FieldSpec.model_validate({"name": "at", **spec}))
