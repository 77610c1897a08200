"""Expected shape of a controller's status answer, which is checked before anybody reads it. Pure.

A user who may create pods in a namespace can answer in the controller's stead, so the shape of an answer is not taken
for granted. Members that are not named here are passed on unchecked. A member whose name ends with a question mark here
may be missing or null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEAST_BYTES = 8 * 2**20
"""Size in bytes that every answer may have. Parsed, a hostile one takes up to thirty times as much memory."""
TABLE_BYTES = 24_000
"""Size in bytes of the entries of a table without its pods and of its MergeRollupTask, whose tasks all have errors."""
POD_BYTES = 500
"""Size in bytes of a server's or broker's entry in a table: a name and seven members, or a problem."""
INTEGER_LIMIT = 2**64
"""Bound of integers: times have 64 bits, and the end of a bucket may lie a little beyond. A float holds all of them."""


def max_bytes(num_tables: int, num_pods: int) -> int:
    """Return how many bytes an answer may have: each table has at most an entry for each pod. 10,000 tables on 100 pods
    may take 750 MB."""
    return LEAST_BYTES + num_tables * (TABLE_BYTES + num_pods * POD_BYTES)


Shape = Any
"""A type, a mapping of member names to shapes, `[shape]` for a list, `Each(shape)` for a mapping with any keys,
`OrError(shape)`, or `Integers(count)`."""


@dataclass(frozen=True, slots=True)
class Each:
    """A mapping whose values all have one shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class OrError:
    """A value of the shape, or a mapping whose member `error` says why the controller cannot give one."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Integers:
    """A list of this many integers."""

    count: int


_INT = int
_SERVER: Shape = {
    **dict.fromkeys(("live", "draining", "leaving", "drained"), bool),
    **dict.fromkeys(("revision", "assigned", "loaded"), _INT),
    "errors": Each(str),
}
_PARTITION: Shape = {
    **dict.fromkeys(("partition", "lagMs"), _INT),
    **dict.fromkeys(("problem?", "error?"), str),
    "state": str,
    "lag?": _INT,
}
_STREAM: Shape = {
    **dict.fromkeys(("paused", "looked"), bool),
    **dict.fromkeys(("problem?", "error?"), str),
    **dict.fromkeys(("partitions", "consumed", "catchingUp", "lag", "lagMs", "bad", "numLost"), _INT),
    "misplaced?": _INT,
    "worst": [_PARTITION],
    "lost": [Integers(3)],
    "handingOver": Each(_INT),
}
_UPSERT: Shape = {
    **dict.fromkeys(("revision", "replicas", "inForce", "keys", "valid", "invalid", "expired", "memoryBytes"), _INT),
    **dict.fromkeys(("waitsFor", "ttl"), str),
    "behind": [str],
    "worst?": {"partition": _INT, "memoryBytes": _INT},
    "snapshots": {"wanted": bool, "oldestMs?": _INT, "missing": _INT, "error?": str},
    "short": [{"server": str, **dict.fromkeys(("limitBytes", "neededBytes", "keysBytes"), _INT)}],
    "backfill?": {
        **dict.fromkeys(("name", "step", "message"), str),
        **dict.fromkeys(("number", "steps", "sinceMs"), _INT),
        **dict.fromkeys(("cancelled", "waitsForMemory"), bool),
    },
    "compaction?": {
        **dict.fromkeys(("rewritten", "removed", "merged?", "rowsRemoved", "failing"), _INT),
        "suspended": bool,
        "error": str,
    },
}
_INDEXES: Shape = {**dict.fromkeys(("wanted", "built", "leftOut"), _INT), "looking": [str], "problem": str}
_TABLE: Shape = {
    **dict.fromkeys(("segments", "totalDocs", "sizeBytes"), _INT),
    **dict.fromkeys(("segmentsUnavailable", "segmentsLoading", "segmentsFailed"), _INT),
    **dict.fromkeys(("replication", "unpartitioned?", "adoptedSegments?"), _INT),
    "storeProblem?": str,
    "metastoreLost?": str,
    "unconfirmed?": bool,
    "moving": bool,
    "servers": Each(_SERVER),
    "stream?": _STREAM,
    "upsert?": _UPSERT,
    "indexes?": _INDEXES,
    "brokers": Each({"revision": _INT, "problems?": [str]}),
}
_ERROR: Shape = {"error": str}
_LEVEL: Shape = {
    **dict.fromkeys(("name", "state"), str),
    **dict.fromkeys(("progress?", "lastError?"), str),
    **dict.fromkeys(("delay?", "watermarkMs?", "bucketsDone?", "bucketsToDo?", "segments?", "sizeBytes?"), _INT),
    **dict.fromkeys(("segmentsBehindWatermark?", "tasksQueued?", "tasksRunning?", "tasksPoisoned?"), _INT),
}
_RUNNING: Shape = {
    **dict.fromkeys(("id?", "level?", "minion?", "phase?"), str),
    **dict.fromkeys(("percent?", "startedMs?"), _INT),
}
_RUN: Shape = {
    **dict.fromkeys(("id", "outcome"), str),
    **dict.fromkeys(("level?", "error?"), str),
    **dict.fromkeys(("startedMs?", "endedMs?", "attempts?"), _INT),
    **{f"{what}{when}?": _INT for what in ("segments", "rows", "bytes") for when in ("Before", "After")},
    "windows?": [Integers(2)],
}
_ROLLUP: Shape = {
    "state": str,
    **dict.fromkeys(("message?", "lastError?"), str),
    **dict.fromkeys(("lastRunMs?", "nextRunMs?"), _INT),
    "levels": [_LEVEL],
    "running?": [_RUNNING],
    "history?": [_RUN],
}
ANSWER: Shape = {
    "tables": Each(OrError(_TABLE)),
    "rollups?": Each(_ROLLUP),
    "tasks?": Each(object),
    "sparkTasks?": [{"id": str, "table": str}],
}


def parse(body: bytes) -> dict[str, Any]:
    """Parse the answer. Raise ValueError, which says what is wrong, if it is not JSON or does not have the shape."""
    try:
        document: dict[str, Any] = json.loads(body)
    except RecursionError as error:
        raise ValueError("the answer is nested too deeply") from error
    check(document, ANSWER, "answer")
    return document


def check(value: object, shape: Shape, path: str) -> None:
    """Raise ValueError, naming the path, if a part of the value does not have the shape."""
    match shape:
        case Each(shape=inner):
            for name, item in _checked_type(dict, value, path).items():
                check(item, inner, f"{path}.{name}")
        case OrError(shape=inner):
            has_error = _checked_type(dict, value, path).get("error") is not None
            check(value, _ERROR if has_error else inner, path)
        case Integers(count=count):
            numbers = _checked_type(list, value, path)
            check(numbers, [_INT], path)
            if len(numbers) != count:
                raise ValueError(f"{path} must be {count} integers got={len(numbers)}")
        case [inner]:
            for number, item in enumerate(_checked_type(list, value, path)):
                check(item, inner, f"{path}[{number}]")
        case Mapping():
            members = _checked_type(dict, value, path)
            for name, inner in shape.items():
                plain = name.removesuffix("?")
                if plain == name or members.get(plain) is not None:
                    check(members.get(plain), inner, f"{path}.{plain}")
        case _:
            _checked_type(shape, value, path)


def _checked_type(kind: type[Any], value: object, path: str) -> Any:
    """Return the value; raise ValueError if it is not of this type, or an integer beyond INTEGER_LIMIT. A boolean is
    no integer."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{path} must be {kind.__name__} got={type(value).__name__}")
    if isinstance(value, int) and abs(value) > INTEGER_LIMIT:
        raise ValueError(f"{path} must be an integer of 64 bits got={value.bit_length()} bits")
    return value
