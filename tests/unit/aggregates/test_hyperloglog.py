"""HyperLogLogs of raw values: the bytes and the estimates of clearspring's class, in stream-lib 2.9.8."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from merlot.aggregates import hyperloglog
from merlot.aggregates.function import AggregateCall
from merlot.aggregates.hyperloglog import DistinctCountHll, SketchState
from merlot.aggregates.sketches import SketchError
from merlot.tree.types import BYTES, DOUBLE, FLOAT, INT, LONG, STRING
from merlot.values.types import TypeName

FUNCTION = DistinctCountHll()
NUMBERS = (1, 40, 5000)
JAVAS = (
    (1, "000000040000000c000000000000000000001000"),
    (1, "000000040000000c000000000000000000000020"),
    (1, "000000040000000c000000020000000000000000"),
    (1, "000000040000000c000000000000000000010000"),
    (1, "000000040000000c000000000000800000000000"),
    (33, "000000040000000c040208010431042200011062"),
    (33, "000000040000000c001184240410084200010823"),
    (44, "000000040000000c085004620811842500018862"),
    (27, "000000040000000c0451140102200c6100020803"),
    (48, "000000040000000c02431823042100a500011463"),
    (5316, "000000040000000c1275a14d10e5a92a0005a168"),
    (4251, "000000040000000c1485a10912859d6a0004a129"),
    (3910, "000000040000000c1284a0fd149528e90006a109"),
    (4366, "000000040000000c0e77a95d1496b10b00049d0b"),
    (4918, "000000040000000c1284a52816d5a52c0003ad09"),
)
"""With log2m 4, of 1, 40 and 5,000 values: what `cardinality` and `getBytes` give of ints, longs, doubles, floats and
texts."""
JAVAS_ESTIMATES = [
    *(1, 1, 1, 1, 1, 40, 39, 39, 39, 39, 5249, 4910, 4657, 5066, 5235),
    *(1, 1, 1, 1, 1, 39, 40, 39, 40, 40, 4944, 4971, 5039, 5094, 5032),
]
"""Of the same with log2m 8, then 12."""


def inputs(number):
    places = np.arange(number)
    return (
        (INT, (places * 7919 - 20000).astype(np.int32)),
        (LONG, (places.astype(np.int64) * 7919 - 20000) << 20),
        (DOUBLE, places / 8.0 - 300.0),
        (FLOAT, (places / 8.0 - 300.0).astype(np.float32)),
        (STRING, pa.array([f"é{place}" + "ü" * (place % 3) for place in range(number)])),
    )


def call_of(type_, log2m):
    return AggregateCall(types=(type_,), constants=(log2m,), result=LONG)


def sketch_of(type_, values, log2m):
    state = FUNCTION.start(call_of(type_, log2m), 1)
    state.add([values], None, len(values))
    return state.columns(np.zeros(1, np.int64))


@pytest.mark.parametrize("notes", [False, True])
def test_sketches_are_those_that_java_makes(monkeypatch, notes):
    if notes:
        monkeypatch.setattr(hyperloglog, "MAX_DENSE_SPACE", 0)
        monkeypatch.setattr(hyperloglog, "MIN_PENDING", 100)
    got = []
    for number in NUMBERS:
        for type_, values in inputs(number):
            (column,) = sketch_of(type_, values, 4)
            got.append((int(hyperloglog.estimates(column)[0]), column[0].as_py().hex()))
    assert got == list(JAVAS)


def test_estimates_are_javas_for_any_size():
    columns = [
        sketch_of(type_, values, log2m)[0]
        for log2m in (8, 12)
        for number in NUMBERS
        for type_, values in inputs(number)
    ]
    assert [int(hyperloglog.estimates(column)[0]) for column in columns] == JAVAS_ESTIMATES


def test_sketches_of_one_length_are_estimated_by_their_own_log2m():
    registers = np.array([[9, 8, 7, 6]], np.uint8)
    sketches = [hyperloglog.packed(registers[:, : 1 << log2m], log2m) for log2m in (0, 1, 2)]
    assert {len(sketch[0].as_py()) for sketch in sketches} == {12}
    alone = [int(hyperloglog.estimates(sketch)[0]) for sketch in sketches]
    assert alone[1] != alone[2]
    assert hyperloglog.estimates(pa.concat_arrays([*sketches, *sketches[::-1]])).tolist() == [*alone, *alone[::-1]]


def test_notes_are_sorted_again_only_when_they_have_doubled(monkeypatch):
    sizes = []
    sort = np.sort
    monkeypatch.setattr(np, "sort", lambda values: sizes.append(len(values)) or sort(values))
    state = SketchState(TypeName.LONG, 1 << 12, 16, None)
    for chunk in range(40):
        values = np.arange(chunk << 17, (chunk + 1) << 17)
        state.add([values], (values & 0xFFF).astype(np.uint32), len(values))
    assert 1 << 20 < sum(sizes) < 2 * 40 << 17


def test_stored_sketches_unite_to_the_one_of_all_values():
    values = np.arange(9000, dtype=np.int64)
    stored = pa.concat_arrays([sketch_of(LONG, part, 8)[0] for part in (values[:4000], values[3000:], values[:0])])
    state = FUNCTION.start(call_of(BYTES, 8), 1)
    state.add([stored], None, len(stored))
    assert state.columns(np.zeros(1, np.int64)) == sketch_of(LONG, values, 8)


def test_bytes_that_are_no_sketch_are_refused():
    state = FUNCTION.start(call_of(BYTES, 8), 1)
    state.add([pa.array([b"abc"])], None, 1)
    with pytest.raises(SketchError, match="no serialized HyperLogLog"):
        state.columns(np.zeros(1, np.int64))


def test_equal_numbers_count_once():
    values = np.array([0.0, -0.0, np.nan, -np.nan, 1.0])
    assert hyperloglog.estimates(sketch_of(DOUBLE, values, 8)[0]).tolist() == [3]
