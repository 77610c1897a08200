"""What `GET /status` says of a stream: which partitions are consumed, how far behind, what is wrong, what is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from merlot.cluster.consuming.handover import MOST_MS, MOST_REPLAYED
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord, UpsertProgress
from merlot.cluster.records import (
    ConsumingStatus,
    RootRecord,
    StreamControlRecord,
    StreamRecord,
    StreamSegmentRecord,
)
from merlot.cluster.segments.transaction import Assign, PutSegments, apply
from merlot.cluster.segments.view import TableView
from merlot.controller.status.streams import MAX_PARTITIONS, STALE_MS, StreamFacts, is_news, stream_status
from merlot.ids import InstanceId, TableName
from merlot_operator.controllers.status_answer import _STREAM, check

NOW_MS = 1_800_000_000_000
A, B = InstanceId("Server_a_1"), InstanceId("Server_b_1")


def view(num_partitions: int = 2, **fields: Any) -> TableView:
    """Each partition is consumed by both servers since long ago."""
    empty = TableView(TableName("t_OFFLINE"), RootRecord(epoch=1, num_buckets=1), 1, {})
    records = [
        StreamSegmentRecord(
            **{
                "name": f"t__{number}__0",
                "crc": 0,
                "size_bytes": 0,
                "url": "",
                "total_docs": 0,
                "creation_time_ms": NOW_MS - 3_600_000,
                "status": ConsumingStatus.CONSUMING.value,
                "partition": number,
                "sequence": 0,
                "start_offset": 0,
                **fields,
            }
        )
        for number in range(num_partitions)
    ]
    names = [record.name for record in records]
    changed = apply(empty, [PutSegments(tuple(records), dict.fromkeys(names)), Assign(dict.fromkeys(names, (A, B)))])
    assert changed is not None
    return TableView(empty.table, empty.root, 2, dict(changed.buckets))


def says(server: InstanceId, *parts: PartitionProgress, age_ms: int = 0) -> dict[InstanceId, ProgressRecord]:
    return {server: ProgressRecord(instance=server, at_ms=NOW_MS - age_ms, partitions=parts)}


def part(number: int, state: str = "CONSUMING", **fields: Any) -> PartitionProgress:
    return PartitionProgress(**{"partition": number, "segment": f"t__{number}__0", "state": state, "lag": 0, **fields})


def facts(told: dict[InstanceId, ProgressRecord], **fields: Any) -> StreamFacts:
    given = StreamFacts(
        control=StreamControlRecord(),
        looked=StreamRecord(starts={0: 0, 1: 0}),
        progress=told,
        staying=(A, B),
        draining={},
        now_ms=NOW_MS,
    )
    return replace(given, **fields)


def status(told: dict[InstanceId, ProgressRecord], seen: TableView | None = None, **fields: Any) -> Any:
    found = stream_status(seen or view(), facts(told, **fields))
    check(found, _STREAM, "stream")
    return found


def test_one_replica_that_consumes_is_enough_and_the_best_one_tells_the_lag() -> None:
    told = says(A, part(0, lag=5_432, lag_ms=21_000), part(1)) | says(
        B, part(0, "ERROR", error="x", problem="UNREACHABLE")
    )
    found = status(told)
    assert (found["partitions"], found["consumed"], found["lag"], found["lagMs"]) == (2, 2, 5_400, 20_000)
    (worst,) = found["worst"]
    assert (worst["partition"], worst["state"], worst["problem"], worst["error"]) == (0, "CONSUMING", "", "x")


def test_a_partition_of_which_every_replica_fails_says_why() -> None:
    failing = part(1, "ERROR", lag=7, error="offset out of range wanted=3", problem="OUT_OF_RANGE")
    found = status(says(A, part(0), failing) | says(B, part(0), failing))
    assert found["consumed"] == 1
    assert found["worst"][0]["problem"] == "OUT_OF_RANGE"


def test_what_was_told_long_ago_is_not_how_it_is() -> None:
    found = status(says(A, part(0), part(1), age_ms=STALE_MS + 1))
    assert (found["consumed"], [one["state"] for one in found["worst"]]) == (0, ["UNKNOWN", "UNKNOWN"])
    young = status({}, view(creation_time_ms=NOW_MS))
    assert [one["state"] for one in young["worst"]] == ["STARTING", "STARTING"]


def test_messages_on_their_way_are_no_lag_and_change_nothing() -> None:
    before = status(says(A, part(0, lag=900, lag_ms=150), part(1)))
    after = status(says(A, part(0, lag=400, lag_ms=990), part(1)))
    assert before == after
    assert (before["lag"], before["worst"]) == (0, [])


@pytest.mark.parametrize(
    ("told", "is_other"),
    [
        (says(A, part(0, lag=9_000, lag_ms=40_000), part(1)), False),
        (says(A, part(0, "ERROR", error="x"), part(1)), True),
        (says(A, part(0, "CATCHING_UP"), part(1)), True),
    ],
)
def test_more_lag_is_no_news_and_another_state_is(told: dict[InstanceId, ProgressRecord], is_other: bool) -> None:
    before = status(says(A, part(0), part(1)))
    assert status(told) != before
    assert is_news(before, status(told)) == is_other


def test_a_topic_of_thousands_of_partitions_is_told_by_its_worst_ones() -> None:
    told = says(A, *(part(number, lag=100 * number, lag_ms=1_000 * number) for number in range(3_000)))
    found = status(told, view(3_000))
    assert all(one["lag"] >= 240_000 for one in found["worst"])
    assert len(found["worst"]) == MAX_PARTITIONS


def test_rows_in_wrong_partitions_are_counted_once_for_all_replicas() -> None:
    moved = [part(number, upsert=UpsertProgress(misplaced=230 + number)) for number in range(2)]
    found = status({**says(A, *moved), **says(B, moved[0])})
    assert found["misplaced"] == 460
    assert not is_news(status(says(A, part(0), part(1))), found)


def test_lost_messages_are_told_by_their_offsets() -> None:
    seen = view(1, sequence=3, start_offset=450, lost_from=120)
    found = status(says(A, part(0)), seen)
    assert (found["lost"], found["numLost"]) == ([[0, 120, 450]], 330)


def test_a_server_that_stops_tells_what_it_still_has_to_hand_over_but_not_for_ever() -> None:
    told = says(A, part(0, offset=MOST_REPLAYED + 1), part(1, offset=5)) | says(B, part(0), part(1))
    assert status(told, draining={A: NOW_MS - 1}, staying=(B,))["handingOver"] == {A: 1}
    assert status(told, draining={A: NOW_MS - 1}, staying=())["handingOver"] == {A: 1}, "nobody to give the other to"
    assert status(told, draining={A: NOW_MS - MOST_MS}, staying=(B,))["handingOver"] == {}


def test_what_only_it_consumes_goes_elsewhere_first() -> None:
    seen = view(1)
    changed = apply(seen, [Assign({"t__0__0": (A,)})])
    assert changed is not None
    alone = TableView(seen.table, seen.root, 3, dict(changed.buckets))
    assert status(says(A, part(0)), alone, draining={A: NOW_MS - 1}, staying=(B,))["handingOver"] == {A: 1}
    assert status(says(A, part(0)), alone, draining={A: NOW_MS - 1}, staying=())["handingOver"] == {}


def test_nobody_has_to_look_at_the_partitions_of_a_paused_stream() -> None:
    found = status({}, view(status=ConsumingStatus.PAUSED.value), control=StreamControlRecord(is_paused=True))
    assert (found["paused"], found["worst"]) == (True, [])
