"""What merged segments are made of, kept with them when the inputs' records go: who pushes one of those again has its
rows in the table already. Pure.

`SegmentRecord.made_of` holds 12 bytes for each segment that was pushed once, in base64: a hash of its name, and its
crc, or 0 if rows of it were replaced since by a backfill. A merge of merged segments takes over what they hold.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from merlot.cluster.records import SegmentRecord
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL

MOST = 5_000
"""Origins of one record: 60 KB of a node that shall not pass 1 MB. What is more is forgotten."""
_ORIGIN = struct.Struct(">QI")
_CRC_BITS = 0xFFFF_FFFF
_REPLACED = 0


def remember(inputs: Sequence[SegmentRecord], outputs: Sequence[SegmentRecord]) -> list[SegmentRecord]:
    """The outputs, each with those of the inputs in mind that it may have rows of. None, if they are neither of a merge
    nor of a backfill: who replaces segments by himself knows better."""
    is_backfill = any(BACKFILLED in one.custom_map for one in outputs)
    if not is_backfill and not any(MERGE_LEVEL in one.custom_map for one in outputs):
        return []
    return [_remembering(output, [one for one in inputs if _overlap(one, output)], is_backfill) for output in outputs]


def _remembering(output: SegmentRecord, inputs: Sequence[SegmentRecord], is_backfill: bool) -> SegmentRecord:
    found = _of(output)
    for record in inputs:
        found |= _of(record)
        if not _is_made(record):
            found[_hash(record.name)] = record.crc & _CRC_BITS
    packed = [_ORIGIN.pack(name, _REPLACED if is_backfill else crc) for name, crc in sorted(found.items())]
    return output.model_copy(update={"made_of": base64.b64encode(b"".join(packed[:MOST])).decode()})


def _overlap(one: SegmentRecord, other: SegmentRecord) -> bool:
    """Whether they have an instant in common, or it is not known."""
    first, last = (one.start_time_ms, other.start_time_ms), (one.end_time_ms, other.end_time_ms)
    if None in first or None in last:
        return True
    return max(cast(tuple[int, int], first)) <= min(cast(tuple[int, int], last))


@dataclass(frozen=True, slots=True)
class Origin:
    """A segment that is part of others."""

    crc: int
    holders: frozenset[str]
    """Names of the others."""

    def is_whole(self, crc: int) -> bool:
        """Whether all rows of this version are in the holders."""
        return crc & _CRC_BITS == self.crc != _REPLACED


def origins(records: Iterable[SegmentRecord], names: Iterable[str]) -> dict[str, Origin]:
    """Of the names, those that some of the records were made of."""
    wanted = {_hash(name): name for name in names}
    found: dict[str, Origin] = {}
    for record in (one for one in records if one.made_of):
        for name, crc in _of(record).items():
            if name in wanted:
                known = found.get(wanted[name], Origin(crc, frozenset()))
                is_same = known.crc == crc
                found[wanted[name]] = Origin(crc if is_same else _REPLACED, known.holders | {record.name})
    return found


def _of(record: SegmentRecord) -> dict[int, int]:
    """Crcs by hash of the name."""
    return dict(_ORIGIN.iter_unpack(base64.b64decode(record.made_of)))


def _is_made(record: SegmentRecord) -> bool:
    """Whether it is no one's push: its name is of no use again."""
    return bool(record.made_of) or MERGE_LEVEL in record.custom_map or BACKFILLED in record.custom_map


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
