"""Serialized sketches in a rollup: the bytes that Java's classes write, and those that they make of several."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit import java_oracle
from tests.unit.merge.merge_tables import built, merge, plan_of, read_rows

from merlot.errors import InvalidInputError
from merlot.kernels import warm
from merlot.merge import folds
from merlot.merge.columns import MergeColumn
from merlot.merge.plan import MergeMode, MetricAggregation
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName
from merlot.vectors.groups import Groups

HLLS = (
    "000000040000000c069084c20200842200000401",
    "000000040000000c029084c20e008c0a00010001",
    "000000040000000c023004620e108c2a00010001",
    "000000040000000c069084c20e108c2a00010401",
)
"""Of clearspring's HyperLogLog(4).getBytes: three, and what addAll makes of them."""
VERBOSE = (
    (
        "00000001c02c24ea9166b75b4038d1f1ae1ac3744024000000000000000000063ff0000000000000c02c24ea9166b75b4000"
        "000000000000c0210a0ef0119db540140000000000004003c8bb523f5d80400000000000000040252caa03d2c41c3ff00000"
        "00000000402ab5a00be278cc3ff00000000000004038d1f1ae1ac374"
    ),
    (
        "00000001c0211fa1aad4b7d7402f85d5b4e115bd4024000000000000000000063ff0000000000000c0211fa1aad4b7d74000"
        "000000000000c01cf7682900e64940140000000000003fdd8155c29ddc4040000000000000004020ce4f4633c84a3ff00000"
        "0000000040288be118f1a78a3ff0000000000000402f85d5b4e115bd"
    ),
    (
        "00000001c035718f32ee05ae4031ac96417149824024000000000000000000063ff0000000000000c035718f32ee05ae4000"
        "000000000000c0295a5dc72ca2264014000000000000400476b83b7e5fd24000000000000000402a81304746d3cb3ff00000"
        "00000000403189dc078568723ff00000000000004031ac9641714982"
    ),
    (
        "00000001c035718f32ee05ae4038d1f1ae1ac3744024000000000000000000083ff0000000000000c035718f32ee05ae3ff0"
        "000000000000c02c24ea9166b75b4014000000000000c02461b23843718340280000000000003f8fe7cc1253000040280000"
        "00000000401dd96f1651ba9e4008000000000000402f1a649a9a1fcf3ff00000000000004031ac96417149823ff000000000"
        "00004038d1f1ae1ac374"
    ),
)
"""Of MergingDigest(10) of t-digest 3.3, asBytes: three, and their centroids merged in one pass."""
SMALL = (
    (
        "00000002c02c24ea9166b75b4038d1f1ae1ac37441200000003200fa00063f800000c161275540000000c108507840a00000"
        "401e45db40000000412965503f8000004155ad003f80000041c68f8d"
    ),
    (
        "00000002c0211fa1aad4b7d7402f85d5b4e115bd41200000003200fa00063f800000c108fd0d40000000c0e7bb4140a00000"
        "3eec0aae400000004106727a3f80000041445f093f800000417c2eae"
    ),
    (
        "00000001c02c24eaa00000004038d1f1a00000004024000000000000000000073ff0000000000000c02c24eaa00000003ff0"
        "000000000000c0211fa1a00000004010000000000000c01f85c31000000040280000000000004004fbea0a00000040100000"
        "00000000402766b5480000003ff0000000000000402f85d5c00000003ff00000000000004038d1f1a0000000"
    ),
)
"""asSmallBytes: two, and their centroids merged in one pass (asBytes), which knows least and greatest as floats."""
FIELD = FieldSpec(name="s", type=TypeName.BYTES, role=FieldRole.METRIC)
SCHEMA = TableSchema(fields=(FieldSpec(name="at", type=TypeName.TIMESTAMP, role=FieldRole.DATE_TIME), FIELD))
FACTOR = {"compressionFactor": "10"}
ORACLE = """
import com.clearspring.analytics.stream.cardinality.HyperLogLog;
import java.util.HexFormat;
public class Oracle {
  public static void main(String[] arguments) throws Exception {
    for (int log2m : new int[] {1, 8, 12}) {
      HyperLogLog all = new HyperLogLog(log2m);
      for (int part = 0; part < 3; part++) {
        HyperLogLog one = new HyperLogLog(log2m);
        for (int i = 0; i < 900; i++) one.offer("v" + (part * 450 + i));
        System.out.println(HexFormat.of().formatHex(one.getBytes()));
        all.addAll(one);
      }
      System.out.println(HexFormat.of().formatHex(all.getBytes()));
    }
  }
}
"""


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    for kernel, arguments in warm._sketches():
        kernel(*arguments)


def fold(cells, of_rows, function, parameters=None):
    column = MergeColumn(
        field=FIELD,
        num_rows=len(cells),
        values=pa.array([cell or b"" for cell in cells], pa.binary()),
        nulls=np.array([cell is None for cell in cells]),
    )
    groups = Groups(np.array(of_rows, np.uint32), np.unique(of_rows, return_index=True)[1].astype(np.uint32))
    how = MetricAggregation(function=function, parameters=parameters or {})
    by_value = folds.fold(column, FIELD, how, groups).values.to_pylist()
    assert folds.fold(column.coded(), FIELD, how, groups).values.to_pylist() == by_value
    return by_value


def raw(texts):
    return [bytes.fromhex(text) for text in texts]


def test_hyperloglogs_become_the_one_that_java_makes_of_them():
    *parts, union = raw(HLLS)
    assert fold(parts, [0, 0, 0], "DISTINCTCOUNTHLL") == [union]
    assert fold(parts[::-1], [0, 0, 0], "DISTINCTCOUNTRAWHLL") == [union]
    first_two = fold(parts, [0, 0, 1], "DISTINCTCOUNTHLL")
    assert first_two[1] == parts[2]
    assert fold(first_two, [0, 0], "DISTINCTCOUNTHLL") == [union]


def test_ultraloglogs_become_one_of_the_least_size():
    """Of 2^4 registers the last two become one, of bit 4 that the first has and bit 2 of any hash in the second."""
    small, large = bytes([3, 8, 12, *bytes(6)]), bytes([4, *bytes(14), 16, 12])
    union = bytes([3, 8, 12, *bytes(5), 17])
    assert fold([large, small, None, small], [0, 0, 0, 1], "distinctCountULL") == [union, small]
    assert fold([large, None], [0, 0], "DISTINCTCOUNTRAWULL") == [large]


def test_verbose_digests_become_the_one_that_java_makes_of_them():
    *parts, merged = raw(VERBOSE)
    assert fold(parts, [0, 0, 0], "PERCENTILETDIGEST", FACTOR) == [merged]
    assert fold(parts, [0, 1, 2], "PERCENTILERAWTDIGEST", FACTOR) == parts


def test_small_digests_become_a_verbose_one_with_the_true_bounds():
    *parts, merged = raw(SMALL)
    (got,) = fold(parts, [0, 0], "PERCENTILETDIGEST", FACTOR)
    assert (got[:4], got[20:]) == (merged[:4], merged[20:])
    assert got[4:20] == parts[0][4:20]


def test_a_digest_of_many_keeps_their_weight_and_their_quantiles():
    digests = [one_of(np.arange(start, 5000, 50.0)) for start in range(50)]
    (got,) = fold(digests, [0] * 50, "PERCENTILETDIGEST")
    low, high, compression, number = struct.unpack(">dddi", got[4:32])
    pairs = np.frombuffer(got[32:], ">f8").reshape(-1, 2)
    assert (low, high, compression, number) == (0, 4999, 100, len(pairs))
    assert number < 210
    assert pairs[:, 0].sum() == 5000
    middles = np.cumsum(pairs[:, 0]) - pairs[:, 0] / 2
    assert np.abs(middles - pairs[:, 1] - 0.5).max() < 1


def one_of(values):
    body = b"".join(struct.pack(">dd", 1, value) for value in values)
    return struct.pack(">idddi", 1, values.min(), values.max(), 100, len(values)) + body


def test_pairs_of_sum_and_count_are_added():
    pairs = [struct.pack(">dq", total, count) for total, count in ((1e16, 2), (1.0, 3), (-1e16, 4), (5.5, 1))]
    assert fold(pairs, [0, 0, 0, 1], "AVG") == [struct.pack(">dq", 1.0, 9), pairs[3]]


def test_nulls_and_empty_bytes_do_not_count():
    one, *_ = raw(HLLS)
    assert fold([None, one, b"", b"", None], [0, 0, 0, 1, 2], "DISTINCTCOUNTHLL") == [one, b"", b""]


@pytest.mark.parametrize(
    ("function", "cells", "problem"),
    [
        ("DISTINCTCOUNTHLL", [b"abc"], "no serialized HyperLogLog"),
        ("DISTINCTCOUNTHLL", [bytes.fromhex(HLLS[0])[:-1]], "no serialized HyperLogLog"),
        ("DISTINCTCOUNTHLL", [b"\xff" * 20], "no serialized HyperLogLog"),
        ("DISTINCTCOUNTHLL", [*raw(HLLS[:1]), struct.pack(">iii", 1, 4, 0)], "different log2m"),
        ("PERCENTILETDIGEST", [b"abc"], "no serialized t-digest"),
        ("PERCENTILETDIGEST", [bytes.fromhex(VERBOSE[0])[:-1]], "no serialized t-digest"),
        ("PERCENTILETDIGEST", [bytes.fromhex(SMALL[0]) + b"x"], "no serialized t-digest"),
        ("PERCENTILETDIGEST", [b"\3" * 40], "no serialized t-digest"),
        ("PERCENTILETDIGEST", [one_of(np.array([1.0])), one_of(np.array([np.nan]))], "no number"),
        ("AVG", [b"abc"], "no pair"),
        ("AVG", [struct.pack(">dq", 1, -1)], "no pair"),
    ],
)
def test_what_is_no_sketch_is_named(tmp_path: Path, function: str, cells: list[bytes], problem: str):
    inputs = [built(tmp_path, "sound", SCHEMA, {"at": [1], "s": [None]}, IndexingSpec())]
    for place, cell in enumerate(cells):
        inputs.append(built(tmp_path, f"in_{place}", SCHEMA, {"at": [1], "s": [cell]}, IndexingSpec()))
    with pytest.raises(InvalidInputError, match=f"{problem}.* segment=in_{len(cells) - 1} column=s$"):
        rolled(tmp_path, inputs, function)


def test_a_rollup_merges_the_sketches_of_equal_rows(tmp_path: Path):
    *parts, union = raw(HLLS)
    inputs = [
        built(tmp_path, f"in_{place}", SCHEMA, {"at": [1, 2, 3], "s": [cell, None, cell]}, IndexingSpec())
        for place, cell in enumerate(parts)
    ]
    (out,) = rolled(tmp_path, inputs, "distinctCountHLL")
    values = [row[1] for row in read_rows(out, SCHEMA)]
    assert values[1] is None
    assert union in (values[0], bytes.fromhex(values[0]) if isinstance(values[0], str) else None)
    assert values[0] == values[2]


def test_only_bytes_hold_sketches(tmp_path: Path):
    numbers = FieldSpec(name="n", type=TypeName.DOUBLE, role=FieldRole.METRIC)
    schema = TableSchema(fields=(SCHEMA.fields[0], numbers))
    plan = plan_of(schema, merge_type=MergeMode.ROLLUP, aggregations={"n": MetricAggregation(function="AVG")})
    with pytest.raises(InvalidInputError, match="a BYTES metric holds column=n type=DOUBLE"):
        merge(plan, [], tmp_path)


def rolled(directory: Path, inputs, function: str):
    how = {"s": MetricAggregation(function=function)}
    (directory / "out").mkdir()
    plan = plan_of(SCHEMA, merge_type=MergeMode.ROLLUP, aggregations=how)
    return merge(plan, [one.path for one in inputs], directory / "out")


@pytest.mark.cluster
def test_clearspring_agrees_on_hyperloglogs_of_any_size(tmp_path: Path):
    answer = java_oracle.run(ORACLE, ("stream-*.jar",), "", tmp_path)
    lines = raw(" ".join(answer).split())
    for first in range(0, len(lines), 4):
        *parts, union = lines[first : first + 4]
        assert fold(parts, [0, 0, 0], "DISTINCTCOUNTHLL") == [union]
