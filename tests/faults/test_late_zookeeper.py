"""Processes that are started before ZooKeeper wait for it, as pods of one installation do."""

import time
from pathlib import Path

import pytest

from merlot.testing.processes import RoleProcess, free_port
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster
PATIENCE_S = 60.0


def await_text(process: RoleProcess, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in process.tail():
        assert process.is_running, process.tail()
        assert time.monotonic() < deadline, process.tail()
        time.sleep(0.1)


def test_roles_wait_for_zookeeper_and_stop_while_they_wait(tmp_path: Path) -> None:
    port = free_port()
    broker, minion = (
        RoleProcess(tmp_path, role, [role, "--zk", f"127.0.0.1:{port}/late"]) for role in ("broker", "minion")
    )
    broker.start()
    minion.start()
    for process in (broker, minion):
        await_text(process, "waiting for ZooKeeper")
    assert minion.stop() == 0
    with ZooKeeper(tmp_path / "zookeeper", port):
        broker.wait_ready()
        assert broker.stop() == 0
