"""A server is ready once it has caught up with what it missed while it was away, and stays so while it loads more."""

import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.sample import ORDERS, orders_manifest, publish_orders, segment_name, upload_orders

from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.manifests.tables import delete_table, put_table
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.server.role import ServerConfig, ServerRole
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until

ME = InstanceId("Server_me_1")
OTHERS = TableName("others_OFFLINE")


class SlowStore(DeepStore):
    """Gives a file when nobody withholds it any more."""

    withheld: Collection[str] = ()
    _changed = threading.Condition()

    @classmethod
    def withhold(cls, *words: str) -> None:
        """From now on, files whose URL has one of these in it."""
        with cls._changed:
            cls.withheld = words
            cls._changed.notify_all()

    def fetch(self, url: str, *arguments: Any, **options: Any) -> None:
        """Wait for it."""
        self._wait_for(url)
        super().fetch(url, *arguments, **options)

    def read(self, url: str, *arguments: Any, **options: Any) -> Any:
        """The same."""
        self._wait_for(url)
        return super().read(url, *arguments, **options)

    def _wait_for(self, url: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not any(word in url for word in self.withheld))


def assign_all(metastore: SqliteMetastore, table: TableName = ORDERS) -> None:
    mutate(metastore, table, lambda view: [Assign(dict.fromkeys(view.segments, (ME,)))])


def others_manifest() -> Table:
    manifest = orders_manifest()
    return manifest.model_copy(update={"metadata": manifest.metadata.model_copy(update={"name": "others"})})


@asynccontextmanager
async def running(metastore: SqliteMetastore, folder: Path) -> AsyncIterator[ServerRole]:
    config = ServerConfig(
        data_dir=folder / "server", deep_store=str(folder / "deep"), instance=ME, http_port=None, query_port=None
    )
    server = ServerRole(metastore, config, open_deep_store=SlowStore)
    await server.start()
    try:
        yield server
    finally:
        SlowStore.withhold()
        await server.stop()


def is_loaded(metastore: SqliteMetastore, num_segments: int) -> bool:
    report = ReportReader(metastore, ORDERS).read().get(ME)
    return report is not None and len(report.loaded) == num_segments


async def test_a_server_is_ready_when_it_has_caught_up_and_stays_so_while_it_loads_more(
    store: SqliteMetastore, tmp_path: Path
) -> None:
    deep_store = DeepStore(str(tmp_path / "deep"))
    SlowStore.withhold("/")
    publish_orders(store, deep_store, [0, 1])
    assign_all(store)
    async with running(store, tmp_path) as server:
        assert server.not_ready() == f"loading segments of {ORDERS}"
        SlowStore.withhold()
        await until(lambda: server.not_ready() is None)
        SlowStore.withhold("/")
        publish(store, ORDERS, upload_orders(deep_store, [2, 3]))
        assign_all(store)
        [manager] = server.managers
        await until(lambda: not manager.is_settled)
        assert server.not_ready() is None
        SlowStore.withhold()
        await until(lambda: is_loaded(store, 4))
        assert server.not_ready() is None


async def test_what_is_assigned_meanwhile_does_not_hold_up_a_server_that_catches_up(
    store: SqliteMetastore, tmp_path: Path
) -> None:
    """Where segments come all the time there is no moment at which all of them are there."""
    deep_store = DeepStore(str(tmp_path / "deep"))
    SlowStore.withhold("/")
    publish_orders(store, deep_store, [0])
    assign_all(store)
    async with running(store, tmp_path) as server:
        assert server.not_ready() is not None
        publish(store, ORDERS, upload_orders(deep_store, [1]))
        assign_all(store)
        [manager] = server.managers
        await until(lambda: len(manager.missing or ()) == 2)
        SlowStore.withhold(segment_name(1))
        await until(lambda: is_loaded(store, 1))
        assert not manager.is_settled
        assert server.not_ready() is None


async def test_a_table_that_comes_later_takes_no_readiness_away(store: SqliteMetastore, tmp_path: Path) -> None:
    SlowStore.withhold("/")
    async with running(store, tmp_path) as server:
        assert server.not_ready() is None
        put_table(store, orders_manifest())
        publish(store, ORDERS, upload_orders(DeepStore(str(tmp_path / "deep")), [0]))
        assign_all(store)
        await until(lambda: bool(server.managers) and not next(iter(server.managers)).is_settled)
        assert server.not_ready() is None


async def test_a_table_that_is_applied_again_while_the_server_drops_another_is_served(
    store: SqliteMetastore, tmp_path: Path
) -> None:
    deep_store = DeepStore(str(tmp_path / "deep"))
    publish_orders(store, deep_store, [0])
    assign_all(store)
    put_table(store, others_manifest())
    publish(store, OTHERS, upload_orders(deep_store, [5]))
    assign_all(store, OTHERS)
    SlowStore.withhold(segment_name(5))
    async with running(store, tmp_path) as server:
        await until(lambda: is_loaded(store, 1))
        delete_table(store, OTHERS)
        await until(lambda: [manager.table for manager in server.managers] == [ORDERS])
        delete_table(store, ORDERS)
        [record] = publish_orders(store, deep_store, [1])
        assign_all(store)
        SlowStore.withhold()
        await until(lambda: [record.key_text in manager.segments for manager in server.managers] == [True])
        await until(lambda: is_loaded(store, 1))


async def test_a_table_is_served_after_one_whose_files_cannot_be_deleted(
    store: SqliteMetastore, tmp_path: Path
) -> None:
    publish_orders(store, DeepStore(str(tmp_path / "deep")), [0])
    assign_all(store)
    async with running(store, tmp_path) as server:
        await until(lambda: is_loaded(store, 1))
        (tmp_path / "server" / "segments" / ORDERS / "no file").mkdir()
        delete_table(store, ORDERS)
        await until(lambda: not server.managers)
        put_table(store, others_manifest())
        await until(lambda: [manager.table for manager in server.managers] == [OTHERS])
