"""EXPR_MIN and EXPR_MAX answer what sorting the rows gives, whatever the types, however the rows come."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from merlot.aggregates import projections, registry
from merlot.aggregates.function import AggregateCall
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import arrow_type

VALUES = {
    TypeName.INT: [-3, 0, 2, None],
    TypeName.LONG: [-(2**63), 2**63 - 1, 5],
    TypeName.DOUBLE: [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan, None],
    TypeName.FLOAT: [-1.5, 0.25, math.nan],
    TypeName.BIG_DECIMAL: ["-10", "9", "10.5", None],
    TypeName.STRING: ["", "a", "ab", "\u00e9", None],
    TypeName.BYTES: [b"", b"\x00", b"\xff"],
    TypeName.BOOLEAN: [True, False, None],
}


def key_of(type_, value):
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    if type_ is TypeName.BIG_DECIMAL:
        return Decimal(value)
    return value.encode() if isinstance(value, str) else value


def sorted_rows(types, num_measures, rows, *, is_min):
    """The values of the rows that win."""
    kept = [row for row in rows if None not in row[:num_measures]]
    if not kept:
        return []
    keys = [tuple(map(key_of, types, row[:num_measures])) for row in kept]
    best = (min if is_min else max)(keys)
    return [row[num_measures:] for row, key in zip(kept, keys, strict=True) if key == best]


@pytest.mark.parametrize("seed", range(60))
def test_rows_that_win_are_those_that_sorting_puts_first(seed, monkeypatch):
    monkeypatch.setattr(projections, "_PENDING", 7)
    random_ = random.Random(seed)
    types = [random_.choice(list(VALUES)) for _ in range(random_.randrange(2, 5))]
    num_measures = random_.randrange(1, len(types))
    rows = [tuple(random_.choice(VALUES[type_]) for type_ in types) for _ in range(random_.randrange(60))]
    groups = [random_.randrange(3) for _ in rows]
    name = random_.choice(["exprmin", "exprmax"])
    place = random_.randrange(len(types) - num_measures)
    call = AggregateCall(
        types=tuple(map(SqlType, types)),
        constants=(num_measures, place),
        result=SqlType(types[num_measures + place]),
        nulls=True,
    )
    function = registry.named(name)
    state = function.start(call, 3)
    cut = random_.randrange(len(rows) + 1)
    for part in (slice(0, cut), slice(cut, None)):
        columns = [
            pa.array([row[n] for row in rows[part]], arrow_type(SqlType(type_))) for n, type_ in enumerate(types)
        ]
        state.add(columns, np.array(groups[part], np.uint32), len(rows[part]))
    answers = function.finish(call, state.columns(np.arange(3))).to_arrow(3).to_pylist()
    for group, answer in enumerate(answers):
        mine = [row for row, owner in zip(rows, groups, strict=True) if owner == group]
        wanted = sorted_rows(types, num_measures, mine, is_min=name == "exprmin")
        assert sorted(map(repr, answer)) == sorted(repr(row[place]) for row in wanted)


@pytest.mark.parametrize("base", [TypeName.FLOAT, TypeName.DOUBLE])
def test_rows_that_differ_by_the_sign_of_a_zero_have_one_order(base):
    types = (SqlType(TypeName.INT), SqlType(base))
    call = AggregateCall(types=types, constants=(1, 0), result=SqlType(base))
    function = registry.named("exprmin")
    for zeros in ([0.0, -0.0, None], [None, -0.0, 0.0]):
        state = function.start(call, 1)
        state.add([pa.array([1, 1, 1], pa.int32()), pa.array(zeros, arrow_type(types[1]))], None, 3)
        answer = function.finish(call, state.columns(np.arange(1))).to_arrow(1).to_pylist()
        assert str(answer) == "[[-0.0, 0.0, None]]"
