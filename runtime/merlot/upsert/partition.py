"""Upserts of one partition: rows come in, some become valid and others cease to be.

One thread calls everything but `cut`, `stats` and `nbytes`, which any thread may read. `add` decides; readers see
nothing of it until `publish`, which is called after the rows have been appended. Rows are decided as if they came one
by one. Between `add` and `publish` nothing else may happen to the partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import CorruptionError, InvalidInputError
from merlot.kernels import upsert as kernels
from merlot.kernels.upsert import MAX_SEGMENT
from merlot.spec.upserting import PruningStrategy, UpsertMode
from merlot.upsert.checkpoint import PartitionCheckpoint, SegmentSnapshot
from merlot.upsert.dedup import first_rows
from merlot.upsert.expiry import Watermark, advance
from merlot.upsert.index import SHARDS, KeyIndex, RowEntries
from merlot.upsert.partial import PreviousRows, merge
from merlot.upsert.rules import Rules
from merlot.upsert.trace import REMEMBERED_ROWS, Trace, Traced, undone
from merlot.upsert.valid_docs import BitChanges, ValidDocs, ValidDocsView

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchVerdict:
    """Verdict on the rows of one batch; masks have an element per given row."""

    rows: pa.Table
    """Rows to append, merged and marked as the rules say."""
    is_kept: Flags
    """False for rows that are dropped: out of order, late, or, in mode DEDUP, not the first of their key."""
    out_of_order: Flags
    """True for rows older than the present row of their key."""
    late: Flags
    """True for rows past the time to live when they came."""
    num_invalidated: int
    """Number of docs that are no longer valid, docs of this batch included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts since the partition was built, and its size."""

    keys: int = 0
    valid: int = 0
    invalid: int = 0
    expired: int = 0
    """Keys that left the index because they were dead."""
    out_of_order: int = 0
    late: int = 0
    dropped: int = 0
    memory_bytes: int = 0


class PartitionUpserts:
    """Keys and valid docs of a partition."""

    def __init__(
        self, rules: Rules, previous_rows: PreviousRows | None = None, *, remembered_rows: int = REMEMBERED_ROWS
    ) -> None:
        if rules.mode is UpsertMode.PARTIAL and previous_rows is None:
            raise InvalidInputError("mode PARTIAL needs the rows there are")
        self._rules = rules
        self._previous_rows = previous_rows
        self._index = KeyIndex(len(rules.comparisons), rotates=rules.pruning is PruningStrategy.ROTATION)
        self._docs = ValidDocs()
        self._mark = Watermark()
        self._rotated_at = self._mark
        self._pending: list[BitChanges] = []
        self._trace = Trace(remembered_rows)
        self._num_docs: dict[int, int] = {}
        self._counts = Stats()
        self._next_scan = 0
        self._num_due = 0
        """Number of tables still to prune: the first tables of the index."""

    @property
    def rules(self) -> Rules:
        """Present rules."""
        return self._rules

    @property
    def watermark(self) -> Watermark:
        """Progress of the partition."""
        return self._mark

    @property
    def cut(self) -> ValidDocsView:
        """Valid docs of all segments at one moment. Any thread."""
        return self._docs.cut

    @property
    def stats(self) -> Stats:
        """Counts of the partition, consistent if nobody adds rows meanwhile."""
        valid = sum([segment.num_valid for segment in self.cut.segments.values()])
        return replace(
            self._counts,
            keys=self._index.num_keys,
            valid=valid,
            invalid=sum(list(self._num_docs.values())) - valid,
            memory_bytes=self.nbytes,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of keys and valid docs. Any thread."""
        return self._index.nbytes + self._docs.nbytes

    def add(self, rows: pa.Table, segment: int, first_doc: int) -> BatchVerdict:
        """Decide rows that arrive. Rows that stay become docs of `segment` from `first_doc` on."""
        if self._rules.mode is UpsertMode.DEDUP:
            return self._keep_first(rows, segment, first_doc)
        return self._decide(rows, segment, first_doc, self._rules)

    def replay(self, rows: pa.Table, segment: int, first_doc: int) -> None:
        """Decide rows that were appended before: none is dropped, merged or marked again."""
        if self._rules.mode is UpsertMode.DEDUP:
            self._keep_all(rows, segment, first_doc)
            return
        stored = replace(self._rules, drops_out_of_order=False, skips_late=False, marks_out_of_order=None)
        self._decide(rows, segment, first_doc, replace(stored, mode=UpsertMode.FULL))

    def publish(self) -> None:
        """Show readers what was added."""
        for changes in self._pending:
            self._docs.apply(changes)
        self._pending.clear()

    def cut_at(self, segment: int, num_docs: int) -> tuple[ValidDocsView, Watermark] | None:
        """Return the valid docs of all segments and the watermark as of when `segment`, the present segment, had
        `num_docs` docs; everything added is published. None if the rows since then are not all remembered; mode DEDUP
        remembers none."""
        present = self._num_docs.get(segment, 0)
        if present <= num_docs:
            return (self.cut, self._mark) if present == num_docs else None
        tail = self._trace.since(segment, num_docs, present)
        if tail is None:
            return None
        return undone(self.cut, segment, num_docs, tail), replace(self._mark, largest=int(tail[0].before[0]))

    def checkpoint(self, end_offset: int) -> PartitionCheckpoint:
        """Return the checkpoint of a commit; everything added is published."""
        segments = {
            number: SegmentSnapshot.of(docs, self._num_docs[number]) for number, docs in self.cut.segments.items()
        }
        return PartitionCheckpoint(end_offset=end_offset, watermark=self._mark, segments=segments)

    @classmethod
    def recovered(
        cls, rules: Rules, checkpoint: PartitionCheckpoint, previous_rows: PreviousRows | None = None
    ) -> Self:
        """Rebuild a partition from its checkpoint and the rules of that time; `load` fills its index. Raises
        CorruptionError."""
        partition = cls(rules, previous_rows)
        partition._docs = ValidDocs(checkpoint.cut())
        partition._mark = partition._rotated_at = checkpoint.watermark
        partition._num_docs = {number: snapshot.num_docs for number, snapshot in checkpoint.segments.items()}
        if not partition.may_expire:
            partition._index.reserve(sum([docs.num_valid for docs in partition.cut.segments.values()]))
        return partition

    def may_load(self, largest: int) -> bool:
        """Return whether a segment with this largest comparison value may have docs that are alive."""
        return largest >= min(self._mark.bounds(self._rules))

    @property
    def may_expire(self) -> bool:
        """True if any key can be dead now."""
        return max(self._mark.bounds(self._rules)) > kernels.NULL

    def alive(self, rows: pa.Table) -> Flags:
        """Mark the valid rows of a segment that `load` has to be given. rows: the columns of `Rules.expiring`."""
        bounds = self._mark.bounds(self._rules)
        values = self._rules.comparison_values(rows)[:, 0]
        is_alive: Flags = values >= np.where(self._rules.deleted(rows), max(bounds), bounds.alive_from)
        return is_alive

    def load(self, rows: pa.Table, segment: int, docs: Longs) -> None:
        """Enter valid docs of a segment that are alive into the index of a partition under recovery; raise
        CorruptionError if a key has two of them."""
        bounds, alive = self._mark.bounds(self._rules), self.alive(rows)
        deleted, values = self._rules.deleted(rows), self._rules.comparison_values(rows)
        count = int(np.count_nonzero(alive))
        entries = RowEntries(
            keys=self._rules.keys.of(rows.filter(pa.array(alive))),
            values=values[alive],
            places=_places(segment, docs[alive], deleted[alive]),
            alive_from=np.full(count, bounds.alive_from),
            deleted_from=np.full(count, bounds.deleted_from),
        )
        self._index.upsert(entries)
        if (entries.verdicts != kernels.NEW).any():
            raise CorruptionError(f"two valid rows of one key segment={segment}")

    def _decide(self, rows: pa.Table, segment: int, first_doc: int, rules: Rules) -> BatchVerdict:
        _check(segment)
        deleted = rules.deleted(rows)
        batch, before = self._enter(rules, rows, deleted, segment, first_doc)
        decided = _Decided(batch, rules, segment, first_doc)
        self._trace.add(Traced(segment, first_doc, decided.replaced[decided.is_kept], before[decided.is_kept]))
        if not decided.is_kept.all():
            moved = np.flatnonzero(decided.is_indexed)
            self._index.renumber(batch.keys, decided.places, moved)
        self._note(decided, deleted, segment, first_doc)
        if rules.mode is UpsertMode.PARTIAL:
            assert self._previous_rows is not None
            is_merged = decided.is_merged & ~deleted
            rows = merge(rows, rules, batch, is_merged, decided.replaced_row, self._previous_rows)
        for column, values in zip(rules.comparisons, batch.values.T, strict=True):
            rows = column.filled(rows, values)
        return BatchVerdict(
            rows=_appended(rows, rules, decided),
            is_kept=decided.is_kept,
            out_of_order=decided.out_of_order,
            late=decided.late,
            num_invalidated=int(np.count_nonzero(batch.replaced)),
        )

    def _enter(
        self, rules: Rules, rows: pa.Table, deleted: Flags, segment: int, first_doc: int
    ) -> tuple[RowEntries, Longs]:
        values = rules.comparison_values(rows)
        sent_ms = rules.sent_ms(rows)
        self._mark, (alive_from, deleted_from), before = advance(self._mark, rules, values[:, 0].copy(), sent_ms)
        docs = np.arange(first_doc, first_doc + rows.num_rows)
        entries = RowEntries(
            keys=rules.keys.of(rows),
            values=values,
            places=_places(segment, docs, deleted),
            alive_from=alive_from,
            deleted_from=deleted_from,
        )
        self._index.upsert(entries)
        return entries, before

    def _keep_first(self, rows: pa.Table, segment: int, first_doc: int) -> BatchVerdict:
        """Drop rows whose keys exist (mode DEDUP)."""
        keys, values = self._rules.keys.of(rows), self._rules.comparison_values(rows)[:, 0]
        firsts = first_rows(self._rules, self._index, self._mark, keys, values, self._rules.sent_ms(rows))
        first_of_keys = rows if firsts.is_kept.all() else rows.filter(pa.array(firsts.is_kept))
        self._keep_all(first_of_keys, segment, first_doc)
        counts, dropped = self._counts, int(np.count_nonzero(~firsts.is_kept))
        late = int(np.count_nonzero(firsts.late))
        self._counts = replace(counts, late=counts.late + late, dropped=counts.dropped + dropped)
        nothing = np.zeros(len(firsts.is_kept), np.bool_)
        return BatchVerdict(
            rows=first_of_keys, is_kept=firsts.is_kept, out_of_order=nothing, late=firsts.late, num_invalidated=0
        )

    def _keep_all(self, rows: pa.Table, segment: int, first_doc: int) -> None:
        """Enter rows that are the first of their keys (mode DEDUP). A key that is in the index already is dead."""
        _check(segment)
        rules, docs = self._rules, np.arange(first_doc, first_doc + rows.num_rows)
        values = rules.comparison_values(rows)
        self._mark, _, _ = advance(self._mark, rules, values[:, 0], rules.sent_ms(rows))
        nothing_dead = np.full(rows.num_rows, kernels.NULL)
        entries = RowEntries(
            keys=rules.keys.of(rows),
            values=values,
            places=_places(segment, docs, np.zeros(rows.num_rows, np.bool_)),
            alive_from=nothing_dead,
            deleted_from=nothing_dead,
        )
        self._index.upsert(entries)
        none = np.zeros(0, np.int64)
        self._pending.append(
            BitChanges(segment=segment, live=docs, tombstones=none, cleared_segments=none, cleared_docs=none)
        )
        self._num_docs[segment] = max(self._num_docs.get(segment, 0), first_doc + rows.num_rows)

    def _note(self, decided: _Decided, deleted: Flags, segment: int, first_doc: int) -> None:
        """Note what `publish` will show."""
        docs = decided.places & 0xFFFFFFFF
        outside = decided.replaced_outside
        self._pending.append(
            BitChanges(
                segment=segment,
                live=docs[decided.is_valid & ~deleted],
                tombstones=docs[decided.is_valid & deleted],
                cleared_segments=_segments(outside),
                cleared_docs=outside & 0xFFFFFFFF,
            )
        )
        self._num_docs[segment] = max(
            self._num_docs.get(segment, 0), first_doc + int(np.count_nonzero(decided.is_kept))
        )
        counts = self._counts
        self._counts = replace(
            counts,
            out_of_order=counts.out_of_order + int(np.count_nonzero(decided.out_of_order)),
            late=counts.late + int(np.count_nonzero(decided.late)),
            dropped=counts.dropped + int(np.count_nonzero(~decided.is_kept)),
        )

    def committed(self) -> None:
        """Note that a segment of the partition was committed: let `tidy` remove dead keys, or rotate the index, as the
        rules say."""
        match self._rules.pruning:
            case PruningStrategy.COMMIT:
                self._num_due = len(self._index.shards)
            case PruningStrategy.ROTATION:
                self._rotate()
            case PruningStrategy.SCAN:
                return

    def tidy(self) -> bool:
        """Do a small part of the work that a commit left; return whether more is left. All at once would take a second
        for ten million keys, during which no row is read. Whether a key is dead does not depend on it."""
        if self._num_due:
            self._num_due -= 1
            self._prune(slice(self._num_due, self._num_due + 1))
        return self._num_due > 0

    def scan(self) -> None:
        """Remove the dead keys of a sixty-fourth of the index; each call takes the next part."""
        self._prune(slice(self._next_scan, self._next_scan + 1))
        self._next_scan = (self._next_scan + 1) % SHARDS

    def set_rules(self, rules: Rules) -> None:
        """Follow other rules from now on; keys that were dead by the old rules stay dead.

        Raises InvalidInputError if the keys or the comparison differ: then all rows have to be decided again."""
        if rules.identity != self._rules.identity:
            raise InvalidInputError("key columns and comparison columns cannot be changed")
        if rules.pruning is not self._rules.pruning:
            self._index.set_rotates(rules.pruning is PruningStrategy.ROTATION)
            self._rotated_at = self._mark
        self._mark = self._mark.changed(self._rules)
        self._rules = rules
        self._trace.clear()

    def _prune(self, shards: slice) -> None:
        before = self._index.num_keys
        self._index.prune(*self._mark.bounds(self._rules), shards)
        self._count_expired(before)

    def _rotate(self) -> None:
        """Rotate once the time to live has passed since the last rotation: keys that were not written since are
        dead."""
        alive_from, deleted_from = self._mark.bounds(self._rules)
        if alive_from <= self._rotated_at.largest:
            return
        before = self._index.num_keys
        self._index.rotate(alive_from, deleted_from)
        self._rotated_at = self._mark
        self._count_expired(before)

    def _count_expired(self, before: int) -> None:
        expired = self._counts.expired + before - self._index.num_keys
        self._counts = replace(self._counts, expired=expired)

    def remove_segment(self, segment: int) -> None:
        """Forget a segment and the keys whose rows are in it."""
        self._index.relocate({segment: np.zeros(0, np.int64)}, 0)
        self._docs.exchange({segment: None}, None)
        self._num_docs.pop(segment, None)

    def move_tail(self, segment: int, first_doc: int, target: int) -> None:
        """Make the docs of a segment from `first_doc` on the docs of a new segment from 0 on."""
        self._trace.move_tail(segment, first_doc, target)
        self._index.move_tail(segment, first_doc, target)
        self._docs.move_tail(segment, first_doc, target)
        moved = max(self._num_docs.get(segment, 0) - first_doc, 0)
        self._num_docs[target] = moved
        self._num_docs[segment] = self._num_docs.get(segment, 0) - moved

    def replace_segments(self, sources: Mapping[int, Longs], target: int, num_docs: int) -> int:
        """Replace segments by `target`, which has `num_docs` docs. sources: for each replaced segment, the new number
        of every doc, or -1.

        Returns the number of valid docs that `target` lacks; there should be none."""
        self._trace.clear()
        before = sum([self.cut.segments[number].num_valid for number in sources if number in self.cut.segments])
        self._index.relocate(dict(sources), target)
        self._docs.exchange(sources, target)
        for number in sources:
            self._num_docs.pop(number, None)
        self._num_docs[target] = num_docs
        return before - self.cut.segments[target].num_valid


class _Decided:
    """Result of the verdicts on a batch."""

    def __init__(self, batch: RowEntries, rules: Rules, segment: int, first_doc: int) -> None:
        verdicts = batch.verdicts
        self.out_of_order: Flags = verdicts == kernels.OLDER
        self.late: Flags = (verdicts == kernels.LATE) | (self.out_of_order & (batch.values[:, 0] < batch.alive_from))
        self.is_kept: Flags = np.ones(len(verdicts), np.bool_)
        if rules.skips_late:
            self.is_kept &= ~self.late
        if rules.drops_out_of_order:
            self.is_kept &= ~self.out_of_order
        inside = (_segments(batch.replaced) == segment) & (batch.replaced & 0xFFFFFFFF >= first_doc)
        inside &= batch.replaced != 0
        self.replaced_row: Longs = np.where(inside, (batch.replaced & 0xFFFFFFFF) - first_doc, -1)
        self.is_merged: Flags = (batch.replaced != 0) & (batch.replaced & kernels.DELETED == 0)
        stands = np.ones(len(verdicts), np.bool_)
        stands[self.replaced_row[inside]] = False
        self.is_indexed: Flags = stands & ((verdicts == kernels.NEW) | (verdicts == kernels.REPLACES))
        self.is_valid: Flags = self.is_kept & stands & ~self.out_of_order
        self.replaced_outside: Longs = batch.replaced[(batch.replaced != 0) & ~inside]
        docs = first_doc + np.cumsum(self.is_kept) - 1
        self.places: Longs = batch.places & ~0xFFFFFFFF | docs
        self.replaced: Longs = np.where(inside, batch.replaced & ~0xFFFFFFFF | docs[self.replaced_row], batch.replaced)
        """Place of the row that each row replaced, by its doc as it is stored."""


def _appended(rows: pa.Table, rules: Rules, decided: _Decided) -> pa.Table:
    if rules.marks_out_of_order is not None:
        place = rows.schema.get_field_index(rules.marks_out_of_order)
        rows = rows.set_column(place, rows.schema.field(place), pa.chunked_array([pa.array(decided.out_of_order)]))
    return rows if decided.is_kept.all() else rows.filter(pa.array(decided.is_kept))


def _check(segment: int) -> None:
    if not 0 <= segment <= MAX_SEGMENT:
        raise InvalidInputError(f"segment number out of bounds number={segment} largest={MAX_SEGMENT}")


def _places(segment: int, docs: Longs, deleted: Flags) -> Longs:
    return kernels.PRESENT | deleted * kernels.DELETED | segment << 32 | docs


def _segments(places: Longs) -> Longs:
    return places >> 32 & MAX_SEGMENT
