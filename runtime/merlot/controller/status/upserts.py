"""How the keys of an upsert table are, as operators watch it: rounded, so that it changes only when it matters. Pure.

Of a partition, the replica that has most keys speaks. Whether settings are in force, each replica says itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from merlot.cluster.backfill_record import ORDER, BackfillRecord, Step
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.pinned import pinned_upsert, upsert_id
from merlot.cluster.consuming.progress import ProgressRecord, UpsertProgress
from merlot.cluster.manifests.upserts import Upserting
from merlot.cluster.segments.editions import editions_of
from merlot.cluster.segments.view import TableView
from merlot.controller.status.pinot_json import Json
from merlot.ids import InstanceId
from merlot.spec.indexing import PartitioningSpec

STALE_MS: Final = 15_000
"""What a server told longer ago is not how it is."""
MAX_NAMED: Final = 8
SNAPSHOT_STEP_MS: Final = 60_000
"""Times of snapshots are told to the minute: each commit writes some."""
COUNTS: Final = ("keys", "valid", "invalid", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertFacts:
    """What is said of the upserts of a table."""

    upserting: Upserting
    pinned: str
    """The settings that its segments shall have."""
    filling: BackfillRecord | None
    told: Mapping[InstanceId, ProgressRecord]
    live: Set[InstanceId]
    now_ms: int
    partitioning: PartitioningSpec | None = None
    """Of a table of batches."""
    compaction: Json | None = None
    """What is told of compactions; None: none are wanted."""


def upsert_status(view: TableView, facts: UpsertFacts) -> Json:
    """The member `upsert` of a table's part of `GET /status`."""
    spec, wanted = facts.upserting.spec, _wanted(view, facts)
    told: dict[int, list[tuple[InstanceId, UpsertProgress | None]]] = {
        number: [(server, _said(server, number, facts)) for server in view.servers_of(one.segment)]
        for number, one in wanted.items()
    }
    replicas = [(number, server, said) for number, ones in told.items() for server, said in ones]
    behind = [
        f"{server}/{number}"
        for number, server, said in replicas
        if said is None or said.settings != wanted[number].settings or not said.is_built
    ]
    best = {
        number: max((said for _, said in ones if said is not None), key=lambda one: one.keys, default=UpsertProgress())
        for number, ones in told.items()
    }
    said = [one for _, _, one in replicas if one is not None]
    bytes_of = {number: max((one.memory_bytes for _, one in ones if one), default=0) for number, ones in told.items()}
    worst = max(bytes_of, key=lambda number: (bytes_of[number], -number), default=None)
    return {
        "revision": facts.upserting.revision,
        "waitsFor": facts.upserting.waits_for,
        "ttl": "" if spec is None else spec.primary_key_ttl or "",
        "replicas": len(replicas),
        "inForce": len(replicas) - len(behind),
        "behind": sorted(behind)[:MAX_NAMED],
        **{name: rounded(sum(getattr(one, name) for one in best.values())) for name in COUNTS},
        "memoryBytes": rounded(sum(one.memory_bytes for one in said)),
        "worst": None if worst is None else {"partition": worst, "memoryBytes": rounded(bytes_of[worst])},
        "snapshots": _snapshots(facts, said),
        "short": list(_short(facts)),
        "backfill": None if facts.filling is None else _backfill(facts.filling),
        "compaction": facts.compaction,
    }


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What each replica of a partition shall come to."""

    segment: str
    """One that its replicas have."""
    settings: str


def _wanted(view: TableView, facts: UpsertFacts) -> Mapping[int, _Wanted]:
    """By partition: the settings that decide the rows of a stream, the edition of what batches brought."""
    if facts.partitioning is not None:
        editions = editions_of(view.visible.values(), facts.partitioning).values()
        return {one.partition: _Wanted(one.members[-1].name, one.key) for one in editions}
    settings = upsert_id(pinned_upsert(facts.pinned))
    return {number: _Wanted(record.name, settings) for number, record in open_segments(view).items()}


def _said(server: InstanceId, partition: int, facts: UpsertFacts) -> UpsertProgress | None:
    record = facts.told.get(server)
    if record is None or server not in facts.live or facts.now_ms - record.at_ms > STALE_MS:
        return None
    return next((one.upsert for one in record.partitions if one.partition == partition), None)


def _snapshots(facts: UpsertFacts, said: list[UpsertProgress]) -> Json:
    spec = facts.upserting.spec
    oldest = min((one.snapshot_ms for one in said if one.snapshot_ms is not None), default=None)
    return {
        "wanted": any(one.snapshot for one in said) or (spec is not None and spec.snapshots_in is not None),
        "oldestMs": None if oldest is None else oldest // SNAPSHOT_STEP_MS * SNAPSHOT_STEP_MS,
        "missing": sum(one.snapshots_missing for one in said),
        "error": next((one.snapshot_error for one in said if one.snapshot_error), ""),
    }


def _short(facts: UpsertFacts) -> Iterator[Json]:
    """Servers whose memory will not do, all of their tables together."""
    for server, record in sorted(facts.told.items()):
        memory, is_stale = record.memory, facts.now_ms - record.at_ms > STALE_MS
        if memory is None or is_stale or server not in facts.live or memory.needed_bytes <= memory.limit_bytes:
            continue
        yield {
            "server": server,
            "limitBytes": memory.limit_bytes,
            "neededBytes": rounded(memory.needed_bytes),
            "keysBytes": rounded(memory.keys_bytes),
        }


def _backfill(record: BackfillRecord) -> Json:
    return {
        "name": record.name,
        "step": record.step.value,
        "number": ORDER.index(record.step),
        "steps": len(ORDER) - 1,
        "message": record.message,
        "sinceMs": record.since_ms,
        "cancelled": record.is_cancelled,
        "waitsForMemory": record.step is Step.SCALE and bool(record.message),
    }


def rounded(number: int) -> int:
    """To two digits; small numbers are what they are."""
    unit = int(10 ** max(0, len(str(number)) - 2)) if number >= 1000 else 1
    return number // unit * unit
