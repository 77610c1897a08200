"""Tuple sketches of integers: as DataSketches' Java library writes and reads them, and what is no sketch."""

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit import java_oracle

from merlot.aggregates import registry
from merlot.aggregates.function import AggregateCall
from merlot.aggregates.sketches import SketchError
from merlot.aggregates.tuple_images import image, read_images
from merlot.aggregates.tuples import TupleState
from merlot.tree.types import BYTES
from merlot.vectors.errors import QueryArithmeticError

ORACLE = """
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.datasketches.memory.Memory;
import org.apache.datasketches.tuple.Sketch;
import org.apache.datasketches.tuple.Sketches;
import org.apache.datasketches.tuple.TupleSketchIterator;
import org.apache.datasketches.tuple.Union;
import org.apache.datasketches.tuple.aninteger.IntegerSketch;
import org.apache.datasketches.tuple.aninteger.IntegerSummary;
import org.apache.datasketches.tuple.aninteger.IntegerSummaryDeserializer;
import org.apache.datasketches.tuple.aninteger.IntegerSummarySetOperations;
public class Oracle {
  public static void main(String[] arguments) {
    Scanner lines = new Scanner(System.in);
    while (lines.hasNext()) {
      byte[] image = HexFormat.of().parseHex(lines.next());
      tell(Sketches.heapifySketch(Memory.wrap(image), new IntegerSummaryDeserializer()), null);
    }
    for (int number : new int[] {0, 1, 2, 500, 60000}) {
      IntegerSketch sketch = new IntegerSketch(10, 3, 1.0f, IntegerSummary.Mode.Sum);
      for (int i = 0; i < number; i++) { sketch.update("v" + i, i % 50 - 9); sketch.update("v" + i / 2, 2); }
      Union union = new Union(
          1024, new IntegerSummarySetOperations(IntegerSummary.Mode.Sum, IntegerSummary.Mode.Sum));
      union.union(sketch);
      tell(sketch, sketch.toByteArray());
      tell(sketch, sketch.compact().toByteArray());
      tell(union.getResult(), union.getResult().toByteArray());
    }
  }
  static void tell(Sketch sketch, byte[] image) {
    long sum = 0;
    TupleSketchIterator each = sketch.iterator();
    while (each.next()) sum += ((IntegerSummary) each.getSummary()).getValue();
    String told = Math.round(sketch.getEstimate()) + " " + Math.round(sum / sketch.getTheta());
    System.out.println(told + " " + (image == null ? "-" : HexFormat.of().formatHex(image)));
  }
}
"""
ONE = np.zeros(1, np.int64)
NAMES = ("distinctcounttuplesketch", "sumvaluesintegersumtuplesketch")
WHOLE = (1 << 63) - 1


def answer(name: str, images: list[bytes], entries: int):
    function = registry.named(name)
    call = AggregateCall(types=(BYTES,), constants=(entries,), result=function.result((), ()))
    state = function.start(call, 1)
    state.add([pa.array(images, pa.binary())], None, len(images))
    return function.finish(call, state.columns(ONE)).to_arrow(1)[0].as_py()


def sample(number: int, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    hashes = np.sort(random.choice(1 << 40, number, replace=False).astype(np.uint64) + np.uint64(1))
    return image(1 << 41 if number > 60 else WHOLE, hashes, random.integers(-9, 99, number))


@pytest.mark.cluster
def test_java_reads_what_merlot_writes_and_merlot_what_java_writes(tmp_path: Path):
    groups = [[sample(0, 1)], [sample(1, 2)], [sample(50, 3), sample(40, 4)], [sample(900, 5), sample(30, 6)]]
    written = [base64.b64decode(answer("distinctcountrawintegersumtuplesketch", group, 512)) for group in groups]
    text = "\n".join(one.hex() for one in written)
    answers = java_oracle.run(ORACLE, ("datasketches-java-*.jar", "datasketches-memory-*.jar"), text, tmp_path)
    assert len(answers) == len(groups) + 15
    for group, line in zip(groups, answers, strict=False):
        assert [answer(name, group, 512) for name in NAMES] == [int(word) for word in line.split()[:2]]
    for line in answers[len(groups) :]:
        *told, stored = line.split()
        assert [answer(name, [bytes.fromhex(stored)], 4096) for name in NAMES] == [int(word) for word in told]


def test_a_union_keeps_the_least_hashes_with_all_of_their_values():
    random = np.random.default_rng(9)
    of_keys: dict[int, int] = {}
    images, least = [], WHOLE
    for seed in range(8):
        number = int(random.integers(1, 200))
        one = sample(number, seed)
        given = read_images(pa.array([one]))
        least = min(least, int(given.thetas[0]))
        for key, value in zip(given.hashes.tolist(), given.values.tolist(), strict=True):
            of_keys[key] = of_keys.get(key, 0) + value
        images.append(one)
    kept = sorted(key for key in of_keys if key < least)
    state = TupleState(1, 64)
    function = registry.named(NAMES[0])
    for one in images:
        state.merge(function.from_bytes(pa.array([one])), np.zeros(1, np.uint32))
    theta, hashes, values = (column.to_pylist()[0] for column in state.columns(ONE))
    assert theta == kept[64]
    assert hashes == kept[:64]
    assert values == [of_keys[key] for key in kept[:64]]


def test_images_with_flipped_bytes_are_refused_or_read():
    random = np.random.default_rng(3)
    whole = [np.frombuffer(sample(number, number), np.uint8) for number in (0, 1, 5, 200)]
    refused = 0
    for _ in range(4000):
        cell = whole[random.integers(4)].copy()
        cell[random.integers(len(cell))] = random.integers(256)
        cut = cell[: random.integers(len(cell))] if random.random() < 0.3 else cell
        try:
            read_images(pa.array([cut.tobytes()]))
        except SketchError:
            refused += 1
    assert 2000 < refused < 4000


@pytest.mark.parametrize(("value", "end"), [(2**31 - 1, 2**63 - 1), (-(2**31), -(2**63))])
def test_sums_past_a_long_are_its_ends_as_in_java(value: int, end: int):
    sparse = image(100, np.arange(1, 60, dtype=np.uint64), np.full(59, value))
    assert answer(NAMES[1], [sparse], 64) == end


def test_sums_that_an_image_cannot_hold_are_an_error():
    big = image(WHOLE, np.array([5], np.uint64), np.array([2**31 - 1]))
    assert answer(NAMES[1], [big, big, big], 64) == 3 * (2**31 - 1)
    with pytest.raises(QueryArithmeticError, match="does not fit 32 bits"):
        answer("distinctcountrawintegersumtuplesketch", [big, big], 64)
