"""What a table says of pruning reaches every process while it runs, and each of them says so."""

from typing import Any

import pytest
from tests.support.processes import ClusterProcesses
from tests.support.sample import START_MS, orders_manifest

from merlot.cluster.manifests.tables import put_table
from merlot.spec.table import RoutingSpec, Table
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS

pytestmark = pytest.mark.cluster

SQL = f"SELECT count(*) FROM orders WHERE at >= {START_MS + 6 * DAY_MS}"


def with_pruners(*names: str) -> Table:
    table = orders_manifest(replication=2)
    spec = table.spec.model_copy(update={"routing": RoutingSpec(segment_pruners=names)})
    return table.model_copy(update={"spec": spec})


def revisions(cluster: ClusterProcesses) -> list[int]:
    table: dict[str, Any] = cluster.controller.get("/status")["tables"]["orders"]
    pods = [*table["brokers"].values(), *(server for server in table["servers"].values() if server["live"])]
    return [pod["revision"] for pod in pods]


async def test_changed_pruners_are_at_work_when_every_process_echoes_the_new_revision(
    cluster: ClusterProcesses,
) -> None:
    with cluster.metastore() as metastore:
        for pruners, num_pruned in ((("time",), 6), ((), 0)):
            record = put_table(metastore, with_pruners(*pruners))
            await until(lambda revision=record.revision: revisions(cluster) == 3 * [revision])
            answer = cluster.query(SQL)
            assert (answer["resultTable"]["rows"], answer["totalDocs"]) == ([[200]], 800)
            assert answer["numSegmentsPrunedByBroker"] == num_pruned
