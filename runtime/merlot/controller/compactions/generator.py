"""Which segments of an upsert table are rewritten, removed or merged: a pure function of what is known and a clock.

A segment is due if it was sealed long enough ago and so many of its rows were replaced, as some replica told of this
very version. Each partition's last sealed segment stays: should the open one be lost, the partition goes on behind it.
Where a time to live decides rows, a checkpoint of the partition in the deep store has to have the segment: whoever
builds the index anew begins with it, since rows that are gone would have told when keys expired.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from merlot.cluster.consuming.merged import names_under_way
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.consuming.transactions import STAYING, checkpoint_for, is_decided_by_age
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_held
from merlot.cluster.tasks.compactions import MAX_DOCS, task_of
from merlot.cluster.tasks.records import CompactionConfig, TaskRecord
from merlot.controller.compactions.merging import merges
from merlot.errors import CorruptionError
from merlot.spec.upserting import CompactionSpec, UpsertMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One table at one moment."""

    spec: CompactionSpec
    view: TableView
    replaced: Mapping[str, int] = field(default_factory=dict)
    """By `name@crc`, how many docs were replaced, as replicas told."""
    queued: Collection[str] = ()
    """Ids of the table's tasks, those that failed for good among them."""
    busy: Collection[str] = ()
    """Keys of the segments that tasks have which wait or run."""
    by_rows: Mapping[int, int]
    """By partition, the first segment that servers answer for by rows that they consumed. Its record stays as it is,
    and so do those behind it: who answers by rows does not have the new file, so nobody could answer for it."""
    num_running: int = 0
    """Of the tasks, those that wait or run."""
    now_ms: int


def generate(situation: Situation) -> list[TaskRecord]:
    """Tasks to queue: those that merge segments, then those that take most rows away."""
    configs = list(_merges(situation))
    busy = {*situation.busy, *(key for config in configs for key in config.segments)}
    due: list[tuple[int, StreamSegmentRecord]] = []
    for chain in chains(situation.view.stream_segments).values():
        due += _due(chain, situation)
    for num_invalid, record in sorted(due, key=lambda one: (-one[0], one[1].name)):
        if record.key_text not in busy:
            configs.append(_config(record, num_invalid))
    made = [task_of(situation.view.table, config, situation.now_ms) for config in configs]
    free = max(0, situation.spec.max_num_parallel_tasks - situation.num_running)
    return [task for task in made if task.id not in situation.queued][:free]


def _config(record: StreamSegmentRecord, num_invalid: int) -> CompactionConfig:
    return CompactionConfig(
        segment=record.key_text,
        partition=record.partition,
        num_records=record.total_docs,
        num_invalid=num_invalid,
        num_bytes=record.size_bytes,
    )


def _merges(situation: Situation) -> Iterator[CompactionConfig]:
    spec = situation.spec
    if spec.merge is None:
        return

    def is_free(record: StreamSegmentRecord) -> bool:
        return record.key_text not in situation.busy and _is_free(record, situation)

    for chain in chains(situation.view.stream_segments).values():
        if not any(_keeps_first(record.upsert) for record in chain.values()):
            yield from merges(chain, spec.merge, situation.replaced, is_free)


def _due(chain: Mapping[int, StreamSegmentRecord], situation: Situation) -> Sequence[tuple[int, StreamSegmentRecord]]:
    if any(_keeps_first(record.upsert) for record in chain.values()):
        return []
    is_by_age, busy = is_decided_by_age(chain), names_under_way(chain.values())
    newest = max((sequence for sequence, record in chain.items() if not record.is_open), default=-1)
    spec, found = situation.spec, []
    for sequence, record in chain.items():
        count = situation.replaced.get(record.key_text, 0) - int(record.custom_map.get(STAYING, "0"))
        if record.is_open or sequence == newest or not 0 < record.total_docs <= MAX_DOCS or count <= 0:
            continue
        is_many = 100 * count >= spec.invalid_records_threshold_percent * record.total_docs
        is_many &= count >= spec.invalid_records_threshold_count
        is_due = is_many and record.name not in busy and _is_free(record, situation)
        if is_due and (not is_by_age or checkpoint_for(chain, record) is not None):
            found.append((count, record))
    return found


def _is_free(record: StreamSegmentRecord, situation: Situation) -> bool:
    """Whether another file may take the segment's place: it is old enough, and all servers answer for it by files."""
    is_by_rows = record.sequence >= situation.by_rows.get(record.partition, record.sequence + 1)
    written_ms = max(record.push_time_ms, record.refresh_time_ms)
    is_old = written_ms <= situation.spec.buffer.before(situation.now_ms)
    return is_old and not is_by_rows and not is_held(record, situation.view.lineage)


@lru_cache(maxsize=256)
def _keeps_first(upsert: str) -> bool:
    """Whether every row is valid that is stored, or it is not known: the settings are of a later version."""
    try:
        return unpin_upsert(upsert).mode is UpsertMode.DEDUP
    except CorruptionError:
        return True
