"""Origins of merged segments: what they were made of, recorded when the records of the inputs go. A repeated push of an
input is thus recognized: its rows are in the table already. Pure.

`SegmentRecord.made_of` holds 12 bytes for each segment that was pushed once, in base64: a hash of its name, and its
crc, or 0 if the table may lack some of its rows by now. A merge of merged segments takes over their entries. A part of
a family adds an entry for the family too, with the number of its parts in place of the crc. A partition of a day adds
an entry for the day, with a number for the partition functions. So the same rows are recognized when they are pushed
again in other parts, or under another partitioning. A merged segment that is merged further has an entry, too.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.batch_names import BatchSegment
from merlot.errors import CorruptionError
from merlot.ids import PART_MARK, SegmentPart, TableName, raw_name
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL
from merlot.values.stored_text import stored_bytes

MOST = 5_000
"""Maximum number of origins in one record: 60 KB of a node that must not exceed 1 MB. Origins beyond it are
forgotten."""
_ORIGIN = struct.Struct(">QI")
_CRC_BITS = 0xFFFF_FFFF
NOT_WHOLE = 0


def remember(
    table: TableName, inputs: Sequence[SegmentRecord], outputs: Sequence[SegmentRecord], *, are_all: bool = True
) -> list[SegmentRecord]:
    """Return the outputs, each with the origins of all inputs, since it may have rows of any. Return none if they are
    outputs of neither a merge nor a backfill: clients that replace segments themselves know better.

    `are_all`: no output was removed since."""
    is_backfill = any(BACKFILLED in output.custom_map for output in outputs)
    if not is_backfill and not any(MERGE_LEVEL in output.custom_map for output in outputs):
        return []
    crcs: dict[int, int] = {}
    for record in [*outputs, *inputs]:
        crcs |= _crcs_of(record)
    for record in inputs:
        if _is_of_task(record):
            crcs[_hash(made_name(record.name))] = record.crc & _CRC_BITS
        else:
            crcs[_hash(record.name)] = record.crc & _CRC_BITS
            part = SegmentPart.of(record.name)
            if part.count > 1:
                _add_fact(crcs, divided_name(part.family), part.count)
            batch = BatchSegment.of(raw_name(table), record)
            if batch is not None and batch.division.is_partitioned:
                _add_fact(crcs, batch.mark, batch.division.crc)
    is_whole = are_all and not is_backfill
    made_of = _packed({name: crc if is_whole else NOT_WHOLE for name, crc in crcs.items()})
    return [output.model_copy(update={"made_of": made_of}) for output in outputs]


def _add_fact(crcs: dict[int, int], name: str, value: int) -> None:
    """Add a value of some rows; add NOT_WHOLE if there are several values."""
    key = _hash(name)
    crcs[key] = value if crcs.get(key, value) == value else NOT_WHOLE


def without(gone: Iterable[SegmentRecord], staying: Iterable[SegmentRecord]) -> list[SegmentRecord]:
    """Return the segments of `staying` that share an origin with a removed segment, changed so that they hold only a
    part of that origin."""
    lost = {name for record in gone if record.made_of for name in _crcs_of(record)}
    if not lost:
        return []
    remembering = [(record, _crcs_of(record)) for record in staying if record.made_of]
    return [
        record.model_copy(
            update={"made_of": _packed({name: NOT_WHOLE if name in lost else crc for name, crc in crcs.items()})}
        )
        for record, crcs in remembering
        if not lost.isdisjoint(crcs)
    ]


def inside(record: SegmentRecord, names: Iterable[str]) -> list[str]:
    """Return the names of segments that the record was made of, among `names`."""
    made_of = _crcs_of(record) if record.made_of else {}
    return sorted(name for name in names if _hash(name) in made_of) if made_of else []


def in_part(record: SegmentRecord) -> SegmentRecord:
    """Return the record, marked as holding perhaps only a part of each origin."""
    if not record.made_of:
        return record
    return record.model_copy(update={"made_of": _packed(dict.fromkeys(_crcs_of(record), NOT_WHOLE))})


def made_name(name: str) -> str:
    """Return the name under which to record a segment whose rows were merged into others.

    The segment may come back from the trash, while somebody may push another segment under its name. No segment can
    have the returned name."""
    return f"{name}\n"


def divided_name(family: str) -> str:
    """Return the name under which a family's number of parts is recorded; no segment has such a name."""
    return f"{family}{PART_MARK}"


@dataclass(frozen=True, slots=True)
class Origin:
    """A segment whose rows other segments hold."""

    crc: int
    holders: frozenset[str]
    """Names of the segments that hold its rows."""

    def is_whole(self, crc: int) -> bool:
        """Return True if all rows of this version are in the holders."""
        return crc & _CRC_BITS == self.crc != NOT_WHOLE


def origins(records: Iterable[SegmentRecord], names: Iterable[str]) -> dict[str, Origin]:
    """Return the origins of the records among `names`, by name."""
    wanted = {_hash(name): name for name in names}
    by_name: dict[str, Origin] = {}
    merged = (record for record in records if record.made_of)
    for record in merged:
        for name, crc in _crcs_of(record).items():
            if name in wanted:
                origin = by_name.get(wanted[name], Origin(crc, frozenset()))
                is_same = origin.crc == crc
                by_name[wanted[name]] = Origin(crc if is_same else NOT_WHOLE, origin.holders | {record.name})
    return by_name


def _crcs_of(record: SegmentRecord) -> dict[int, int]:
    """Return the crcs by hash of the name; raise CorruptionError if the record's origins are damaged."""
    what = f"origins of segment {record.name}"
    packed = stored_bytes(record.made_of, what)
    if len(packed) % _ORIGIN.size:
        raise CorruptionError(f"{what} cannot be read, they are cut off bytes={len(packed)}")
    return dict(_ORIGIN.iter_unpack(packed))


def _packed(crcs: Mapping[int, int]) -> str:
    entries = [_ORIGIN.pack(name, crc) for name, crc in sorted(crcs.items())[:MOST]]
    return base64.b64encode(b"".join(entries)).decode()


def _is_of_task(record: SegmentRecord) -> bool:
    """Return True if a task made the segment: nobody pushes its name again."""
    return bool(record.made_of) or MERGE_LEVEL in record.custom_map or BACKFILLED in record.custom_map


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
