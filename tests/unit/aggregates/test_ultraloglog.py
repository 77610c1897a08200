"""UltraLogLogs: the registers and the estimates of hash4j, how near those are, and states in parts."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.clients import java_jars

from merlot.aggregates import hyperloglog
from merlot.aggregates.function import AggregateCall
from merlot.aggregates.sketches import SketchError
from merlot.aggregates.ultraloglog import DistinctCountRawUll, DistinctCountUll, counted
from merlot.aggregates.ultraloglog_estimate import counts_of, estimates, rounded
from merlot.tree.types import BYTES, DOUBLE, FLOAT, INT, LONG, STRING

HASH4J = "com.dynatrace.hash4j:hash4j:0.22.0"
ORACLE = """
import com.dynatrace.hash4j.distinctcount.UltraLogLog;
import com.dynatrace.hash4j.hashing.*;
import java.util.Base64;
import java.util.Scanner;
public class Oracle {
  public static void main(String[] arguments) {
    Scanner lines = new Scanner(System.in);
    while (lines.hasNext()) {
      int p = lines.nextInt(), number = lines.nextInt();
      String type = lines.next();
      if (type.equals("-")) tell(UltraLogLog.wrap(Base64.getDecoder().decode(lines.next())).downsize(p));
      else tell(of(p, number, type));
    }
  }
  static UltraLogLog of(int p, int number, String type) {
    UltraLogLog sketch = UltraLogLog.create(p);
    Hasher64 hasher = Hashing.wyhashFinal4();
    for (int place = 0; place < number; place++) {
      HashStream64 stream = hasher.hashStream();
      if (type.equals("INT")) stream.putInt(place * 7919 - 20000);
      if (type.equals("LONG")) stream.putLong(((long) place * 7919 - 20000) << 20);
      if (type.equals("DOUBLE")) stream.putDouble(place / 8.0 - 300);
      if (type.equals("FLOAT")) stream.putFloat((float) (place / 8.0 - 300));
      if (type.equals("STRING")) stream.putString("\\u00e9\\ud83d\\ude00" + place + "\\u00fc".repeat(place % 30));
      sketch.add(stream.getAsLong());
    }
    return sketch;
  }
  static void tell(UltraLogLog sketch) {
    System.out.println(
        Base64.getEncoder().encodeToString(sketch.getState()) + " " + sketch.getDistinctCountEstimate());
  }
}
"""
TYPES = (INT, LONG, DOUBLE, FLOAT, STRING)
ONE = np.zeros(1, np.int64)
KNOWN = (
    (3, 1, INT, "AAAAAAAMAAA=", 0.959665300797781),
    (3, 1, LONG, "CAAAAAAAAAA=", 0.9517208029567107),
    (3, 1, DOUBLE, "AAAAAAAIAAA=", 0.9517208029567107),
    (3, 1, FLOAT, "AAAAAAAQAAA=", 1.0660807983915555),
    (3, 1, STRING, "AAAMAAAAAAA=", 0.959665300797781),
    (3, 50, INT, "CA4oExMTKBc=", 54.4298929319227),
    (3, 50, LONG, "DhMREyAaGxM=", 55.502526336097525),
    (3, 50, DOUBLE, "GRUTFxwVFxE=", 58.136176365493355),
    (3, 50, FLOAT, "EQ4XGRwXFhM=", 51.27919199631835),
    (3, 50, STRING, "GA4cCBwVJQg=", 34.24287846855339),
    (3, 5000, INT, "Ny80KysxKys=", 5226.8190300085),
    (3, 5000, LONG, "QC8rKy8uKys=", 4692.0433537099925),
    (3, 5000, DOUBLE, "LycnLysnMkA=", 3637.5934073095564),
    (3, 5000, FLOAT, "Jy8rMTMrKy0=", 4176.661207809487),
    (3, 5000, STRING, "MStAMi4rLy0=", 4474.027256895574),
)
"""p, how many values, their type, and what hash4j 0.22 makes of them and estimates."""


def values_of(type_, number):
    places = np.arange(number)
    if type_ == INT:
        return (places * 7919 - 20000).astype(np.int32)
    if type_ == LONG:
        return (places.astype(np.int64) * 7919 - 20000) << 20
    if type_ == STRING:
        return pa.array([f"é😀{place}" + "ü" * (place % 30) for place in range(number)], pa.string())
    return (places / 8.0 - 300).astype(np.float32 if type_ == FLOAT else np.float64)


def sketch_of(values, p, type_=LONG):
    call = AggregateCall(types=(type_,), constants=(p,), result=STRING)
    state = DistinctCountRawUll().start(call, 1)
    state.add([values[: len(values) // 2]], None, len(values) // 2)
    state.add([values[len(values) // 2 :]], None, len(values) - len(values) // 2)
    return state.columns(ONE)[0]


def raw(p, number, type_):
    call = AggregateCall(types=(type_,), constants=(p,), result=STRING)
    return DistinctCountRawUll().finish(call, [sketch_of(values_of(type_, number), p, type_)]).data[0].as_py()


def estimate(cell, p):
    registers = np.frombuffer(base64.b64decode(cell), np.uint8)
    return estimates(counts_of(registers[np.newaxis]), p)[0]


@pytest.mark.parametrize("notes", [False, True])
def test_registers_and_estimates_are_those_that_hash4j_makes(monkeypatch, notes):
    if notes:
        monkeypatch.setattr(hyperloglog, "MAX_DENSE_SPACE", 0)
        monkeypatch.setattr(hyperloglog, "MIN_PENDING", 100)
    for p, number, type_, registers, known in KNOWN:
        assert raw(p, number, type_) == registers
        assert estimate(registers, p) == pytest.approx(known, rel=1e-12)


@pytest.mark.cluster
def test_hash4j_makes_the_same_registers_and_estimates(tmp_path: Path) -> None:
    folder = java_jars.ROOT / "build" / "hash4j-0.22.0"
    java, jars = java_jars.compiler(), java_jars.fetched(folder, [HASH4J])
    asked = [(p, number, type_) for p in (3, 8, 12) for number in (0, 1, 50, 30_000) for type_ in TYPES]
    chance = np.random.default_rng(6)
    odd = [(p, forged(p, chance)) for p in (3, 6, 11) for _ in range(30)]
    text = [f"{p} {number} {type_.base.value}" for p, number, type_ in asked]
    text += [f"{p - step} 0 - {cell}" for p, cell in odd for step in (0, min(2, p - 3))]
    (tmp_path / "Oracle.java").write_text(ORACLE)
    done = subprocess.run(
        [java, "-cp", jars, str(tmp_path / "Oracle.java")],
        input="\n".join(text),
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    answers = [line.split() for line in done.stdout.splitlines()]
    for (p, number, type_), (registers, known) in zip(asked, answers, strict=False):
        assert raw(p, number, type_) == registers
        assert estimate(registers, p) == pytest.approx(float(known), rel=1e-11)
    smaller = [(p - step, cell) for p, cell in odd for step in (0, min(2, p - 3))]
    for (p, cell), (registers, known) in zip(smaller, answers[len(asked) :], strict=True):
        assert downsized(cell, p) == registers
        assert estimate(registers, p) == pytest.approx(float(known), rel=1e-11)


def forged(p, chance):
    """Registers from all that may be, most of them near some size, the least and the greatest ones among them."""
    every = np.array([0, 4 * p - 4, 4 * p, 4 * p + 2, *range(4 * p + 4, 256)])
    middle = chance.choice([0, len(every) // 2, len(every)])
    places = np.clip(chance.normal(middle, 4, 1 << p).astype(int), 0, len(every) - 1)
    return base64.b64encode(every[places].astype(np.uint8).tobytes()).decode()


def downsized(cell, p):
    registers = base64.b64decode(cell)
    full = (len(registers)).bit_length() - 1
    empty = bytes([p, *bytes(1 << p)])
    return base64.b64encode(united([bytes([full]) + registers, empty])[1:]).decode()


def united(cells):
    call = AggregateCall(types=(BYTES,), result=LONG)
    state = DistinctCountUll().start(call, 1)
    state.add([pa.array(cells, pa.binary())], None, len(cells))
    return state.columns(ONE)[0][0].as_py()


@pytest.mark.parametrize("p", [6, 10, 12])
def test_estimates_are_as_near_as_the_paper_says(p):
    """The relative standard error of many values is the square root of 0.6119 / 2^p; less of few."""
    chance = np.random.default_rng(p)
    error = (0.6119 / (1 << p)) ** 0.5
    for number in (10, 300, 20_000):
        counts = [int(counted(sketch_of(chance.integers(0, 1 << 62, number), p))[0]) / number - 1 for _ in range(40)]
        assert np.sqrt(np.mean(np.square(counts))) < 1.4 * error + 0.5 / number
        assert abs(np.mean(counts)) < 3 * error / 40**0.5 + 0.5 / number


def test_stored_sketches_unite_to_the_one_of_all_values(monkeypatch):
    values = np.arange(9000, dtype=np.int64)
    parts = [sketch_of(part, p)[0].as_py() for part, p in ((values[:4000], 8), (values[3000:], 9), (values[:0], 9))]
    whole = sketch_of(values, 8)[0].as_py()
    assert parts[2] == b""
    assert united(parts) == whole
    monkeypatch.setattr(hyperloglog, "MAX_WAITING", 0)
    state = DistinctCountUll().start(AggregateCall(types=(BYTES,), result=LONG), 1)
    for part in parts:
        state.add([pa.array([part], pa.binary())], None, 1)
    assert state.columns(ONE)[0][0].as_py() == whole


@pytest.mark.parametrize("cell", [b"abc", b"\2" + bytes(4), b"\3" + bytes(7), b"\3" + bytes(9), b"\3\1" + bytes(7)])
def test_bytes_that_are_no_sketch_are_refused(cell):
    with pytest.raises(SketchError, match="no serialized UltraLogLog"):
        united([b"\3" + bytes(8), cell])


@pytest.mark.parametrize(
    ("function", "type_", "most"), [(DistinctCountUll(), BYTES, 26), (DistinctCountRawUll(), INT, 20)]
)
def test_p_is_bounded(function, type_, most):
    for p in (3, most):
        assert function.problem((type_,), (p,)) is None
    for p in (-5, 2, most + 1, (1 << 31) - 1):
        assert function.problem((type_,), (p,)) == f"p must be 3 to {most} got={p}"


def test_equal_numbers_count_once():
    assert counted(sketch_of(np.array([0.0, -0.0, np.nan, -np.nan, 1.0]), 8, DOUBLE)).tolist() == [3]


def test_full_registers_say_the_greatest_number():
    full = np.full((1, 8), 255, np.uint8)
    assert rounded(estimates(counts_of(full), 3)).tolist() == [2**63 - 1]
