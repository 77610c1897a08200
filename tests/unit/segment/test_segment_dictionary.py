"""Finding dict ids by value."""

import bisect
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.unit.segment.segment_tables import build, field_of, table_of

from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.dictionary import ValueDictionary
from merlot.spec.indexing import Encoding, IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName


def dictionary_of(directory: Path, type_name: TypeName, values: list[Any]) -> ValueDictionary:
    schema = TableSchema(fields=(field_of(type_name, name="c"),))
    indexing = IndexingSpec(encodings={"c": Encoding.DICTIONARY})
    column = ImmutableSegment.open(build(directory, schema, table_of(schema, {"c": values}), indexing).path).column("c")
    assert column is not None
    assert column.dictionary is not None
    return column.dictionary


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        (TypeName.INT, [-5, 0, 3, 2**31 - 1]),
        (TypeName.LONG, [-(2**63), 7, 2**63 - 1]),
        (TypeName.DOUBLE, [-math.inf, -1.5, 0.25, math.inf]),
        (TypeName.FLOAT, [-1.5, 0.25]),
        (TypeName.STRING, ["", "a", "aa", "b", "é", "\U0001f377"]),
        (TypeName.BYTES, [b"", b"\x00", b"\x7f", b"\xff"]),
        (TypeName.BIG_DECIMAL, ["-10", "-9.5", "0", "2", "10", "1000000000000000000000000000000.1"]),
    ],
)
def test_values_and_ranges_are_found(tmp_path: Path, type_name: TypeName, values: list[Any]) -> None:
    dictionary = dictionary_of(tmp_path, type_name, values[::-1])
    keys = [Decimal(value) if type_name is TypeName.BIG_DECIMAL else value for value in values]
    assert dictionary.arrow().to_pylist() == values
    assert len(dictionary) == len(values)
    for position, key in enumerate(keys):
        assert dictionary.index_of(key) == position
        for other_position, other in enumerate(keys):
            for include_low in (False, True):
                for include_high in (False, True):
                    start, stop = dictionary.range_of(key, other, include_low, include_high)
                    low, high = position + (not include_low), other_position + include_high
                    assert (start, stop) == (low, max(low, high))
    assert dictionary.range_of(None, None, False, False) == (0, len(values))
    assert dictionary.range_of(keys[1], None, True, True) == (1, len(values))
    assert dictionary.range_of(None, keys[1], True, False) == (0, 1)


def test_values_that_are_absent_are_not_found(tmp_path: Path) -> None:
    numbers = dictionary_of(tmp_path, TypeName.INT, [1, 5, 9])
    assert [numbers.index_of(value) for value in (0, 2, 10, 2**70, -(2**70))] == [-1] * 5
    assert numbers.range_of(2, 2**70, True, True) == (1, 3)
    texts = dictionary_of(tmp_path, TypeName.STRING, ["b", "d"])
    assert [texts.index_of(value) for value in ("", "a", "c", "e", "bb")] == [-1] * 5
    assert texts.range_of("c", "a", True, True) == (1, 1)


def test_zeros_of_both_signs_are_a_range_and_nan_is_the_largest(tmp_path: Path) -> None:
    dictionary = dictionary_of(tmp_path, TypeName.DOUBLE, [math.nan, 0.0, -1.0, -0.0, math.inf])
    values = dictionary.arrow().to_pylist()
    assert [math.copysign(1, value) for value in values[1:3]] == [-1, 1]
    assert values[:4] == [-1, 0, 0, math.inf]
    assert math.isnan(values[4])
    assert dictionary.range_of(0.0, 0.0, True, True) == (1, 3)
    assert dictionary.index_of(0.0) in (1, 2)
    assert dictionary.index_of(math.nan) == 4
    assert dictionary.range_of(0.0, None, False, False) == (3, 5)
    assert dictionary.range_of(0.0, math.inf, False, True) == (3, 4)
    assert dictionary.range_of(math.nan, math.nan, True, True) == (4, 5)


def test_an_empty_dictionary_finds_nothing(tmp_path: Path) -> None:
    for type_name in (TypeName.INT, TypeName.STRING, TypeName.DOUBLE):
        dictionary = dictionary_of(tmp_path, type_name, [])
        assert len(dictionary) == 0
        assert dictionary.index_of("a" if type_name is TypeName.STRING else 1) == -1
        assert dictionary.range_of(None, None, True, True) == (0, 0)


def test_equal_decimals_are_one_value(tmp_path: Path) -> None:
    dictionary = dictionary_of(tmp_path, TypeName.BIG_DECIMAL, ["1.0", "1.00", "1", "1E+2", "-0"])
    assert dictionary.arrow().to_pylist() == ["0", "1", "100"]
    assert dictionary.index_of(Decimal("1.000")) == 1


@given(values=st.sets(st.text(max_size=4), min_size=1), probe=st.text(max_size=4))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_strings_are_ordered_by_their_bytes(tmp_path: Path, values: set[str], probe: str) -> None:
    dictionary = dictionary_of(tmp_path, TypeName.STRING, list(values))
    ordered = sorted(value.encode() for value in values)
    assert [value.encode() for value in dictionary.arrow().to_pylist()] == ordered
    expected = bisect.bisect_left(ordered, probe.encode())
    assert dictionary.range_of(probe, None, True, True) == (expected, len(ordered))
