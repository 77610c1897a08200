"""The disk of a whole node, its metastore included, answers EIO now and then: no answer is wrong or silently less, and
nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.budget import count, seed
from tests.faults.failing_disks import FailingDisk, library
from tests.faults.hurt_cluster import StubbornLife, written
from tests.support.events import EventFiles
from tests.support.processes import RoleProcess

from merlot.store.deepstore import DeepStore
from merlot.testing.patience import wait_until

NUM_TIMES = count("MERLOT_DISK_FAULTS", quick=1, every=3, fuzz=20)
FAULT_S = 2.0

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(library() is None, reason="making disks fail needs a C compiler"),
    pytest.mark.slow("a cell of the fault matrix, of which quick runs try some"),
    pytest.mark.timeout(600 + 60 * NUM_TIMES),
]


@pytest.mark.parametrize("kind", ["reads", "writes", "syncs"])
def test_a_node_whose_disk_fails_now_and_then_loses_nothing(tmp_path: Path, kind: str) -> None:
    serve = ["serve", "--data", str(tmp_path / "data"), "--log-level", "INFO", "--stream-folders", str(tmp_path)]
    node = RoleProcess(tmp_path, "node", serve, ("--port",))
    disk = FailingDisk(tmp_path / "control", tmp_path / "data")
    node.environment = disk.environment
    store = DeepStore(str(tmp_path / "data" / "deepstore"))
    life = StubbornLife(lambda: node.url, lambda: node.url, store, EventFiles(tmp_path / "topic"))
    draw = random.Random(seed())
    node.start()
    try:
        node.wait_ready()
        life.begin()
        with life.probed():
            for _ in range(NUM_TIMES):
                before = disk.num_failures
                with written(life, draw):
                    with disk.failing(**{kind: draw.choice((3, 30, 100))}):
                        time.sleep(FAULT_S)
                        wait_until(lambda before=before: disk.num_failures > before or not node.is_running)
                    if not node.is_running:
                        node.start()
                    node.wait_ready()
                life.is_whole()
    finally:
        node.kill()
    print(f"seed={seed()} failures={disk.num_failures} days={life.num_days} whole={life.num_whole} {life.reasons}")
