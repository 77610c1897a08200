"""Steps of a backfill of an upsert table, and its requests to the stream. Pure functions of a view and a clock.

DISABLE_TTL → SCALE → RECOVER → LOAD → ENABLE_TTL → PRUNE → DONE. A step changes the settings that segments begin with,
which `decisions` brings about, or waits for reports of servers. A new leader goes on from the record and the view:
nothing is remembered elsewhere, and a request that is repeated has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.cluster.backfill_record import ORDER, BackfillRecord, BackfillStep
from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.pinned import upsert_id
from merlot.cluster.consuming.progress import ProgressRecord, UpsertProgress
from merlot.cluster.consuming.recovery import number_of
from merlot.cluster.records import AskedEnd, ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.transaction import Mutation
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId
from merlot.spec.upserting import PruningStrategy, UpsertMode, UpsertSpec

STALE_MS: Final = 15_000
"""Greatest age of a server's report that counts."""
SETTLED_MS: Final = 2_000
"""Time after which servers' reports of the stream's end include everything that was produced before."""
KEY_BYTES: Final = 64
"""Memory that a key may take while an index grows; 38 bytes on average otherwise."""
MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillFacts:
    """Input of a step."""

    view: TableView
    progress: Mapping[InstanceId, ProgressRecord]
    spec: UpsertSpec
    pinned: Callable[[BackfillRecord], str]
    """Function that returns the settings that segments shall have while a backfill is in this state."""
    upsert_of: Callable[[str], str]
    """The function `pinned_upsert`."""
    now_ms: int

    def progress_of(self, server: InstanceId, partition: int) -> UpsertProgress | None:
        """Return what a server reported lately about the keys of a partition; None if nothing."""
        record = self.progress.get(server)
        if record is None or self.now_ms - record.at_ms > STALE_MS:
            return None
        return next((entry.upsert for entry in record.partitions if entry.partition == partition), None)


def advance(record: BackfillRecord, facts: BackfillFacts) -> BackfillRecord:
    """Return the record with its progress, or in the next step; the same while the step goes on."""
    if record.is_over:
        return record
    if record.step is BackfillStep.LOAD:
        record = _with_progress(record, facts)
    waits_for = _WAITS[record.step](record, facts)
    if waits_for:
        return record if waits_for == record.message else record.model_copy(update={"message": waits_for})
    following = ORDER[ORDER.index(record.step) + 1]
    update: dict[str, object] = {"step": following, "since_ms": facts.now_ms, "message": ""}
    if following is BackfillStep.RECOVER:
        highest = max((number_of(segment.upsert) for segment in facts.view.stream_segments), default=0)
        update["recovered"] = max(record.recovered, highest) + 1
    if following is BackfillStep.LOAD:
        update["asked"] = {number: segment.sequence for number, segment in open_segments(facts.view).items()}
    return record.model_copy(update=update)


def asks(
    record: BackfillRecord, view: TableView, progress: Mapping[InstanceId, ProgressRecord], now_ms: int
) -> list[Mutation]:
    """Return what a backfill in step LOAD asks of the stream: to begin again, or to commit what was read. One at a
    time."""
    if record.step is not BackfillStep.LOAD:
        return []
    opened = open_segments(view)
    offsets = {
        number: offset
        for number, offset in (record.offsets or {}).items()
        if number in opened and opened[number].sequence == record.asked.get(number) and number not in record.restarted
    }
    if offsets:
        return transactions.ask_to_end(view, offsets.keys(), _how(opened, offsets), now_ms, next_offsets=offsets)
    full = {
        number
        for number, until in record.until.items()
        if number in opened
        and not _is_loaded(record, opened[number])
        and opened[number].status == ConsumingStatus.CONSUMING
        and opened[number].asked_end is AskedEnd.NO
        and _position(opened[number], view, progress, now_ms) >= until
    }
    return transactions.ask_to_end(view, full, AskedEnd.FORCE, now_ms) if full else []


def _how(opened: Mapping[int, StreamSegmentRecord], numbers: Mapping[int, int]) -> AskedEnd:
    """Return how to end the segments. A stream that is being paused stays so."""
    is_paused = any(opened[number].asked_end is AskedEnd.PAUSE for number in numbers)
    return AskedEnd.PAUSE if is_paused else AskedEnd.FORCE


def _with_progress(record: BackfillRecord, facts: BackfillFacts) -> BackfillRecord:
    """Return the record with the partitions that have begun again, and the offsets up to which they have to be
    committed."""
    restarted, until, asked = dict(record.restarted), dict(record.until), dict(record.asked)
    for number, segment in open_segments(facts.view).items():
        if number in restarted:
            continue
        if record.offsets is None:
            latest = _latest(number, record, facts)
            if latest is not None:
                restarted[number], until[number] = segment.sequence, latest
        elif number in record.offsets and segment.sequence > asked.get(number, segment.sequence):
            again = _begun_again(segment, asked[number], record.offsets[number], facts.view)
            if again is not None:
                restarted[number], until[number] = again.sequence, _end_before(again, facts.view)
            else:  # the segment ended by itself before it was asked to
                asked[number] = segment.sequence
    changes = {"restarted": restarted, "until": until, "asked": asked}
    return record.model_copy(update={name: value for name, value in changes.items() if value != getattr(record, name)})


def _begun_again(opened: StreamSegmentRecord, asked: int, offset: int, view: TableView) -> StreamSegmentRecord | None:
    """Return the first segment after the one that was asked to end, if it begins at the offset. It may have ended by
    now."""
    since = (
        segment
        for segment in view.stream_segments
        if segment.partition == opened.partition and segment.sequence > asked and segment.start_offset == offset
    )
    return next(since, None)


def _latest(number: int, record: BackfillRecord, facts: BackfillFacts) -> int | None:
    """Return the stream's end as reported after everything had been produced; None if nobody has reported it."""
    if not record.loaded_ms:
        return None
    fresh = [report for report in facts.progress.values() if report.at_ms - record.loaded_ms >= SETTLED_MS]
    ends = [partition.latest for report in fresh for partition in report.partitions if partition.partition == number]
    return max((latest for latest in ends if latest is not None), default=None)


def _end_before(record: StreamSegmentRecord, view: TableView) -> int:
    """Return the offset up to which the partition had been read before."""
    ends = [
        segment.end_offset
        for segment in view.stream_segments
        if segment.partition == record.partition
        and segment.sequence < record.sequence
        and segment.end_offset is not None
    ]
    return max(ends, default=record.start_offset)


def _is_loaded(record: BackfillRecord, opened: StreamSegmentRecord) -> bool:
    """Return whether everything of the partition is committed."""
    number = opened.partition
    return number in record.until and opened.start_offset >= record.until[number]


def _position(
    record: StreamSegmentRecord, view: TableView, progress: Mapping[InstanceId, ProgressRecord], now_ms: int
) -> int:
    """Return how far the slowest replica has come; -1 if that is unknown."""
    servers = [server for server in view.servers_of(record.name) if server in progress]
    offsets = [
        -1 if part.offset is None or part.segment != record.name else part.offset
        for server in servers
        if now_ms - progress[server].at_ms <= STALE_MS
        for part in progress[server].partitions
        if part.partition == record.partition
    ]
    return min(offsets, default=-1)


# Each of these functions returns what a step waits for; empty once the step is done.


def _for_settings(record: BackfillRecord, facts: BackfillFacts) -> str:
    """Wait until every partition's open segment has had the settings from its beginning."""
    opened, pinned = open_segments(facts.view), facts.pinned(record)
    waiting = [number for number, segment in opened.items() if segment.pinned != pinned]
    if not opened:
        return "nothing is consumed"
    return f"{len(waiting)} of {len(opened)} partitions commit their segments" if waiting else ""


def _for_memory(record: BackfillRecord, facts: BackfillFacts) -> str:
    """Wait for servers that have memory for the key of every stored row."""
    if record.ignores_memory:
        return ""
    docs: dict[int, int] = {}
    for segment in facts.view.stream_segments:
        docs[segment.partition] = docs.get(segment.partition, 0) + segment.total_docs
    more: dict[InstanceId, int] = {}
    for number, opened in open_segments(facts.view).items():
        for server in facts.view.servers_of(opened.name):
            progress = facts.progress_of(server, number)
            if progress is None:
                return f"server {server} has not told how it is"
            more[server] = more.get(server, 0) + max(0, docs[number] - progress.keys) * KEY_BYTES
    return "; ".join(_shortages(more, facts))


def _shortages(more: Mapping[InstanceId, int], facts: BackfillFacts) -> Iterator[str]:
    for server, num_bytes in sorted(more.items())[:MAX_NAMED]:
        memory = facts.progress[server].memory
        if memory is not None and memory.needed_bytes + num_bytes > memory.limit_bytes:
            needed = -(-(memory.needed_bytes + num_bytes) // 2**20)
            limit = memory.limit_bytes // 2**20
            yield f"server {server} may need {needed} MiB for all stored keys, and has {limit}: add memory or servers"


def _for_replicas(record: BackfillRecord, facts: BackfillFacts) -> str:
    """Wait until every replica follows the settings, with an index of all stored rows."""
    wanted = upsert_id(facts.upsert_of(facts.pinned(record)))
    waiting = []
    for number, segment in open_segments(facts.view).items():
        for server in facts.view.servers_of(segment.name):
            progress = facts.progress_of(server, number)
            if progress is None or progress.settings != wanted or not progress.is_built:
                waiting.append(f"{server} partition {number}")
    return f"replicas: {', '.join(waiting[:MAX_NAMED])}" if waiting else ""


def _for_recovery(record: BackfillRecord, facts: BackfillFacts) -> str:
    return _for_settings(record, facts) or _for_replicas(record, facts)


def _for_rows(record: BackfillRecord, facts: BackfillFacts) -> str:
    """Wait until everything is read and committed."""
    opened = open_segments(facts.view)
    if record.offsets is None and not record.loaded_ms:
        return "somebody has to say when everything has been produced into the stream"
    numbers = opened.keys() if record.offsets is None else record.offsets.keys()
    unfinished = [
        number for number in sorted(numbers) if number not in opened or not _is_loaded(record, opened[number])
    ]
    return f"{len(unfinished)} of {len(numbers)} partitions that are not read and committed yet" if unfinished else ""


def _for_pruning(record: BackfillRecord, facts: BackfillFacts) -> str:
    waits_for = _for_replicas(record, facts)
    is_scanning = facts.spec.pruning is PruningStrategy.SCAN and facts.now_ms - record.since_ms < facts.spec.scan_ms
    return waits_for or ("a scan of all keys" if is_scanning else "")


_WAITS: Final[Mapping[BackfillStep, Callable[[BackfillRecord, BackfillFacts], str]]] = {
    BackfillStep.DISABLE_TTL: _for_settings,
    BackfillStep.SCALE: _for_memory,
    BackfillStep.RECOVER: _for_recovery,
    BackfillStep.LOAD: _for_rows,
    BackfillStep.ENABLE_TTL: _for_settings,
    BackfillStep.PRUNE: _for_pruning,
}


def refused(offsets: Mapping[int, int] | None, spec: UpsertSpec, view: TableView) -> Sequence[str]:
    """Return why a table cannot be backfilled like this; empty if it can."""
    return list(_refused(offsets, spec, view))


def _refused(offsets: Mapping[int, int] | None, spec: UpsertSpec, view: TableView) -> Iterator[str]:
    opened = open_segments(view)
    if offsets is None:
        return
    if not offsets:
        yield "no partition is named"
    if spec.mode is not UpsertMode.FULL:
        yield f"mode {spec.mode}: rows that are read again would be merged into themselves; produce them anew"
    for number, offset in sorted(offsets.items()):
        if number not in opened:
            yield f"there is no partition {number}"
        elif not 0 <= offset < opened[number].start_offset:
            yield f"partition {number} was committed up to {opened[number].start_offset}: offset {offset} is not before"
