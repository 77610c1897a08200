"""Status of a table's stream, for operators to watch: coarse, bounded, and changed only when it matters. Pure.

A partition is consumed if one of its replicas reports so. Its lag is that of the replica that is farthest ahead.
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
from merlot.ids import InstanceId
from merlot.pinot.cluster_json import Json

STALE_MS: Final = 15_000
"""Greatest age of a server's report that counts."""
CONSUMED: Final = frozenset({"CONSUMING", "CATCHING_UP"})
MAX_PARTITIONS: Final = 8
"""Number of partitions that are listed, the worst first; a topic may have thousands."""
MAX_LOST: Final = 10
SHORT_MS: Final = 1_000
"""Lag that counts as none, since messages are always on their way."""
LAG_STEPS_S: Final = (0, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
"""Steps to which lags are rounded down."""
CHANGING: Final = ("lag", "lagMs", "bad", "misplaced", "worst")
"""Members that change while all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """Reports of servers and requests of users about a table's stream."""

    control: StreamControlRecord
    looked: StreamRecord | None
    progress: Mapping[InstanceId, ProgressRecord]
    staying: Collection[InstanceId]
    """Live servers of the table's tenant that are not about to stop."""
    draining: Mapping[InstanceId, int]
    """Servers that are about to stop, with the time of their mark."""
    now_ms: int


def stream_status(view: TableView, facts: StreamFacts) -> Json:
    """Return the member `stream` of a table's part of `GET /status`."""
    opened = open_segments(view)
    parts = [_partition(view, record, facts) for _, record in sorted(opened.items())]
    working = [part for part in parts if part["state"] in CONSUMED]
    looked = facts.looked
    lost = [(number, first, last) for number, ranges in sorted(lost_ranges(view).items()) for first, last in ranges]
    return {
        "paused": facts.control.is_paused,
        "looked": looked is not None,
        "problem": "" if looked is None else looked.problem,
        "error": "" if looked is None else looked.error,
        "partitions": len({*opened, *({} if looked is None else looked.starts)}),
        "consumed": len(working),
        "catchingUp": sum(part["state"] == "CATCHING_UP" for part in parts),
        "lag": _round(sum(part["lag"] or 0 for part in parts)),
        "lagMs": max((part["lagMs"] for part in parts), default=0),
        "bad": _round(sum(part["bad"] for part in parts)),
        "misplaced": _round(sum(part["misplaced"] for part in parts)),
        "worst": _worst(parts, is_paused=facts.control.is_paused),
        "lost": [list(span) for span in lost[-MAX_LOST:]],
        "numLost": sum(last - first for _, first, last in lost),
        "handingOver": _handing_over(view, facts),
    }


def is_news(before: Json | None, after: Json) -> bool:
    """Return whether more has changed than how far behind the partitions are."""
    if before is None or before.keys() != after.keys():
        return True
    return any(before[name] != after[name] for name in after if name not in CHANGING)


def _partition(view: TableView, record: StreamSegmentRecord, facts: StreamFacts) -> Json:
    progress = (_progress_of(facts, server, record.partition) for server in view.servers_of(record.name))
    replicas = [replica for replica in progress if replica is not None]
    working = [replica for replica in replicas if replica.state in CONSUMED]
    best = min(
        working or replicas, key=lambda replica: (replica.lag is None, replica.lag or 0, replica.state), default=None
    )
    failing = next((replica for replica in replicas if replica.error), None)
    state = _silence(record, facts.now_ms) if best is None else best.state
    return {
        "partition": record.partition,
        "state": "PAUSED" if record.status == ConsumingStatus.PAUSED else state,
        "lag": None if best is None else _lag(best),
        "lagMs": 0 if best is None else _step_ms(best.lag_ms),
        "bad": max((replica.num_bad for replica in replicas), default=0),
        "misplaced": max((replica.upsert.misplaced for replica in replicas if replica.upsert is not None), default=0),
        "problem": _problem(working, failing),
        "error": "" if failing is None else failing.error,
    }


def _problem(working: Sequence[PartitionProgress], failing: PartitionProgress | None) -> str:
    """Return the problem of a partition. If it is consumed, that is only that no replica can commit it."""
    if not working:
        return "" if failing is None else failing.problem
    is_stuck = all(replica.problem == StreamProblem.NOT_COMMITTED for replica in working)
    return StreamProblem.NOT_COMMITTED.value if is_stuck else ""


def _silence(record: StreamSegmentRecord, now_ms: int) -> str:
    """Return the state of a partition that no server reports: one that was just begun is starting."""
    return "STARTING" if now_ms - record.creation_time_ms < STALE_MS else "UNKNOWN"


def _progress_of(facts: StreamFacts, server: InstanceId, partition: int) -> PartitionProgress | None:
    """Return what a server reported lately about a partition; None if nothing."""
    record = facts.progress.get(server)
    if record is None or facts.now_ms - record.at_ms > STALE_MS:
        return None
    return next((entry for entry in record.partitions if entry.partition == partition), None)


def _lag(replica: PartitionProgress) -> int | None:
    if replica.lag is None:
        return None
    return 0 if 0 < replica.lag_ms < SHORT_MS else _round(replica.lag)


def _step_ms(lag_ms: int) -> int:
    steps = [step for step in LAG_STEPS_S if step == 0 or 1000 * step <= lag_ms]
    return 1000 * max(steps)


def _round(number: int) -> int:
    """Round down to two significant digits."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return number // unit * unit


def _worst(parts: Sequence[Json], *, is_paused: bool) -> list[Json]:
    """Return the partitions that are not consumed or lag behind, those first that need attention most."""
    behind = [
        part
        for part in parts
        if part["error"] or part["lagMs"] or part["lag"] or (part["state"] not in CONSUMED and not is_paused)
    ]
    order = sorted(
        behind,
        key=lambda part: (part["state"] in CONSUMED, not part["problem"], -part["lagMs"], -(part["lag"] or 0)),
    )
    return [
        {name: value for name, value in part.items() if name not in ("bad", "misplaced")}
        for part in order[:MAX_PARTITIONS]
    ]


def _handing_over(view: TableView, facts: StreamFacts) -> Json:
    """Return the number of partitions to hand over, by server that is about to stop. Nobody waits for them for ever."""
    servers = [server for server, since_ms in facts.draining.items() if facts.now_ms - since_ms < MOST_MS]
    counts = {server: num_to_hand_over(view, server, set(facts.staying), facts.progress) for server in servers}
    return {server: count for server, count in sorted(counts.items()) if count}
