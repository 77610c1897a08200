"""Controllers over ZooKeeper: one leads, another takes over, and segments have servers throughout."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import aiohttp
import pytest
from kazoo.client import KazooClient

from merlot.cluster import paths
from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.view import TableView, load
from merlot.controller.role import ControllerConfig, ControllerRole
from merlot.errors import NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.testing.patience import PATIENCE_S

pytestmark = pytest.mark.cluster

TABLE = TableName("t_OFFLINE")
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {replication: 2, schema: {fields: [{name: a, type: INT}]}}
"""
OpenSession = Callable[[], ZooKeeperMetastore]


@pytest.fixture
def open_session(zookeeper: str) -> Iterator[OpenSession]:
    sessions: list[ZooKeeperMetastore] = []

    def open_another() -> ZooKeeperMetastore:
        sessions.append(ZooKeeperMetastore(zookeeper, session_timeout_s=2))
        return sessions[-1]

    yield open_another
    for session in sessions:
        session.close()


def segment(number: int) -> dict[str, object]:
    name = f"s{number}"
    record = SegmentRecord(name=name, crc=1, size_bytes=1, url=f"file:///d/{TABLE}/{name}@1.mseg", total_docs=1)
    return record.model_dump(mode="json", by_alias=True, exclude_defaults=True)


async def reaches(store: ZooKeeperMetastore, is_so: Callable[[TableView], bool]) -> TableView:
    """Wait by the table's watch until its view is so."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    watch = await asyncio.to_thread(
        store.watch, paths.segments_root(TABLE), lambda: loop.call_soon_threadsafe(changed.set)
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(NotFoundError):
                    view = await asyncio.to_thread(load, store, TABLE)
                    if is_so(view):
                        return view
                await changed.wait()
                changed.clear()
    finally:
        watch.cancel()


def is_spread(num_segments: int, num_servers: int) -> Callable[[TableView], bool]:
    def is_so(view: TableView) -> bool:
        servers = {one for assigned in view.assignment.values() for one in assigned}
        full = [name for name in view.segments if len(view.servers_of(name)) == 2]
        return len(full) == num_segments and len(servers) == num_servers

    return is_so


def expire(store: ZooKeeperMetastore, hosts: str) -> None:
    thief = KazooClient(hosts=hosts.partition("/")[0], client_id=store.session, timeout=2)
    thief.start()
    thief.stop()
    thief.close()


async def test_a_second_controller_takes_over_from_one_whose_session_expired(
    open_session: OpenSession, zookeeper: str
) -> None:
    store = open_session()
    first_session, second_session = open_session(), open_session()
    first = ControllerRole(first_session, ControllerConfig(http_port=0))
    second = ControllerRole(second_session, ControllerConfig(http_port=0))
    first_port, second_port = await first.start(), await second.start()
    for number in range(2):
        record = InstanceRecord(id=InstanceId(f"Server_h_{number}"), role=Role.SERVER, host="h")
        await asyncio.to_thread(register, store, record)
    async with aiohttp.ClientSession() as http:
        async with http.post(f"http://127.0.0.1:{second_port}/apply", data=MANIFEST) as answer:
            assert answer.status == 200, "whoever leads, every controller answers"
        body = {"records": [segment(number) for number in range(10)]}
        async with http.post(f"http://127.0.0.1:{first_port}/segments/t/publish", json=body) as answer:
            assert len((await answer.json())["published"]) == 10
        await reaches(store, is_spread(10, 2))
        leader_session = first_session if first.is_leader else second_session
        await asyncio.to_thread(expire, leader_session, zookeeper)
        body = {"records": [segment(number) for number in range(20)]}
        async with http.post(f"http://127.0.0.1:{second_port}/segments/t/publish", json=body) as answer:
            assert answer.status in {200, 503}
            is_published = answer.status == 200
        if not is_published:  # the endpoint's own session was the one that expired
            async with http.post(f"http://127.0.0.1:{first_port}/segments/t/publish", json=body) as answer:
                assert answer.status == 200
        await reaches(store, is_spread(20, 2))
    for role in (first, second):
        await role.stop()


async def test_a_joining_server_takes_its_share_once_it_has_loaded_it(open_session: OpenSession) -> None:
    store = open_session()
    role = ControllerRole(open_session(), ControllerConfig(http_port=0))
    port = await role.start()
    servers = [InstanceId(f"Server_h_{number}") for number in range(3)]
    for server in servers[:2]:
        await asyncio.to_thread(register, store, InstanceRecord(id=server, role=Role.SERVER, host="h"))
    async with aiohttp.ClientSession() as http:
        await http.post(f"http://127.0.0.1:{port}/apply", data=MANIFEST)
        body = {"records": [segment(number) for number in range(12)]}
        await http.post(f"http://127.0.0.1:{port}/segments/t/publish", json=body)
    await reaches(store, is_spread(12, 2))
    for server in servers[:2]:
        await asyncio.to_thread(write_report, store, TABLE, server, [f"s{number}@1" for number in range(12)], {})
    await asyncio.to_thread(register, store, InstanceRecord(id=servers[2], role=Role.SERVER, host="h"))
    moving = await reaches(store, lambda view: any(len(one) == 3 for one in view.assignment.values()))
    assert all(set(servers[:2]) <= set(one) for one in moving.assignment.values()), "nobody stops before it has loaded"
    keys = [f"{name}@1" for name, assigned in moving.assignment.items() if servers[2] in assigned]
    await asyncio.to_thread(write_report, store, TABLE, servers[2], keys, {})
    settled = await reaches(store, is_spread(12, 3))
    assert sorted(sum(server in one for one in settled.assignment.values()) for server in servers) == [8, 8, 8]
    await role.stop()
