"""Minions with Spark for one task each, beside minions that have none: killed in the middle, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import orders_manifest, upload_orders

from merlot.cluster.manifests.rollups import put_rollup
from merlot.cluster.tasks import queue
from merlot.spec.manifest import load as load_manifest
from merlot.spec.tasks import MergeRollupTask
from merlot_spark.zookeeper import ZooKeeper

DAYS, ROWS = range(4), 600
PATIENCE_S = 300.0
LARGE = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: orders}
spec:
  table: orders
  schedule: 1s
  executor: spark
  levels: [{name: four-days, bucketTimePeriod: 4d, bufferTimePeriod: 0d, maxNumRecordsPerTask: 1000}]
"""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with (
        ZooKeeper(tmp_path / "zookeeper", max_session_ms=2000) as zookeeper,
        ClusterProcesses(tmp_path / "cluster", f"{zookeeper.hosts}/spark", num_servers=1) as cluster,
    ):
        cluster.add_table(orders_manifest(), upload_orders(cluster.deep_store, DAYS, ROWS))
        yield cluster


def wait_for(claim: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := claim()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def phases(minion: RoleProcess) -> list[str]:
    return [one["phase"] for one in minion.get("/tasks")["running"]] if minion.is_ready() else []


@pytest.mark.slow("it starts two Sparks; test_merge_process_kills kills minions, the end-to-end tests merge by Spark")
def test_a_minion_for_one_spark_task_that_is_killed_is_replaced_by_the_next(cluster: ClusterProcesses) -> None:
    [rollup] = load_manifest(LARGE)
    assert isinstance(rollup, MergeRollupTask)
    without_spark = cluster.new_minion("minion-without", "--leave-spark")
    started = [without_spark]
    try:
        without_spark.start()
        without_spark.wait_ready()
        with cluster.metastore() as metastore:
            put_rollup(metastore, rollup)
            [task] = wait_for(lambda: cluster.controller.get("/status")["sparkTasks"])
            assert task["table"] == "orders"
            arguments = ("--only-task", task["id"], "--spark-master", "local[1]")
            arguments += ("--spark-conf", "spark.driver.memory=512m")
            first = cluster.new_minion("minion-first", *arguments)
            started.append(first)
            first.start()
            wait_for(lambda: "SPARK" in phases(first))
            assert phases(without_spark) == [], "it leaves the task to others"
            first.kill()
            assert len(queue.list_tasks(metastore, queue.MERGE_ROLLUP)) == 1
            second = cluster.new_minion("minion-second", *arguments)
            started.append(second)
            second.start()
            assert wait_for(lambda: not queue.list_tasks(metastore, queue.MERGE_ROLLUP))
            assert second.wait() == 0, second.tail()
            third = cluster.new_minion("minion-third", *arguments)
            started.append(third)
            third.start()
            assert third.wait() == 0, "what is over is over"
            history = queue.history(metastore, queue.MERGE_ROLLUP, "orders_OFFLINE").tasks
            [ended] = [one for one in history if one.id == task["id"]]
            assert (ended.outcome, ended.rows_before) == (queue.TaskOutcome.SUCCEEDED, ended.rows_after)
        assert cluster.controller.get("/status")["sparkTasks"] == []
        answer = cluster.query("SELECT count(*), count(DISTINCT id) FROM orders")
        assert answer["resultTable"]["rows"] == [[len(DAYS) * ROWS, len(DAYS) * ROWS]]
    finally:
        for one in started:
            one.kill()
