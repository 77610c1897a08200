"""Orders of magnitude of distinct values as a record has them."""

from __future__ import annotations

import pytest

from merlot.cluster.column_types import format_columns
from merlot.cluster.distincts import format_distincts, positions
from merlot.values.types import TypeName


@pytest.mark.parametrize(
    ("cardinality", "wanted"),
    [(None, "."), (0, "0"), (1, "0"), (2, "1"), (3, "2"), (4, "2"), (5, "3"), (1 << 10, "a"), ((1 << 32) - 2, "w")],
)
def test_a_column_of_up_to_a_power_of_two_values_has_its_exponent(cardinality: int | None, wanted: str) -> None:
    assert format_distincts({"k": cardinality}) == wanted


def test_characters_are_in_the_order_of_the_columns() -> None:
    columns = format_columns({"b": (TypeName.INT, False), "a,%": (TypeName.STRING, True)})
    assert positions(columns) == {"a,%": 0, "b": 1}
    assert format_distincts({"b": 8, "a,%": 1}) == "03"
    assert positions("") == {}
