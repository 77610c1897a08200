"""A minion works off its queues, one lease per task."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.leases import Lease
from merlot.cluster.liveness import live_instances
from merlot.cluster.records import Role
from merlot.cluster.sqlite import SqliteMetastore
from merlot.errors import UnavailableError
from merlot.ids import InstanceId
from merlot.minion.role import MinionConfig, MinionRole
from merlot.minion.worker import Worker
from merlot.testing.servers import until

KIND = "Greet"


class Greet:
    """Remembers what it ran; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.ran: list[bytes] = []
        self._failures = failures

    def run(self, data: bytes, lease: Lease) -> None:
        if self._failures:
            self._failures -= 1
            raise UnavailableError("not now")
        self.ran.append(data)


@pytest.fixture
async def metastore(tmp_path: Path) -> AsyncIterator[SqliteMetastore]:
    store = SqliteMetastore(tmp_path / "metastore.sqlite")
    yield store
    store.close()


async def test_a_queued_task_is_run_once_and_leaves_the_queue(metastore: SqliteMetastore) -> None:
    kind = Greet()
    workers = [Worker(metastore, InstanceId(f"Minion_{n}"), SystemClock(), {KIND: kind}) for n in range(2)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    for name in ("a", "b", "c"):
        metastore.create(paths.child(paths.tasks(KIND), name), name.encode())
    await until(lambda: not metastore.children(paths.tasks(KIND)))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(kind.ran) == [b"a", b"b", b"c"]


async def test_a_task_that_fails_stays_queued_and_is_tried_again(
    metastore: SqliteMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merlot.minion.worker.PAUSE_S", 0.02)
    kind = Greet(failures=2)
    metastore.create(paths.child(paths.tasks(KIND), "a"), b"a")
    task = asyncio.create_task(Worker(metastore, InstanceId("Minion_0"), SystemClock(), {KIND: kind}).run())
    await until(lambda: kind.ran == [b"a"])
    await until(lambda: not metastore.children(paths.tasks(KIND)))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_task_that_another_minion_holds_is_left_alone(metastore: SqliteMetastore) -> None:
    kind = Greet()
    metastore.create(paths.child(paths.tasks(KIND), "a"), b"a")
    other = metastore.session()
    assert Lease.acquire(other, f"task-{KIND}-a", "Minion_9", SystemClock()) is not None
    task = asyncio.create_task(Worker(metastore, InstanceId("Minion_0"), SystemClock(), {KIND: kind}).run())
    metastore.create(paths.child(paths.tasks(KIND), "b"), b"b")
    await until(lambda: kind.ran == [b"b"])
    assert metastore.children(paths.tasks(KIND)) == ["a"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    other.close()


async def test_a_minion_registers_says_that_it_knows_no_task_and_leaves(metastore: SqliteMetastore) -> None:
    role = MinionRole(metastore, MinionConfig())
    await role.start()
    assert list(live_instances(metastore, Role.MINION)) == [role.instance]
    answer = await role._readiness(None)  # type: ignore[arg-type]
    assert (answer.status, answer.text) == (200, "OK: no kind of task is known to this version")
    await role.stop()
    assert live_instances(metastore, Role.MINION) == {}
    assert role.not_ready() == "draining"
