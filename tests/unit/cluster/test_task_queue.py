"""The queue of tasks: failed, set aside, cancelled, ended, split; and what is remembered of them."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.tasks import queue as tasks
from merlot.cluster.tasks.queue import EndedTask, MergeTaskConfig, QueuedTask, TaskOutcome, TaskRecord, TaskState
from merlot.errors import ConflictError, CorruptionError
from merlot.ids import TableName
from merlot.metastore.protocol import MAX_TRANSACTION_BYTES, Check
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.tasks import Executor

KIND, TABLE = tasks.MERGE_ROLLUP, TableName("t_OFFLINE")
CONFIG = MergeTaskConfig(
    rollup="r",
    level="daily",
    level_index=0,
    bucket_period="1d",
    windows=((0, 86_400_000),),
    inputs=tuple(f"segment_{number}@{number}" for number in range(100)),
    num_shards=3,
    entry="e",
    output_prefix="merged",
)


@pytest.fixture
def fence(store: SqliteMetastore) -> Check:
    lease = Lease.acquire(store, "some-task", "minion", SystemClock())
    assert lease is not None
    return lease.fence


def record(name: str = "a") -> TaskRecord:
    return TaskRecord(id=name, kind=KIND, table=TABLE, created_ms=1, config=tasks.config_json(CONFIG))


def queue(store: SqliteMetastore, name: str = "a") -> QueuedTask:
    store.multi([tasks.creation(record(name))])
    found = tasks.find_task(store, KIND, name)
    assert found is not None
    return found


def ended(name: str = "a", outcome: TaskOutcome = TaskOutcome.SUCCEEDED) -> EndedTask:
    return EndedTask(id=name, outcome=outcome, level="daily", windows=((0, 1),), segments_before=4, segments_after=1)


def test_what_a_task_does_is_read_as_it_was_written(store: SqliteMetastore) -> None:
    assert tasks.merge_config(queue(store).record) == CONFIG
    assert list(tasks.list_tasks(store, KIND)) == ["a"]


def test_a_task_that_cannot_be_read_hides_no_other(store: SqliteMetastore) -> None:
    queue(store)
    store.create(paths.task(KIND, "odd"), b"{")
    readable, unreadable = tasks.list_readable(store, KIND)
    assert (list(readable), list(unreadable)) == (["a"], ["odd"])
    with pytest.raises(CorruptionError, match=r"path=.*odd"):
        tasks.list_tasks(store, KIND)


def test_a_task_that_is_set_aside_needs_no_spark() -> None:
    shared = CONFIG.model_copy(update={"executor": Executor.SPARK})
    by_spark = record().model_copy(update={"config": tasks.config_json(shared)})
    odd = by_spark.model_copy(update={"config": {**by_spark.config, "mergeType": "of tomorrow"}})
    assert [tasks.needs_spark(task) for task in (by_spark, odd)] == [True, False]


def test_a_task_that_no_version_knows_is_said_to_be_so() -> None:
    odd = record().model_copy(update={"config": {"rollup": "r"}})
    with pytest.raises(CorruptionError, match="task cannot be read id=a"):
        tasks.merge_config(odd)


def test_a_failed_task_waits_longer_each_time_and_is_set_aside_at_last(store: SqliteMetastore, fence: Check) -> None:
    task, pauses = queue(store), []
    for _ in range(tasks.MAX_ATTEMPTS):
        failed = tasks.fail(store, task, "no room", 1000, fence)
        pauses.append(failed.not_before_ms - 1000)
        found = tasks.find_task(store, KIND, "a")
        assert found is not None
        task = found
    assert pauses == [5_000, 10_000, 20_000, 40_000, 80_000]
    assert (task.record.state, task.record.last_error) == (TaskState.POISONED, "no room")
    [note] = tasks.history(store, KIND, TABLE).tasks
    assert (note.outcome, note.attempts, note.error) == (TaskOutcome.POISONED, 5, "no room")
    tasks.retry(store, task)
    again = tasks.find_task(store, KIND, "a")
    assert again is not None
    assert (again.record.state, again.record.attempts) == (TaskState.QUEUED, 0)


def test_a_task_that_was_cancelled_does_not_end_as_if_nothing_were(store: SqliteMetastore, fence: Check) -> None:
    task = queue(store)
    tasks.cancel(store, task)
    with pytest.raises(ConflictError):
        tasks.end(store, task, ended(), fence)
    cancelled = tasks.find_task(store, KIND, "a")
    assert cancelled is not None
    assert cancelled.record.state is TaskState.CANCELLED
    tasks.end(store, cancelled, ended(outcome=TaskOutcome.CANCELLED), fence)
    assert tasks.find_task(store, KIND, "a") is None
    assert tasks.history(store, KIND, TABLE).totals == {}


def test_who_lost_the_lease_changes_nothing(store: SqliteMetastore, fence: Check) -> None:
    task = queue(store)
    assert Lease.acquire(store, "some-task", "minion", SystemClock()) is not None
    for attempt in (
        lambda: tasks.fail(store, task, "x", 1, fence),
        lambda: tasks.end(store, task, ended(), fence),
        lambda: tasks.cancel(store, task, fence),
    ):
        with pytest.raises(ConflictError):
            attempt()
    assert tasks.find_task(store, KIND, "a") == task
    assert tasks.history(store, KIND, TABLE).tasks == ()


def test_many_tasks_of_a_table_end_at_once_and_none_is_forgotten(store: SqliteMetastore, fence: Check) -> None:
    names = [f"t{number}" for number in range(tasks.HISTORY_LENGTH + 10)]
    queued = [queue(store, name) for name in names]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda task: tasks.end(store, task, ended(task.record.id), fence), queued))
    found = tasks.history(store, KIND, TABLE)
    assert len(found.tasks) == tasks.HISTORY_LENGTH
    assert (found.totals["daily"].tasks, found.totals["daily"].segments_before) == (len(names), 4 * len(names))
    assert not tasks.list_tasks(store, KIND)


def test_progress_is_what_was_said_last_and_goes_with_the_task(store: SqliteMetastore, fence: Check) -> None:
    task = queue(store)
    for rows in (1, 2):
        tasks.write_progress(store, KIND, "a", tasks.TaskProgress(phase="READ", rows=rows))
    said = tasks.progress(store, KIND, "a")
    assert said is not None
    assert said.rows == 2
    tasks.end(store, task, ended(), fence)
    assert tasks.progress(store, KIND, "a") is None
    assert store.get(paths.task_progress(KIND, "a")) is None


def test_a_split_task_is_as_many_as_it_has_parts() -> None:
    parts = tasks.shard_tasks(record(), "run", 5)
    assert [part.id for part in parts] == ["a-0of3", "a-1of3", "a-2of3"]
    assert [tasks.merge_config(part).shard for part in parts] == [0, 1, 2]
    assert {tasks.merge_config(part).entry for part in parts} == {"e"}


def test_parts_that_name_thousands_of_segments_are_queued_a_transaction_at_a_time(
    store: SqliteMetastore, fence: Check
) -> None:
    inputs = tuple(f"flights_{hashlib.sha256(bytes(number)).hexdigest()}@1" for number in range(7_440))
    config = CONFIG.model_copy(update={"inputs": inputs, "num_shards": 20})
    parts = tasks.shard_tasks(record().model_copy(update={"config": tasks.config_json(config)}), "run", 5)
    assert sum(len(part.to_bytes()) for part in parts) > 2 * MAX_TRANSACTION_BYTES
    store.create(paths.task(parts[3].kind, parts[3].id), parts[3].to_bytes())
    tasks.create_missing(store, parts, fence)
    tasks.create_missing(store, parts, fence)
    assert set(tasks.list_tasks(store, parts[0].kind)) == {part.id for part in parts}
    assert {tasks.whole_of(part.id) for part in parts} == {"a"}
    assert tasks.whole_of("a") is tasks.whole_of("trips.daily.2021-11-01.0123456789ab") is None


def test_twenty_thousand_inputs_fit_into_a_node() -> None:
    inputs = tuple(f"flights_2013-01-01T00_{number:06d}@{number * 214_013 % (1 << 32)}" for number in range(20_000))
    large = record().model_copy(update={"config": tasks.config_json(CONFIG.model_copy(update={"inputs": inputs}))})
    assert len(large.to_bytes()) < 400_000
