"""Writers write and readers follow while ZooKeeper is killed, frozen and sessions expire, at random but by a seed."""

import contextlib
import random
import threading
from collections.abc import Callable

import pytest
from tests.budget import count

from merlot.cluster import paths
from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.view import TableView, load
from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.testing.patience import PATIENCE_S
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

TABLE = TableName("t_OFFLINE")
NUM_WRITERS = 4
NUM_SEGMENTS = 15
NUM_FAULTS = 5


class Reader:
    """Follows the root by its watch alone: no timer, so that a lost event would show."""

    def __init__(self, store: ZooKeeperMetastore) -> None:
        self._store = store
        self._woken = threading.Event()
        self._woken.set()
        self.view: TableView | None = None
        store.watch(paths.segments_root(TABLE), self._woken.set)

    def follow_until(self, is_done: Callable[[TableView], bool]) -> bool:
        while self._woken.wait(PATIENCE_S):
            self._woken.clear()
            try:
                view = load(self._store, TABLE, self.view)
            except UnavailableError:
                continue  # the reconnect will call back
            assert self.view is None or view.epoch >= self.view.epoch
            assert self.view is None or self.view.segments.keys() <= view.segments.keys(), "nothing published vanishes"
            self.view = view
            if is_done(view):
                return True
        return False


def write(store: ZooKeeperMetastore, writer: int) -> None:
    """Publish one by one, each until it is acknowledged."""
    for number in range(NUM_SEGMENTS):
        name = f"w{writer}_{number}"
        record = SegmentRecord(name=name, crc=1, size_bytes=1, url=f"file:///d/{name}", total_docs=1)
        while True:
            with contextlib.suppress(UnavailableError):
                publish(store, TABLE, [record])
                break


def hurt(server: ZooKeeper, rng: random.Random, pause: threading.Event) -> None:
    for _ in range(NUM_FAULTS):
        pause.wait(rng.uniform(0.05, 0.3))
        if rng.random() < 0.5:
            server.kill()
            pause.wait(rng.uniform(0, 0.3))
            server.start()
        else:
            server.freeze()
            pause.wait(rng.uniform(0.1, 1.5))
            server.thaw()


@pytest.mark.parametrize("seed", range(1, 1 + count("MERLOT_CHAOS", quick=1, every=2)))
def test_every_acknowledged_segment_reaches_every_reader(own_zookeeper: ZooKeeper, seed: int) -> None:
    stores = [
        ZooKeeperMetastore(f"{own_zookeeper.hosts}/merlot", session_timeout_s=1, operation_timeout_s=3)
        for _ in range(NUM_WRITERS + 2)
    ]
    stores[0].create(paths.segments_root(TABLE), RootRecord().to_bytes())
    readers = [Reader(store) for store in stores[NUM_WRITERS:]]
    writers = [threading.Thread(target=write, args=(stores[number], number)) for number in range(NUM_WRITERS)]
    for thread in writers:
        thread.start()
    hurt(own_zookeeper, random.Random(seed), threading.Event())
    names = {f"w{writer}_{number}" for writer in range(NUM_WRITERS) for number in range(NUM_SEGMENTS)}
    for reader in readers:
        assert reader.follow_until(lambda view: set(view.segments) == names)
    for thread in writers:
        thread.join()
    truth = load(stores[0], TABLE)
    for reader in readers:
        assert reader.view is not None
        assert reader.view.segments == truth.segments
    for store in stores:
        store.close()
