"""Processes that are started before ZooKeeper wait for it, as pods of one installation do."""

from pathlib import Path

import pytest
from tests.support.processes import RoleProcess

from merlot.ports import free_port
from merlot.testing.patience import wait_until
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster


def test_roles_wait_for_zookeeper_and_stop_while_they_wait(tmp_path: Path) -> None:
    port = free_port()
    broker, minion = (
        RoleProcess(tmp_path, role, [role, "--zk", f"127.0.0.1:{port}/late"]) for role in ("broker", "minion")
    )
    broker.start()
    minion.start()
    for process in (broker, minion):
        wait_until(lambda process=process: "waiting for ZooKeeper" in process.tail() or not process.is_running)
        assert process.is_running, process.tail()
    assert minion.stop() == 0
    with ZooKeeper(tmp_path / "zookeeper", port):
        broker.wait_ready()
        assert broker.stop() == 0
