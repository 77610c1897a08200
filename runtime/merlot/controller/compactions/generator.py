"""Choice of the segments of an upsert table to rewrite, remove or merge: a pure function of facts and a clock.

A segment is due if it was sealed long enough ago and enough of its rows were replaced, as some replica reported for
this very version. Each partition's last sealed segment stays: if the open one is lost, the partition goes on behind it.
If a time to live decides which rows are valid, a checkpoint of the partition in the deep store must cover the segment.
A server that builds the index anew begins with that checkpoint, since only the removed rows would say when their keys
expired.
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
class CompactionSituation:
    """A table at one point in time."""

    spec: CompactionSpec
    view: TableView
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Number of replaced docs by `name@crc`, as replicas reported it."""
    unsettled: Collection[str] = ()
    """Keys of the segments whose valid docs no replica can tell yet: a task would wait for them."""
    queued: Collection[str] = ()
    """Ids of the table's tasks, including those that failed for good."""
    busy: Collection[str] = ()
    """Keys of the segments of tasks that wait or run."""
    by_rows: Mapping[int, int]
    """Sequence of the first segment, by partition, that servers still answer from the rows that they consumed.

    Its record stays as it is, and so do the records of all segments behind it. A server that answers from rows does not
    have the new file, so nobody could answer for it."""
    num_running: int = 0
    """Number of tasks that wait or run."""
    now_ms: int


def generate(situation: CompactionSituation) -> list[TaskRecord]:
    """Return the tasks to queue: merges first, then the tasks that remove the most rows."""
    configs = list(_merges(situation))
    busy = {*situation.busy, *(key for config in configs for key in config.segments)}
    due: list[tuple[int, StreamSegmentRecord]] = []
    for chain in chains(situation.view.stream_segments).values():
        due += _due(chain, situation)
    for num_invalid, record in sorted(due, key=lambda item: (-item[0], item[1].name)):
        if record.key_text not in busy:
            configs.append(_config(record, num_invalid))
    tasks = [task_of(situation.view.table, config, situation.now_ms) for config in configs]
    free = max(0, situation.spec.max_num_parallel_tasks - situation.num_running)
    return [task for task in tasks if task.id not in situation.queued][:free]


def _config(record: StreamSegmentRecord, num_invalid: int) -> CompactionConfig:
    return CompactionConfig(
        segment=record.key_text,
        partition=record.partition,
        num_records=record.total_docs,
        num_invalid=num_invalid,
        num_bytes=record.size_bytes,
    )


def _merges(situation: CompactionSituation) -> Iterator[CompactionConfig]:
    spec = situation.spec
    if spec.merge is None:
        return

    def is_free(record: StreamSegmentRecord) -> bool:
        return record.key_text not in situation.busy and _is_free(record, situation)

    for chain in chains(situation.view.stream_segments).values():
        if not any(_keeps_first(record.upsert) for record in chain.values()):
            yield from merges(chain, spec.merge, situation.replaced, is_free)


def _due(
    chain: Mapping[int, StreamSegmentRecord], situation: CompactionSituation
) -> Sequence[tuple[int, StreamSegmentRecord]]:
    if any(_keeps_first(record.upsert) for record in chain.values()):
        return []
    is_by_age, busy = is_decided_by_age(chain), names_under_way(chain.values())
    newest = max((sequence for sequence, record in chain.items() if not record.is_open), default=-1)
    spec, due = situation.spec, []
    for sequence, record in chain.items():
        count = situation.replaced.get(record.key_text, 0) - int(record.custom_map.get(STAYING, "0"))
        if record.is_open or sequence == newest or not 0 < record.total_docs <= MAX_DOCS or count <= 0:
            continue
        is_many = 100 * count >= spec.invalid_records_threshold_percent * record.total_docs
        is_many &= count >= spec.invalid_records_threshold_count
        is_due = is_many and record.name not in busy and _is_free(record, situation)
        if is_due and (not is_by_age or checkpoint_for(chain, record) is not None):
            due.append((count, record))
    return due


def _is_free(record: StreamSegmentRecord, situation: CompactionSituation) -> bool:
    """Return whether another file may replace the segment's: it is old enough, some replica can tell its valid docs,
    and all servers answer for it from files."""
    is_by_rows = record.sequence >= situation.by_rows.get(record.partition, record.sequence + 1)
    written_ms = max(record.push_time_ms, record.refresh_time_ms)
    is_old = written_ms <= situation.spec.buffer.before(situation.now_ms)
    is_settled = record.key_text not in situation.unsettled
    return is_old and is_settled and not is_by_rows and not is_held(record, situation.view.lineage)


@lru_cache(maxsize=256)
def _keeps_first(upsert: str) -> bool:
    """Return whether every stored row is valid. Also true if the settings are of a later version and cannot be read."""
    try:
        return unpin_upsert(upsert).mode is UpsertMode.DEDUP
    except CorruptionError:
        return True
