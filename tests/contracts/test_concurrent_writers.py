"""A hundred writers to one table: none is lost, to nobody who watches."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from merlot.cluster import paths
from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.segments.transaction import Mutation, PutSegments, RemoveSegments, mutate
from merlot.cluster.segments.view import TableView, diff, load
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.testing.patience import PATIENCE_S, wait_until

TABLE = TableName("t_OFFLINE")
NUM_WRITERS = 100
NUM_SESSIONS = 8
NUM_WATCHERS = 3

OpenSession = Callable[[], Metastore]


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.cluster)])
def open_session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenSession]:
    sessions: list[Metastore] = []
    first = SqliteMetastore(tmp_path / "meta.db") if request.param == "sqlite" else None
    hosts = request.getfixturevalue("zookeeper") if first is None else ""

    def open_another() -> Metastore:
        sessions.append(ZooKeeperMetastore(hosts) if first is None else first.session())
        return sessions[-1]

    yield open_another
    for session in sessions:
        session.close()
    if first is not None:
        first.close()


class Watcher:
    """Keeps a view as a broker does: woken by a watch, loading what changed, following the differences."""

    def __init__(self, store: Metastore) -> None:
        self._store = store
        self._changed = threading.Event()
        self._is_stopping = False
        self.view: TableView | None = None
        self.epochs: list[int] = []
        self.followed: dict[str, SegmentRecord] = {}
        self._watch = store.watch(paths.segments_root(TABLE), self._changed.set)
        self._changed.set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping:
            if not self._changed.wait(PATIENCE_S):
                return
            self._changed.clear()
            new = load(self._store, TABLE, self.view)
            changes = diff(self.view, new)
            self.followed |= {name: new.segments[name] for name in changes.changed}
            for name in changes.removed:
                del self.followed[name]
            self.view = new
            self.epochs.append(new.epoch)

    def reaches(self, epoch: int) -> bool:
        return wait_until(lambda: self.view is not None and self.view.epoch >= epoch)

    def stop(self) -> None:
        self._is_stopping = True
        self._changed.set()
        self._thread.join()
        self._watch.cancel()


def segment(name: str, crc: int) -> SegmentRecord:
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///d/{name}@{crc}", total_docs=crc)


def count_and_add(writer: int) -> Callable[[TableView], Sequence[Mutation]]:
    """Adds one to a counter that all writers share, adds a segment, and removes another writer's temporary one."""

    def decide(view: TableView) -> Sequence[Mutation]:
        counter = view.segment("counter")
        count = 0 if counter is None else counter.crc
        expected = {"counter": None if counter is None else count, f"w{writer}": None}
        records = (segment("counter", count + 1), segment(f"w{writer}", 1), segment(f"temporary{writer}", 1))
        old = view.segment(f"temporary{writer - 1}")
        return [PutSegments(records, expected), RemoveSegments(() if old is None else (old.key,))]

    return decide


def test_no_change_of_a_hundred_writers_is_lost(open_session: OpenSession) -> None:
    store = open_session()
    store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
    watchers = [Watcher(open_session()) for _ in range(NUM_WATCHERS)]
    sessions = [open_session() for _ in range(NUM_SESSIONS)]
    with ThreadPoolExecutor(NUM_WRITERS) as pool:
        tasks = [
            pool.submit(mutate, sessions[writer % NUM_SESSIONS], TABLE, count_and_add(writer))
            for writer in range(NUM_WRITERS)
        ]
        epochs = [task.result().epoch for task in tasks]
    truth = load(store, TABLE)
    assert sorted(epochs) == list(range(1, NUM_WRITERS + 1)), "every write had an epoch of its own"
    assert truth.epoch == NUM_WRITERS
    assert truth.segments["counter"].crc == NUM_WRITERS, "no writer decided on a stale view"
    assert {f"w{writer}" for writer in range(NUM_WRITERS)} <= truth.segments.keys()
    for watcher in watchers:
        assert watcher.reaches(NUM_WRITERS)
        watcher.stop()
        assert watcher.view is not None
        assert dict(watcher.view.segments) == dict(truth.segments)
        assert watcher.followed == dict(truth.segments), "following the differences leads to the same place"
        assert watcher.epochs == sorted(watcher.epochs)
