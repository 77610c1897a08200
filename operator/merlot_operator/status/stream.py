"""Condition Consuming and the member `stream` of a Table's status, from the controller's answer. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from merlot_operator.status.conditions import Condition, Json
from merlot_operator.status.table_facts import TableStatusFacts

REASONS: Mapping[str, str] = {
    "REFUSED": "CredentialsRefused",
    "NOT_ALLOWED": "HostNotAllowed",
    "NO_SECRET": "SecretMissing",
    "UNREACHABLE": "StreamUnreachable",
    "GONE": "TopicMissing",
    "OUT_OF_RANGE": "OffsetOutOfRange",
    "BAD_MESSAGE": "BadMessage",
    "MERGER_FAILED": "MergerFailed",
}
"""Reasons for the problems that servers report, in order of precedence: if partitions have several, the first
of them is shown."""
FAILED = "StreamFailed"
"""Reason for a problem that is not in REASONS."""
NOT_COMMITTED, COMMITS_FAIL = "NOT_COMMITTED", "CommitsFail"
KEYS_MOVED = "KeysMoved"
"""Reason for rows of an upsert table that arrive in other partitions than its partitioning says."""
REQUESTED_REASONS = ("Paused", "Suspended", "ScaledToZero")
"""Reasons why a stream is not consumed that a user asked for."""
CONSUMED = ("CONSUMING", "CATCHING_UP")
"""States of a partition that is consumed."""
MAX_REPORTED = 5
MAX_ERROR_CHARS = 300


def consuming(facts: TableStatusFacts) -> Condition | None:
    """Return the condition Consuming: True if every partition is consumed. None if the table has no stream."""
    if not facts.has_stream:
        return None

    def condition(holds: bool | None, reason: str, message: str = "") -> Condition:
        return Condition("Consuming", holds, reason, message)

    if facts.is_suspended:
        return condition(False, "Suspended", "spec.suspend is true")
    if facts.asks_for_no_server and not facts.pool_note.wanted:
        return condition(False, "ScaledToZero", "spec.tenants.server.replicas is 0")
    answer = stream_answer(facts)
    if answer is None:
        return condition(None, *_silence(facts))
    if answer["paused"]:
        return condition(False, "Paused", f"somebody paused it; kubectl merlot stream resume {facts.name} goes on")
    if answer["consumed"] < answer["partitions"] or not answer["partitions"]:
        return condition(*_obstacle(answer))
    stuck = [partition for partition in answer["worst"] if partition.get("problem") == NOT_COMMITTED]
    if stuck:
        return condition(True, COMMITS_FAIL, "; ".join(_errors(stuck)))
    if answer.get("misplaced"):
        text = "by spec.partitioning rows of keys are in other partitions, where they replace nothing of their keys"
        return condition(True, KEYS_MOVED, f"{answer['misplaced']} rows: {text}; did the topic get more partitions?")
    if answer["lost"]:
        text = f"{answer['numLost']} messages were gone before they were consumed: {'; '.join(lost_ranges(answer))}"
        return condition(True, "MessagesLost", text)
    if answer["catchingUp"]:
        return condition(True, "CatchingUp", f"{answer['partitions']} partitions, some of them far behind")
    return condition(True, "Consuming", f"{answer['partitions']} partitions")


def _silence(facts: TableStatusFacts) -> tuple[str, str]:
    """Return reason and message of why there is no answer about the stream."""
    if facts.table is None:
        return facts.silence
    return "ControllerUnavailable", facts.cluster.problem or "the controller tells nothing of it yet"


def stream_answer(facts: TableStatusFacts) -> Mapping[str, Any] | None:
    """Return the controller's answer about the stream; None if there is none yet, or no stream."""
    return None if facts.table is None else facts.table.get("stream")


def stream_problems(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    """Yield the reason and the message if the stream is not consumed, not committed, or has rows in wrong partitions.
    Yield nothing if a user asked for that state."""
    condition = consuming(facts)
    if condition is None or condition.reason in REQUESTED_REASONS:
        return
    if condition.holds is False or condition.reason in (COMMITS_FAIL, KEYS_MOVED):
        yield condition.reason, condition.message


def stream_status(answer: Mapping[str, Any]) -> Json:
    """Return the member `stream` of the status."""
    errors = [answer.get("error") or "", *(partition.get("error") or "" for partition in answer["worst"])]
    status: Json = {
        "partitions": answer["partitions"],
        "consumed": answer["consumed"],
        "lag": _lag_text(answer["lag"], answer["lagMs"]),
        "lagMessages": answer["lag"],
        "lagSeconds": answer["lagMs"] // 1000,
        "badMessages": answer["bad"] or None,
        "lostMessages": answer["numLost"] or None,
        "lost": lost_ranges(answer) or None,
        "behind": [_behind(partition) for partition in answer["worst"]] or None,
        "lastError": next((text[:MAX_ERROR_CHARS] for text in errors if text), None),
    }
    return {name: value for name, value in status.items() if value is not None}


def lost_ranges(answer: Mapping[str, Any]) -> list[str]:
    """Return texts such as `partition 3: offsets 120 to 450`, for the last few ranges of lost messages."""
    return [f"partition {number}: offsets {first} to {last - 1}" for number, first, last in answer["lost"]]


def _obstacle(answer: Mapping[str, Any]) -> tuple[bool | None, str, str]:
    """Return the status, reason and message of a stream with partitions that are not consumed. If partitions have
    several reasons, return the most urgent."""
    idle = [partition for partition in answer["worst"] if partition["state"] not in CONSUMED]
    reasons = [REASONS.get(partition["problem"], FAILED) for partition in idle if partition.get("problem")]
    counts = f"{answer['consumed']} of {answer['partitions']} partitions are consumed"
    if reasons:
        reason = min(reasons, key=[*REASONS.values(), FAILED].index)
        return False, reason, "; ".join([counts, *_errors(idle)])
    if answer.get("error"):
        return (
            False,
            REASONS.get(answer.get("problem") or "", FAILED),
            f"the stream cannot be looked at: {answer['error']}",
        )
    if not answer["looked"]:
        return None, "Starting", "no server has looked at the stream yet"
    if not answer["partitions"]:
        return False, "NoPartitions", "the stream has no partitions"
    if not idle or any(partition["state"] in ("STARTING", "PAUSED") for partition in idle):
        return None, "Starting", counts
    numbers = ", ".join(str(partition["partition"]) for partition in idle[:MAX_REPORTED])
    return False, "NotConsumed", f"{counts}; no live server consumes {numbers}"


def _errors(partitions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for partition in [partition for partition in partitions if partition.get("error")][:MAX_REPORTED]:
        yield f"partition {partition['partition']}: {partition['error'][:MAX_ERROR_CHARS]}"


def _behind(partition: Mapping[str, Any]) -> Json:
    entry = {
        "partition": partition["partition"],
        "state": partition["state"],
        "lagMessages": partition.get("lag"),
        "lagSeconds": partition["lagMs"] // 1000,
        "problem": REASONS.get(partition["problem"], FAILED) if partition.get("problem") else None,
        "message": (partition.get("error") or "")[:MAX_ERROR_CHARS] or None,
    }
    return {name: value for name, value in entry.items() if value is not None}


def _lag_text(messages: int, lag_ms: int) -> str:
    """Return the lag for `kubectl get -o wide`: 0s, 20s/300, 5m/120000: time and messages. If the stream has no
    times: 1200 messages."""
    if not messages:
        return "0s"
    seconds = lag_ms // 1000
    if not seconds:
        return f"{messages} messages"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}/{messages}"
    return f"{seconds}s/{messages}"
