"""Functions of lists keep to the type of their result."""

from __future__ import annotations

import pytest
from tests.contracts.functions.values import value_of

from merlot.tree.errors import SqlValidationError


def test_a_list_of_ints_has_no_number_beyond_int() -> None:
    with pytest.raises(SqlValidationError):
        value_of("GENERATE_INT_ARRAY(3000000000, 3000000001)")
    assert value_of("GENERATE_LONG_ARRAY(3000000000, 3000000001)") == [3000000000, 3000000001]
