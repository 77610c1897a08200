"""The files by which docs of sealed segments are numbered, and which of their docs are known to stay replaced (see
`rewritten`).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.clock import Clock
from merlot.cluster.consuming.merged import MERGED, merged_sequences, sequence_of
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import UnavailableError
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.realtime.rewritten import DocsAtStart, Records, ReplacedFile, SettledDocs
from merlot.upsert.keys import KeyColumns, Keys, joined
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rewriting import new_numbers
from merlot.upsert.valid_docs import SegmentDocs, ValidDocsView

if TYPE_CHECKING:
    from merlot.server.realtime.views import UpsertView

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two checks whether files that replace others have arrived."""
Longs = NDArray[np.int64]


class FileGoneError(UnavailableError):
    """Raised when the file by which docs are numbered is gone: the index has to be built again."""


class NumberingFiles:
    """Numbering files of one partition. All but `settled` belongs to the consuming thread."""

    def __init__(
        self, where: str, borrow: Callable[[str], AbstractContextManager[Segment | None]], clock: Clock
    ) -> None:
        self._where = where
        self._borrow = borrow
        self._clock = clock
        self._next_look = 0.0
        self._refused: dict[str, tuple[SegmentDocs, ...]] = {}
        """Files that lacked valid docs, with these docs: rows that replace them may not have arrived yet."""
        self.keys: dict[int, str] = {}
        """Key (`name@crc`) of each segment's file, by sequence."""
        self.settled = SettledDocs()
        """Docs of sealed segments that stay replaced whatever comes. Any thread may read."""
        self.forget()

    def forget(self) -> None:
        """Forget everything: the index is given up."""
        self.keys, self.settled, self._refused = {}, SettledDocs(), {}
        self._former: dict[str, ReplacedFile] = {}
        self._taken: list[DocsAtStart] = []
        """Valid docs as segments began, at most five, the oldest first. Once docs have settled, the first is the newest
        whose rows are all known to be sealed."""
        self._seen: Records | None = None

    def take_cut(self, cut: ValidDocsView, numbers: Mapping[int, int], num_docs: Mapping[int, int]) -> None:
        """Note the valid docs as a segment begins."""
        self._taken = [*self._taken[:1], *self._taken[1:][-3:], DocsAtStart(cut, dict(numbers), dict(num_docs))]
        self._seen = None

    def is_numbered_by(self, record: StreamSegmentRecord) -> bool:
        """Return True if docs are numbered by the record's file, or by the rows that it was made of."""
        return self.keys.get(record.sequence, record.key_text) == record.key_text

    def is_unknown(self, record: StreamSegmentRecord) -> bool:
        """Return True if docs are numbered by consumed rows of which the record's file has only some."""
        return COMPACTED in record.custom_map and record.sequence not in self.keys

    def numbered(self, records: Records, sequences: Collection[int]) -> Mapping[int, str]:
        """Return the keys of the files by which docs of sealed segments are numbered, by sequence."""
        sealed = {
            sequence: records[sequence].key_text
            for sequence in sequences
            if sequence in records and not records[sequence].is_open
        }
        return sealed | {sequence: self.keys[sequence] for sequence in sequences if sequence in self.keys}

    def may_be_asked(self, sequence: int) -> bool:
        """Return True if the file by which a segment's docs are numbered is still here. Brokers that have not heard
        that the segment is gone ask for it until then."""
        key = self.keys.get(sequence)
        if key is None:
            return False
        with self._borrow(key) as segment:
            return segment is not None

    def shown(self, before: UpsertView | None) -> tuple[Mapping[int, str], Mapping[str, ReplacedFile]]:
        """Return, for a view, the files by sequence and the files that were replaced."""
        are_same = before is not None and before.keys == self.keys
        return (before.keys if before is not None and are_same else dict(self.keys)), dict(self._former)

    def is_due(self, records: Records) -> bool:
        """Return True if it is time to check the files again."""
        now = self._clock.monotonic()
        if records is self._seen and now < self._next_look:
            return False
        self._seen, self._next_look = records, now + LOOK_S
        return True

    def awaited(self, records: Records) -> set[int]:
        """Return the segments whose docs are in a merged file that is not here yet."""
        sequences: set[int] = set()
        for record in records.values():
            if MERGED in record.custom_map and not self.is_numbered_by(record):
                sequences |= merged_sequences(record).keys()
        return sequences

    def note(self, record: StreamSegmentRecord, num_docs: int) -> None:
        """Note that the index has `num_docs` docs of a sealed segment. If these are all, they are the docs of
        its file."""
        if num_docs == record.total_docs and COMPACTED not in record.custom_map:
            self.keys.setdefault(record.sequence, record.key_text)

    def renumbered(
        self, record: StreamSegmentRecord, index: PartitionUpserts, numbers: Mapping[int, int]
    ) -> Mapping[int, Longs] | None:
        """Return the new number of each doc of the files that a segment's new file was made of, by sequence; -1 if the
        new file lacks the doc. None if nothing changes or the file is not here yet. Raises FileGoneError."""
        if self.is_unknown(record):
            raise FileGoneError(f"docs are of rows whose file was never here segment={record.key_text}")
        if self.is_numbered_by(record):
            return None
        sources = self._sources(record)
        docs = [index.cut.segments.get(numbers[sequence], SegmentDocs()) for sequence in sources]
        refused = self._refused.get(record.key_text, ())
        if len(refused) == len(docs) and all(map(operator.is_, refused, docs)):
            return None
        new_docs = self._new_docs(record, list(sources.values()), docs, index.rules.keys)
        if new_docs is None:
            return None
        self._taken = [cut.without(sources) for cut in self._taken]
        for sequence in sources:
            self.keys.pop(sequence)
        self.keys[record.sequence] = record.key_text
        _LOG.info("rewritten segment is followed %s segment=%s of=%d", self._where, record.name, len(sources))
        return dict(zip(sources, new_docs, strict=True))

    def _sources(self, record: StreamSegmentRecord) -> Mapping[int, str]:
        """Return the files that a segment's file is made of, by sequence: its own former file, and those of segments
        that were merged into it since. Raises FileGoneError if docs are numbered by other files."""
        key, merged = self.keys[record.sequence], merged_sequences(record)
        if all(self.keys.get(sequence) == source for sequence, source in merged.items()) and merged:
            return merged
        is_behind = any(sequence in self.keys for sequence in merged if sequence != record.sequence)
        if is_behind or key in merged.values():
            raise FileGoneError(f"docs are numbered by other files than were merged segment={record.key_text}")
        return {record.sequence: key}

    def _new_docs(
        self, record: StreamSegmentRecord, olds: Sequence[str], docs: Sequence[SegmentDocs], keys: KeyColumns
    ) -> list[Longs] | None:
        """Return the new number of each doc of the old files, and note the old files in `_former`. None if the new file
        is not here, or lacks valid docs."""
        with ExitStack() as opened:
            new = opened.enter_context(self._borrow(record.key_text))
            if new is None:
                return None
            segments = [opened.enter_context(self._borrow(key)) for key in olds]
            gone = [key for key, segment in zip(olds, segments, strict=True) if segment is None]
            if gone:
                raise FileGoneError(f"file was replaced and is gone segment={gone[0]}")
            old = [_keys_of(keys, segment) for segment in segments if segment is not None]
            firsts = np.cumsum([0, *(len(old_keys.high) for old_keys in old)])
            valid = np.concatenate([first + old_docs.docs() for first, old_docs in zip(firsts, docs, strict=False)])
            numbers = new_numbers(joined(old), valid, _keys_of(keys, new))
            num_docs = new.num_docs
        if numbers is None:
            text = "rewritten segment lacks rows that nothing here has replaced, it is not answered until then"
            if record.key_text not in self._refused:
                _LOG.warning("%s %s segment=%s", text, self._where, record.name)
            self._refused[record.key_text] = tuple(docs)
            return None
        self._refused.pop(record.key_text, None)
        parts = np.split(numbers, firsts[1:-1])
        self._note_former(record.sequence, dict(zip(olds, parts, strict=True)), num_docs)
        return parts

    def _note_former(self, sequence: int, olds: Mapping[str, Longs], num_docs: int) -> None:
        """Note the files that a new file of `num_docs` docs replaces, and those that they had replaced."""
        previous, self._former = self._former, dict(self._former)
        for key, docs in olds.items():
            back = np.full(num_docs, -1, np.int64)
            back[docs[docs >= 0]] = np.flatnonzero(docs >= 0)
            before = {old: former for old, former in previous.items() if former.sequence == sequence_of(key)}
            self._former |= {old: former.behind(sequence, back) for old, former in before.items()}
            self._former[key] = ReplacedFile(sequence, len(docs), back)

    def settle(self, records: Records) -> None:
        """Publish what has settled by now in `settled`, and forget former files that are gone."""
        for key in list(self._former):
            with self._borrow(key) as segment:
                if segment is None:
                    del self._former[key]
        for position in reversed(range(len(self._taken))):
            settled = self._taken[position].settled(records, self.keys)
            if settled is not None:
                self.settled, self._taken = settled, self._taken[position:]
                return


def _keys_of(keys: KeyColumns, segment: Segment) -> Keys:
    """Return the keys of all docs of a sealed segment."""
    chosen = np.arange(segment.num_docs, dtype=np.uint32)
    return keys.of(pa.table({field.name: taken_column(column_under(segment, field), chosen) for field in keys.fields}))
