"""Status of an upsert table's keys, for operators to watch: rounded, so that it changes only when it matters. Pure.

The replica with the most keys counts for its partition. Each replica reports itself whether settings are in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

from merlot.cluster.backfill_record import ORDER, BackfillRecord, BackfillStep
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.pinned import pinned_upsert, upsert_id
from merlot.cluster.consuming.progress import ProgressRecord, UpsertProgress
from merlot.cluster.manifests.upserts import Upserting
from merlot.cluster.segments.editions import editions_of
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId
from merlot.pinot.cluster_json import Json
from merlot.spec.indexing import PartitioningSpec

STALE_MS: Final = 15_000
"""Greatest age of a server's report that counts."""
MAX_NAMED: Final = 8
SNAPSHOT_STEP_MS: Final = 60_000
"""Unit to which times of snapshots are rounded down, since each commit writes some."""
COUNTS: Final = ("keys", "valid", "invalid", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertFacts:
    """Facts about the upserts of a table."""

    upserting: Upserting
    pinned: str
    """Settings that the table's segments shall have."""
    filling: BackfillRecord | None
    progress: Mapping[InstanceId, ProgressRecord]
    live: Set[InstanceId]
    now_ms: int
    partitioning: PartitioningSpec | None = None
    """Partitioning of a table of batches; None for a stream."""
    compaction: Json | None = None
    """Status of compactions; None if the table has none."""


def upsert_status(view: TableView, facts: UpsertFacts) -> Json:
    """Return the member `upsert` of a table's part of `GET /status`."""
    spec, wanted = facts.upserting.spec, _wanted(view, facts)
    by_partition: dict[int, list[tuple[InstanceId, UpsertProgress | None]]] = {
        number: [(server, _progress_of(server, number, facts)) for server in view.servers_of(target.segment)]
        for number, target in wanted.items()
    }
    replicas = [(number, server, progress) for number, pairs in by_partition.items() for server, progress in pairs]
    behind = [
        f"{server}/{number}"
        for number, server, progress in replicas
        if progress is None or progress.settings != wanted[number].settings or not progress.is_built
    ]
    reports = {
        number: [progress for _, progress in pairs if progress is not None] for number, pairs in by_partition.items()
    }
    best = {
        number: max(reported, key=lambda progress: progress.keys, default=UpsertProgress())
        for number, reported in reports.items()
    }
    all_reports = [progress for reported in reports.values() for progress in reported]
    bytes_of = {
        number: max((progress.memory_bytes for progress in reported), default=0) for number, reported in reports.items()
    }
    worst = max(bytes_of, key=lambda number: (bytes_of[number], -number), default=None)
    return {
        "revision": facts.upserting.revision,
        "waitsFor": facts.upserting.waits_for,
        "ttl": "" if spec is None else spec.primary_key_ttl or "",
        "replicas": len(replicas),
        "inForce": len(replicas) - len(behind),
        "behind": sorted(behind)[:MAX_NAMED],
        **{name: rounded(sum(getattr(progress, name) for progress in best.values())) for name in COUNTS},
        "memoryBytes": rounded(sum(progress.memory_bytes for progress in all_reports)),
        "worst": None if worst is None else {"partition": worst, "memoryBytes": rounded(bytes_of[worst])},
        "snapshots": _snapshots(facts, all_reports),
        "short": list(_short(facts)),
        "backfill": None if facts.filling is None else _backfill(facts.filling),
        "compaction": facts.compaction,
    }


@dataclass(frozen=True, slots=True)
class _Target:
    """Segment and settings that each replica of a partition shall have."""

    segment: str
    """A segment that all replicas of the partition have."""
    settings: str


def _wanted(view: TableView, facts: UpsertFacts) -> Mapping[int, _Target]:
    """Return the targets by partition: the settings of a stream's rows, or the edition of a table of batches."""
    if facts.partitioning is not None:
        editions = editions_of(view.visible.values(), facts.partitioning).values()
        return {edition.partition: _Target(edition.members[-1].name, edition.key) for edition in editions}
    settings = upsert_id(pinned_upsert(facts.pinned))
    return {number: _Target(record.name, settings) for number, record in open_segments(view).items()}


def _progress_of(server: InstanceId, partition: int, facts: UpsertFacts) -> UpsertProgress | None:
    record = facts.progress.get(server)
    if record is None or server not in facts.live or facts.now_ms - record.at_ms > STALE_MS:
        return None
    return next((entry.upsert for entry in record.partitions if entry.partition == partition), None)


def _snapshots(facts: UpsertFacts, replicas: list[UpsertProgress]) -> Json:
    spec = facts.upserting.spec
    oldest = min((replica.snapshot_ms for replica in replicas if replica.snapshot_ms is not None), default=None)
    return {
        "wanted": any(replica.snapshot for replica in replicas) or (spec is not None and spec.snapshots_in is not None),
        "oldestMs": None if oldest is None else oldest // SNAPSHOT_STEP_MS * SNAPSHOT_STEP_MS,
        "missing": sum(replica.snapshots_missing for replica in replicas),
        "error": next((replica.snapshot_error for replica in replicas if replica.snapshot_error), ""),
    }


def _short(facts: UpsertFacts) -> Iterator[Json]:
    """Yield the servers that have too little memory for all of their tables."""
    for server, record in sorted(facts.progress.items()):
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
        "waitsForMemory": record.step is BackfillStep.SCALE and bool(record.message),
    }


def rounded(number: int) -> int:
    """Round down to two significant digits; numbers below 1,000 stay as they are."""
    unit = int(10 ** max(0, len(str(number)) - 2)) if number >= 1000 else 1
    return number // unit * unit
