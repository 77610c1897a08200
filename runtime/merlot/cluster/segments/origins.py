"""What merged segments are made of, kept with them when the inputs' records go: who pushes one of those again has its
rows in the table already. Pure.

`SegmentRecord.made_of` holds 12 bytes for each segment that was pushed once, in base64: a hash of its name, and its
crc, or 0 if some of its rows may be in the table no more. A merge of merged segments takes over what they hold. For a
part of a family there is an entry for the family too, with the number of its parts in the place of the crc, and for a
partition of a day one for the day, with a number for the partition functions: so the same rows are known when they are
pushed again in other parts, or under another partitioning. A merged segment that is merged further has an entry, too.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.batch_names import BatchSegment
from merlot.ids import PART_MARK, SegmentPart, TableName, raw_name
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL

MOST = 5_000
"""Origins of one record: 60 KB of a node that shall not pass 1 MB. What is more is forgotten."""
_ORIGIN = struct.Struct(">QI")
_CRC_BITS = 0xFFFF_FFFF
NOT_WHOLE = 0


def remember(
    table: TableName, inputs: Sequence[SegmentRecord], outputs: Sequence[SegmentRecord], *, are_all: bool = True
) -> list[SegmentRecord]:
    """The outputs, each with all of the inputs in mind, since it may have rows of any. None, if they are neither of a
    merge nor of a backfill: who replaces segments by himself knows better. `are_all`: no output was removed since."""
    is_backfill = any(BACKFILLED in one.custom_map for one in outputs)
    if not is_backfill and not any(MERGE_LEVEL in one.custom_map for one in outputs):
        return []
    found: dict[int, int] = {}
    for record in [*outputs, *inputs]:
        found |= _of(record)
    for record in inputs:
        if _is_made(record):
            found[_hash(made_name(record.name))] = record.crc & _CRC_BITS
        else:
            found[_hash(record.name)] = record.crc & _CRC_BITS
            part = SegmentPart.of(record.name)
            if part.count > 1:
                _note(found, divided_name(part.family), part.count)
            batch = BatchSegment.of(raw_name(table), record)
            if batch is not None and batch.division.is_partitioned:
                _note(found, batch.mark, batch.division.crc)
    is_whole = are_all and not is_backfill
    made_of = _packed({name: crc if is_whole else NOT_WHOLE for name, crc in found.items()})
    return [one.model_copy(update={"made_of": made_of}) for one in outputs]


def _note(found: dict[int, int], name: str, value: int) -> None:
    """Keep a value of rows, or that there are several."""
    key = _hash(name)
    found[key] = value if found.get(key, value) == value else NOT_WHOLE


def without(gone: Iterable[SegmentRecord], staying: Iterable[SegmentRecord]) -> list[SegmentRecord]:
    """Those that stay and share an origin with what is removed from the table: of that they hold a part at most."""
    lost = {name for record in gone if record.made_of for name in _of(record)}
    if not lost:
        return []
    found = [(record, _of(record)) for record in staying if record.made_of]
    return [
        record.model_copy(
            update={"made_of": _packed({name: NOT_WHOLE if name in lost else crc for name, crc in crcs.items()})}
        )
        for record, crcs in found
        if not lost.isdisjoint(crcs)
    ]


def inside(record: SegmentRecord, names: Iterable[str]) -> list[str]:
    """Return which of the names are those of segments that the record was made of."""
    made_of = _of(record) if record.made_of else {}
    return sorted(name for name in names if _hash(name) in made_of) if made_of else []


def in_part(record: SegmentRecord) -> SegmentRecord:
    """Return the record as one that may hold a part of its origins only."""
    if not record.made_of:
        return record
    return record.model_copy(update={"made_of": _packed(dict.fromkeys(_of(record), NOT_WHOLE))})


def made_name(name: str) -> str:
    """Return the name under which a merged segment is recorded whose rows were merged into others: it may come back
    from the trash, while somebody may push another segment under its name. No segment has the name returned."""
    return f"{name}\n"


def divided_name(family: str) -> str:
    """Return the name under which a family's number of parts is recorded; no segment has such a name."""
    return f"{family}{PART_MARK}"


@dataclass(frozen=True, slots=True)
class Origin:
    """A segment that is part of others."""

    crc: int
    holders: frozenset[str]
    """Names of the others."""

    def is_whole(self, crc: int) -> bool:
        """Whether all rows of this version are in the holders."""
        return crc & _CRC_BITS == self.crc != NOT_WHOLE


def origins(records: Iterable[SegmentRecord], names: Iterable[str]) -> dict[str, Origin]:
    """Of the names, those that some of the records were made of."""
    wanted = {_hash(name): name for name in names}
    found: dict[str, Origin] = {}
    for record in (one for one in records if one.made_of):
        for name, crc in _of(record).items():
            if name in wanted:
                known = found.get(wanted[name], Origin(crc, frozenset()))
                is_same = known.crc == crc
                found[wanted[name]] = Origin(crc if is_same else NOT_WHOLE, known.holders | {record.name})
    return found


def _of(record: SegmentRecord) -> dict[int, int]:
    """Crcs by hash of the name."""
    return dict(_ORIGIN.iter_unpack(base64.b64decode(record.made_of)))


def _packed(crcs: Mapping[int, int]) -> str:
    entries = [_ORIGIN.pack(name, crc) for name, crc in sorted(crcs.items())[:MOST]]
    return base64.b64encode(b"".join(entries)).decode()


def _is_made(record: SegmentRecord) -> bool:
    """Whether it is no one's push: its name is of no use again."""
    return bool(record.made_of) or MERGE_LEVEL in record.custom_map or BACKFILLED in record.custom_map


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
