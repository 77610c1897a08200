"""By which files docs of a partition's sealed segments are numbered, and what may be told of them (see `rewritten`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.clock import Clock
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import UnavailableError
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.realtime.rewritten import Former, Records, Settled, Taken
from merlot.upsert.keys import KeyColumns, Keys
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
        self._refused: dict[str, SegmentDocs] = {}
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

    def numbered(self, records: Records, sequences: Collection[int]) -> Records:
        """The records of some segments, each with the file that its docs are numbered by."""
        found = {}
        for sequence in sequences:
            record, key = records.get(sequence), self.keys.get(sequence)
            if record is not None:
                crc = record.crc if key is None else int(key.rpartition("@")[2])
                found[sequence] = record if crc == record.crc else record.model_copy(update={"crc": crc})
        return found

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

    def note(self, record: StreamSegmentRecord, told: int) -> None:
        """The index was told of so many docs of a sealed segment: if of all, they are those of its file."""
        if told == record.total_docs and COMPACTED not in record.custom_map:
            self.keys.setdefault(record.sequence, record.key_text)

    def renumbered(self, record: StreamSegmentRecord, told: int, index: PartitionUpserts, number: int) -> Longs | None:
        """The new number of each doc of a segment that has another file now, -1: none, if that file is here; None if
        nothing changes. Raises FileGoneError."""
        key = self.keys.get(record.sequence)
        if key is None and COMPACTED in record.custom_map:
            raise FileGoneError(f"docs are of rows whose file was never here segment={record.key_text}")
        docs = index.cut.segments.get(number, SegmentDocs())
        if key is None or key == record.key_text or self._refused.get(record.key_text) is docs:
            return None
        with self._borrow(record.key_text) as new, self._borrow(key) as old:
            if new is None:
                return None
            if old is None:
                raise FileGoneError(f"file was replaced and is gone segment={key}")
            keys = index.rules.keys
            found = new_numbers(_keys_of(keys, old), docs.docs(), _keys_of(keys, new))
            sizes = (new.num_docs, old.num_docs)
        if found is None:
            text = "rewritten segment lacks rows that nothing here has replaced, it is not answered until then"
            if record.key_text not in self._refused:
                _LOG.warning("%s %s segment=%s", text, self._where, record.name)
            self._refused[record.key_text] = docs
            return None
        self._refused.pop(record.key_text, None)
        back = np.full(sizes[0], -1, np.int64)
        back[found[found >= 0]] = np.flatnonzero(found >= 0)
        self._former[key] = Former(sizes[1], back)
        self.keys[record.sequence] = record.key_text
        _LOG.info("rewritten segment is followed %s segment=%s docs=%d of %d", self._where, record.name, *sizes)
        return found

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
