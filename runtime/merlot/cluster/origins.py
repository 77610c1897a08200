"""What merged segments are made of, kept with them when the inputs' records go: who pushes one of those again has its
rows in the table already. Pure.

`SegmentRecord.made_of` holds 12 bytes for each segment that was pushed once, in base64: a hash of its name, and its
crc, or 0 if rows of it were replaced since by a backfill. A merge of merged segments takes over what they hold.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL

MOST = 5_000
"""Origins of one record: 60 KB of a node that shall not pass 1 MB. An entry's outputs share theirs; what is more is
forgotten."""
_ORIGIN = struct.Struct(">QI")
_CRC_BITS = 0xFFFF_FFFF
_REPLACED = 0


def remember(inputs: Sequence[SegmentRecord], outputs: Sequence[SegmentRecord]) -> list[SegmentRecord]:
    """Those outputs that keep in mind what the inputs were, whose records go. None, if they are neither of a merge nor
    of a backfill: who replaces segments by himself knows better."""
    is_backfill = any(BACKFILLED in one.custom_map for one in outputs)
    if not is_backfill and not any(MERGE_LEVEL in one.custom_map for one in outputs):
        return []
    found: dict[int, int] = {}
    for record in [*outputs, *inputs]:
        found |= _of(record)
    for record in inputs:
        if not _is_made(record):
            found[_hash(record.name)] = record.crc & _CRC_BITS
    packed = [_ORIGIN.pack(name, _REPLACED if is_backfill else crc) for name, crc in sorted(found.items())]
    # Retention takes the oldest first, which so has the least to remember.
    latest = sorted(outputs, key=lambda one: (-(one.end_time_ms or 0), one.name))
    parts = [packed[at : at + MOST] for at in range(0, len(packed), MOST)]
    return [
        one.model_copy(update={"made_of": base64.b64encode(b"".join(part)).decode()})
        for one, part in zip(latest, parts, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class Origin:
    """A segment that is part of another."""

    crc: int
    holder: str
    """The other one's name."""

    def is_whole(self, crc: int) -> bool:
        """Whether all rows of this version are in the table."""
        return crc & _CRC_BITS == self.crc != _REPLACED


def origins(records: Iterable[SegmentRecord], names: Iterable[str]) -> dict[str, Origin]:
    """Of the names, those that one of the records was made of."""
    wanted = {_hash(name): name for name in names}
    holders = (record for record in records if record.made_of)
    return {
        wanted[name]: Origin(crc, record.name)
        for record in holders
        for name, crc in _of(record).items()
        if name in wanted
    }


def _of(record: SegmentRecord) -> Mapping[int, int]:
    """Crcs by hash of the name."""
    return dict(_ORIGIN.iter_unpack(base64.b64decode(record.made_of)))


def _is_made(record: SegmentRecord) -> bool:
    """Whether it is no one's push: its name is of no use again."""
    return bool(record.made_of) or MERGE_LEVEL in record.custom_map or BACKFILLED in record.custom_map


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
