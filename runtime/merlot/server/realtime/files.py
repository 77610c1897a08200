"""By which files docs of a partition's sealed segments are numbered, and what may be told of them (see `rewritten`)."""

from __future__ import annotations

import logging
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
from merlot.server.realtime.rewritten import Former, Records, Settled, Taken
from merlot.upsert.keys import KeyColumns, Keys, joined
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rewriting import new_numbers
from merlot.upsert.valid_docs import Cut, SegmentDocs

if TYPE_CHECKING:
    from merlot.server.realtime.views import View

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Between two looks at files that are to take the place of others and are not here yet."""
Longs = NDArray[np.int64]


class FileGoneError(UnavailableError):
    """The file by which docs are numbered is here no more: the index has to be built anew."""


class Files:
    """One partition's; all but `settled` is the consuming thread's."""

    def __init__(
        self, where: str, borrow: Callable[[str], AbstractContextManager[Segment | None]], clock: Clock
    ) -> None:
        self._where = where
        self._borrow = borrow
        self._clock = clock
        self._next_look = 0.0
        self._refused: dict[str, tuple[SegmentDocs, ...]] = {}
        """Files that lacked valid docs, and these: rows that replace them may not be here yet."""
        self.keys: dict[int, str] = {}
        """By sequence, `name@crc`."""
        self.settled = Settled()
        """Which docs of sealed segments stay replaced, whatever comes; any thread."""
        self.forget()

    def forget(self) -> None:
        """The index is given up."""
        self.keys, self.settled, self._refused = {}, Settled(), {}
        self._former: dict[str, Former] = {}
        self._taken: list[Taken] = []
        """Of the first it is known that all in it is sealed, of the others not yet."""
        self._seen: Records | None = None

    def take_cut(self, cut: Cut, numbers: Mapping[int, int], num_docs: Mapping[int, int]) -> None:
        """Note what is valid as a segment begins."""
        self._taken = [*self._taken[:1], *self._taken[1:][-3:], Taken(cut, dict(numbers), dict(num_docs))]
        self._seen = None

    def is_numbered_by(self, record: StreamSegmentRecord) -> bool:
        """Whether docs are numbered by the record's file, or by rows that it was made of."""
        return self.keys.get(record.sequence, record.key_text) == record.key_text

    def is_unknown(self, record: StreamSegmentRecord) -> bool:
        """Whether docs are numbered by rows that were consumed, of which the record's file has only some."""
        return COMPACTED in record.custom_map and record.sequence not in self.keys

    def numbered(self, records: Records, sequences: Collection[int]) -> Mapping[int, str]:
        """The keys of the files that docs of sealed segments are numbered by, by sequence."""
        sealed = {one: records[one].key_text for one in sequences if one in records and not records[one].is_open}
        return sealed | {one: self.keys[one] for one in sequences if one in self.keys}

    def may_be_asked(self, sequence: int) -> bool:
        """True if the file that a segment's docs are numbered by is still here: brokers that have not heard that the
        segment is gone ask for it until then."""
        key = self.keys.get(sequence)
        if key is None:
            return False
        with self._borrow(key) as segment:
            return segment is not None

    def shown(self, before: View | None) -> tuple[Mapping[int, str], Mapping[str, Former]]:
        """For a view: files by sequence, and those that were replaced."""
        are_same = before is not None and before.keys == self.keys
        return (before.keys if before is not None and are_same else dict(self.keys)), dict(self._former)

    def is_due(self, records: Records) -> bool:
        """Whether it is time to look at them again."""
        now = self._clock.monotonic()
        if records is self._seen and now < self._next_look:
            return False
        self._seen, self._next_look = records, now + LOOK_S
        return True

    def awaited(self, records: Records) -> set[int]:
        """Segments whose docs are to be found in a file that others were merged into, and that is not here yet."""
        found: set[int] = set()
        for record in records.values():
            if MERGED in record.custom_map and not self.is_numbered_by(record):
                found |= merged_sequences(record).keys()
        return found

    def note(self, record: StreamSegmentRecord, told: int) -> None:
        """The index was told of so many docs of a sealed segment: if of all, they are those of its file."""
        if told == record.total_docs and COMPACTED not in record.custom_map:
            self.keys.setdefault(record.sequence, record.key_text)

    def renumbered(
        self, record: StreamSegmentRecord, index: PartitionUpserts, numbers: Mapping[int, int]
    ) -> Mapping[int, Longs] | None:
        """What becomes of docs now that a segment has another file, if that is here: by sequence of the segments whose
        rows it has, the new number of each of their docs, -1: none. None if nothing changes. Raises FileGoneError."""
        if self.is_unknown(record):
            raise FileGoneError(f"docs are of rows whose file was never here segment={record.key_text}")
        if self.is_numbered_by(record):
            return None
        sources = self._sources(record)
        docs = [index.cut.segments.get(numbers[one], SegmentDocs()) for one in sources]
        refused = self._refused.get(record.key_text, ())
        if len(refused) == len(docs) and all(one is other for one, other in zip(refused, docs, strict=True)):
            return None
        found = self._found(record, list(sources.values()), docs, index.rules.keys)
        if found is None:
            return None
        self._taken = [one.without(sources) for one in self._taken]
        for sequence in sources:
            self.keys.pop(sequence)
        self.keys[record.sequence] = record.key_text
        _LOG.info("rewritten segment is followed %s segment=%s of=%d", self._where, record.name, len(sources))
        return dict(zip(sources, found, strict=True))

    def _sources(self, record: StreamSegmentRecord) -> Mapping[int, str]:
        """The files that a segment's is made of, by sequence: its own former one, and those of segments that were
        merged into it since. Raises FileGoneError if docs are numbered by others."""
        key, merged = self.keys[record.sequence], merged_sequences(record)
        if all(self.keys.get(one) == other for one, other in merged.items()) and merged:
            return merged
        is_behind = any(one in self.keys for one in merged if one != record.sequence)
        if is_behind or key in merged.values():
            raise FileGoneError(f"docs are numbered by other files than were merged segment={record.key_text}")
        return {record.sequence: key}

    def _found(
        self, record: StreamSegmentRecord, olds: Sequence[str], docs: Sequence[SegmentDocs], keys: KeyColumns
    ) -> list[Longs] | None:
        """The docs of old files in the new one, which is `former` to them from now on; None if it is not here, or
        lacks valid docs."""
        with ExitStack() as opened:
            new = opened.enter_context(self._borrow(record.key_text))
            if new is None:
                return None
            segments = [opened.enter_context(self._borrow(key)) for key in olds]
            gone = [key for key, one in zip(olds, segments, strict=True) if one is None]
            if gone:
                raise FileGoneError(f"file was replaced and is gone segment={gone[0]}")
            old = [_keys_of(keys, one) for one in segments if one is not None]
            firsts = np.cumsum([0, *(len(one.high) for one in old)])
            valid = np.concatenate([first + one.docs() for first, one in zip(firsts, docs, strict=False)])
            found = new_numbers(joined(old), valid, _keys_of(keys, new))
            num_docs = new.num_docs
        if found is None:
            text = "rewritten segment lacks rows that nothing here has replaced, it is not answered until then"
            if record.key_text not in self._refused:
                _LOG.warning("%s %s segment=%s", text, self._where, record.name)
            self._refused[record.key_text] = tuple(docs)
            return None
        self._refused.pop(record.key_text, None)
        parts = np.split(found, firsts[1:-1])
        self._note_former(record.sequence, dict(zip(olds, parts, strict=True)), num_docs)
        return parts

    def _note_former(self, sequence: int, olds: Mapping[str, Longs], num_docs: int) -> None:
        """Files that a new one of so many docs has taken the place of, and those before them."""
        known, self._former = self._former, dict(self._former)
        for key, docs in olds.items():
            back = np.full(num_docs, -1, np.int64)
            back[docs[docs >= 0]] = np.flatnonzero(docs >= 0)
            before = {one: former for one, former in known.items() if former.sequence == sequence_of(key)}
            self._former |= {one: former.behind(sequence, back) for one, former in before.items()}
            self._former[key] = Former(sequence, len(docs), back)

    def settle(self, records: Records) -> None:
        """Tell what is known for good by now, and let go of files that are asked for no more."""
        for key in list(self._former):
            with self._borrow(key) as segment:
                if segment is None:
                    del self._former[key]
        for place in reversed(range(len(self._taken))):
            settled = self._taken[place].settled(records, self.keys)
            if settled is not None:
                self.settled, self._taken = settled, self._taken[place:]
                return


def _keys_of(keys: KeyColumns, segment: Segment) -> Keys:
    """Of all docs of a sealed segment."""
    chosen = np.arange(segment.num_docs, dtype=np.uint32)
    return keys.of(pa.table({one.name: taken_column(column_under(segment, one), chosen) for one in keys.fields}))
