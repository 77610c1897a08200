"""The state of an aggregate over no rows changes nothing, and is what finishing it expects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from merlot.query import aggregates
from merlot.query.aggregates import SUPPORTED, state_fields
from merlot.spec.types import TypeName
from merlot.tree.nodes import Aggregate, Column
from merlot.tree.types import DOUBLE, LONG, SqlType

VALUES = {
    TypeName.INT: [3, -7, 3],
    TypeName.LONG: [2**62, -(2**62), 5],
    TypeName.FLOAT: [1.5, -0.5, 0.25],
    TypeName.DOUBLE: [1e300, -2.5, 0.0],
    TypeName.BIG_DECIMAL: ["12345678901234567890.5", "-1", "0.25"],
}
LONG_FORMS = {"count", "sumlong", "minlong", "maxlong", "distinctcount"}


def cases():
    for function in sorted(SUPPORTED):
        for base in VALUES:
            if not (function.endswith("long") and base not in (TypeName.INT, TypeName.LONG)):
                yield function, base


def rows_of(base):
    return [{"x": value} for value in VALUES[base]]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(("function", "base"), list(cases()))
def test_merging_the_identity_changes_nothing(make_table, function, base, nulls):
    aggregate = Aggregate(function, (Column("x", SqlType(base)),), LONG if function in LONG_FORMS else DOUBLE)
    role = {"role": "metric"} if base is not TypeName.BIG_DECIMAL else {}
    table = make_table([{"name": "x", "type": base.value, **role}], rows_of(base))
    option = "SET enableNullHandling=true; " if nulls else ""
    # DISTINCTCOUNT keeps the query off the way of plain sums, which have no such states.
    states = table.partial(f"{option}SELECT {function}(x), DISTINCTCOUNT(x) FROM t").data
    fields = state_fields(aggregate, nulls=nulls)
    state = [states.column(place).combine_chunks() for place in range(len(fields))]
    assert [one.type for one in state] == [one.type for one in fields]
    both = [pa.concat_arrays([one.identity(), known, one.identity()]) for one, known in zip(fields, state, strict=True)]
    merged = aggregates.merge(aggregate, both, np.zeros(3, np.uint32), 1)
    assert [one.to_pylist() for one in merged] == [one.to_pylist() for one in state]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(("function", "base"), list(cases()))
def test_no_rows_answer_alike_by_the_identity_and_by_a_filter_that_keeps_none(make_table, function, base, nulls):
    table = make_table([{"name": "x", "type": base.value}], rows_of(base))
    option = "SET enableNullHandling=true; " if nulls else ""
    nothing = table.query(f"{option}SELECT {function}(x), DISTINCTCOUNT(x) FROM t WHERE x = 99")
    kept_none = table.query(f"{option}SELECT {function}(x) FILTER (WHERE x = 99), DISTINCTCOUNT(x) FROM t")
    assert [nothing[0][0], 0] == [kept_none[0][0], nothing[0][1]]
