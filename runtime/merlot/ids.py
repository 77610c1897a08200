"""Names of tables, segments and instances, as types that do not mix."""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType, Self

from merlot.errors import InvalidInputError

TableName = NewType("TableName", str)
"""Table name with its type, `flights_OFFLINE`: Pinot's tableNameWithType. Keys all shared state."""

RawTableName = NewType("RawTableName", str)
"""Table name as the user declares it and as SQL names it: `flights`."""

SegmentName = NewType("SegmentName", str)
InstanceId = NewType("InstanceId", str)
"""`Broker_host_port`, `Server_host_port`, …: the form that Pinot's clients parse."""

SEGMENT_SUFFIX = ".mseg"
"""Suffix of the files that hold segments."""
OFFLINE_SUFFIX = "_OFFLINE"
REALTIME_SUFFIX = "_REALTIME"


class SegmentKey(NamedTuple):
    """Identity of a version of a segment, everywhere: `name@crc`."""

    name: SegmentName
    crc: int

    def __str__(self) -> str:
        return f"{self.name}@{self.crc}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `name@crc`. Raise InvalidInputError for other texts."""
        name, separator, crc = text.rpartition("@")
        if not separator or not name or not crc.isdecimal():
            raise InvalidInputError(f"segment key must be name@crc got={text!r}")
        return cls(SegmentName(name), int(crc))


PART_MARK: Final = "~"
"""Separator of a group's name and a part's number; no other name that a batch gives contains it."""
_PART: Final = re.compile(rf"(.+){PART_MARK}(\d+)of([1-9]\d*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A batch's segment as a part of the rows that one name stands for, such as a day: `flights_2013-01-31~2of3`.

    The parts of all rows form a family. Rows that fit into one segment have the family's name itself."""

    family: str
    number: int = 1
    count: int = 1

    @property
    def name(self) -> SegmentName:
        """Return the segment's name. Numbers are padded to equal length, so that names sort as numbers do."""
        if self.count == 1:
            return SegmentName(self.family)
        number = str(self.number).zfill(len(str(self.count)))
        return SegmentName(f"{self.family}{PART_MARK}{number}of{self.count}")

    @classmethod
    def of(cls, name: str) -> Self:
        """Read a segment's name; a name that no batch gives is a family by itself."""
        match = _PART.fullmatch(name) if PART_MARK in name else None
        part = cls(name) if match is None else cls(match[1], int(match[2]), int(match[3]))
        return part if part.name == name and 1 <= part.number <= part.count else cls(name)


def offline(raw: RawTableName) -> TableName:
    """Return the name of the OFFLINE table."""
    return TableName(raw + OFFLINE_SUFFIX)


def realtime(raw: RawTableName) -> TableName:
    """Return the name of the REALTIME table."""
    return TableName(raw + REALTIME_SUFFIX)


def raw_name(table: str) -> RawTableName:
    """Return `flights` for `flights`, `flights_OFFLINE` and `flights_REALTIME`."""
    return RawTableName(table.removesuffix(OFFLINE_SUFFIX).removesuffix(REALTIME_SUFFIX))
