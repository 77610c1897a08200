"""A metastore, a deep store, and keepers over them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from merlot.clock import SystemClock
from merlot.cluster.metastore import Metastore
from merlot.cluster.mutations import Assign, mutate
from merlot.cluster.reports import ReportReader, ServerReport
from merlot.cluster.sqlite import SqliteMetastore
from merlot.ids import InstanceId
from merlot.server.files import SegmentFiles
from merlot.server.keeper import Surroundings, TableKeeper
from merlot.store.deepstore import DeepStore
from merlot.store.retry import RetryPolicy
from merlot.testing.sample import ORDERS

ME = InstanceId("Server_me_1")
OTHER = InstanceId("Server_other_2")


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[SqliteMetastore]:
    store = SqliteMetastore(tmp_path / "metastore.sqlite")
    yield store
    store.close()


@pytest.fixture
def deep_store(tmp_path: Path) -> DeepStore:
    return DeepStore(str(tmp_path / "deep"), retry=RetryPolicy(attempts=2, first_wait=0.01))


@pytest.fixture
def server_dir(tmp_path: Path) -> Path:
    return tmp_path / "server"


def assign(metastore: Metastore, *instances: InstanceId) -> None:
    """Give every segment to these servers."""
    mutate(metastore, ORDERS, lambda view: [Assign(dict.fromkeys(view.segments, instances))])


def report_of(metastore: Metastore, instance: InstanceId = ME) -> ServerReport | None:
    """What the server says."""
    return ReportReader(metastore, ORDERS).read().get(instance)


async def until(condition: Callable[[], object], patience_s: float = 10.0) -> None:
    """Wait for something that no event tells of."""
    async with asyncio.timeout(patience_s):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)


StartKeeper = Callable[..., "asyncio.Future[TableKeeper]"]


@pytest.fixture
async def start_keeper(
    metastore: SqliteMetastore, deep_store: DeepStore, server_dir: Path
) -> AsyncIterator[Callable[..., object]]:
    """Starts the keeper of `orders`; as often as asked, each a new life of the same server."""
    async with AsyncExitStack() as exits:

        async def start(*, grace_s: float = 60.0) -> TableKeeper:
            pool = exits.enter_context(ThreadPoolExecutor(4))
            around = Surroundings(
                metastore=metastore,
                instance=ME,
                files=SegmentFiles(server_dir),
                io=pool,
                loads=pool,
                clock=SystemClock(),
                store_of=lambda _: deep_store,
                grace_s=grace_s,
            )
            keeper = TableKeeper(ORDERS, around)
            await keeper.open_local()
            task = asyncio.create_task(keeper.run())

            async def stop() -> None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                keeper.segments.close()

            exits.push_async_callback(stop)
            return keeper

        yield start
