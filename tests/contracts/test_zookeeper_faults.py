"""ZooKeeper killed, frozen, restored, sessions expired: watchers catch up, leases are fenced, nothing is invented."""

import contextlib
import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.instances.liveness import live_instances, register
from merlot.cluster.records import InstanceRecord, Role, RootRecord, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.errors import ConflictError, UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import SessionState
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.testing.patience import PATIENCE_S, wait_until
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

TABLE = TableName("t_OFFLINE")
_CHROOTS = itertools.count()
SERVER = InstanceRecord(id=InstanceId("Server_a_1"), role=Role.SERVER, host="a")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper to kill and to freeze, one test after the other."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def open_session(server: ZooKeeper) -> Iterator[Callable[[], ZooKeeperMetastore]]:
    """Sessions of one test, below a node that no other test has."""
    sessions: list[ZooKeeperMetastore] = []
    hosts = f"{server.hosts}/merlot-{next(_CHROOTS)}"

    def open_another() -> ZooKeeperMetastore:
        sessions.append(ZooKeeperMetastore(hosts, session_timeout_s=1, operation_timeout_s=3))
        return sessions[-1]

    yield open_another
    with contextlib.suppress(UnavailableError):
        server.thaw()
    for session in sessions:
        session.close()


OpenSession = Callable[[], ZooKeeperMetastore]


class Follower:
    """A reader that keeps its last view while ZooKeeper is silent."""

    def __init__(self, store: ZooKeeperMetastore) -> None:
        self._store = store
        self.view: TableView | None = None
        self._changed = threading.Event()
        self._changed.set()
        store.watch(paths.segments_root(TABLE), self._changed.set)

    def catches_up_to(self, names: set[str]) -> bool:
        for _ in range(50):
            if not self._changed.wait(PATIENCE_S):
                return False
            self._changed.clear()
            with contextlib.suppress(UnavailableError):
                self.view = load(self._store, TABLE, self.view)
            if self.view is not None and set(self.view.segments) == names:
                return True
        return False


class States:
    """What a session said about itself."""

    def __init__(self, store: ZooKeeperMetastore) -> None:
        self.seen: list[SessionState] = []
        self._changed = threading.Condition()
        store.on_session(self._add)

    def _add(self, state: SessionState) -> None:
        with self._changed:
            self.seen.append(state)
            self._changed.notify_all()

    def reach(self, *states: SessionState) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: set(states) <= set(self.seen), PATIENCE_S)


def segments(*names: str) -> list[SegmentRecord]:
    return [SegmentRecord(name=name, crc=1, size_bytes=1, url=f"file:///d/{name}", total_docs=1) for name in names]


def make_table(store: ZooKeeperMetastore) -> None:
    store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
    publish(store, TABLE, segments("s0"))


def publish_patiently(store: ZooKeeperMetastore, *names: str) -> None:
    def is_published() -> bool:
        with contextlib.suppress(UnavailableError):
            publish(store, TABLE, segments(*names))
            return True
        return False

    wait_until(is_published)


def expire(store: ZooKeeperMetastore, hosts: str) -> None:
    """End a session behind its owner's back: another client takes it over and closes it."""
    thief = KazooClient(hosts=hosts, client_id=store.session, timeout=2)
    thief.start()
    thief.stop()
    thief.close()


def test_watchers_catch_up_after_zookeeper_was_killed(server: ZooKeeper, open_session: OpenSession) -> None:
    store, watching = open_session(), open_session()
    make_table(store)
    follower = Follower(watching)
    assert follower.catches_up_to({"s0"})
    states = States(watching)
    server.kill()
    assert states.reach(SessionState.SUSPENDED)
    server.start()
    publish_patiently(store, "s1", "s2")
    assert follower.catches_up_to({"s0", "s1", "s2"})


def test_a_frozen_zookeeper_is_unavailable_in_time_and_empties_no_view(
    server: ZooKeeper, open_session: OpenSession
) -> None:
    store, watching = open_session(), open_session()
    make_table(store)
    follower = Follower(watching)
    assert follower.catches_up_to({"s0"})
    states = States(watching)
    server.freeze()
    with pytest.raises(UnavailableError):
        store.get(paths.segments_root(TABLE))
    assert states.reach(SessionState.SUSPENDED)
    assert SessionState.LOST not in states.seen
    assert follower.view is not None
    assert set(follower.view.segments) == {"s0"}
    server.thaw()
    publish_patiently(store, "s1")
    assert follower.catches_up_to({"s0", "s1"})


def test_an_expired_session_registers_anew_and_its_watches_stand(server: ZooKeeper, open_session: OpenSession) -> None:
    store, victim = open_session(), open_session()
    make_table(store)
    registration = register(victim, SERVER)
    follower = Follower(victim)
    assert follower.catches_up_to({"s0"})
    states = States(victim)
    expire(victim, server.hosts)
    assert states.reach(SessionState.LOST, SessionState.CONNECTED)
    publish(store, TABLE, segments("s1"))
    assert follower.catches_up_to({"s0", "s1"})
    wait_until(lambda: SERVER.id in live_instances(store))
    assert live_instances(store) == {SERVER.id: SERVER}
    registration.close()
    assert live_instances(store) == {}


def test_a_leader_whose_session_expired_is_fenced(server: ZooKeeper, open_session: OpenSession) -> None:
    store, leader = open_session(), open_session()
    make_table(store)
    lease = Lease.acquire(leader, "controller", "old", SystemClock())
    assert lease is not None
    assert Lease.acquire(store, "controller", "new", SystemClock()) is None
    states = States(leader)
    expire(leader, server.hosts)
    assert states.reach(SessionState.LOST, SessionState.CONNECTED)
    newer = Lease.acquire(store, "controller", "new", SystemClock())
    assert newer is not None
    with pytest.raises(ConflictError, match="lease is lost"):
        mutate(leader, TABLE, lambda _: [Assign({"s0": (InstanceId("x"),)})], lease.fence)
    mutate(store, TABLE, lambda _: [Assign({"s0": (InstanceId("y"),)})], newer.fence)
    assert load(store, TABLE).servers_of("s0") == ("y",)


def test_a_zookeeper_restored_from_an_old_snapshot_is_read_as_it_is(
    server: ZooKeeper, open_session: OpenSession, tmp_path: Path
) -> None:
    """Epochs go back, and the same epoch comes to mean something else: nobody may mix the two."""
    store = open_session()
    make_table(store)
    server.kill()
    shutil.copytree(server.data_dir / "data", tmp_path / "snapshot")
    server.start()
    publish_patiently(store, "lost")
    for number in range(200):  # so many that the restored ZooKeeper does not get there by itself
        store.create(f"/lost/{number}", b"")
    follower = Follower(store)
    seen = load(store, TABLE)
    server.kill()
    shutil.rmtree(server.data_dir / "data")
    shutil.copytree(tmp_path / "snapshot", server.data_dir / "data")
    server.start()
    fresh = open_session()
    assert set(load(fresh, TABLE, seen).segments) == {"s0"}
    publish_patiently(fresh, "other")
    again = load(fresh, TABLE, seen)
    assert again.epoch == seen.epoch
    assert set(again.segments) == {"s0", "other"}
    publish_patiently(store, "third")  # the old session, which has seen what is to come, was given up for a new one
    assert follower.catches_up_to({"s0", "other", "third"})


def test_a_silent_zookeeper_is_said_at_once_and_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"metastore is silent hosts=127.0.0.1:1/x"):
        ZooKeeperMetastore("127.0.0.1:1/x", operation_timeout_s=0.3)
