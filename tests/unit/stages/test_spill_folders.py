"""Joins beyond the memory limit spill within a bound of disk, and no file outlives them, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from merlot.query.stages.engine import EngineRun
from merlot.query.stages.engine_instances import EngineLimits
from merlot.query.stages.engine_sql import EngineQuery
from merlot.query.stages.spill_folders import SpillFolder, clear_abandoned
from merlot.tree.types import LONG
from merlot.vectors.errors import LimitExceededError

ROWS = 300_000
JOIN = EngineQuery(
    "SELECT count(*) AS c0, CAST(sum(length(a.c1) + length(b.c1)) AS BIGINT) AS c1 FROM a JOIN b ON a.c0 = b.c0",
    (),
    ("n", "s"),
    (LONG, LONG),
)
SPILLING = """
import sys, time
from pathlib import Path
from merlot.query.stages.engine_instances import EngineLimits, Instances
folder = Path(sys.argv[1])
limits = EngineLimits(memory_bytes=20_000_000, spill_bytes=500_000_000, spill_folder=folder, threads=1)
with Instances().session(limits) as connection:
    connection.execute("CREATE TEMP TABLE t AS SELECT range AS c0, md5(range::VARCHAR) AS c1 FROM range(1000000)")
    print("spilled", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def sides() -> dict[str, pa.Table]:
    random = np.random.default_rng(7)
    texts = pa.array([f"{number:060}" for number in range(ROWS)])
    return {name: pa.table({"c0": random.permutation(ROWS), "c1": texts}) for name in ("a", "b")}


def limits(folder: Path, spill_bytes: int) -> EngineLimits:
    return EngineLimits(memory_bytes=20_000_000, spill_bytes=spill_bytes, spill_folder=folder, threads=1)


def test_a_join_beyond_the_memory_is_answered_by_spilling(tmp_path: Path, sides: dict[str, pa.Table]) -> None:
    made = EngineRun(limits(tmp_path, 500_000_000)).run(JOIN, sides)
    assert [column.to_pylist() for column in made.columns] == [[ROWS], [120 * ROWS]]
    assert os.listdir(tmp_path) == [], "an instance that spilled is closed, so its files are gone"


def test_a_join_beyond_the_disk_is_refused_by_name(tmp_path: Path, sides: dict[str, pa.Table]) -> None:
    with pytest.raises(LimitExceededError, match=r"spill=1000000: filter .* --stage-spill") as caught:
        EngineRun(limits(tmp_path, 1_000_000)).run(JOIN, sides)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.timeout(60)
def test_files_of_a_killed_process_are_cleared_by_the_next_start(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SPILLING, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"spilled\n"
        (folder,) = tmp_path.iterdir()
        assert os.listdir(folder), "the table is larger than the memory"
        assert clear_abandoned(tmp_path) == 0, "a folder in use stays"
        process.send_signal(signal.SIGKILL)
    assert os.listdir(folder)
    assert clear_abandoned(tmp_path) == 1
    assert os.listdir(tmp_path) == []


def test_a_start_clears_no_folder_of_others(tmp_path: Path) -> None:
    own = SpillFolder(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "merlot-stages-file").write_text("a file")
    (tmp_path / "merlot-stages-link").symlink_to(tmp_path / "elsewhere")
    assert clear_abandoned(tmp_path) == 0
    assert own.is_unused
    own.delete()
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "merlot-stages-file", "merlot-stages-link"]
