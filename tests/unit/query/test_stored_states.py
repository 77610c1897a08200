"""Aggregates of BYTES columns read the states that are stored there."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from merlot.aggregates.function import AggregateCall
from merlot.aggregates.hyperloglog import DistinctCountHll
from merlot.aggregates.sketches import SketchError
from merlot.tree.types import INT, LONG

FIELDS = [{"name": "k", "type": "INT"}] + [
    {"name": name, "type": "BYTES", "role": "metric"} for name in ("pair", "ends", "sketch")
]


def sketch_of(*values):
    state = DistinctCountHll().start(AggregateCall(types=(INT,), result=LONG), 1)
    state.add([np.array(values, np.int32)], None, len(values))
    return state.columns(np.zeros(1, np.int64))[0][0].as_py()


def row(k, total, count, ends, *values):
    pair = struct.pack(">dq", total, count)
    return {"k": k, "pair": pair, "ends": struct.pack(">dd", *ends), "sketch": sketch_of(*values)}


SEGMENTS = (
    [row(1, 10.0, 4, (-2.0, 5.5), 1, 2, 3), row(2, 1.5, 1, (1.5, 1.5), 9)],
    [row(1, -4.0, 2, (-8.0, 0.0), 3, 4), {"k": 2, "pair": None, "ends": None, "sketch": None}],
    [{"k": 3, "pair": b"", "ends": b"", "sketch": b""}],
)
CALLS = "AVG(pair), MINMAXRANGE(ends), DISTINCTCOUNTHLL(sketch)"


@pytest.mark.parametrize(("option", "nothing"), [("", "-Infinity"), ("SET enableNullHandling=true; ", None)])
def test_stored_states_merge_over_rows_and_segments(make_table, option, nothing):
    table = make_table(FIELDS, *SEGMENTS)
    assert table.query(f"{option}SELECT {CALLS} FROM t") == [[7.5 / 7, 13.5, 5]]
    assert table.query(f"{option}SELECT k, {CALLS} FROM t GROUP BY k ORDER BY k") == [
        [1, 1.0, 13.5, 4],
        [2, 1.5, 0.0, 1],
        [3, nothing, nothing, 0],
    ]


@pytest.mark.parametrize("call", ["AVG(ends)", "MINMAXRANGE(sketch)", "DISTINCTCOUNTHLL(pair)"])
def test_bytes_of_another_kind_are_refused(make_table, call):
    if call == "AVG(ends)":
        rows = [{"k": 1, "pair": b"", "ends": struct.pack(">dq", 1.0, -1), "sketch": b""}]
    else:
        rows = [row(1, 1.0, 1, (1.0, 2.0), 1)]
    with pytest.raises(SketchError, match="bytes are no"):
        make_table(FIELDS, rows).query(f"SELECT {call} FROM t")
