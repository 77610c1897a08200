"""Merge tasks over a real metastore: queued by schedule and in one stroke, cancelled, set aside, told over HTTP."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from merlot import telemetry
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.lineage import replacements
from merlot.cluster.manifests import rollups, tables
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.mutations import ForgetReplacement
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import MERGE_ROLLUP, EndedTask, QueuedTask, TaskOutcome, TaskState, merge_config
from merlot.controller.http.api import make_app
from merlot.controller.merges import facts
from merlot.controller.merges.loop import MergeLoop
from merlot.controller.merges.service import MergeService
from merlot.controller.service import ControllerService
from merlot.ids import SegmentKey, TableName
from merlot.metastore.protocol import Check, Delete
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load as load_manifests
from merlot.spec.tasks import MERGE_LEVEL
from merlot.testing.clock import FakeClock
from merlot_operator.controllers.status_answer import parse

Client = TestClient[web.Request, web.Application]
TRIPS = TableName("trips_OFFLINE")
DAY = 86_400_000
TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  timeColumn: at
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: city, type: STRING}
      - {name: fare, type: LONG, role: metric}
"""
ROLLUP = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: trips-merge}
spec:
  table: trips
  levels:
    - {name: daily, bucketTimePeriod: 1d, bufferTimePeriod: 1d, maxNumParallelBuckets: 2}
    - {name: monthly, bucketTimePeriod: 1mo, bufferTimePeriod: 7d, mergeType: rollup}
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now_ms=90 * DAY)


@pytest.fixture
def fence(store: SqliteMetastore, clock: FakeClock) -> Check:
    lease = Lease.acquire(store, "controller", "c1", clock)
    assert lease is not None
    return lease.fence


@pytest.fixture
def loop(store: SqliteMetastore, clock: FakeClock, fence: Check) -> Iterator[MergeLoop]:
    loop = MergeLoop(store, clock, lambda: fence)
    yield loop
    loop.close()


@pytest.fixture
async def client(store: SqliteMetastore, clock: FakeClock) -> AsyncIterator[Client]:
    async with TestClient(TestServer(make_app(ControllerService(store, clock)))) as client:
        yield client


def make_table(store: SqliteMetastore, days: int = 3, text: str = TABLE) -> None:
    tables.put_table(store, load_manifests(text)[0])
    publish(store, TRIPS, [segment(f"s{day}-{part}", day * DAY) for day in range(days) for part in range(2)])


def put_rollup(store: SqliteMetastore, text: str = ROLLUP) -> None:
    rollups.put_rollup(store, load_manifests(text)[0])


def segment(name: str, start_ms: int, docs: int = 5, **more: object) -> SegmentRecord:
    return SegmentRecord(
        name=name,
        crc=1,
        size_bytes=10,
        url=f"file:///d/t_OFFLINE/{name}@1.mseg",
        total_docs=docs,
        start_time_ms=start_ms,
        end_time_ms=start_ms + 1000,
        **more,
    )


def queued(store: SqliteMetastore) -> dict[str, QueuedTask]:
    return dict(queue.list_tasks(store, MERGE_ROLLUP))


def levels(store: SqliteMetastore) -> list[str]:
    return sorted(str(task.record.config["level"]) for task in queued(store).values())


def work_off(store: SqliteMetastore, fence: Check) -> int:
    """What minions do, without rows."""
    found = queued(store)
    for task in found.values():
        config = merge_config(task.record)
        output = segment(
            f"{config.output_prefix}_0", config.windows[0][0], config.num_records, custom_map=config.custom_map
        )
        publish(store, TRIPS, [output], replace=[SegmentKey.parse(key).name for key in config.inputs])
        ended = EndedTask(
            id=task.record.id,
            outcome=TaskOutcome.SUCCEEDED,
            level=config.level,
            windows=config.windows,
            segments_before=len(config.inputs),
            segments_after=1,
        )
        queue.end(store, task, ended, fence)
    return len(found)


def all_nodes(store: SqliteMetastore, path: str = "") -> dict[str, int]:
    """Version of every node."""
    found = {}
    for name in store.children(path or "/"):
        child = f"{path}/{name}"
        node = store.get(child)
        found[child] = -1 if node is None else node.version
        found |= all_nodes(store, child)
    return found


def metric(text: str) -> list[str]:
    return [line for line in telemetry.render_metrics().decode().splitlines() if line.startswith(text)]


@pytest.mark.parametrize("is_bit", [True, False], ids=["bit", "text"])
def test_damaged_records_of_other_tables_hold_up_no_merge(
    store: SqliteMetastore, clock: FakeClock, loop: MergeLoop, is_bit: bool
) -> None:
    make_table(store)
    put_rollup(store)
    history = paths.task_history(MERGE_ROLLUP, "other_OFFLINE")
    store.create(history, b"{}")
    for path in (paths.rollup_config("other-merge"), paths.task(MERGE_ROLLUP, "other.daily.1.2")):
        store.create(path, b"{}" if is_bit else b"{")
        if is_bit:
            change = "UPDATE nodes SET data = CAST('[' || substr(data, 2) AS BLOB) WHERE path = ?"
            store._database._connection.execute(change, (path,))
    loop.round()
    readable, _ = queue.list_readable(store, MERGE_ROLLUP)
    assert {str(task.record.table) for task in readable.values()} == {TRIPS}
    assert store.get(history) is not None, "nobody knows yet whose it is"


def test_a_table_is_not_merged_while_one_of_its_tasks_cannot_be_read(store: SqliteMetastore, loop: MergeLoop) -> None:
    make_table(store)
    put_rollup(store)
    store.create(paths.task(MERGE_ROLLUP, "trips.daily.1.2"), b"{")
    loop.round()
    assert store.children(paths.tasks(MERGE_ROLLUP)) == ["trips.daily.1.2"], "nobody knows which segments it holds"


def test_a_run_goes_on_until_nothing_is_left_and_then_writes_nothing(
    store: SqliteMetastore, loop: MergeLoop, fence: Check, clock: FakeClock
) -> None:
    make_table(store, days=5)
    put_rollup(store)
    loop.round()
    assert levels(store) == ["daily", "daily"]
    passes = 0
    while work_off(store, fence):
        loop.round()
        passes += 1
    assert passes == 4, "three for five days, two at a time, and one for the month"
    assert [one.custom_map[MERGE_LEVEL] for one in load(store, TRIPS).visible.values()] == ["monthly"]
    assert rollups.watermarks(store, TRIPS)[0].levels == {"daily": 4 * DAY, "monthly": 0}
    before = all_nodes(store)
    clock.advance(300)
    loop.round()
    loop.round()
    assert all_nodes(store) == before
    assert queue.history(store, MERGE_ROLLUP, TRIPS).totals["daily"].segments_before == 10


def test_a_period_begins_at_once_and_cron_when_it_calls(
    store: SqliteMetastore, loop: MergeLoop, clock: FakeClock
) -> None:
    make_table(store)
    put_rollup(store, ROLLUP.replace("table: trips", 'table: trips\n  schedule: "30 3 * * *"'))
    assert loop.round() <= 30
    assert not queued(store)
    clock.advance(3.4 * 3600)
    loop.round()
    assert not queued(store)
    clock.advance(0.2 * 3600)
    loop.round()
    assert queued(store)


def test_who_lost_the_lease_writes_nothing(store: SqliteMetastore, loop: MergeLoop, clock: FakeClock) -> None:
    make_table(store)
    put_rollup(store)
    assert Lease.acquire(store, "controller", "c1", clock) is not None, "anew: the old fence is off"
    before = all_nodes(store)
    loop.round()
    assert all_nodes(store) == before


def test_tasks_and_watermark_are_written_together_or_not_at_all(
    store: SqliteMetastore, loop: MergeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(store)
    put_rollup(store)
    multi = SqliteMetastore.multi

    def late(self: SqliteMetastore, ops: Any) -> None:
        if any(paths.TASKS in getattr(op, "path", "") for op in ops):
            monkeypatch.undo()
            publish(store, TRIPS, [segment("new", 0)])
        multi(self, ops)

    monkeypatch.setattr(SqliteMetastore, "multi", late)
    loop.round()
    first = min(queued(store).values(), key=lambda task: task.record.config["windows"])
    assert "new@1" in merge_config(first.record).inputs, "the decision was made again"


def test_a_suspended_one_cancels_its_tasks_and_goes_on_later(
    store: SqliteMetastore, loop: MergeLoop, fence: Check
) -> None:
    make_table(store)
    put_rollup(store)
    loop.round()
    put_rollup(store, ROLLUP.replace("table: trips", "table: trips\n  suspend: true"))
    loop.round()
    assert {task.record.state for task in queued(store).values()} == {TaskState.CANCELLED}
    for task in queued(store).values():
        queue.end(store, task, EndedTask(id=task.record.id, outcome=TaskOutcome.CANCELLED), fence)
    loop.round()
    assert not queued(store)
    put_rollup(store)
    loop.round()
    assert levels(store) == ["daily", "daily"]


@pytest.mark.parametrize(
    ("old", "new", "is_cancelled"),
    [
        ("levels:", "schedule: 5m\n  levels:", False),
        ("mergeType: rollup", "mergeType: concat", False),
        ("bufferTimePeriod: 1d", "bufferTimePeriod: 2d", False),
        ("maxNumParallelBuckets: 2", "mergeType: rollup", True),
        ("maxNumParallelBuckets: 2", "roundBucketTimePeriod: 1h", True),
        ("maxNumParallelBuckets: 2", "maxNumRecordsPerSegment: 3", True),
        ("name: daily, bucketTimePeriod: 1d", "name: daily, bucketTimePeriod: 12h", True),
        ("name: daily", "name: by-day", True),
    ],
)
def test_tasks_are_cancelled_when_the_manifest_has_their_level_do_something_else(
    old: str, new: str, is_cancelled: bool, store: SqliteMetastore, loop: MergeLoop, fence: Check
) -> None:
    make_table(store)
    put_rollup(store)
    loop.round()
    assert old in ROLLUP
    put_rollup(store, ROLLUP.replace(old, new))
    loop.round()
    states = {task.record.state for task in queued(store).values() if merge_config(task.record).revision == 1}
    assert states == {TaskState.CANCELLED if is_cancelled else TaskState.QUEUED}
    for task in queued(store).values():
        queue.end(store, task, EndedTask(id=task.record.id, outcome=TaskOutcome.CANCELLED), fence)
    loop.round()
    assert {merge_config(task.record).revision for task in queued(store).values()} == {2}


def test_merges_wait_while_the_table_keeps_as_many_replacements_as_it_can_and_then_go_on_by_themselves(
    store: SqliteMetastore, loop: MergeLoop, clock: FakeClock, fence: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MAX_ENTRIES", facts.RESERVED_ENTRIES + 2)
    make_table(store, days=4)
    replacements.start_replacement(
        store, TRIPS, replacements.Replacement(segments_from=(), segments_to=("x",), entry="e")
    )
    put_rollup(store, ROLLUP.replace("table: trips", 'table: trips\n  schedule: "0 3 * * *"'))
    loop.round()
    clock.advance(24 * 3600)
    loop.round()
    assert levels(store) == ["daily"]
    assert work_off(store, fence) == 1
    replacements.start_replacement(
        store, TRIPS, replacements.Replacement(segments_from=(), segments_to=("y",), entry="f")
    )
    loop.round()
    assert levels(store) == []
    told = MergeService(store, clock).rollup("trips-merge")
    assert told["state"] == told["levels"][0]["state"] == "Pending"
    assert "2 replacements are kept, which is as many as a table can" in told["message"]
    for entry in ("e", "f"):
        replacements.revert_replacement(store, TRIPS, entry)
        mutate(store, TRIPS, lambda _, entry=entry: [ForgetReplacement(entry)])  # type: ignore[misc]
    loop.round()
    assert levels(store) == ["daily", "daily"], "without another call of the schedule"
    assert MergeService(store, clock).rollup("trips-merge")["message"] == ""


def test_a_deleted_one_leaves_only_tasks_to_undo(store: SqliteMetastore, loop: MergeLoop, fence: Check) -> None:
    make_table(store)
    put_rollup(store)
    loop.round()
    rollups.delete_rollup(store, "trips-merge")
    loop.round()
    assert {task.record.state for task in queued(store).values()} == {TaskState.CANCELLED}
    assert rollups.watermarks(store, TRIPS) == (queue.WatermarkRecord(), None)
    for task in queued(store).values():
        queue.end(store, task, EndedTask(id=task.record.id, outcome=TaskOutcome.CANCELLED), fence)
    assert queue.history(store, MERGE_ROLLUP, TRIPS).tasks
    loop.round()
    assert not queue.history(store, MERGE_ROLLUP, TRIPS).tasks


def test_one_that_cannot_be_read_does_not_stop_the_others(store: SqliteMetastore, loop: MergeLoop) -> None:
    make_table(store)
    put_rollup(store)
    loop.round()
    put_rollup(store, ROLLUP.replace("trips", "rides"))
    path = paths.rollup_config("rides-merge")
    node = store.get(path)
    assert node is not None
    store.put(path, node.data.replace(b'"1mo"', b'"1aeon"'), node.version)
    for task in queued(store).values():
        store.delete(paths.task(MERGE_ROLLUP, task.record.id))
    loop.round()
    assert levels(store) == ["daily", "daily"]


def test_tasks_about_segments_that_were_replaced_are_cancelled(store: SqliteMetastore, loop: MergeLoop) -> None:
    make_table(store, days=1)
    put_rollup(store)
    loop.round()
    (task,) = queued(store).values()
    publish(store, TRIPS, [segment("other", 0)], replace=["s0-0"])
    loop.round()
    assert queued(store)[task.record.id].record.state is TaskState.CANCELLED


def test_a_table_made_anew_begins_from_the_start(
    store: SqliteMetastore, loop: MergeLoop, fence: Check, clock: FakeClock
) -> None:
    make_table(store, days=5)
    put_rollup(store)
    loop.round()
    while work_off(store, fence):
        loop.round()
    tables.delete_table(store, "trips")
    loop.round()
    tables.put_table(store, load_manifests(TABLE)[0])
    publish(store, TRIPS, [segment("fresh", DAY)])
    clock.advance(120)
    loop.round()
    (task,) = queued(store).values()
    assert merge_config(task.record).windows == ((DAY, 2 * DAY),)


def test_metrics_come_with_the_table_and_go_with_it(store: SqliteMetastore, loop: MergeLoop) -> None:
    make_table(store, days=5)
    put_rollup(store)
    loop.round()
    assert metric("mergeRollupTaskDelayInNumBuckets") == [
        'mergeRollupTaskDelayInNumBuckets{level="daily",table="trips_OFFLINE"} 5.0',
        'mergeRollupTaskDelayInNumBuckets{level="monthly",table="trips_OFFLINE"} 0.0',
    ]
    tables.delete_table(store, "trips")
    loop.round()
    assert metric("mergeRollupTaskDelayInNumBuckets") == []
    assert metric("merlot_controller_merge_queue") == []


async def test_how_far_merges_are_is_told_over_http(
    store: SqliteMetastore, loop: MergeLoop, fence: Check, client: Client
) -> None:
    put_rollup(store)
    (found,) = (await (await client.get("/rollups")).json())["rollups"]
    assert (found["state"], found["message"]) == ("Waiting", 'there is no table "trips"; apply it, and merges begin')
    make_table(store)
    loop.round()
    body = await (await client.get("/rollups/trips-merge")).json()
    daily, monthly = body["levels"]
    assert (body["state"], body["table"], len(body["tasks"])) == ("Running", "trips", 2)
    assert (daily["state"], daily["delay"], daily["bucketsToDo"], daily["watermarkMs"]) == ("Running", 3, 3, 0)
    assert (monthly["state"], monthly["tasksQueued"]) == ("UpToDate", 0) or monthly["state"] == "Pending"
    work_off(store, fence)
    body = await (await client.get("/rollups/trips-merge")).json()
    assert body["levels"][0]["merged"] == {**daily["merged"], "tasks": 2, "buckets": 2} | {
        "segmentsBefore": 4,
        "segmentsAfter": 2,
    }
    assert [one["outcome"] for one in body["history"]] == ["SUCCEEDED", "SUCCEEDED"]
    status = parse(await (await client.get("/status")).read())
    assert status["rollups"]["trips-merge"]["levels"][0]["bucketsDone"] == 2
    assert status["rollups"]["trips-merge"]["history"] == body["history"]
    assert (await client.get("/rollups/none")).status == 404
    assert (await client.delete("/rollups/trips-merge")).status == 200
    assert (await (await client.get("/rollups")).json())["rollups"] == []


def test_the_status_tells_progress_and_the_next_run_of_a_schedule_that_calls_rarely(
    store: SqliteMetastore, loop: MergeLoop, clock: FakeClock, fence: Check
) -> None:
    make_table(store, days=5)
    put_rollup(store, ROLLUP.replace("maxNumParallelBuckets: 2", "maxNumParallelBuckets: 3"))
    loop.round()
    first, *_ = queued(store)
    assert Lease.acquire(store, queue.lease_name(MERGE_ROLLUP, first), "Minion_1", clock) is not None
    said = queue.TaskProgress(phase="READ", rows=47, rows_total=100, started_ms=7, owner="Minion_1")
    queue.write_progress(store, MERGE_ROLLUP, first, said)
    service = MergeService(store, clock)
    told = service.status()["rollups"]["trips-merge"]
    assert (told["levels"][0]["progress"], told["levels"][0]["tasksRunning"], told["nextRunMs"]) == ("0/5", 1, None)
    one = {"id": first, "level": "daily", "minion": "Minion_1", "phase": "READ", "percent": 40, "startedMs": 7}
    assert told["running"] == [one]
    assert service.status()["tasks"] == {"queued": 2, "running": 1, "poisoned": 0, "cancelled": 0}
    assert work_off(store, fence) == 3
    put_rollup(store, ROLLUP.replace("table: trips", "table: trips\n  schedule: 1h"))
    told = service.status()["rollups"]["trips-merge"]
    assert (told["levels"][0]["progress"], told["running"], told["nextRunMs"]) == ("3/5", [], 90 * DAY + 3_600_000)
    clock.advance(60)
    assert service.status()["rollups"]["trips-merge"] == told


async def test_segments_that_are_left_alone_are_told(store: SqliteMetastore, client: Client) -> None:
    make_table(store, days=0)
    put_rollup(store)
    timeless = segment("timeless", 0).model_copy(update={"start_time_ms": None, "end_time_ms": None})
    wide = segment("wide", 0).model_copy(update={"end_time_ms": 400_000 * DAY})
    publish(store, TRIPS, [timeless, wide])
    body = await (await client.get("/rollups/trips-merge")).json()
    assert (body["state"], body["segmentsWithoutTime"], body["levels"][0]["segmentsTooWide"]) == ("UpToDate", 1, 1)
    assert "their times are not known" in body["message"]
    assert "too many buckets" in body["message"]


async def test_a_task_that_failed_for_good_is_told_and_tried_again_by_hand(
    store: SqliteMetastore, loop: MergeLoop, fence: Check, client: Client, clock: FakeClock
) -> None:
    make_table(store, days=1)
    put_rollup(store)
    loop.round()
    for _ in range(queue.MAX_ATTEMPTS):
        (task,) = queued(store).values()
        queue.fail(store, task, "disk is full", clock.now_ms(), fence)
    loop.round()
    body = await (await client.get("/rollups/trips-merge")).json()
    assert (body["state"], body["lastError"]) == ("Failing", "disk is full")
    assert body["levels"][0]["state"] == "Failing"
    done = await (await client.post("/rollups/trips-merge/run")).json()
    assert done == {"queued": [], "cancelled": [], "retried": [task.record.id]}
    assert queued(store)[task.record.id].record.state is TaskState.QUEUED


async def test_a_run_by_hand_does_not_wait_for_the_schedule(store: SqliteMetastore, client: Client) -> None:
    make_table(store)
    put_rollup(store, ROLLUP.replace("table: trips", 'table: trips\n  schedule: "0 0 1 1 *"'))
    done = await (await client.post("/rollups/trips-merge/run")).json()
    assert sorted(done["queued"]) == sorted(queued(store))
    again = await (await client.post("/rollups/trips-merge/run")).json()
    assert again["queued"] == []


async def test_a_table_that_cannot_be_merged_is_refused_with_the_reason(
    store: SqliteMetastore, loop: MergeLoop, client: Client
) -> None:
    tables.put_table(store, load_manifests(TABLE.replace("  timeColumn", "  pushType: REFRESH\n  timeColumn"))[0])
    answer = await client.post("/apply", data=ROLLUP)
    assert answer.status == 400
    (problem,) = (await answer.json())["problems"]
    assert problem["path"] == "spec.table"
    assert "each batch replaces all segments" in problem["message"]
    put_rollup(store)
    loop.round()
    body = await (await client.get("/rollups/trips-merge")).json()
    assert (body["state"], body["message"].split(":")[0]) == ("Refused", "spec.table")
    assert not queued(store)


async def test_all_kinds_are_applied_from_one_file_in_any_order(store: SqliteMetastore, client: Client) -> None:
    upsert = "apiVersion: merlot.dev/v1alpha1\nkind: UpsertConfig\nmetadata: {name: u}\nspec: {mode: FULL}\n"
    text = f"{ROLLUP}---\n{upsert}---\n{TABLE}"
    applied = await (await client.post("/apply", data=text)).json()
    assert [(one["kind"], one["result"]) for one in applied] == [
        ("MergeRollupTask", "created"),
        ("UpsertConfig", "created"),
        ("Table", "created"),
    ]
    assert not applied[0]["warnings"]
    assert not applied[1]["warnings"]
    (found,) = (await (await client.get("/upserts")).json())["upserts"]
    assert (found["name"], found["state"]) == ("u", "Accepted")
    assert (await client.delete("/upserts/u")).status == 200
    assert (await client.get("/upserts/u")).status == 404


async def test_a_second_one_for_a_table_is_refused_and_so_is_another_table(
    store: SqliteMetastore, client: Client
) -> None:
    put_rollup(store)
    answer = await client.post("/apply", data=ROLLUP.replace("trips-merge", "second"))
    assert 'has the MergeRollupTask "trips-merge" already' in (await answer.json())["problems"][0]["message"]
    answer = await client.post("/apply", data=ROLLUP.replace("table: trips", "table: rides"))
    assert (await answer.json())["problems"][0]["message"].startswith("cannot change")
    both = ROLLUP.replace("trips", "rides") + "---" + ROLLUP.replace("trips", "rides").replace("rides-merge", "other")
    assert (await client.post("/apply", data=both)).status == 400
    assert list(rollups.list_rollups(store)) == ["trips-merge"]


def test_the_claim_of_a_table_survives_only_with_its_manifest(store: SqliteMetastore) -> None:
    put_rollup(store)
    node = store.get(paths.rollup_config("trips-merge"))
    assert node is not None
    store.multi([Delete(paths.rollup_config("trips-merge"), node.version)])
    put_rollup(store, ROLLUP.replace("trips-merge", "second"))
    with pytest.raises(rollups.RollupConflictError):
        put_rollup(store)
