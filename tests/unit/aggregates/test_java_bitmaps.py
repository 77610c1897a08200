"""Bitmaps and HyperLogLogs that Merlot makes, as RoaringBitmap and clearspring read and write them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit import java_oracle

from merlot.aggregates.distinct_forms import DistinctCountBitmap
from merlot.aggregates.function import AggregateCall
from merlot.aggregates.hyperloglog import DistinctCountHll
from merlot.aggregates.hyperloglog_plus import DistinctCountRawHllPlus
from merlot.tree.types import DOUBLE, FLOAT, INT, LONG, STRING
from merlot.upsert.valid_docs import Bits

ORACLE = """
import com.clearspring.analytics.stream.cardinality.HyperLogLog;
import com.clearspring.analytics.stream.cardinality.HyperLogLogPlus;
import com.clearspring.analytics.stream.cardinality.ICardinality;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.HexFormat;
import java.util.Scanner;
import org.roaringbitmap.IntIterator;
import org.roaringbitmap.RoaringBitmap;
public class Oracle {
  public static void main(String[] arguments) throws Exception {
    Scanner lines = new Scanner(System.in);
    while (lines.hasNext()) {
      String kind = lines.next();
      if (kind.equals("bitmap")) copy(HexFormat.of().parseHex(lines.next()));
      if (kind.equals("hll")) offer(new HyperLogLog(lines.nextInt()), lines.nextInt(), lines.next());
      if (kind.equals("plus")) offer(new HyperLogLogPlus(lines.nextInt(), 0), lines.nextInt(), lines.next());
    }
  }
  static void copy(byte[] image) throws Exception {
    RoaringBitmap read = new RoaringBitmap();
    read.deserialize(new DataInputStream(new ByteArrayInputStream(image)));
    RoaringBitmap copy = new RoaringBitmap();
    long sum = 0;
    for (IntIterator each = read.getIntIterator(); each.hasNext();) {
      int value = each.next();
      copy.add(value);
      sum += value;
    }
    copy.runOptimize();
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    copy.serialize(new DataOutputStream(out));
    System.out.println(read.getCardinality() + " " + sum + " " + HexFormat.of().formatHex(out.toByteArray()));
  }
  static void offer(ICardinality sketch, int number, String type) throws Exception {
    for (int place = 0; place < number; place++) {
      if (type.equals("INT")) sketch.offer(Integer.valueOf(place * 7919 - 20000));
      if (type.equals("LONG")) sketch.offer(Long.valueOf(((long) place * 7919 - 20000) << 20));
      if (type.equals("FLOAT")) sketch.offer(Float.valueOf(place / 8.0f - 300.0f));
      if (type.equals("DOUBLE")) sketch.offer(Double.valueOf(place / 8.0 - 300.0));
      if (type.equals("STRING")) sketch.offer("v" + place);
    }
    System.out.println(sketch.cardinality() + " " + HexFormat.of().formatHex(sketch.getBytes()));
  }
}
"""
JARS = ("RoaringBitmap-*.jar", "stream-*.jar")
ONE = np.zeros(1, np.int64)
TYPES = (INT, LONG, FLOAT, DOUBLE, STRING)
SIZES = [(log2m, number) for log2m in (4, 8, 12) for number in (1, 50, 30_000)]
DOCS = {
    "one": np.array([7]),
    "sparse": np.arange(0, 3_000_000, 997),
    "runs": np.concatenate([np.arange(10, 70_000), np.arange(200_000, 200_500)]),
    "dense": np.arange(0, 140_000, 3),
}


def values_of(type_, number: int):
    places = np.arange(number)
    if type_ is STRING:
        return pa.array([f"v{place}" for place in range(number)])
    made = {
        INT: (places * 7919 - 20000).astype(np.int32),
        LONG: (places.astype(np.int64) * 7919 - 20000) << 20,
        FLOAT: (places / 8.0 - 300.0).astype(np.float32),
        DOUBLE: places / 8.0 - 300.0,
    }
    return made[type_]


@pytest.mark.cluster
def test_java_reads_bitmaps_of_valid_docs_and_of_distinct_values_and_merlot_java_s(tmp_path: Path) -> None:
    function = DistinctCountBitmap()
    call = AggregateCall(types=(INT,), constants=(), result=INT)
    written = []
    for docs in DOCS.values():
        state = pa.array([docs.astype(np.int32).tolist()], pa.list_(pa.int32()))
        written.append((docs, Bits().changed(docs.astype(np.int64), to=True).serialized()))
        written.append((docs, function.to_bytes(call, [state])[0].as_py()))
    text = "\n".join(f"bitmap {image.hex()}" for _, image in written)
    answers = java_oracle.run(ORACLE, JARS, text, tmp_path)
    assert len(answers) == len(written)
    for (docs, _), answer in zip(written, answers, strict=True):
        count, total, image = answer.split()
        assert (int(count), int(total)) == (len(docs), int(docs.sum()))
        data = bytes.fromhex(image)
        assert np.array_equal(Bits.deserialized(data, 3_000_000).docs(), docs)
        assert function.from_bytes(pa.array([data]))[0].to_pylist() == [docs.tolist()]


@pytest.mark.cluster
def test_hyperloglogs_of_raw_values_are_clearspring_s_byte_for_byte(tmp_path: Path) -> None:
    asked = [(log2m, number, type_) for log2m, number in SIZES for type_ in TYPES]
    text = "\n".join(f"hll {log2m} {number} {type_.base.value}" for log2m, number, type_ in asked)
    answers = java_oracle.run(ORACLE, JARS, text, tmp_path)
    assert len(answers) == len(asked)
    function = DistinctCountHll()
    for (log2m, number, type_), answer in zip(asked, answers, strict=True):
        call = AggregateCall(types=(type_,), constants=(log2m,), result=LONG)
        state = function.start(call, 1)
        state.add([values_of(type_, number)], None, number)
        columns = state.columns(ONE)
        count, image = answer.split()
        assert columns[0][0].as_py().hex() == image
        assert function.finish(call, columns).data.tolist() == [int(count)]


@pytest.mark.cluster
def test_hyperloglogs_plus_of_raw_values_are_clearspring_s_byte_for_byte(tmp_path: Path) -> None:
    asked = [(p, number, type_) for p in (4, 9, 14) for number in (1, 50, 30_000) for type_ in TYPES]
    text = "\n".join(f"plus {p} {number} {type_.base.value}" for p, number, type_ in asked)
    answers = java_oracle.run(ORACLE, JARS, text, tmp_path)
    function = DistinctCountRawHllPlus()
    for (p, number, type_), answer in zip(asked, answers, strict=True):
        call = AggregateCall(types=(type_,), constants=(p,), result=STRING)
        state = function.start(call, 1)
        values = values_of(type_, number)
        state.add([values[: number // 2]], None, number // 2)
        state.add([values[number // 2 :]], None, number - number // 2)
        assert function.finish(call, state.columns(ONE)).data.to_pylist() == [answer.split()[1]]
