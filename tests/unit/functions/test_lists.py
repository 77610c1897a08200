"""Functions of lists know the numbers of a list of BIG_DECIMAL, and keep to the type of their result."""

from __future__ import annotations

import pytest
from tests.contracts.functions.values import value_of

from merlot.tree.errors import SqlValidationError

LARGE = "ARRAY[12345678901234567890, 2, 10]"


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (f"ARRAYMIN({LARGE})", "2"),
        (f"ARRAYMAX({LARGE})", "12345678901234567890"),
        (f"ARRAYMIN(VALUE_IN({LARGE}, 3))", "0"),
        (f"{LARGE}[1]", "12345678901234567890"),
        (f"{LARGE}[9]", "0"),
        (f"VALUE_IN({LARGE}, 2)", ["2"]),
        (f"ARRAYCONTAINSLONG({LARGE}, 2)", True),
        (f"ARRAYINDEXOFLONG({LARGE}, 10)", 2),
        (f"ARRAYREMOVELONG({LARGE}, 12345678901234567890)", ["2", "10"]),
        (f"ARRAYSORTSTRING({LARGE})", ["2", "10", "12345678901234567890"]),
        (f"ARRAYSUM({LARGE})", 12345678901234567902.0),
    ],
)
def test_big_decimals_of_a_list_are_numbers(call: str, wanted: object) -> None:
    assert value_of(call) == wanted


@pytest.mark.parametrize("function", ["ARRAYSUMINT", "ARRAYSUMLONG"])
def test_a_sum_of_64_bits_refuses_big_decimals(function: str) -> None:
    with pytest.raises(SqlValidationError, match="needs numbers other than BIG_DECIMAL"):
        value_of(f"{function}({LARGE})")


def test_a_list_of_ints_has_no_number_beyond_int() -> None:
    with pytest.raises(SqlValidationError):
        value_of("GENERATE_INT_ARRAY(3000000000, 3000000001)")
    assert value_of("GENERATE_LONG_ARRAY(3000000000, 3000000001)") == [3000000000, 3000000001]
