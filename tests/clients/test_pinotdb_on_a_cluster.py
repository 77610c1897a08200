"""pinotdb on a cluster of processes: with a server down, with a frozen ZooKeeper, and when all is well again."""

from collections.abc import Iterator
from typing import Any

import pinotdb
import pytest
from pinotdb import exceptions
from tests.support.processes import ClusterProcesses
from tests.support.sample import ORDERS, orders_manifest, total_amount, upload_orders

from merlot.metastore.protocol import SessionState
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

DAYS = range(4)
NUM_ROWS = 100 * len(DAYS)
COUNT = "SELECT COUNT(*), SUM(amount) FROM orders"
WHOLE = [[NUM_ROWS, float(total_amount(DAYS))]]


@pytest.fixture(scope="module")
def freezable_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """Of this module alone, so that it may freeze."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def started(freezable_zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Two servers, each with half of the segments."""
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), f"{freezable_zookeeper.hosts}/clients") as cluster:
        cluster.add_table(orders_manifest(replication=1), upload_orders(cluster.deep_store, DAYS))
        yield cluster


@pytest.fixture
def cluster(started: ClusterProcesses) -> ClusterProcesses:
    """All of it running, whatever the test before did."""
    started.mend(ORDERS, NUM_ROWS)
    return started


@pytest.fixture
def cursor(cluster: ClusterProcesses) -> Iterator[Any]:
    connection = pinotdb.connect(host="127.0.0.1", port=int(cluster.broker.url.rpartition(":")[2]))
    yield connection.cursor()
    connection.close()


def test_server_down_is_told_and_forgotten_once_it_is_back(cluster: ClusterProcesses, cursor: Any) -> None:
    cursor.execute(COUNT)
    assert cursor.fetchall() == WHOLE
    assert cursor.query_stats["numServersQueried"] == cursor.query_stats["numServersResponded"] == 2
    cluster.servers[0].kill()
    with pytest.raises(exceptions.DatabaseError, match="timed out: Out of 2, only 1 responded"):
        cursor.execute(COUNT)
    answer = cluster.query(COUNT)
    assert [one["errorCode"] for one in answer["exceptions"]] == [427, 305]
    assert answer["partialResult"] is True
    assert answer["totalDocs"] == NUM_ROWS
    assert answer["resultTable"]["rows"][0][0] == NUM_ROWS // 2
    cluster.servers[0].start()
    cluster.servers[0].wait_ready()
    cluster.wait_served(ORDERS, NUM_ROWS, num_replicas=2)
    cursor.execute(COUNT)
    assert cursor.fetchall() == WHOLE


def test_broker_that_starts_while_a_server_is_down_knows_what_is_missing(cluster: ClusterProcesses) -> None:
    cluster.servers[0].kill()
    cluster.broker.stop()
    cluster.broker.start()
    cluster.broker.wait_ready()
    answer = cluster.query(COUNT)
    assert 305 in [one["errorCode"] for one in answer["exceptions"]]
    assert answer["numServersResponded"] < answer["numServersQueried"]
    assert answer["totalDocs"] == NUM_ROWS


def test_frozen_zookeeper_does_not_empty_the_routes(
    cluster: ClusterProcesses, cursor: Any, freezable_zookeeper: ZooKeeper
) -> None:
    with cluster.metastore() as metastore:
        lost: list[SessionState] = []
        metastore.on_session(lost.append)
        freezable_zookeeper.freeze()
        while SessionState.SUSPENDED not in lost:
            cursor.execute(COUNT)
            assert cursor.fetchall() == WHOLE
        freezable_zookeeper.thaw()
        while lost[-1] is not SessionState.CONNECTED:
            cursor.execute(COUNT)
            assert cursor.fetchall() == WHOLE
    for _ in range(50):
        cursor.execute(COUNT)
        assert cursor.fetchall() == WHOLE
