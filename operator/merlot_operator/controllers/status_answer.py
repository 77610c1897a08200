"""Shape of a controller's answer, which is checked before anybody reads it. Pure.

Whoever may create pods in a namespace can answer in its controller's stead, so nothing about an answer is taken for
granted. Members that are not named here are ignored; those with a question mark may be missing or null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_BYTES = 64 * 2**20
"""Largest answer in bytes: that of 10,000 tables on 100 servers each fits."""

Shape = Any
"""A type, a mapping of members, `[shape]` for a list, or `Each(shape)` for the values of a mapping."""


@dataclass(frozen=True, slots=True)
class Each:
    """A mapping whose values all have one shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Range:
    """A partition with the first and the last of a range: three numbers."""


_COUNT = int
_SERVER: Shape = {
    **dict.fromkeys(("live", "draining", "leaving", "drained"), bool),
    **dict.fromkeys(("revision", "assigned", "loaded"), _COUNT),
    "errors": Each(str),
}
_PARTITION: Shape = {
    **dict.fromkeys(("partition", "lagMs"), _COUNT),
    **dict.fromkeys(("problem?", "error?"), str),
    "state": str,
    "lag?": _COUNT,
}
_STREAM: Shape = {
    **dict.fromkeys(("paused", "looked"), bool),
    **dict.fromkeys(("problem?", "error?"), str),
    **dict.fromkeys(("partitions", "consumed", "catchingUp", "lag", "lagMs", "bad", "numLost"), _COUNT),
    "misplaced?": _COUNT,
    "worst": [_PARTITION],
    "lost": [Range()],
    "handingOver": Each(_COUNT),
}
_UPSERT: Shape = {
    **dict.fromkeys(("revision", "replicas", "inForce", "keys", "valid", "invalid", "expired", "memoryBytes"), _COUNT),
    **dict.fromkeys(("waitsFor", "ttl"), str),
    "behind": [str],
    "worst?": {"partition": _COUNT, "memoryBytes": _COUNT},
    "snapshots": {"wanted": bool, "oldestMs?": _COUNT, "missing": _COUNT, "error?": str},
    "short": [{"server": str, **dict.fromkeys(("limitBytes", "neededBytes", "keysBytes"), _COUNT)}],
    "backfill?": {
        **dict.fromkeys(("name", "step", "message"), str),
        **dict.fromkeys(("number", "steps", "sinceMs"), _COUNT),
        **dict.fromkeys(("cancelled", "waitsForMemory"), bool),
    },
    "compaction?": {
        **dict.fromkeys(("rewritten", "removed", "merged?", "rowsRemoved", "failing"), _COUNT),
        "suspended": bool,
        "error": str,
    },
}
_INDEXES: Shape = {**dict.fromkeys(("wanted", "built", "leftOut"), _COUNT), "looking": [str], "problem": str}
_TABLE: Shape = {
    **dict.fromkeys(("segments", "totalDocs", "sizeBytes"), _COUNT),
    **dict.fromkeys(("segmentsUnavailable", "segmentsLoading", "segmentsFailed"), _COUNT),
    **dict.fromkeys(("replication?", "unpartitioned?", "adoptedSegments?"), _COUNT),
    "storeProblem?": str,
    "metastoreLost?": str,
    "unconfirmed?": bool,
    "moving": bool,
    "servers": Each(_SERVER),
    "stream?": _STREAM,
    "upsert?": _UPSERT,
    "indexes?": _INDEXES,
    "brokers": Each({"revision": _COUNT, "problems?": [str]}),
}
_LEVEL: Shape = {
    **dict.fromkeys(("name", "state"), str),
    "lastError?": str,
    **dict.fromkeys(("delay?", "watermarkMs?", "bucketsDone?", "bucketsToDo?", "segments?", "sizeBytes?"), _COUNT),
    **dict.fromkeys(("segmentsBehindWatermark?", "tasksQueued?", "tasksPoisoned?"), _COUNT),
}
_RUN: Shape = {
    **dict.fromkeys(("id", "outcome"), str),
    **dict.fromkeys(("level?", "error?"), str),
    **dict.fromkeys(("startedMs?", "endedMs?", "attempts?"), _COUNT),
    **{f"{what}{when}?": _COUNT for what in ("segments", "rows", "bytes") for when in ("Before", "After")},
    "windows?": [[_COUNT]],
}
_ROLLUP: Shape = {
    "state": str,
    **dict.fromkeys(("message?", "lastError?"), str),
    "lastRunMs?": _COUNT,
    "levels": [_LEVEL],
    "history?": [_RUN],
}
ANSWER: Shape = {
    "tables": Each(_TABLE),
    "rollups?": Each(_ROLLUP),
    "tasks?": Each(object),
    "sparkTasks?": [{"id": str, "table": str}],
}


def parse(body: bytes) -> dict[str, Any]:
    """Parse the answer. Raise ValueError, saying what is wrong with it, if it does not have the shape."""
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
            for name, item in _of(dict, value, path).items():
                check(item, inner, f"{path}.{name}")
        case Range():
            numbers = _of(list, value, path)
            check(numbers, [_COUNT], path)
            if len(numbers) != 3:
                raise ValueError(f"{path} must be three numbers got={len(numbers)}")
        case [inner]:
            for number, item in enumerate(_of(list, value, path)):
                check(item, inner, f"{path}[{number}]")
        case Mapping():
            members = _of(dict, value, path)
            for name, inner in shape.items():
                plain = name.removesuffix("?")
                if plain == name or members.get(plain) is not None:
                    check(members.get(plain), inner, f"{path}.{plain}")
        case _:
            _of(shape, value, path)


def _of(kind: type[Any], value: object, path: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{path} must be {kind.__name__} got={type(value).__name__}")
    return value
