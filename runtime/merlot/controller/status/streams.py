"""How a table's stream is, as operators watch it: coarse, bounded, and another only when somebody should know. Pure.

A partition is consumed if one of its replicas says so. Its lag is that of the replica that has come farthest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.cluster.consuming.handover import MOST_MS, num_to_hand_over
from merlot.cluster.consuming.partitions import lost_ranges, open_segments
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord, StreamProblem
from merlot.cluster.records import ConsumingStatus, StreamControlRecord, StreamRecord, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.controller.status.pinot_json import Json
from merlot.ids import InstanceId

STALE_MS: Final = 15_000
"""What a server told longer ago is not how it is."""
CONSUMED: Final = frozenset({"CONSUMING", "CATCHING_UP"})
MAX_PARTITIONS: Final = 8
"""Of those that are worst off; a topic may have thousands."""
MAX_LOST: Final = 10
SHORT_MS: Final = 1_000
"""Lag that is none: messages are on their way at any moment."""
LAG_STEPS_S: Final = (0, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
"""Lags are told as the step that they have reached."""
CHANGING: Final = ("lag", "lagMs", "bad", "misplaced", "worst")
"""What changes while all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """What servers and people say of a table's stream."""

    control: StreamControlRecord
    looked: StreamRecord | None
    told: Mapping[InstanceId, ProgressRecord]
    staying: Collection[InstanceId]
    """Live servers of the table's tenant that are not about to stop."""
    draining: Mapping[InstanceId, int]
    """Those that are, since when."""
    now_ms: int


def stream_status(view: TableView, facts: StreamFacts) -> Json:
    """The member `stream` of a table's part of `GET /status`."""
    opened = open_segments(view)
    parts = [_partition(view, record, facts) for _, record in sorted(opened.items())]
    working = [one for one in parts if one["state"] in CONSUMED]
    looked = facts.looked
    lost = [(number, first, last) for number, ranges in sorted(lost_ranges(view).items()) for first, last in ranges]
    return {
        "paused": facts.control.is_paused,
        "looked": looked is not None,
        "problem": "" if looked is None else looked.problem,
        "error": "" if looked is None else looked.error,
        "partitions": len({*opened, *({} if looked is None else looked.starts)}),
        "consumed": len(working),
        "catchingUp": sum(one["state"] == "CATCHING_UP" for one in parts),
        "lag": _round(sum(one["lag"] or 0 for one in parts)),
        "lagMs": max((one["lagMs"] for one in parts), default=0),
        "bad": _round(sum(one["bad"] for one in parts)),
        "misplaced": _round(sum(one["misplaced"] for one in parts)),
        "worst": _worst(parts, is_paused=facts.control.is_paused),
        "lost": [list(one) for one in lost[-MAX_LOST:]],
        "numLost": sum(last - first for _, first, last in lost),
        "handingOver": _handing_over(view, facts),
    }


def is_news(before: Json | None, after: Json) -> bool:
    """Whether more has changed than how far behind the partitions are."""
    if before is None or before.keys() != after.keys():
        return True
    return any(before[name] != after[name] for name in after if name not in CHANGING)


def _partition(view: TableView, record: StreamSegmentRecord, facts: StreamFacts) -> Json:
    told = [one for server in view.servers_of(record.name) if (one := _said(facts, server, record.partition))]
    working = [one for one in told if one.state in CONSUMED]
    best = min(working or told, key=lambda one: (one.lag is None, one.lag or 0, one.state), default=None)
    failing = next((one for one in told if one.error), None)
    state = _silence(record, facts.now_ms) if best is None else best.state
    return {
        "partition": record.partition,
        "state": "PAUSED" if record.status == ConsumingStatus.PAUSED else state,
        "lag": None if best is None else _lag(best),
        "lagMs": 0 if best is None else _step_ms(best.lag_ms),
        "bad": max((one.num_bad for one in told), default=0),
        "misplaced": max((one.upsert.misplaced for one in told if one.upsert is not None), default=0),
        "problem": _problem(working, failing),
        "error": "" if failing is None else failing.error,
    }


def _problem(working: Sequence[PartitionProgress], failing: PartitionProgress | None) -> str:
    """Of a partition that is consumed, that it is not committed: another replica may have the same trouble."""
    if not working:
        return "" if failing is None else failing.problem
    is_stuck = all(one.problem == StreamProblem.NOT_COMMITTED for one in working)
    return StreamProblem.NOT_COMMITTED.value if is_stuck else ""


def _silence(record: StreamSegmentRecord, now_ms: int) -> str:
    """Of a partition of which no server tells: nobody can, of one that was just begun."""
    return "STARTING" if now_ms - record.creation_time_ms < STALE_MS else "UNKNOWN"


def _said(facts: StreamFacts, server: InstanceId, partition: int) -> PartitionProgress | None:
    """What a server told lately of a partition."""
    record = facts.told.get(server)
    if record is None or facts.now_ms - record.at_ms > STALE_MS:
        return None
    return next((one for one in record.partitions if one.partition == partition), None)


def _lag(one: PartitionProgress) -> int | None:
    if one.lag is None:
        return None
    return 0 if 0 < one.lag_ms < SHORT_MS else _round(one.lag)


def _step_ms(lag_ms: int) -> int:
    steps = [step for step in LAG_STEPS_S if step == 0 or 1000 * step <= lag_ms]
    return 1000 * max(steps)


def _round(number: int) -> int:
    """To two digits."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return number // unit * unit


def _worst(parts: Sequence[Json], *, is_paused: bool) -> list[Json]:
    """Partitions that are not consumed, or behind, those first that somebody has to look at."""
    behind = [
        one
        for one in parts
        if one["error"] or one["lagMs"] or one["lag"] or (one["state"] not in CONSUMED and not is_paused)
    ]
    order = sorted(
        behind,
        key=lambda one: (one["state"] in CONSUMED, not one["problem"], -one["lagMs"], -(one["lag"] or 0)),
    )
    return [
        {name: value for name, value in one.items() if name not in ("bad", "misplaced")}
        for one in order[:MAX_PARTITIONS]
    ]


def _handing_over(view: TableView, facts: StreamFacts) -> Json:
    """Partitions by server that is about to stop; nobody waits for them for ever."""
    waited = [server for server, since_ms in facts.draining.items() if facts.now_ms - since_ms < MOST_MS]
    counts = {server: num_to_hand_over(view, server, set(facts.staying), facts.told) for server in waited}
    return {server: count for server, count in sorted(counts.items()) if count}
