"""Condition Consuming and the stream's part of a Table's status, from the controller's word. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from merlot_operator.status.conditions import Condition, Json
from merlot_operator.status.table_facts import TableFacts

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
"""Of the problems that servers tell; the first one that some partition has is the condition's."""
FAILED = "StreamFailed"
"""For a problem that is none of these."""
NOT_COMMITTED, COMMITS_FAIL = "NOT_COMMITTED", "CommitsFail"
KEYS_MOVED = "KeysMoved"
"""Reason: rows of an upsert table come in another partition than its partitioning says."""
STREAM_CHOSEN = ("Paused", "Suspended", "ScaledToZero")
"""Reasons that somebody wanted."""
CONSUMED = ("CONSUMING", "CATCHING_UP")
MAX_TOLD = 5
MAX_ERROR = 300


def consuming(facts: TableFacts) -> Condition | None:
    """Whether every partition is consumed; None if the table has no stream."""
    if not facts.has_stream:
        return None

    def condition(holds: bool | None, reason: str, message: str = "") -> Condition:
        return Condition("Consuming", holds, reason, message)

    if facts.is_suspended:
        return condition(False, "Suspended", "spec.suspend is true")
    if facts.asks_for_no_server and not facts.pool_note.wanted:
        return condition(False, "ScaledToZero", "spec.tenants.server.replicas is 0")
    word = stream_word(facts)
    if word is None:
        return condition(
            None, "ControllerUnavailable", facts.cluster.problem or "the controller tells nothing of it yet"
        )
    if word["paused"]:
        return condition(False, "Paused", f"somebody paused it; kubectl merlot stream resume {facts.name} goes on")
    if word["consumed"] < word["partitions"] or not word["partitions"]:
        return condition(*_obstacle(word))
    stuck = [one for one in word["worst"] if one.get("problem") == NOT_COMMITTED]
    if stuck:
        return condition(True, COMMITS_FAIL, "; ".join(_errors(stuck)))
    if word.get("misplaced"):
        text = "by spec.partitioning rows of keys are in other partitions, where they replace nothing of their keys"
        return condition(True, KEYS_MOVED, f"{word['misplaced']} rows: {text}; did the topic get more partitions?")
    if word["lost"]:
        text = f"{word['numLost']} messages were gone before they were consumed: {'; '.join(lost_ranges(word))}"
        return condition(True, "MessagesLost", text)
    if word["catchingUp"]:
        return condition(True, "CatchingUp", f"{word['partitions']} partitions, some of them far behind")
    return condition(True, "Consuming", f"{word['partitions']} partitions")


def stream_word(facts: TableFacts) -> Mapping[str, Any] | None:
    """What the controller says of the stream."""
    return None if facts.table is None else facts.table.get("stream")


def stream_problems(facts: TableFacts) -> Iterator[tuple[str, str]]:
    """Why it is not consumed, not committed or in wrong partitions, if nobody wanted that."""
    found = consuming(facts)
    if found is None or found.reason in STREAM_CHOSEN:
        return
    if found.holds is False or found.reason in (COMMITS_FAIL, KEYS_MOVED):
        yield found.reason, found.message


def stream_status(word: Mapping[str, Any]) -> Json:
    """The status' member `stream`."""
    errors = [word.get("error") or "", *(one.get("error") or "" for one in word["worst"])]
    status: Json = {
        "partitions": word["partitions"],
        "consumed": word["consumed"],
        "lag": _lag_text(word["lag"], word["lagMs"]),
        "lagMessages": word["lag"],
        "lagSeconds": word["lagMs"] // 1000,
        "badMessages": word["bad"] or None,
        "lostMessages": word["numLost"] or None,
        "lost": lost_ranges(word) or None,
        "behind": [_behind(one) for one in word["worst"]] or None,
        "lastError": next((text[:MAX_ERROR] for text in errors if text), None),
    }
    return {name: value for name, value in status.items() if value is not None}


def lost_ranges(word: Mapping[str, Any]) -> list[str]:
    """`partition 3: offsets 120 to 450`, the last few."""
    return [f"partition {number}: offsets {first} to {last - 1}" for number, first, last in word["lost"]]


def _obstacle(word: Mapping[str, Any]) -> tuple[bool | None, str, str]:
    """What keeps partitions from being consumed, the cause that somebody has to mend first."""
    idle = [one for one in word["worst"] if one["state"] not in CONSUMED]
    known = [REASONS.get(one["problem"], FAILED) for one in idle if one.get("problem")]
    counts = f"{word['consumed']} of {word['partitions']} partitions are consumed"
    if known:
        reason = min(known, key=[*REASONS.values(), FAILED].index)
        return False, reason, "; ".join([counts, *_errors(idle)])
    if word.get("error"):
        return False, REASONS.get(word["problem"], FAILED), f"the stream cannot be looked at: {word['error']}"
    if not word["looked"]:
        return None, "Starting", "no server has looked at the stream yet"
    if not word["partitions"]:
        return False, "NoPartitions", "the stream has no partitions"
    if not idle or any(one["state"] in ("STARTING", "PAUSED") for one in idle):
        return None, "Starting", counts
    numbers = ", ".join(str(one["partition"]) for one in idle[:MAX_TOLD])
    return False, "NotConsumed", f"{counts}; no live server consumes {numbers}"


def _errors(idle: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in [one for one in idle if one.get("error")][:MAX_TOLD]:
        yield f"partition {one['partition']}: {one['error'][:MAX_ERROR]}"


def _behind(one: Mapping[str, Any]) -> Json:
    entry = {
        "partition": one["partition"],
        "state": one["state"],
        "lagMessages": one.get("lag"),
        "lagSeconds": one["lagMs"] // 1000,
        "problem": REASONS.get(one["problem"], FAILED) if one.get("problem") else None,
        "message": (one.get("error") or "")[:MAX_ERROR] or None,
    }
    return {name: value for name, value in entry.items() if value is not None}


def _lag_text(messages: int, lag_ms: int) -> str:
    """For `kubectl get -o wide`: 0s, 20s, 5m/120000; without a time where the stream gives none: 1200 messages."""
    if not messages:
        return "0s"
    seconds = lag_ms // 1000
    if not seconds:
        return f"{messages} messages"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}/{messages}"
    return f"{seconds}s/{messages}"
