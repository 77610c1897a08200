"""Sketches are rolled up alike in one step, in runs spilled to disk, in shards, and in both."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.merge.merge_tables import ROOM, merge, plan_of

from merlot.merge import memory
from merlot.merge.plan import MergeMode, MergePhase, MetricAggregation
from merlot.merge.shuffle import shuffle
from merlot.merge.task import run
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName

SKETCHES = {"who": "distinctCountHLL", "took": "percentileTDigest", "paid": "avg"}
SCHEMA = TableSchema(
    fields=(
        FieldSpec(name="at", type=TypeName.TIMESTAMP, role=FieldRole.DATE_TIME),
        FieldSpec(name="city", type=TypeName.INT),
        *(FieldSpec(name=name, type=TypeName.BYTES, role=FieldRole.METRIC) for name in SKETCHES),
    )
)
PLAN = plan_of(
    SCHEMA,
    merge_type=MergeMode.ROLLUP,
    aggregations={name: MetricAggregation(function=function) for name, function in SKETCHES.items()},
)
CITIES, INPUTS, ROWS = 20, 5, 400
VALUES = 12
"""In the digest of each row."""
ROOM_ROWS = 150
LOG2M = 6
Key = tuple[object, int]
Found = dict[Key, tuple[bytes, bytes, bytes]]


@pytest.fixture(scope="module")
def times() -> dict[int, list[float]]:
    """All values that are in the digests of a city."""
    return {}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, times: dict[int, list[float]]) -> list[Path]:
    directory = tmp_path_factory.mktemp("inputs")
    random = np.random.default_rng(20)
    return [_input(directory, number, random, times) for number in range(INPUTS)]


def _input(directory: Path, number: int, random: np.random.Generator, times: dict[int, list[float]]) -> Path:
    cities = random.integers(0, CITIES, ROWS)
    took = random.lognormal(3, 1, (ROWS, VALUES))
    for city, values in zip(cities.tolist(), took, strict=True):
        times.setdefault(city, []).extend(values.tolist())
    columns = {
        "at": pa.array(np.zeros(ROWS, np.int64), pa.timestamp("ms")),
        "city": pa.array(cities, pa.int32()),
        "who": pa.array([_hyperloglog(random) for _ in range(ROWS)], pa.binary()),
        "took": pa.array([_digest(np.sort(values)) for values in took], pa.binary()),
        # Whole numbers: their sums are the same in any order.
        "paid": pa.array([struct.pack(">dq", random.integers(0, 1000), 3) for _ in range(ROWS)], pa.binary()),
    }
    request = BuildRequest(name=f"in_{number}", table="t", schema=SCHEMA, time_column="at")
    return build_segment(request, pa.table(columns), directory).path


def _hyperloglog(random: np.random.Generator) -> bytes:
    """Of some three values: a register has five bits, a word six registers."""
    words = np.zeros((1 << LOG2M) // 6 + 1, ">i4")
    for register in random.integers(0, 1 << LOG2M, 3):
        words[register // 6] |= int(random.integers(1, 30)) << (5 * (register % 6))
    return struct.pack(">ii", LOG2M, words.nbytes) + words.tobytes()


def _digest(values: np.ndarray) -> bytes:
    pairs = np.column_stack([np.ones(len(values)), values]).astype(">f8")
    return struct.pack(">idddi", 1, values[0], values[-1], 100, len(values)) + pairs.tobytes()


def whole(inputs: list[Path], directory: Path) -> list[BuiltSegment]:
    return merge(PLAN, inputs, directory, ROOM)


def spilled(inputs: list[Path], directory: Path) -> list[BuiltSegment]:
    """In runs of 150 rows, which are folded again by ranges of the keys' hashes."""
    phases: list[MergePhase] = []
    built = run(PLAN, inputs, directory, lambda phase, *_: phases.append(phase), lambda: False, 1)
    num_runs = -(-INPUTS * ROWS // ROOM_ROWS)
    assert phases.count(MergePhase.ORDER) >= num_runs + 2, "then at least two parts of what they became"
    return built


def shards(inputs: list[Path], directory: Path) -> list[BuiltSegment]:
    return _in_shards(inputs, directory, whole)


def spilled_shards(inputs: list[Path], directory: Path) -> list[BuiltSegment]:
    return _in_shards(inputs, directory, lambda files, folder: merge(PLAN, files, folder, 1))


def _in_shards(
    inputs: list[Path], directory: Path, act: Callable[[list[Path], Path], list[BuiltSegment]]
) -> list[BuiltSegment]:
    cut = shuffle(PLAN, inputs, directory, 3, lambda *_: None, lambda: False)
    assert sum(one.metadata.num_docs > ROOM_ROWS for one in cut) >= 2
    built = []
    for number, shard in enumerate(cut):
        folder = directory / str(number)
        folder.mkdir()
        built += act([shard.path], folder)
    return built


def read(built: list[BuiltSegment]) -> Found:
    found: Found = {}
    for one in built:
        with ImmutableSegment.open(one.path, verify=True) as segment:
            columns = [_cells(segment, name) for name in ("at", "city", *SKETCHES)]
        for at, city, *sketches in zip(*columns, strict=True):
            assert (at, city) not in found, "equal keys have met"
            found[at, city] = tuple(sketches)
    return found


def _cells(segment: ImmutableSegment, name: str) -> list[object]:
    column = segment.column(name)
    assert column is not None
    if column.dictionary is not None:
        return list(column.dictionary.arrow().take(pa.array(np.array(column.dict_ids()))).to_pylist())
    return list(column.strings().to_pylist() if name in SKETCHES else np.array(column.values()).tolist())


@pytest.mark.parametrize("act", [spilled, shards, spilled_shards], ids=lambda act: act.__name__)
def test_steps_do_not_show_in_the_result(
    act: Callable[[list[Path], Path], list[BuiltSegment]],
    inputs: list[Path],
    times: dict[int, list[float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "steps").mkdir()
    expected = read(whole(inputs, tmp_path / "whole"))
    monkeypatch.setattr(memory, "_LEAST_ROWS", ROOM_ROWS)
    found = read(act(inputs, tmp_path / "steps"))
    assert found.keys() == expected.keys()
    assert len(found) == CITIES
    for key, (who, took, paid) in found.items():
        assert who == expected[key][0], "the union of HyperLogLogs, register by register"
        assert paid == expected[key][2]
        check_digest(took, times[key[1]])
        check_digest(expected[key][1], times[key[1]])


def check_digest(sketch: bytes, values: list[float]) -> None:
    """All of the weight and the true bounds; and each centroid's mean where it belongs among the values."""
    least, greatest, compression, number = struct.unpack(">dddi", sketch[4:32])
    pairs = np.frombuffer(sketch[32:], ">f8").reshape(-1, 2)
    assert (least, greatest, compression, number) == (min(values), max(values), 100, len(pairs))
    assert pairs[:, 0].sum() == len(values)
    middles = np.cumsum(pairs[:, 0]) - pairs[:, 0] / 2
    ranks = np.searchsorted(np.sort(values), pairs[:, 1])
    assert np.abs(middles - ranks).max() < 0.01 * len(values)
