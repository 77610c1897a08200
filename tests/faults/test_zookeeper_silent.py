"""ZooKeeper is killed, frozen, or forgets a session while queries run: they go on from what the broker knows, and what
is published meanwhile is seen afterwards."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.budget import count
from tests.support.load import QueryLoad
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import ORDERS, START_MS, order_rows, orders_manifest, total_amount, upload_orders

from merlot.cluster import paths
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.errors import UnavailableError
from merlot.spec.table import RoutingSpec, Table
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS
from merlot_spark.zookeeper import ZooKeeper

pytestmark = [pytest.mark.cluster]

SILENCE_S = count("MERLOT_SILENCE_S", quick=3, every=5, fuzz=60)
"""10 and 60 tell more, and take longer."""
SESSION_MS = 2000
"""Shorter than the silence: every session expires in it."""
DAYS = range(6)
END_MS = START_MS + len(DAYS) * DAY_MS


def manifest() -> Table:
    table = orders_manifest(replication=2)
    routing = RoutingSpec(segment_pruners=("empty", "time", "range"))
    return table.model_copy(update={"spec": table.spec.model_copy(update={"routing": routing})})


@pytest.fixture(scope="module")
def zookeeper_to_hurt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), max_session_ms=SESSION_MS) as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper_to_hurt: ZooKeeper) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), f"{zookeeper_to_hurt.hosts}/silent") as cluster:
        cluster.add_table(manifest(), upload_orders(cluster.deep_store, DAYS))
        yield cluster


@pytest.fixture(scope="module")
def cases() -> Mapping[str, list[list[Any]]]:
    """Queries of the days that are there from the start, with pruning and without."""
    in_order = [row["id"] for row in order_rows(2).to_pylist()]
    third = f"at BETWEEN {START_MS + 2 * DAY_MS} AND {START_MS + 3 * DAY_MS - 1}"
    return {
        f"SELECT count(*), sum(amount) FROM orders WHERE at < {END_MS}": [[100 * len(DAYS), float(total_amount(DAYS))]],
        f"SELECT count(*), sum(amount) FROM orders WHERE {third}": [[100, float(total_amount([2]))]],
        f"SELECT id FROM orders WHERE {third} ORDER BY id LIMIT 5": [[one] for one in sorted(in_order)[:5]],
    }


def publish_until_acknowledged(cluster: ClusterProcesses, record: SegmentRecord) -> None:
    """As a job does: ZooKeeper may be silent as long as it likes."""
    while True:
        try:
            with cluster.metastore() as metastore:
                publish(metastore, ORDERS, [record])
                return
        except UnavailableError:
            time.sleep(0.05)


async def until_visible(cluster: ClusterProcesses, day: int) -> None:
    """The broker answers for a day that was published."""
    sql = (
        f"SELECT sum(amount) FROM orders WHERE at >= {START_MS + day * DAY_MS} AND at < {START_MS + (day + 1) * DAY_MS}"
    )
    rows = [[float(total_amount([day]))]]
    await until(lambda: (answer := cluster.query(sql))["resultTable"]["rows"] == rows and not answer["exceptions"])


def live(cluster: ClusterProcesses) -> set[str]:
    with cluster.metastore() as metastore:
        return set(metastore.children(paths.LIVE))


async def until_live(cluster: ClusterProcesses, is_right: Callable[[set[str]], bool]) -> None:
    await until(lambda: is_right(live(cluster)))


@asynccontextmanager
async def silent(zookeeper: ZooKeeper, how: str) -> AsyncIterator[None]:
    if how == "frozen":
        zookeeper.freeze()
    else:
        await asyncio.to_thread(zookeeper.kill)
    try:
        yield
    finally:
        if how == "frozen":
            zookeeper.thaw()
        else:
            zookeeper.start()  # here, since it dies with the thread that starts it


@pytest.mark.timeout(600 + 2 * SILENCE_S)
@pytest.mark.parametrize(
    ("how", "day"),
    [
        ("frozen", 10),
        pytest.param("killed", 20, marks=pytest.mark.slow("a frozen one loses the same sessions")),
    ],
)
async def test_queries_go_on_while_zookeeper_is_silent_and_the_broker_catches_up(
    cluster: ClusterProcesses, zookeeper_to_hurt: ZooKeeper, cases: Mapping[str, list[list[Any]]], how: str, day: int
) -> None:
    meanwhile, afterwards = await asyncio.to_thread(upload_orders, cluster.deep_store, [day, day + 1])
    async with QueryLoad(cluster.broker.url, cases) as load:
        await load.answered(50)
        async with silent(zookeeper_to_hurt, how):
            publishing = asyncio.create_task(asyncio.to_thread(publish_until_acknowledged, cluster, meanwhile))
            await asyncio.sleep(SILENCE_S)
            during = load.num_answers
            await load.answered(50)
        back = time.monotonic()
        await publishing
        await until_visible(cluster, day)
        caught_up = time.monotonic()
        await asyncio.to_thread(publish_until_acknowledged, cluster, afterwards)
        await until_visible(cluster, day + 1)
        await load.answered(100)
    print(
        f"{how} for {SILENCE_S:g} s: {load.tally}, {during} answers before its end; what was published meanwhile is "
        f"visible {caught_up - back:.1f} s after it"
    )
    assert (load.tally.wrong, load.tally.examples) == ([], [])


@pytest.mark.parametrize(("role", "day"), [("broker", 30), ("server-0", 40), ("controller", 50)])
async def test_a_process_whose_session_expired_registers_anew_and_sees_what_changes(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]], role: str, day: int
) -> None:
    """Frozen until its session is gone, as by a long pause: only ZooKeeper has forgotten it."""
    victim: RoleProcess = next(process for process in cluster.processes if process.name == role)
    meanwhile, afterwards = await asyncio.to_thread(upload_orders, cluster.deep_store, [day, day + 1])
    await until_live(cluster, lambda now: len(now) == len(cluster.processes))
    before = await asyncio.to_thread(live, cluster)
    async with QueryLoad(cluster.broker.url, cases) as load:
        await load.answered(50)
        victim.send(signal.SIGSTOP)
        try:
            await until_live(cluster, lambda now: len(now) < len(before))
            await asyncio.to_thread(publish_until_acknowledged, cluster, meanwhile)
        finally:
            victim.send(signal.SIGCONT)
        await until_live(cluster, lambda now: now == before)
        await until_visible(cluster, day)
        await asyncio.to_thread(publish_until_acknowledged, cluster, afterwards)
        await until_visible(cluster, day + 1)
        await load.answered(100)
    print(f"session of {role} expired: {load.tally}")
    assert (load.tally.wrong, load.tally.examples) == ([], [])
