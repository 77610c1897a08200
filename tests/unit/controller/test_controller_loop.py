"""The loop over a real metastore: it assigns, hands over, waits out restarts, and cleans up."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from tests.support.faults import Interrupted
from tests.unit.controller.told_loop import ToldLoop

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.instances.liveness import Registration, register
from merlot.cluster.instances.reports import ReportWriter
from merlot.cluster.manifests import tables
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord, TrashRecord
from merlot.cluster.segments.publish import PublishRequest, publish, publish_request
from merlot.cluster.segments.transaction import WriteContext, trash_nodes
from merlot.cluster.segments.view import TableView, load
from merlot.controller.compactions.loop import CompactionLoop
from merlot.controller.loop import UNCONFIRMED_S, ControllerLoop, LoopConfig
from merlot.controller.merges.loop import MergeLoop
from merlot.controller.placement.table_follower import TableFollower
from merlot.controller.role import ControllerConfig, ControllerRole
from merlot.errors import ConflictError, InvalidInputError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Create, Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load as load_manifest
from merlot.testing.clock import FakeClock
from merlot.testing.patience import PATIENCE_S

TABLE = TableName("t_OFFLINE")
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  replication: REPLICATION
  schema: {fields: [{name: a, type: INT}]}
"""


class FakeFiles:
    """A deep store that remembers."""

    def __init__(self, files: dict[str, int]) -> None:
        self.files = files

    def modified_ms(self, url: str) -> int | None:
        return self.files.get(url)

    def delete(self, url: str) -> None:
        self.files.pop(url, None)

    def list(self, table: TableName) -> list[str]:
        return sorted(self.files)

    def list_below(self, table: TableName, folder: str) -> Sequence[str]:
        return []

    def path_in(self, table: TableName, url: str) -> str | None:
        return url.partition(f"file:///d/{table}/")[2] or None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def loop(store: SqliteMetastore, clock: FakeClock) -> Iterator[ControllerLoop]:
    loop = ToldLoop(store, LoopConfig(owner="c1"), clock=clock)
    yield loop
    loop.close()


MAKE_LOOPS: dict[str, Callable[[SqliteMetastore, Callable[[], None]], Any]] = {
    "controller": lambda store, look: ControllerLoop(
        cast(Metastore, Interrupted(store, ("watch_children",), 0, look)), LoopConfig(owner="c1")
    ),
    "merges": lambda store, look: MergeLoop(store, SystemClock(), look),
    "compactions": lambda store, look: CompactionLoop(store, SystemClock(), look),
}


@pytest.mark.parametrize("make", MAKE_LOOPS.values(), ids=MAKE_LOOPS)
async def test_rounds_go_on_while_clients_hold_all_threads_of_the_event_loop(
    store: SqliteMetastore, make: Callable[[SqliteMetastore, Callable[[], None]], Any]
) -> None:
    hold, looked = threading.Event(), threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    client = asyncio.create_task(asyncio.to_thread(hold.wait))
    await asyncio.sleep(0)
    running = asyncio.create_task(make(store, looked.set).run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not looked.is_set():
                await asyncio.sleep(0.005)
    finally:
        hold.set()
        running.cancel()
        await asyncio.gather(client, running, return_exceptions=True)


def make_table(store: SqliteMetastore, replication: int = 1, num_segments: int = 6) -> None:
    tables.put_table(store, load_manifest(MANIFEST.replace("REPLICATION", str(replication)))[0])
    publish(store, TABLE, [segment(f"s{number}") for number in range(num_segments)])


def segment(name: str, crc: int = 1) -> SegmentRecord:
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///d/{TABLE}/{name}@{crc}.mseg", total_docs=1)


def server(store: SqliteMetastore, number: int, zone: str = "") -> Registration:
    instance = InstanceId(f"Server_host_{number}")
    return register(store.session(), InstanceRecord(id=instance, role=Role.SERVER, host="host", zone=zone))


def loads(view: TableView) -> list[int]:
    servers = {one for assigned in view.assignment.values() for one in assigned}
    return sorted(sum(one in assigned for assigned in view.assignment.values()) for one in servers)


def test_replicas_are_in_different_zones(store: SqliteMetastore, loop: ControllerLoop) -> None:
    make_table(store, replication=2)
    for number, zone in enumerate("aab"):
        server(store, number, zone)
    loop.round()
    view = load(store, TABLE)
    assert len(view.assignment) == 6
    for servers in view.assignment.values():
        assert InstanceId("Server_host_2") in servers
        assert len(servers) == 2


def test_segments_are_assigned_to_live_servers_and_moved_when_one_joins(
    store: SqliteMetastore, loop: ControllerLoop
) -> None:
    make_table(store)
    loop.round()
    assert load(store, TABLE).assignment == {}
    server(store, 1)
    loop.round()
    assert loads(load(store, TABLE)) == [6]
    server(store, 2)
    loop.round()
    assert loads(load(store, TABLE)) == [3, 6]
    second = ReportWriter(store, TABLE, InstanceId("Server_host_2"))
    second.write([f"s{number}@1" for number in range(6)], {})
    loop.round()
    loop.round()
    assert loads(load(store, TABLE)) == [3, 3]


def test_a_table_whose_record_is_damaged_keeps_its_segments_and_holds_up_no_other(
    store: SqliteMetastore, loop: ControllerLoop, clock: FakeClock
) -> None:
    make_table(store)
    server(store, 1)
    loop.round()
    other = TableName("other_OFFLINE")
    tables.put_table(store, load_manifest(MANIFEST.replace("REPLICATION", "1").replace("name: t}", "name: other}"))[0])
    publish(store, other, [segment("s0")])
    path = paths.table_config(TABLE)
    node = store.get(path)
    assert node is not None
    store.put(path, b"{", node.version)
    loop.round()
    assert loads(load(store, other)) == [1]
    assert loads(load(store, TABLE)) == [6]
    server(store, 2)
    clock.advance(3600)
    loop.round()
    assert loads(load(store, TABLE)) == [6], "it is left alone"
    store.put(path, node.data, node.version + 1)
    loop.round()
    assert loads(load(store, TABLE)) == [3, 6]


@pytest.mark.parametrize("error", [ConflictError("written by too many"), KeyError("a bug")], ids=["contested", "bug"])
def test_a_table_that_cannot_be_reconciled_holds_up_no_other(
    store: SqliteMetastore, loop: ControllerLoop, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server(store, 1)
    make_table(store)
    other = TableName("other_OFFLINE")
    tables.put_table(store, load_manifest(MANIFEST.replace("REPLICATION", "1").replace("name: t}", "name: other}"))[0])
    publish(store, other, [segment("s0")])
    reconcile = loop._reconcile

    def failing(table: TableFollower, *more: Any) -> None:
        if table.name == other:
            raise error
        reconcile(table, *more)

    monkeypatch.setattr(loop, "_reconcile", failing)
    loop.round()
    assert loads(load(store, TABLE)) == [6]
    monkeypatch.undo()
    clock.advance(3600)
    loop.round()
    assert loads(load(store, other)) == [1]


@pytest.mark.parametrize("root", [paths.LIVE, paths.DRAINS, paths.REBALANCES, paths.TABLES])
def test_a_record_of_which_a_bit_flipped_stops_nothing_else(
    store: SqliteMetastore, loop: ControllerLoop, root: str
) -> None:
    make_table(store)
    server(store, 1)
    path = paths.child(root, "damaged_OFFLINE")
    store.create(path, b"{}")
    change = "UPDATE nodes SET data = CAST('[' || substr(data, 2) AS BLOB) WHERE path = ?"
    store._database._connection.execute(change, (path,))
    loop.round()
    assert loads(load(store, TABLE)) == [6]


def test_a_server_that_restarts_keeps_its_segments_and_one_that_stays_away_loses_them(
    store: SqliteMetastore, loop: ControllerLoop, clock: FakeClock
) -> None:
    make_table(store)
    first = server(store, 1)
    server(store, 2)
    loop.round()
    settled = load(store, TABLE).assignment
    first.close()
    loop.round()
    clock.advance(299)
    loop.round()
    assert load(store, TABLE).assignment == settled
    clock.advance(2)
    loop.round()
    assert loads(load(store, TABLE)) == [6]
    epoch = load(store, TABLE).epoch
    loop.round()
    assert load(store, TABLE).epoch == epoch


def test_an_idle_cluster_is_not_written(store: SqliteMetastore, loop: ControllerLoop, clock: FakeClock) -> None:
    make_table(store)
    server(store, 1)
    loop.round()
    before = (load(store, TABLE).epoch, store.get(paths.lease("controller")))
    for _ in range(5):
        clock.advance(61)
        loop.round()
    assert (load(store, TABLE).epoch, store.get(paths.lease("controller"))) == before


def test_one_leads_and_another_takes_over_when_it_stops(store: SqliteMetastore, clock: FakeClock) -> None:
    first = ControllerLoop(store.session(), LoopConfig(owner="c1"), clock=clock)
    session = store.session()
    second = ControllerLoop(session, LoopConfig(owner="c2"), clock=clock)
    for loop in (first, second, first, second):
        loop.round()
    assert (first.is_leader, second.is_leader) == (True, False)
    first.close()
    second.round()
    assert second.is_leader
    second.close()


def test_a_leader_whose_session_ended_writes_nothing(store: SqliteMetastore, clock: FakeClock) -> None:
    """Its pulse dies, another leads, and its fence fails: as when a frozen process wakes."""
    make_table(store, num_segments=1)
    frozen = ControllerLoop(store, LoopConfig(owner="c1"), clock=clock)
    frozen.round()
    for pulse in store.children(paths.lease("controller")):
        store.delete(paths.child(paths.lease("controller"), pulse))
    second = ControllerLoop(store, LoopConfig(owner="c2"), clock=clock)
    second.round()
    assert second.is_leader
    server(store, 1)
    frozen._lead = lambda: True  # type: ignore[method-assign]  # it woke after it had looked
    frozen.round()
    assert load(store, TABLE).assignment == {}
    second.round()
    assert loads(load(store, TABLE)) == [1]
    second.close()
    frozen.close()


def test_files_of_removed_and_replaced_segments_go_after_the_grace_period(
    store: SqliteMetastore, clock: FakeClock
) -> None:
    old = clock.now_ms() - 1
    files = FakeFiles(
        {f"file:///d/{TABLE}/s{number}@1.mseg": old for number in range(6)} | {f"file:///d/{TABLE}/s1@2.mseg": old}
    )
    loop = ControllerLoop(store, LoopConfig(owner="c1"), open_files=lambda _: files, clock=clock)
    make_table(store)
    request = PublishRequest(records=(segment("s1", crc=2),), replace=("s0", "s2"))
    publish_request(store, TABLE, request, context=WriteContext(clock=clock))
    publish_request(store, TABLE, PublishRequest(records=(segment("s2"),)), context=WriteContext(clock=clock))
    loop.round()
    assert len(files.files) == 7
    clock.advance(7 * 86_400 + 1)
    loop.round()
    gone = {f"file:///d/{TABLE}/s0@1.mseg", f"file:///d/{TABLE}/s1@1.mseg"}
    assert set(files.files) == {f"file:///d/{TABLE}/s{number}@1.mseg" for number in range(2, 6)} | {
        f"file:///d/{TABLE}/s1@2.mseg"
    }
    assert not gone & set(files.files)
    assert store.children(paths.trash(TABLE)) == []
    loop.close()


def test_a_list_of_files_that_cannot_be_worked_off_keeps_nothing_else(store: SqliteMetastore, clock: FakeClock) -> None:
    files = FakeFiles({f"file:///d/{TABLE}/s{number}@1.mseg": 0 for number in range(6)})

    def open_files(uri: str | None) -> FakeFiles:
        if uri is not None:
            raise InvalidInputError(f"cannot open deep store uri={uri}")
        return files

    loop = ControllerLoop(store, LoopConfig(owner="c1"), open_files=open_files, clock=clock)
    make_table(store)
    gone = TrashRecord(deleted_ms=clock.now_ms(), urls=("gone://d/s0@1",), deep_store="gone://d")
    for name, data in trash_nodes(TABLE, "0.first", gone).items():
        store.multi([Create(name, data), Create(name + "x", b"no record")])
    request = PublishRequest(records=(), replace=("s5",), replace_rows=True)
    publish_request(store, TABLE, request, context=WriteContext(clock=clock))
    clock.advance(7 * 86_400 + 1)
    loop.round()
    assert f"file:///d/{TABLE}/s5@1.mseg" not in files.files
    assert sorted(store.children(paths.trash(TABLE))) == ["0.first-0", "0.first-0x"]
    loop.close()


def test_a_bug_ends_a_round_but_not_the_loop(
    store: SqliteMetastore, loop: ControllerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(store)
    server(store, 1)
    with monkeypatch.context() as broken:
        broken.setattr("merlot.controller.loop.decide", lambda view, situation: [][0])
        assert loop.round() <= UNCONFIRMED_S  # sooner if a watch has called back meanwhile
    loop.round()
    assert loads(load(store, TABLE)) == [6]


def test_buckets_and_reports_that_nobody_needs_are_removed(store: SqliteMetastore, loop: ControllerLoop) -> None:
    make_table(store)
    epoch = load(store, TABLE).epoch
    store.multi([Create(paths.segment_bucket(TABLE, 3, f"{epoch}.dead"), b"")])
    store.multi([Create(paths.segment_bucket(TABLE, 3, f"{epoch + 1}.writing"), b"")])
    ReportWriter(store, TABLE, InstanceId("Server_gone_1")).write(["s1@1"], {})
    loop.round()
    names = store.children(paths.segments_root(TABLE))
    assert f"3-{epoch}.dead" not in names
    assert f"3-{epoch + 1}.writing" in names
    assert store.children(paths.reports(TABLE)) == []


async def test_the_role_assigns_without_being_asked_and_stops_cleanly(store: SqliteMetastore) -> None:
    role = ControllerRole(store, ControllerConfig(http_port=0))
    port = await role.start()
    assert port > 0
    assigned = threading.Event()
    server(store, 1)

    def look() -> None:
        if len(load(store, TABLE).assignment) == 6:
            assigned.set()

    make_table(store)
    watch = store.watch(paths.segments_root(TABLE), look)
    look()
    assert await asyncio.to_thread(assigned.wait, 30)
    watch.cancel()
    assert role.is_leader
    await role.stop()
    assert store.children(paths.LIVE) == ["Server_host_1"]
    assert store.children(paths.lease("controller")) == []
