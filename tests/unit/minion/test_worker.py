"""A minion works off its queues, one lease per task."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.records import InstanceRecord, Role
from merlot.cluster.tasks import queue as tasks
from merlot.cluster.tasks.queue import EndedTask, TaskOutcome, TaskRecord, TaskState
from merlot.errors import CorruptionError, InvalidInputError, MerlotError, UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, MetastoreSilentError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.minion import execution
from merlot.minion.control import TaskControl
from merlot.minion.leftovers import sweep
from merlot.minion.lost_runs import LostRuns
from merlot.minion.role import MinionConfig, MinionRole
from merlot.minion.tuning import MinionTuning
from merlot.minion.worker import Worker, WorkerSettings
from merlot.testing.clock import FakeClock
from merlot.testing.patience import until

KIND = "Greet"
TABLE = TableName("t_OFFLINE")


class Greet:
    """Remembers what it ran; fails as often as told, or hangs until it is stopped."""

    max_parallel = 4

    def __init__(
        self, failures: int = 0, error: MerlotError | None = None, *, hangs: bool = False, undo_failures: int = 0
    ) -> None:
        self.ran: list[str] = []
        self.undone: list[str] = []
        self.begun = threading.Event()
        self.hangs = hangs
        self._failures = failures
        self._undo_failures = undo_failures
        self._error = error or UnavailableError("not now")

    def run(self, task: TaskRecord, control: TaskControl) -> EndedTask:
        self.begun.set()
        control.tell("GREET", rows=3, rows_total=7)
        while self.hangs:
            control.pause(60)
        if self._failures:
            self._failures -= 1
            raise self._error
        self.ran.append(task.id)
        return EndedTask(id=task.id, outcome=TaskOutcome.SUCCEEDED, level="l")

    def undo(self, task: TaskRecord, control: TaskControl) -> None:
        control.check()
        if self._undo_failures:
            self._undo_failures -= 1
            raise InvalidInputError("deep store is not allowed")
        self.undone.append(task.id)


@pytest.fixture
async def metastore(tmp_path: Path) -> AsyncIterator[SqliteMetastore]:
    store = SqliteMetastore(tmp_path / "metastore.sqlite")
    yield store
    store.close()


SHORT_WAITS: Final = MinionTuning(
    look_s=0.02, progress_s=0.0, pause_s=0.2, backoff=tasks.Backoff(first_ms=20, longest_ms=20)
)


def queue(metastore: Metastore, *names: str) -> None:
    for number, name in enumerate(names):
        record = TaskRecord(id=name, kind=KIND, table=TABLE, created_ms=number)
        metastore.create(paths.task(KIND, name), record.to_bytes())


@asynccontextmanager
async def working(
    metastore: Metastore, kind: Greet, *, name: str = "Minion_0", slots: int = 1, tuning: MinionTuning = SHORT_WAITS
) -> AsyncIterator[Worker]:
    one = Worker(metastore, InstanceId(name), SystemClock(), {KIND: kind}, WorkerSettings(slots=slots, tuning=tuning))
    task = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        await one.drain(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ended(metastore: Metastore) -> list[EndedTask]:
    return list(tasks.history(metastore, KIND, TABLE).tasks)


async def test_a_queued_task_is_run_once_and_leaves_the_queue(metastore: SqliteMetastore) -> None:
    kind = Greet()
    async with working(metastore, kind), working(metastore, kind, name="Minion_1", slots=2):
        queue(metastore, "a", "b", "c")
        await until(lambda: not metastore.children(paths.tasks(KIND)))
    assert sorted(kind.ran) == ["a", "b", "c"]
    assert {one.outcome for one in ended(metastore)} == {TaskOutcome.SUCCEEDED}
    assert metastore.children(paths.child(paths.TASK_PROGRESS, KIND)) == []


async def test_a_minion_of_two_kinds_wakes_when_a_task_of_the_first_is_due(metastore: SqliteMetastore) -> None:
    kind, clock = Greet(), SystemClock()
    record = TaskRecord(id="a", kind=KIND, table=TABLE, created_ms=1, not_before_ms=clock.now_ms() + 300)
    metastore.create(paths.task(KIND, "a"), record.to_bytes())
    settings = WorkerSettings(slots=1, tuning=replace(SHORT_WAITS, pause_s=3600.0))
    worker = Worker(metastore, InstanceId("Minion_0"), clock, {KIND: kind, "Other": Greet()}, settings)
    task = asyncio.create_task(worker.run())
    await until(lambda: kind.ran == ["a"])
    await worker.drain(10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_task_that_fails_stays_queued_and_is_tried_again(metastore: SqliteMetastore) -> None:
    kind = Greet(failures=tasks.MAX_ATTEMPTS + 1)
    queue(metastore, "a")
    async with working(metastore, kind):
        await until(lambda: not metastore.children(paths.tasks(KIND)))
    assert kind.ran == ["a"]
    assert ended(metastore)[0].attempts == tasks.MAX_ATTEMPTS + 2, "an outage sets nothing aside"


async def test_a_task_that_never_succeeds_is_set_aside_with_its_error_until_somebody_asks_for_it(
    metastore: SqliteMetastore,
) -> None:
    kind = Greet(failures=tasks.MAX_ATTEMPTS, error=CorruptionError("bad bytes"))
    queue(metastore, "a")
    async with working(metastore, kind):
        await until(lambda: kind.undone == ["a"])
        found = tasks.find_task(metastore, KIND, "a")
        assert found is not None
        assert (found.record.state, found.record.last_error) == (TaskState.POISONED, "bad bytes")
        tasks.retry(metastore, found)
        await until(lambda: not metastore.children(paths.tasks(KIND)))
    assert kind.ran == ["a"]
    assert [one.outcome for one in ended(metastore)] == [TaskOutcome.SUCCEEDED, TaskOutcome.POISONED]


async def test_a_task_that_cannot_be_done_is_set_aside_at_once(metastore: SqliteMetastore) -> None:
    kind = Greet(failures=1, error=InvalidInputError("no such column"))
    queue(metastore, "a")
    async with working(metastore, kind):
        await until(lambda: kind.undone == ["a"])
    assert ended(metastore)[0].error == "no such column"


async def test_a_cancelled_task_stops_is_undone_and_leaves_the_queue(metastore: SqliteMetastore) -> None:
    kind = Greet(hangs=True)
    queue(metastore, "a")
    async with working(metastore, kind):
        await asyncio.to_thread(kind.begun.wait, 10)
        found = tasks.find_task(metastore, KIND, "a")
        assert found is not None
        tasks.cancel(metastore, found)
        await until(lambda: not metastore.children(paths.tasks(KIND)))
    assert (kind.ran, kind.undone) == ([], ["a"])
    assert ended(metastore)[0].outcome is TaskOutcome.CANCELLED


async def test_a_task_that_cannot_be_undone_waits_longer_each_time_and_holds_up_no_other(
    metastore: SqliteMetastore,
) -> None:
    kind = Greet(undo_failures=4)
    queue(metastore, "a", "b")
    found = tasks.find_task(metastore, KIND, "a")
    assert found is not None
    tasks.cancel(metastore, found)
    async with working(metastore, kind, tuning=replace(SHORT_WAITS, backoff=tasks.Backoff(first_ms=300_000))):
        await until(lambda: kind.ran == ["b"])
    assert kind.undone == []
    async with working(metastore, kind):
        await until(lambda: not metastore.children(paths.tasks(KIND)))
    assert kind.undone == ["a"]


@pytest.mark.parametrize(("num_lost", "pause_ms"), [(1, 10), (2, 20), (3, 40), (4, 50), (10_000, 50)])
def test_pause_of_a_backoff_doubles_up_to_the_longest(num_lost: int, pause_ms: int) -> None:
    assert tasks.Backoff(first_ms=10, longest_ms=50).pause_ms(num_lost) == pause_ms


def test_lost_runs_of_tasks_that_are_gone_are_forgotten() -> None:
    lost = LostRuns(tasks.Backoff(first_ms=10))
    for kind, name in (("A", "a"), ("A", "b"), ("B", "a")):
        lost.add(kind, name, 1_000)
    lost.add("A", "b", 2_000)
    lost.forget_others("A", {"b"})
    assert [lost.until_ms(*key) for key in (("A", "a"), ("A", "b"), ("B", "a"))] == [-1, 2_020, 1_010]
    lost.forget("A", "b")
    assert lost.until_ms("A", "b") == -1


async def test_a_task_that_is_deleted_stops(metastore: SqliteMetastore) -> None:
    kind = Greet(hangs=True)
    queue(metastore, "a")
    async with working(metastore, kind) as one:
        await asyncio.to_thread(kind.begun.wait, 10)
        metastore.delete(paths.task(KIND, "a"))
        await until(lambda: not one.running)
    assert kind.undone == ["a"]


async def test_a_minion_that_stops_gives_its_task_to_another_one(metastore: SqliteMetastore) -> None:
    hanging, kind = Greet(hangs=True), Greet()
    queue(metastore, "a")
    async with working(metastore, hanging):
        await asyncio.to_thread(hanging.begun.wait, 10)
    found = tasks.find_task(metastore, KIND, "a")
    assert found is not None
    assert (found.record.attempts, found.record.broken_off) == (0, ())
    async with working(metastore, kind, name="Minion_1"):
        await until(lambda: kind.ran == ["a"])


async def test_a_minion_that_lost_its_lease_stops_and_writes_nothing(metastore: SqliteMetastore) -> None:
    kind = Greet(hangs=True)
    queue(metastore, "a")
    async with working(metastore, kind) as one:
        await asyncio.to_thread(kind.begun.wait, 10)
        lease = paths.lease(tasks.lease_name(KIND, "a"))
        for pulse in metastore.children(lease):
            metastore.delete(paths.child(lease, pulse))
        other = metastore.session()
        assert Lease.acquire(other, tasks.lease_name(KIND, "a"), "Minion_9", SystemClock()) is not None
        await until(lambda: not one.running)
        assert metastore.children(paths.tasks(KIND)) == ["a"]
        assert (kind.undone, ended(metastore)) == ([], [])
        other.close()


async def test_deaths_of_minions_are_counted_and_a_deadly_task_is_set_aside(metastore: SqliteMetastore) -> None:
    kind = Greet()
    queue(metastore, "a")
    tasks.write_progress(metastore, KIND, "a", tasks.TaskProgress(phase="READ", owner="Minion_dead"))
    async with working(metastore, kind, tuning=replace(SHORT_WAITS, max_deaths=1)):
        await until(lambda: bool(ended(metastore)))
    assert ended(metastore)[0].error == "1 minions died at it, the last one was Minion_dead"
    assert kind.ran == []


async def test_outages_of_the_metastore_are_no_deaths_and_never_set_a_task_aside(metastore: SqliteMetastore) -> None:
    kind = Greet(failures=2 * SHORT_WAITS.max_outages, error=MetastoreSilentError("as if it were away"))
    queue(metastore, "a")
    one = InstanceRecord(id=InstanceId("Minion_0"), role=Role.MINION, host="h", started_ms=SystemClock().now_ms())
    metastore.create(paths.live(one.id), one.to_bytes())
    async with working(metastore, kind, tuning=replace(SHORT_WAITS, backoff=tasks.Backoff(first_ms=1, longest_ms=1))):
        await until(lambda: bool(ended(metastore)))
    assert [(one.outcome, one.attempts, one.error) for one in ended(metastore)] == [(TaskOutcome.SUCCEEDED, 1, "")]


def test_a_minion_that_turns_out_to_live_has_not_died_and_one_begun_anew_has(metastore: SqliteMetastore) -> None:
    queue(metastore, "a")
    runs = ("Minion_silent@50", "Minion_back@50", "Minion_anew@50")
    found = tasks.find_task(metastore, KIND, "a")
    assert found is not None
    record = found.record.model_copy(update={"broken_off": runs})
    metastore.put(paths.task(KIND, "a"), record.to_bytes(), found.version)
    for name, started_ms in (("Minion_back", 49), ("Minion_anew", 51)):
        instance = InstanceRecord(id=InstanceId(name), role=Role.MINION, host="h", started_ms=started_ms)
        metastore.create(paths.live(name), instance.to_bytes())
    lease = Lease.acquire(metastore, tasks.lease_name(KIND, "a"), "Minion_0", SystemClock())
    assert lease is not None
    kind = Greet(failures=1)
    execution.Execution(metastore, SystemClock(), kind).execute("a", KIND, TaskControl(lease))
    found = tasks.find_task(metastore, KIND, "a")
    assert found is not None
    assert found.record.broken_off == ("Minion_silent@50", "Minion_anew@50")


async def test_a_task_that_another_minion_holds_is_left_alone(metastore: SqliteMetastore) -> None:
    kind = Greet()
    queue(metastore, "a")
    other = metastore.session()
    assert Lease.acquire(other, tasks.lease_name(KIND, "a"), "Minion_9", SystemClock()) is not None
    async with working(metastore, kind):
        queue(metastore, "b")
        await until(lambda: metastore.children(paths.tasks(KIND)) == ["a"])
    assert kind.ran == ["b"]
    other.close()


async def test_parts_of_a_task_wait_until_it_has_ended(metastore: SqliteMetastore) -> None:
    """They are queued one after the other, by a minion that may die in between."""
    kind = Greet()
    lease = Lease.acquire(metastore, tasks.lease_name(KIND, "a"), "Minion_9", SystemClock())
    assert lease is not None
    queue(metastore, "a", "a-0of2", "a-1of2", "b")
    async with working(metastore, kind):
        await until(lambda: metastore.children(paths.tasks(KIND)) == ["a", "a-0of2", "a-1of2"])
        assert kind.ran == ["b"]
        lease.release(metastore)
        await until(lambda: not metastore.children(paths.tasks(KIND)))
    assert kind.ran[:2] == ["b", "a"]


async def test_a_task_that_no_minion_can_read_holds_up_its_parts_alone(metastore: SqliteMetastore) -> None:
    kind = Greet()
    metastore.create(paths.task(KIND, "a"), b"{")
    queue(metastore, "a-0of2", "b")
    async with working(metastore, kind):
        await until(lambda: metastore.children(paths.tasks(KIND)) == ["a", "a-0of2"])
    assert kind.ran == ["b"]


async def test_progress_is_written_while_a_task_runs(metastore: SqliteMetastore) -> None:
    kind = Greet(hangs=True)
    queue(metastore, "a")

    def said() -> bool:
        progress = tasks.progress(metastore, KIND, "a")
        return progress is not None and (progress.phase, progress.rows, progress.rows_total) == ("GREET", 3, 7)

    async with working(metastore, kind) as one:
        await until(said)
        assert one.running[0]["phase"] == "GREET"


def test_leases_of_ended_tasks_are_forgotten_after_a_day(metastore: SqliteMetastore) -> None:
    clock = FakeClock()
    queue(metastore, "queued")
    for name in ("queued", "ended", "held"):
        lease = Lease.acquire(metastore, tasks.lease_name(KIND, name), "Minion_0", clock)
        assert lease is not None
        if name != "held":
            lease.release(metastore)
    assert sweep(metastore, [KIND], clock) == 0
    clock.advance(90_000)
    assert sweep(metastore, [KIND], clock) == 1
    assert metastore.children(paths.LEASES) == [tasks.lease_name(KIND, name) for name in ("held", "queued")]


async def test_a_minion_registers_tells_its_tasks_and_leaves(metastore: SqliteMetastore) -> None:
    role = MinionRole(metastore, MinionConfig(kinds={KIND: Greet()}))
    await role.start()
    assert list(live_instances(metastore, Role.MINION)) == [role.instance]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{role.http_port}") as session:
        async with session.get("/health/readiness") as answer:
            assert (answer.status, await answer.text()) == (200, "OK")
        async with session.get("/tasks") as answer:
            assert await answer.json() == {"instance": role.instance, "slots": 1, "running": []}
    await role.stop()
    assert live_instances(metastore, Role.MINION) == {}
    assert role.not_ready() == "draining"
