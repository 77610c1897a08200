"""Which segments of upsert tables are rewritten, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from merlot.cluster.consuming.merged import MERGED
from merlot.cluster.records import ConsumingStatus, LineageMark, LineageState, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.cluster.tasks.compactions import MAX_DOCS, compaction_config, task_of
from merlot.cluster.tasks.queue import QueuedTask
from merlot.cluster.tasks.records import CompactionConfig, EndedTask, LevelTotals, TaskHistory, TaskOutcome
from merlot.controller.compactions.generator import CompactionSituation, generate
from merlot.controller.status.compactions import compaction_status
from merlot.ids import TableName
from merlot.spec.upserting import CompactionSpec

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
NAME = "board_OFFLINE"


def sealed(sequence: int, *, partition: int = 0, docs: int = 100, **more: Any) -> StreamSegmentRecord:
    fields = {
        "crc": 100 * partition + sequence + 1,
        "size_bytes": 10,
        "url": "",
        "push_time_ms": NOW_MS - 30 * HOUR_MS,
        "upsert": '{"mode":"FULL"}',
        "status": ConsumingStatus.DONE.value,
        **more,
    }
    return StreamSegmentRecord(
        name=f"board__{partition}__{sequence}__20260101T0000Z",
        total_docs=docs,
        partition=partition,
        sequence=sequence,
        start_offset=0,
        **fields,
    )


def open_(sequence: int, **more: Any) -> StreamSegmentRecord:
    return sealed(sequence, docs=0, status=ConsumingStatus.CONSUMING.value, **{"crc": 0, **more})


def due(records: list[StreamSegmentRecord], replaced: Mapping[int, int], **more: Any) -> list[str]:
    """Segments of partition 0 that are due, by what was replaced of each sequence."""
    lineage = more.pop("lineage", {})
    view = SimpleNamespace(table=TableName(NAME), stream_segments=tuple(records), lineage=lineage)
    told = more.pop("told", {record.key_text: replaced.get(record.sequence, 0) for record in records})
    spec = CompactionSpec.model_validate(more.pop("spec", {}))
    situation = CompactionSituation(
        spec=spec, view=cast(TableView, view), **{"replaced": told, "now_ms": NOW_MS, "by_rows": {}, **more}
    )
    return [compaction_config(task).segment.split("__")[2] for task in generate(situation)]


LINE = [sealed(0), sealed(1), sealed(2), open_(3)]


def test_those_of_which_most_was_replaced_come_first_and_those_of_which_little_was_stay() -> None:
    assert due(LINE, {0: 40, 1: 90}) == ["1", "0"]
    assert due(LINE, {0: 29, 1: 30}) == ["1"]
    assert due(LINE, {0: 40, 1: 90}, spec={"invalidRecordsThresholdCount": 41}) == ["1"]
    assert due(LINE, {0: 1, 1: 0}, spec={"invalidRecordsThresholdPercent": 0}) == ["0"]


def test_the_last_sealed_segment_and_the_open_one_stay() -> None:
    assert due(LINE, {2: 100, 3: 100}) == []
    assert due(LINE[:3], {1: 100, 2: 100}) == ["1"]


def test_a_segment_is_left_alone_for_as_long_as_the_buffer_says_after_it_was_sealed_or_rewritten() -> None:
    young = sealed(0, push_time_ms=NOW_MS - 23 * HOUR_MS)
    rewritten = sealed(1, refresh_time_ms=NOW_MS - 23 * HOUR_MS)
    line = [young, rewritten, sealed(2), open_(3)]
    assert due(line, {0: 100, 1: 100}) == []
    assert due(line, {0: 100, 1: 100}, spec={"bufferTimePeriod": "23h"}) == ["0", "1"]


@pytest.mark.parametrize(
    "upsert",
    [
        '{"mode":"FULL","primaryKeyTtl":"3d"}',
        '{"mode":"FULL","deletedKeysTtl":"3d","deleteRecordColumn":"gone"}',
        '{"mode":"DEDUP"}',
        '{"mode":"OF A LATER VERSION"}',
    ],
)
def test_a_partition_with_rows_that_a_time_to_live_decided_stays_as_it_is(upsert: str) -> None:
    assert due([sealed(0), sealed(1, upsert=upsert), sealed(2), open_(3)], {0: 100}) == []
    assert due([sealed(0), sealed(1), sealed(2), open_(3, upsert=upsert)], {0: 100}) == []


def test_as_many_are_made_as_may_run_and_none_twice() -> None:
    line = [*(sealed(one) for one in range(9)), open_(9)]
    replaced = dict.fromkeys(range(8), 50)
    spec = {"maxNumParallelTasks": 3}
    assert len(due(line, replaced, spec=spec)) == 3
    assert len(due(line, replaced, spec=spec, num_running=2)) == 1
    view = SimpleNamespace(table=TableName(NAME), stream_segments=tuple(line), lineage={})
    told = {record.key_text: 50 for record in line[:8]}
    situation = CompactionSituation(
        spec=CompactionSpec.model_validate(spec),
        view=cast(TableView, view),
        replaced=told,
        by_rows={},
        now_ms=NOW_MS,
    )
    first = {task.id for task in generate(situation)}
    again = replace(situation, queued=first)
    assert first.isdisjoint(task.id for task in generate(again))


def test_no_record_changes_for_which_a_server_answers_by_rows_that_it_consumed() -> None:
    at_once = {"bufferTimePeriod": "0d"}
    assert due(LINE, {0: 100, 1: 100}, spec=at_once, by_rows={0: 3}) == ["0", "1"]
    assert due(LINE, {0: 100, 1: 100}, spec=at_once, by_rows={0: 1}) == ["0"]
    assert due(LINE, {0: 100, 1: 100}, spec=at_once, by_rows={0: 0}) == []
    assert due(LINE, {0: 100, 1: 100}, spec=at_once, by_rows={1: 0}) == ["0", "1"], "of another partition"


def test_segments_whose_valid_docs_nobody_can_tell_yet_stay() -> None:
    assert due(LINE, {0: 100, 1: 100}, unsettled={LINE[0].key_text}) == ["1"]


def test_what_was_told_of_another_version_does_not_count() -> None:
    assert due(LINE, {}, told={f"{LINE[0].name}@77": 100}) == []


def test_segments_of_replacements_and_those_that_are_too_large_stay() -> None:
    mark = LineageMark(LineageState.IN_PROGRESS, 0, "", 1, 1)
    assert due([sealed(0, replaced_by="e"), *LINE[1:]], {0: 100}, lineage={"e": mark}) == []
    assert due([sealed(0, docs=MAX_DOCS + 1), *LINE[1:]], {0: MAX_DOCS}) == []


def merged(
    records: list[StreamSegmentRecord], replaced: Mapping[int, int] | None = None, **more: Any
) -> list[list[int]]:
    """Sequences of the segments of partition 0 that are to become one."""
    spec = {"merge": more.pop("merge", {"maxNumSegmentsPerTask": 3}), "invalidRecordsThresholdCount": 10**9}
    view = SimpleNamespace(table=TableName(NAME), stream_segments=tuple(records), lineage={})
    told = {record.key_text: (replaced or {}).get(record.sequence, 0) for record in records}
    fields = {"spec": CompactionSpec.model_validate(spec), "view": cast(TableView, view), "by_rows": {}}
    situation = CompactionSituation(**{**fields, "replaced": told, "now_ms": NOW_MS, **more})
    tasks = [compaction_config(task) for task in generate(situation)]
    return [[int(key.split("__")[2]) for key in task.segments] for task in tasks if task.merged]


def line_of(*docs: int, **more: Any) -> list[StreamSegmentRecord]:
    """Sealed segments of so many docs, one more, and the open one."""
    found = [sealed(sequence, docs=number, **more) for sequence, number in enumerate((*docs, 100))]
    return [*found, open_(len(found))]


def test_small_segments_that_follow_each_other_are_merged_but_for_the_last_sealed_one() -> None:
    assert merged(line_of(100, 100)) == [[0, 1]]
    assert merged(line_of(*[100] * 7)) == [[0, 1, 2], [3, 4, 5]]
    assert merged(line_of(100)) == []
    assert merged(line_of(100, 100), merge=None) == []


def test_segments_are_merged_up_to_what_one_may_have() -> None:
    assert merged(line_of(100, 100, 100), merge={"maxNumRecordsPerSegment": 200}) == [[0, 1]]
    assert merged(line_of(100, 100, 100), {0: 100}, merge={"maxNumRecordsPerSegment": 200}) == [[0, 1, 2]]
    assert merged(line_of(100, 100, 100), merge={"outputSegmentMaxSizeInBytes": 25}) == [[0, 1]]
    assert merged(line_of(MAX_DOCS, MAX_DOCS)) == [], "their bits are too large for a node"
    assert merged(line_of(100, 100), {0: 100, 1: 100}) == [], "they are removed"


def test_a_large_segment_is_not_written_again_for_a_small_one() -> None:
    assert merged(line_of(1000, 100, 100)) == [[1, 2]]
    assert merged(line_of(100, 100, 1000)) == [[0, 1]]
    assert merged(line_of(300, 100, 100)) == [[1, 2]]
    assert merged(line_of(200, 100, 100)) == [[0, 1, 2]]


def test_segments_that_are_not_to_be_touched_end_a_run() -> None:
    line = line_of(*[100] * 5)
    key = line[2].key_text
    assert merged(line, busy={key}) == [[0, 1], [3, 4]]
    assert merged(line, unsettled={key}) == [[0, 1], [3, 4]]
    assert merged(line, by_rows={0: 3}) == [[0, 1, 2]]
    for change in ({"push_time_ms": NOW_MS}, {"upsert": '{"mode":"FULL","comparisonColumns":["at"]}'}):
        young = [*line[:2], line[2].model_copy(update=change), *line[3:]]
        assert merged(young) == [[0, 1], [3, 4]], change
    lost = [*line[:2], line[2].model_copy(update={"lost_from": 7}), *line[3:]]
    assert merged(lost) == [[0, 1], [2, 3, 4]]


def test_segments_of_a_merge_that_is_not_over_are_left_alone() -> None:
    line = line_of(*[100] * 5)
    marks = {MERGED: f"{line[0].key_text},{line[1].name}@99"}
    under_way = [line[0], line[1].model_copy(update={"custom_map": marks}), *line[2:]]
    assert merged(under_way) == [[2, 3, 4]]
    assert due(under_way, {0: 100, 1: 100, 2: 50}) == ["2"]
    assert merged(under_way[1:]) == [[1, 2, 3]], "it is over"


def test_what_expires_is_not_merged() -> None:
    expiring = line_of(100, 100, upsert='{"mode":"FULL","primaryKeyTtl":"3d","snapshot":"ENABLE"}')
    assert merged(expiring) == []
    assert merged(line_of(100, 100, upsert='{"mode":"DEDUP"}')) == []


def ended(number: int, rows_after: int) -> EndedTask:
    return EndedTask(
        id=f"t{number}",
        outcome=TaskOutcome.SUCCEEDED,
        level="compaction",
        segments_before=1,
        segments_after=int(rows_after > 0),
        rows_before=100,
        rows_after=rows_after,
    )


def test_status_tells_what_left_and_which_segment_fails_again_and_again() -> None:
    spec, totals = CompactionSpec(), LevelTotals()
    for number, rows_after in enumerate((40, 0, 70)):
        totals = totals.plus(ended(number, rows_after))
    history = TaskHistory(totals={"compaction": totals})
    assert compaction_status(None, history, ()) is None
    told = {
        "suspended": False,
        "rewritten": 2,
        "removed": 1,
        "merged": 0,
        "rowsRemoved": 190,
        "failing": 0,
        "error": "",
    }
    assert compaction_status(spec, history, ()) == told
    task = task_of(TableName(NAME), CompactionConfig(segment="board__0__1@7", partition=0), NOW_MS)
    once, often = (
        QueuedTask(task.model_copy(update={"attempts": attempts, "last_error": "no room"}), 0) for attempts in (1, 4)
    )
    assert compaction_status(spec, history, (once,)) == told
    failing = compaction_status(spec, history, (once, often))
    assert failing == {**told, "failing": 1, "error": "segment=board__0__1@7 cause=no room"}
    assert compaction_status(CompactionSpec(suspend=True), history, ()) == {**told, "suspended": True}
