"""A merge stays in its memory, can be watched and stopped, and leaves nothing behind when it fails."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import count
from tests.support.processes import can_mount, small_disk
from tests.unit.merge.merge_tables import ROOM, TIMES, merge, plan_of

from merlot.errors import CorruptionError, UnavailableError
from merlot.merge.plan import MergeCancelledError, MergeMode, MergePhase, MergePlan
from merlot.merge.shuffle import shuffle
from merlot.merge.task import run
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName

KEYS = 16
MEMORY = 32 << 20
TIMES_THE_MEMORY = count("MERLOT_BUCKET_TIMES", quick=4, every=10)
SCHEMA = TableSchema(
    fields=(
        TIMES[0],
        FieldSpec(name="who", type=TypeName.STRING),
        *(FieldSpec(name=f"key_{number}", type=TypeName.LONG) for number in range(KEYS)),
        FieldSpec(name="amount", type=TypeName.LONG, role=FieldRole.METRIC),
    )
)
PLAN = plan_of(SCHEMA, indexing=IndexingSpec(sorted_columns=("key_0", "at")))
ROW_BYTES = 8 * (KEYS + 2) + 20
"""In memory, as Arrow has them."""


def write_inputs(directory: Path, segments: int, rows: int) -> list[Path]:
    """Random rows, no two alike: `who` is one of many, `key_0` of all."""
    directory.mkdir(exist_ok=True)
    names = pa.array([f"who-{key:012}" for key in range(50_000)])
    paths = []
    for number in range(segments):
        random = np.random.default_rng(number)
        columns: dict[str, Any] = {
            "at": pa.array(random.integers(0, 10**9, rows), pa.timestamp("ms")),
            "who": names.take(pa.array(random.integers(0, len(names), rows))),
            **{f"key_{place}": random.integers(0, 100, rows) for place in range(KEYS)},
            "amount": random.integers(0, 1000, rows),
        }
        columns["key_0"] = random.integers(0, 2**60, rows)
        request = BuildRequest(name=f"in_{number}", table="t", schema=SCHEMA, time_column="at")
        paths.append(build_segment(request, pa.table(columns), directory).path)
    return paths


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket that does not fit into the memory by far, and one that warms up what is measured."""
    directory = tmp_path_factory.mktemp("bucket")
    rows = TIMES_THE_MEMORY * MEMORY // ROW_BYTES
    write_inputs(directory, 10, rows // 10 + 1)
    write_inputs(directory / "warm", 2, 30_000)
    return directory


PROGRAM = """
import dataclasses, json, sys, threading
from pathlib import Path
from merlot.merge.plan import MergeMode
from tests.unit.merge.merge_tables import merge
from tests.unit.merge.test_merge_bounds import PLAN

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024

directory, out, kind, memory = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
plan = dataclasses.replace(PLAN, merge_type=MergeMode(kind))
for segment in merge(plan, sorted((directory / "warm").glob("in_*.mseg")), out, memory):
    segment.path.unlink()
before, largest = anonymous(), [0]
done = threading.Event()

def watch():
    while not done.wait(0.002):
        largest[0] = max(largest[0], anonymous())

thread = threading.Thread(target=watch)
thread.start()
outputs = merge(plan, sorted(directory.glob("in_*.mseg")), out, memory)
done.set()
thread.join()
rows = sum(segment.metadata.num_docs for segment in outputs)
print(json.dumps({"used": largest[0] - before, "rows": rows, "left": len(list(out.iterdir())) - len(outputs)}))
"""


@pytest.mark.parametrize(
    "kind", ["rollup", pytest.param("concat", marks=pytest.mark.slow("a rollup sorts and joins the same bucket"))]
)
def test_a_bucket_several_times_the_memory_is_merged_within_it(kind: str, bucket: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(bucket), str(tmp_path), kind, str(MEMORY)]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["rows"] * ROW_BYTES >= TIMES_THE_MEMORY * MEMORY
    assert found["used"] <= MEMORY, found
    assert found["left"] == 0


def watched(plan: MergePlan, paths: list[Path], directory: Path, memory_bytes: int, stop_after: int) -> list[Any]:
    """What a watcher hears that cancels after some messages."""
    heard: list[Any] = []
    with pytest.raises(MergeCancelledError):
        run(
            plan,
            paths,
            directory,
            lambda phase, rows, size: heard.append((phase, rows, size)),
            lambda: len(heard) >= stop_after,
            memory_bytes,
        )
    return heard


@pytest.mark.parametrize("kind", list(MergeMode))
@pytest.mark.parametrize("memory_bytes", [ROOM, 1 << 20], ids=["at once", "in steps"])
def test_a_cancelled_merge_leaves_nothing_whenever_it_is(kind: MergeMode, memory_bytes: int, tmp_path: Path) -> None:
    paths = write_inputs(tmp_path / "in", 2, 8_000)
    plan = replace(PLAN, merge_type=kind, max_records_per_segment=3_000)
    out = tmp_path / "out"
    out.mkdir()
    messages: list[Any] = []
    built = run(plan, paths, out, lambda *message: messages.append(message), lambda: False, memory_bytes)
    phases = [message[0] for message in messages]
    assert phases[0] is MergePhase.READ
    assert {MergePhase.ORDER, MergePhase.WRITE} <= set(phases)
    assert [message[1] for message in messages] == sorted(message[1] for message in messages)
    assert messages[-1][1:] == (16_000, sum(segment.size_bytes for segment in built))
    for segment in built:
        segment.path.unlink()
    for stop_after in {1, 2, len(messages) // 2, len(messages)}:
        heard = watched(plan, paths, out, memory_bytes, stop_after)
        assert heard == messages[:stop_after]
        assert list(out.iterdir()) == []


@pytest.mark.skipif(not can_mount(), reason="mounting a small tmpfs needs root")
@pytest.mark.parametrize("memory_bytes", [ROOM, 1 << 20], ids=["at once", "in steps"])
def test_a_full_disk_is_said_and_nothing_stays_on_it(memory_bytes: int, tmp_path: Path) -> None:
    paths = write_inputs(tmp_path / "in", 2, 30_000)
    with small_disk(tmp_path / "disk", 600 << 10) as disk:
        plan = replace(PLAN, merge_type=MergeMode.ROLLUP)
        with pytest.raises(UnavailableError, match="the disk is full"):
            merge(plan, paths, disk, memory_bytes)
        assert list(disk.iterdir()) == []
        with pytest.raises(UnavailableError, match="the disk is full"):
            shuffle(plan, paths, disk, 2, lambda *_: None, lambda: False)
        assert list(disk.iterdir()) == []


def test_a_cancelled_shuffle_leaves_nothing(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path / "in", 1, 1_000)
    out = tmp_path / "out"
    out.mkdir()
    heard: list[Any] = []
    with pytest.raises(MergeCancelledError):
        shuffle(PLAN, paths, out, 4, lambda *message: heard.append(message), lambda: len(heard) > 30)
    assert MergePhase.SHUFFLE in {message[0] for message in heard}
    assert list(out.iterdir()) == []


def test_a_damaged_input_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    first, second = write_inputs(tmp_path / "in", 2, 1_000)
    second.write_bytes(second.read_bytes()[:-100])
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(CorruptionError, match="in_1"):
        merge(PLAN, [first, second], out)
    assert list(out.iterdir()) == []
