"""Which buckets are merged when, whatever the segments look like."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.time_formats import time_fields
from tests.unit.controller.merge_table import DAY, HOUR, MergeTable, level, spec_of

from merlot.cluster.records import ConsumingStatus, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.rounding import smallest_window
from merlot.cluster.tasks.queue import TaskRecord, merge_config
from merlot.cluster.tasks.settings import is_outdated
from merlot.controller.merges.generator import generate
from merlot.controller.placement.retention import expired
from merlot.spec import time_rounding
from merlot.spec.tasks import BACKFILLED, MAX_SHARDS, MERGE_LEVEL, MergeLevel, MergeRollupSpec, Mode
from merlot.values import periods

DAILY = level("daily", "1d")


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def days_of(table: MergeTable, name: str) -> list[str]:
    """The days of the segments of a level."""
    mine = [one for one in table.records.values() if one.custom_map.get(MERGE_LEVEL) == name]
    return sorted(datetime.fromtimestamp(one.start_time_ms / 1000, UTC).strftime("%Y-%m-%d") for one in mine)


def test_hourly_segments_that_begin_at_13_56_are_merged_day_by_day() -> None:
    table, begin = MergeTable(), at("2021-11-01T13:56")
    for hour in range(60):
        table.add(range(begin + hour * HOUR, begin + (hour + 1) * HOUR, 60_000))
    rows = table.all_rows()
    spec = spec_of(level("daily", "1d", "1d"))
    windows = []
    for _ in range(3):
        tasks = table.generate(spec, at("2021-11-05")).tasks
        for task in tasks:
            windows += merge_config(task).windows
            table.run(task)
    assert windows == [(at(f"2021-11-0{day}"), at(f"2021-11-0{day + 1}")) for day in (1, 2, 3)]
    assert table.all_rows() == rows
    assert table.watermarks == {"daily": at("2021-11-03")}


def test_a_bucket_is_merged_when_it_is_older_than_the_buffer() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", "6h"))
    table.add([at("2021-11-01T10:00")])
    assert not table.generate(spec, at("2021-11-02T05:59:59")).tasks
    assert not table.watermarks
    assert table.generate(spec, at("2021-11-02T06:00")).tasks


def test_empty_and_merged_buckets_are_passed_over() -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    for day in ("2021-11-01", "2021-11-20", "2021-12-24"):
        table.add([at(day)])
    done = table.run_to_the_end(spec, at("2022-02-01"))
    assert len(done) == 3
    assert days_of(table, "daily") == ["2021-11-01", "2021-11-20", "2021-12-24"]
    assert table.watermarks == {"daily": at("2021-12-24")}


def test_several_buckets_at_once_and_no_more() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", maxNumParallelBuckets=3))
    for day in range(5):
        table.add([day * DAY])
    tasks = table.generate(spec, 90 * DAY).tasks
    assert [merge_config(task).windows for task in tasks] == [((day * DAY, (day + 1) * DAY),) for day in range(3)]


def test_no_more_is_begun_than_the_table_can_keep_replacements() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", maxNumParallelBuckets=3))
    for day in range(5):
        table.add([day * DAY])
    generated = table.generate(spec, 90 * DAY, room=0)
    assert (generated.tasks, generated.waits_for_room) == ((), True)
    generated = table.generate(spec, 90 * DAY, room=2)
    assert (len(generated.tasks), generated.waits_for_room) == (2, True)
    for task in generated.tasks:
        table.run(task)
    generated = table.generate(spec, 90 * DAY, room=3)
    assert (len(generated.tasks), generated.waits_for_room) == (3, False)


def test_buckets_of_a_pass_that_share_a_segment_become_one_task() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", maxNumParallelBuckets=2))
    table.add([HOUR])
    table.add([DAY - HOUR, DAY + HOUR])
    table.add([DAY + 2 * HOUR])
    table.add([2 * DAY])
    (task,) = table.generate(spec, 90 * DAY).tasks
    config = merge_config(task)
    assert config.windows == ((0, DAY), (DAY, 2 * DAY))
    assert len(config.inputs) == 3
    assert not config.rest


def test_what_spills_into_a_bucket_that_waits_is_written_beside_the_result() -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    table.add([HOUR, DAY + HOUR])
    table.add([DAY + 2 * HOUR])
    (task,) = table.generate(spec, DAY).tasks
    config = merge_config(task)
    assert (config.windows, config.rest) == (((0, DAY),), ((DAY, 2 * DAY),))
    assert config.rest_custom_map == {}
    table.run(task)
    assert not table.generate(spec, DAY).tasks
    (task,) = table.generate(spec, 2 * DAY).tasks
    assert len(merge_config(task).inputs) == 2


def test_a_segment_of_many_buckets_is_taken_apart_once() -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    table.add(range(0, 30 * DAY, HOUR))
    (task,) = table.run_to_the_end(spec, 90 * DAY)
    assert len(merge_config(task).windows) == 30


def test_a_coarser_level_waits_for_the_finer_one() -> None:
    table = MergeTable()
    spec = spec_of(level("daily", "1d", "1d"), level("monthly", "1mo", "7d"))
    for day in range(45):
        table.add([at("2021-01-01") + day * DAY])
    now_ms = at("2021-06-01")
    for _ in range(31):
        (task,) = table.generate(spec, now_ms).tasks
        assert merge_config(task).level == "daily"
        table.run(task)
    tasks = table.generate(spec, now_ms).tasks
    assert [merge_config(task).level for task in tasks] == ["daily", "monthly"]
    assert merge_config(tasks[1]).windows == ((at("2021-01-01"), at("2021-02-01")),)


def test_a_level_with_an_unfinished_task_waits_and_the_others_go_on() -> None:
    table = MergeTable()
    spec = spec_of(DAILY, level("monthly", "1mo"))
    for day in range(40):
        table.add([at("2021-01-01") + day * DAY], custom_map={MERGE_LEVEL: "Daily"} if day < 35 else None)
    now_ms = at("2021-06-01")
    generated = table.generate(spec, now_ms, unfinished={"daily"})
    assert [merge_config(task).level for task in generated.tasks] == ["monthly"]
    assert not table.generate(spec, now_ms, unfinished={"daily", "monthly"}).tasks


def test_late_data_behind_the_watermark_is_told_and_left_alone() -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    for day in range(5):
        table.add([day * DAY])
    table.run_to_the_end(spec, 90 * DAY)
    table.add([DAY + HOUR, DAY + 2 * HOUR])
    generated = table.generate(spec, 90 * DAY)
    assert not generated.tasks
    assert (generated.levels[0].late_segments, generated.levels[0].late_docs) == (1, 2)


def test_late_data_of_the_newest_bucket_are_merged_into_it() -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    table.add([HOUR])
    table.run_to_the_end(spec, 90 * DAY)
    table.add([2 * HOUR])
    (task,) = table.run_to_the_end(spec, 90 * DAY)
    assert len(merge_config(task).inputs) == 2


def test_late_data_are_merged_by_a_coarser_level_that_has_not_come_so_far() -> None:
    table, spec = MergeTable(), spec_of(DAILY, level("monthly", "1mo"))
    for day in range(20):
        table.add([day * DAY])
    table.run_to_the_end(spec, at("1970-01-25"))
    table.add([DAY])
    table.add([at("1970-02-01")])
    table.run_to_the_end(spec, at("1970-03-02"))
    assert days_of(table, "monthly") == ["1970-01-01", "1970-02-01"]
    assert len(table.records) == 2


def test_a_backfilled_bucket_is_merged_again_by_every_level() -> None:
    table, spec = MergeTable(), spec_of(DAILY, level("monthly", "1mo"))
    for day in range(100):
        table.add([day * DAY])
    table.run_to_the_end(spec, 200 * DAY)
    before = table.watermarks
    january = next(name for name, rows in table.rows.items() if rows[0][0] == 0)
    rows = table.drop(january)
    kept = [row for row in rows if not DAY <= row[0] < 2 * DAY]
    table.put("january_rest", kept, {MERGE_LEVEL: "monthly", BACKFILLED: "true"})
    table.add([DAY + HOUR, DAY + 2 * HOUR], custom_map={BACKFILLED: "true"}, name="filled")
    first, second = table.run_to_the_end(spec, 200 * DAY)
    assert (merge_config(first).level, merge_config(first).inputs) == ("daily", ("filled@2",))
    assert (merge_config(second).level, len(merge_config(second).inputs)) == ("monthly", 2)
    assert merge_config(second).custom_map == {MERGE_LEVEL: "monthly"}
    assert len([rows for rows in table.rows.values() if rows[0][0] < at("1970-02-01")]) == 1
    assert table.watermarks == before


def test_a_task_that_failed_for_good_is_set_aside_and_the_next_bucket_goes_on() -> None:
    table, spec = MergeTable(), spec_of(DAILY, level("monthly", "1mo"))
    for day in range(3):
        table.add([day * DAY])
    (failed,) = table.generate(spec, 90 * DAY).tasks
    generated = table.generate(spec, 90 * DAY, set_aside={failed.id})
    assert [merge_config(task).windows for task in generated.tasks] == [((DAY, 2 * DAY),)]
    assert generated.watermarks["daily"] == 0, "what failed stays in sight"
    table.add([HOUR])
    (again,) = table.generate(spec, 90 * DAY, set_aside={failed.id}).tasks
    assert merge_config(again).windows == ((0, DAY),), "other segments make it another task"


def test_segments_that_something_else_replaces_are_not_touched() -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    held = table.add([HOUR])
    table.add([2 * HOUR])
    table.add([DAY])
    (task,) = table.generate(spec, 90 * DAY, busy={held}).tasks
    assert merge_config(task).windows == ((DAY, 2 * DAY),)


@pytest.mark.parametrize(
    ("custom_map", "status"),
    [({"shouldNotMerge": "true"}, None), ({}, ConsumingStatus.CONSUMING), ({}, ConsumingStatus.DONE)],
)
def test_some_segments_stay_as_they_are(custom_map: Mapping[str, str], status: ConsumingStatus | None) -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    name = table.add([HOUR], custom_map=custom_map)
    if status is not None:
        table.records[name] = of_stream(table.records[name], 0, 7, status)
    assert not table.generate(spec, 90 * DAY).tasks


def of_stream(record: SegmentRecord, partition: int, sequence: int, status: ConsumingStatus) -> StreamSegmentRecord:
    place = {"partition": partition, "sequence": sequence, "startOffset": 0, "status": status}
    return StreamSegmentRecord.model_validate(record.model_dump(by_alias=True) | place)


def test_only_the_newest_completed_segment_of_each_partition_is_held_back() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", maxNumParallelBuckets=9))
    for sequence in range(3):
        for partition in range(2):
            name = table.add([sequence * DAY])
            table.records[name] = of_stream(table.records[name], partition, sequence, ConsumingStatus.DONE)
    tasks = table.generate(spec, 90 * DAY).tasks
    assert [merge_config(task).windows for task in tasks] == [((0, DAY),), ((DAY, 2 * DAY),)]


def test_what_a_stream_brought_is_merged_apart_from_batches_that_come_later() -> None:
    """The stream's watermark is days ahead when a batch comes: that is no backfill, and waits for no coarser level."""
    table, spec = MergeTable(), spec_of(level("daily", "1d", maxNumParallelBuckets=9))

    def add(day: int) -> None:
        name = table.add([day * DAY, day * DAY + HOUR])
        table.records[name] = table.records[name].model_copy(update={"stream_offsets": "0:0-10"})

    for day in range(4):
        add(day)
    streamed = table.generate(spec, 90 * DAY)
    assert len(streamed.tasks) == 4
    assert streamed.watermarks == {"daily@stream": 0}
    table.add([DAY])
    add(1)
    keys = [
        {key.partition("@")[0] for key in merge_config(task).inputs} for task in table.generate(spec, 90 * DAY).tasks
    ]
    of_stream_alone = {name for name, one in table.records.items() if one.stream_offsets}
    assert {"s5"} in keys
    assert all(one == {"s5"} or one <= of_stream_alone for one in keys)
    assert table.watermarks["daily"] == DAY


def test_partitions_are_merged_apart_where_each_is_asked_of_one_server() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", maxNumParallelBuckets=9))
    for number in range(6):
        name = table.add([number * HOUR])
        table.records[name] = table.records[name].model_copy(update={"stream_offsets": f"{number % 2}:0-10"})
    (together,) = table.generate(spec, 90 * DAY).tasks
    table.watermarks = {}
    apart = table.generate(spec, 90 * DAY, by_partition=True)
    assert [len(merge_config(task).inputs) for task in (together, *apart.tasks)] == [6, 3, 3]
    assert apart.levels[0].buckets_to_do == 2


def test_expired_segments_and_those_without_rows_are_no_work() -> None:
    table, spec = MergeTable(), spec_of(DAILY)
    table.add([])
    table.add([DAY])
    assert not table.generate(spec, 90 * DAY, retention_ms=30 * DAY).tasks
    assert table.generate(spec, 90 * DAY).tasks


def test_a_segment_with_a_broken_time_does_not_stop_the_others() -> None:
    table, spec = MergeTable(), spec_of(level("hourly", "1h"))
    table.add([0, at("9000-01-01")])
    table.add([HOUR])
    generated = table.generate(spec, 90 * DAY)
    assert [merge_config(task).windows for task in generated.tasks] == [((HOUR, 2 * HOUR),)]
    assert generated.levels[0].too_wide == 1


def test_a_large_bucket_is_split_by_hash_into_as_many_parts_as_it_needs() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", maxNumRecordsPerTask=1000))
    table.add([HOUR] * 700)
    table.add([HOUR] * 1400)
    (task,) = table.generate(spec, 90 * DAY).tasks
    assert merge_config(task).num_shards == 3
    table.add([HOUR] * 200_000)
    (task,) = table.generate(spec, 90 * DAY).tasks
    assert merge_config(task).num_shards == MAX_SHARDS


def test_history_behind_all_watermarks_is_merged_in_mode_process_all() -> None:
    table, levels = MergeTable(), (level("daily", "1d"), level("monthly", "1mo"))
    add_days(table, at("2021-02-01"), 28 + 31)
    table.run_to_the_end(spec_of(*levels), at("2021-06-01"))
    watermarks = dict(table.watermarks)
    add_days(table, at("2021-01-01"), 31)
    table.add([at("2021-02-10T12:00")])
    assert not table.generate(spec_of(*levels), at("2021-06-01")).tasks
    spec = spec_of(*levels, mode="processAll", schedule="5m")
    outlook = table.generate(spec, at("2021-06-01")).levels[0]
    assert (outlook.buckets_to_do, outlook.delay, outlook.watermark_ms, outlook.late_segments) == (32, 32, None, 0)
    rows = table.all_rows()
    done = [merge_config(task).level for task in table.run_to_the_end(spec, at("2021-06-01"))]
    assert (done.count("daily"), done.count("monthly"), table.all_rows()) == (32, 2, rows)
    assert days_of(table, "monthly") == ["2021-01-01", "2021-02-01", "2021-03-01"]
    assert table.watermarks == watermarks, "they are as they were for who changes the mode back"


def test_in_mode_process_all_a_bucket_waits_for_its_own_finer_ones_only() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d"), level("monthly", "1mo"), mode="processAll")
    for month in ("2021-01", "2021-02"):
        add_days(table, at(f"{month}-01"), 2, {MERGE_LEVEL: "daily"})
    table.add([at("2021-01-02T12:00")])
    tasks = table.generate(spec, at("2021-06-01")).tasks
    assert [(merge_config(task).level, merge_config(task).windows[0][0]) for task in tasks] == [
        ("daily", at("2021-01-02")),
        ("monthly", at("2021-02-01")),
    ]


def add_days(table: MergeTable, start_ms: int, number: int, custom_map: Mapping[str, str] | None = None) -> None:
    for day in range(number):
        table.add([start_ms + day * DAY], custom_map=custom_map)


def test_a_task_is_what_its_manifest_wants_until_that_says_otherwise() -> None:
    rich = level("daily", "1d", mergeType="rollup", roundBucketTimePeriod="1h", eraseDimensionValues=["tag"])
    functions = {"fare": {"aggregationType": "percentileTDigest", "parameters": {"compressionFactor": "50"}}}
    table, spec = MergeTable(), spec_of(rich, aggregations=functions)
    table.add([HOUR])
    (task,) = table.generate(spec, 90 * DAY).tasks
    config = merge_config(TaskRecord.from_bytes(task.to_bytes(), ""))
    assert not is_outdated(config, spec)
    wider = {**rich, "maxNumParallelBuckets": 7}
    assert not is_outdated(config, spec_of(wider, aggregations=functions, mode="processAll"))
    changes = ({"eraseDimensionValues": []}, {"roundBucketTimePeriod": "2h"}, {"mergeType": "dedup"}, {"name": "d"})
    for changed in changes:
        assert is_outdated(config, spec_of({**rich, **changed}, aggregations=functions))
    assert is_outdated(config, spec_of(rich))


def test_the_delay_counts_buckets_that_could_be_done() -> None:
    table, spec = MergeTable(), spec_of(level("daily", "1d", "1d"))
    for day in range(10):
        table.add([day * DAY])
    (outlook,) = table.generate(spec, 8 * DAY + HOUR).levels
    assert (outlook.delay, outlook.buckets_to_do, outlook.buckets_done) == (7, 7, 0)
    table.run_to_the_end(spec, 8 * DAY + HOUR)
    (outlook,) = table.generate(spec, 8 * DAY + HOUR).levels
    assert (outlook.delay, outlook.buckets_to_do, outlook.buckets_done) == (0, 0, 7)
    assert outlook.watermark_ms == 6 * DAY


LADDERS = [
    [("1h", "0d")],
    [("1d", "1d")],
    [("6h", "0d"), ("1d", "1d")],
    [("1h", "2h"), ("1d", "1d"), ("1mo", "3d")],
    [("1d", "0d"), ("1d", "0d")],
    [("7d", "0d"), ("14d", "1d")],
    [("1mo", "0d"), ("3mo", "0d")],
]
TIMES = st.integers(-40 * 24, 40 * 24)
SEGMENTS = st.lists(
    st.tuples(TIMES, st.one_of(st.integers(0, 6), st.integers(0, 24 * 20)), st.integers(0, 5)), min_size=1, max_size=14
)


@st.composite
def specs(draw: st.DrawFn):
    ladder = draw(st.sampled_from(LADDERS))
    levels = [
        level(
            f"level{number}",
            bucket,
            buffer,
            maxNumParallelBuckets=draw(st.integers(1, 4)),
            maxNumRecordsPerSegment=draw(st.sampled_from([2, 1000])),
        )
        for number, (bucket, buffer) in enumerate(ladder)
    ]
    return spec_of(*levels, mode=draw(st.sampled_from(Mode)))


def add_all(table: MergeTable, segments: list[tuple[int, int, int]], custom_map: Mapping[str, str]) -> None:
    for start, length, count in segments:
        step = length * HOUR // max(1, count - 1)
        table.add([start * HOUR + 1 + number * step for number in range(count)], custom_map=custom_map)


def check_aligned(table: MergeTable, levels: tuple[MergeLevel, ...]) -> None:
    """Whatever is the result of a level lies in one of its buckets."""
    buckets = {one.name: periods.parse(one.bucket_time_period) for one in levels}
    for record in table.records.values():
        bucket = buckets.get(record.custom_map.get(MERGE_LEVEL, ""))
        assert bucket is None or bucket.floor(record.start_time_ms) == bucket.floor(record.end_time_ms)


@settings(max_examples=examples(150), deadline=None)
@given(spec=specs(), first=SEGMENTS, later=SEGMENTS, filled=SEGMENTS, now=st.tuples(TIMES, TIMES))
def test_whatever_the_segments_no_row_is_lost_and_an_end_is_reached(spec, first, later, filled, now) -> None:
    table = MergeTable()
    for hour, segments, mark in zip(
        (*sorted(now), 70 * 24), (first, later, filled), ({}, {}, {BACKFILLED: "true"}), strict=True
    ):
        add_all(table, segments, mark)
        rows = table.all_rows()
        table.run_to_the_end(spec, hour * HOUR, most_passes=2_000)
        assert table.all_rows() == rows
        check_aligned(table, spec.levels)
        again = generate(table.situation(spec, hour * HOUR))
        assert again.tasks == ()
        assert again.watermarks == table.watermarks
        for outlook in again.levels:
            assert (outlook.buckets_to_do, outlook.delay) == (0, 0)


@settings(max_examples=examples(60), deadline=None)
@given(spec=specs(), segments=SEGMENTS)
def test_of_a_table_that_is_loaded_at_once_all_old_buckets_are_merged(spec, segments) -> None:
    table = MergeTable()
    add_all(table, segments, {})
    table.run_to_the_end(spec, 400 * DAY)
    finest = spec.levels[0]
    assert all(record.custom_map.get(MERGE_LEVEL) for record in table.records.values() if record.total_docs)
    for start_ms in {finest.bucket.floor(time) for time, _ in table.all_rows()}:
        inside = [
            record
            for record in table.records.values()
            if record.total_docs
            and record.start_time_ms < finest.bucket.next(start_ms)
            and record.end_time_ms >= start_ms
        ]
        levels = {record.custom_map[MERGE_LEVEL] for record in inside}
        assert len(levels) == 1, "a bucket is all of one level"


@settings(max_examples=examples(100), deadline=None)
@given(spec=specs(), segments=SEGMENTS, later=SEGMENTS, random=st.randoms(use_true_random=False))
def test_tasks_that_end_in_any_order_or_never_do_not_meet(spec, segments, later, random) -> None:
    table, running, failed = MergeTable(), {}, set()
    add_all(table, segments, {})
    rows = table.all_rows()
    for step in range(400):
        if step == 5:
            add_all(table, later, random.choice([{}, {BACKFILLED: "true"}]))
            rows = table.all_rows()
        held = {key.rpartition("@")[0] for task in running.values() for key in merge_config(task).inputs}
        unfinished = {merge_config(task).level for task in running.values()}
        for task in table.generate(spec, 400 * DAY, unfinished=unfinished, busy=held, set_aside=failed).tasks:
            inputs = {key.rpartition("@")[0] for key in merge_config(task).inputs}
            assert task.id not in running
            assert not inputs & held, "two tasks read one segment"
            held |= inputs
            running[task.id] = task
        if not running:
            break
        chosen = running.pop(random.choice(sorted(running)))
        if random.random() < 0.15:
            failed.add(chosen.id)
        else:
            table.run(chosen)
        assert table.all_rows() == rows
    assert not running, "an end is reached"
    check_aligned(table, spec.levels)


ROUNDING_LADDERS = [
    [("1d", "0d", "1h")],
    [("1h", "0d", None), ("1d", "1d", "1d")],
    [("1d", "0d", "1h"), ("1mo", "3d", "1d")],
    [("1d", "0d", None), ("1mo", "0d", "1mo"), ("3mo", "0d", None)],
    [("7d", "0d", "1d"), ("14d", "1d", "7d")],
    [("36h", "0d", "12h")],
]


@st.composite
def rounding_tables(draw: st.DrawFn) -> tuple[MergeTable, MergeRollupSpec]:
    """A table with a time column of any kind, and levels that round it."""
    ladder = draw(st.sampled_from(ROUNDING_LADDERS))
    roundings = [periods.parse(rounding) for _, _, rounding in ladder if rounding]
    time = draw(time_fields().filter(lambda one: all(time_rounding.problem(one, to) is None for to in roundings)))
    levels = [
        level(f"level{number}", bucket, buffer, **({"roundBucketTimePeriod": rounding} if rounding else {}))
        for number, (bucket, buffer, rounding) in enumerate(ladder)
    ]
    return MergeTable(time=time), spec_of(*levels)


@settings(max_examples=examples(150), deadline=None)
@given(
    made=rounding_tables(),
    batches=st.lists(SEGMENTS, min_size=1, max_size=3),
    clocks=st.lists(TIMES, min_size=3, max_size=3),
    asked=st.tuples(TIMES, st.integers(1, 24 * 40)),
)
def test_however_times_were_rounded_nothing_young_expires_and_windows_are_replaced_whole(
    made: tuple[MergeTable, MergeRollupSpec],
    batches: list[list[tuple[int, int, int]]],
    clocks: list[int],
    asked: tuple[int, int],
) -> None:
    table, spec = made
    for segments, hour in zip(batches, sorted(clocks), strict=False):
        add_all(table, segments, {})
        table.run_to_the_end(spec, hour * HOUR)
        assert sorted(number for _, number in table.all_rows()) == sorted(table.added)
        check_aligned(table, spec.levels)
    now_ms, coarsest = 80 * DAY, max(spec.levels, key=lambda one: one.bucket.nominal_ms).bucket
    for name, record in table.records.items():
        newest_ms = max((table.added[number] for _, number in table.rows[name]), default=None)
        if newest_ms is not None:
            assert newest_ms <= record.newest_ms < coarsest.next(newest_ms), "kept as long as its rows"
            assert not expired([record], now_ms - newest_ms, now_ms)
    window = smallest_window(table.records.values(), (asked[0] * HOUR, sum(asked) * HOUR))
    assert window[0] <= asked[0] * HOUR
    assert window[1] >= sum(asked) * HOUR
    for time, number in table.all_rows():
        assert (window[0] <= time < window[1]) == (window[0] <= table.added[number] < window[1])
    assert smallest_window(table.records.values(), window) == window
