"""No rows answer alike, whether no segment has any or a FILTER keeps none."""

from __future__ import annotations

import pytest

from merlot.aggregates import registry
from merlot.values.types import TypeName

VALUES = {
    TypeName.INT: [3, -7, 3],
    TypeName.LONG: [2**62, -(2**62), 5],
    TypeName.FLOAT: [1.5, -0.5, 0.25],
    TypeName.DOUBLE: [1e300, -2.5, 0.0],
    TypeName.BIG_DECIMAL: ["12345678901234567890.5", "-1", "0.25"],
}
CASES = [
    (function, base)
    for function in registry.FUNCTIONS
    for base in VALUES
    if len(function.parameters) == 1 and base in function.parameters[0].takes
]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(("function", "base"), CASES, ids=lambda case: getattr(case, "name", str(case)))
def test_no_rows_answer_alike_by_the_identity_and_by_a_filter_that_keeps_none(make_table, function, base, nulls):
    is_list = function.flattens
    rows = [{"x": [value] if is_list else value, "y": str(value)} for value in VALUES[base]]
    fields = [{"name": "x", "type": base.value, "multiValue": is_list}, {"name": "y", "type": "STRING"}]
    table = make_table(fields, rows)
    option = "SET enableNullHandling=true; " if nulls else ""
    nothing = table.query(f"{option}SELECT {function.name}(x), DISTINCTCOUNT(y) FROM t WHERE x = 99")
    kept_none = table.query(f"{option}SELECT {function.name}(x) FILTER (WHERE x = 99), DISTINCTCOUNT(y) FROM t")
    assert [nothing[0][0], 0] == [kept_none[0][0], nothing[0][1]]
