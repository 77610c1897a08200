"""Enter a partition's sealed segments into its index, in the order of the stream: from a checkpoint, if a checkpoint
fits, and by reading what is stored.

A checkpoint's bits are taken as they are, and the keys of the docs that are alive are entered afterwards. Segments
behind the checkpoint are read whole, block by block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.cluster.consuming import checkpoints, recovery
from merlot.cluster.consuming.merged import sequence_of, taken
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import MerlotError, UnavailableError
from merlot.segment import lost_pages
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.realtime.indexed import IndexedRows
from merlot.server.realtime.partition_log import LogPart
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.snapshots import FoundCheckpoint
from merlot.spec.schema import FieldSpec
from merlot.upsert.checkpoint import PartitionCheckpoint
from merlot.upsert.partition import PartitionUpserts

_LOG = logging.getLogger(__name__)

REPLAY_DOCS: Final = 1 << 20
"""Docs of a sealed segment that are read at a time."""
Longs = NDArray[np.int64]


class SealedRows:
    """Sealed segments of one partition, for its index. Belongs to the consuming thread, except for `waits_for` and
    `is_stopping`."""

    def __init__(self, rows: IndexedRows, give_up: Callable[[], None]) -> None:
        self.waits_for = ""
        """Key of the sealed segment without which the index cannot be built. Any thread may read."""
        self.is_stopping = False
        """True if the partition is about to be closed: what is read block by block is given up. Any thread may set
        it."""
        self._rows = rows
        self._deps = rows.deps
        self._give_up = give_up
        self._unloaded: list[int] = []
        """Segments of a checkpoint whose keys are not in the index yet."""
        self._begun_with = -1
        """Last segment of that checkpoint, until `add` has entered every segment; else -1."""

    @property
    def are_keys_loaded(self) -> bool:
        """True if the index has the keys of all bits that it began with."""
        return not self._unloaded

    def forget(self) -> None:
        """Forget the checkpoint: the index is given up."""
        self._unloaded = []

    def add(self, before: int | None) -> bool:
        """Enter every sealed doc before a segment that the index does not have; return False if a segment is not
        here, or if there is no segment."""
        rows = self._rows
        if rows.index is None:
            self._recover(before)
        if not self._load_keys():
            return False
        last = rows.records.get(self._begun_with)
        merged = _merged_before(rows.records, before)
        for sequence, record in sorted(rows.records.items()):
            if record.is_open or sequence in merged or (before is not None and sequence >= before):
                continue
            if not rows.files.is_numbered_by(record):
                continue  # its rows are known from another file
            if rows.num_docs.get(sequence, -1) >= record.total_docs:
                continue
            with self._deps.borrow(record.key_text) as segment:
                if segment is None:
                    self.waits_for = record.key_text
                    return False
                self._replay(record, segment)
                last = record
        self.waits_for = ""
        if last is not None:
            rows.capture(last.sequence, last.total_docs)
        self._begun_with = -1
        if rows.index is None and (first := min(rows.records, default=None)) is not None:
            rows.follow_rules(first)
        return rows.index is not None

    def has(self, part: LogPart) -> bool:
        """Return True if the file of a part's rows is here."""
        record = self._rows.records.get(part.sequence)
        if record is None or record.is_open or COMPACTED in record.custom_map or part.num_docs != record.total_docs:
            return False
        with self._deps.borrow(record.key_text) as segment:
            return segment is not None

    def require(self, before: int | None) -> None:
        """Call `add`; raise UnavailableError if a segment is not here."""
        if not self.add(before):
            raise UnavailableError(f"sealed segment is not here {self._deps.where} segment={self.waits_for}")

    def _recover(self, before: int | None) -> None:
        """Begin with a checkpoint, if there is one: bits are taken as they are, keys are entered later (`_load_keys`).

        Raises UnavailableError if there is none, and rows that replaced others have been taken out of segments."""
        snapshots = self._deps.snapshots
        for find in () if snapshots is None else snapshots.find(self._rows.records):
            try:
                checkpoint, records = find(), self._rows.records  # segments may have gone while it was fetched
                if checkpoint is not None and self._is_usable(checkpoint, records, before):
                    self._begin_with(checkpoint, records)
                    return
            except MerlotError as error:
                assert snapshots is not None
                snapshots.note_unread(error)
        if (least := checkpoints.needed(self._rows.records)) is not None:
            text = "rows that decided others were taken out of segments, and no checkpoint after that can be read"
            where = self._deps.where
            raise UnavailableError(f"{text}: a backfill decides all rows that are left {where} sequence={least}")

    def _is_usable(self, checkpoint: FoundCheckpoint, records: Records, before: int | None) -> bool:
        if not records.keys() >= {checkpoint.sequence, *checkpoint.segments}:
            return False
        least = checkpoints.needed(records)
        is_before = self._rows.recovered_from() <= checkpoint.sequence and (
            checkpoint.sequence >= least if least is not None else before is None or checkpoint.sequence < before
        )
        fits = all(docs.num_docs == records[sequence].total_docs for sequence, docs in checkpoint.segments.items())
        is_same = checkpoint.column == self._deps.rules_of(records[checkpoint.sequence]).compared_by
        return is_before and fits and is_same

    def _begin_with(self, stored: FoundCheckpoint, records: Records) -> None:
        rows, end = self._rows, records[stored.sequence]
        numbers = {sequence: rows.new_number() for sequence in sorted(stored.segments)}
        checkpoint = PartitionCheckpoint(
            end_offset=end.end_offset or 0,
            watermark=stored.mark,
            segments={numbers[sequence]: snapshot for sequence, snapshot in stored.segments.items()},
        )
        rows.begin(end, lambda rules, previous: PartitionUpserts.recovered(rules, checkpoint, previous))
        rows.numbers, self._unloaded, self._begun_with = numbers, sorted(numbers), stored.sequence
        for sequence in numbers:
            rows.files.keys[sequence] = records[sequence].key_text
            rows.num_docs[sequence] = records[sequence].total_docs
            rows.decided_by[sequence] = recovery.decided_by(records, sequence, rows.recovered_from())
        _LOG.info("index begins with a checkpoint %s segment=%s", self._deps.where, end.name)

    def _load_keys(self) -> bool:
        """Enter the keys of a checkpoint's docs that are alive; return False if a segment is not here."""
        records = self._rows.records
        while self._unloaded:
            record = records.get(self._unloaded[0])
            if record is not None and record.key_text != self._rows.files.keys[record.sequence]:
                self._give_up()  # its bits are of another file: what is stored is replayed
                self.waits_for = record.key_text
                return False
            if record is not None:
                with self._deps.borrow(record.key_text) as segment:
                    if segment is None:
                        self.waits_for = record.key_text
                        return False
                    self._load(record.sequence, segment)
            self._unloaded.pop(0)
        return True

    def _load(self, sequence: int, segment: Segment) -> None:
        index, number = self._rows.index, self._rows.numbers[sequence]
        assert index is not None
        compared = index.rules.comparisons[0]
        bounds = segment.bounds(compared.name) if compared.is_plain else None
        if bounds is not None and not index.may_load(bounds[1]):
            return
        valid = index.cut.segments[number]
        docs = np.concatenate([valid.live.docs(), valid.tombstones.docs()])
        for first in range(0, len(docs), REPLAY_DOCS):
            self._check_stopping()
            some = docs[first : first + REPLAY_DOCS]
            if index.may_expire:
                some = some[index.alive(_rows_at(segment, index.rules.expiring, some))]
            index.load(_rows_at(segment, index.rules.fields, some), number, some)

    def _replay(self, record: StreamSegmentRecord, segment: Segment) -> None:
        rows = self._rows
        rows.follow_rules(record.sequence)
        start = rows.num_docs.get(record.sequence, 0)
        if start and rows.files.is_unknown(record):
            raise UnavailableError(f"segment was rewritten meanwhile {self._deps.where} segment={record.name}")
        rows.files.keys[record.sequence] = record.key_text
        index = rows.index
        assert index is not None
        for first in range(start, segment.num_docs, REPLAY_DOCS):
            self._check_stopping()
            docs = np.arange(first, min(first + REPLAY_DOCS, segment.num_docs))
            rows.tell(record.sequence, _rows_at(segment, index.rules.fields, docs), first)
        rows.tell(record.sequence, pa.table({}), segment.num_docs)
        index.committed()
        while index.tidy():  # otherwise the keys of all segments would be in memory at once
            self._check_stopping()

    def _check_stopping(self) -> None:
        if self.is_stopping:
            raise UnavailableError(f"partition is stopped, its index is given up {self._deps.where}")


def _merged_before(records: Records, before: int | None) -> set[int]:
    """Return the segments whose rows are read with those of another segment, before the same sequence."""
    sequences = set()
    for name, into in taken(records.values()).items():
        if before is None or into.sequence < before:
            sequences.add(sequence_of(f"{name}@0"))
    return sequences


def _rows_at(segment: Segment, fields: tuple[FieldSpec, ...], docs: Longs) -> pa.Table:
    """Return columns of docs of a sealed segment. Raises CorruptionError if they cannot be read."""
    chosen = docs.astype(np.uint32)
    with lost_pages.watched("index of keys"):
        return pa.table({field.name: taken_column(column_under(segment, field), chosen) for field in fields})
