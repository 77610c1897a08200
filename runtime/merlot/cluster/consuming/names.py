"""Names of stream segments, `{table}__{partition}__{sequence}__{yyyyMMddTHHmmZ}`, in Pinot's form."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple, Self

from merlot.ids import RawTableName, SegmentName

_SEPARATOR = "__"
_TIME = "%Y%m%dT%H%MZ"
_NUM_PARTS = 4


class StreamSegmentName(NamedTuple):
    """Parts of a name. Partition and sequence alone identify a segment of a table; the time is for people."""

    table: RawTableName
    partition: int
    sequence: int
    created_ms: int
    """Time when it began: whole minutes of UTC."""

    def __str__(self) -> str:
        created = dt.datetime.fromtimestamp(self.created_ms / 1000, dt.UTC)
        return _SEPARATOR.join((self.table, str(self.partition), str(self.sequence), created.strftime(_TIME)))

    @property
    def segment(self) -> SegmentName:
        """The name as a SegmentName."""
        return SegmentName(str(self))

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the parts, or None if it is no such name. The table's own name may hold the separator."""
        parts = name.rsplit(_SEPARATOR, _NUM_PARTS - 1)
        if len(parts) != _NUM_PARTS or not (parts[0] and parts[1].isdecimal() and parts[2].isdecimal()):
            return None
        try:
            created = dt.datetime.strptime(parts[3], _TIME).replace(tzinfo=dt.UTC)
        except ValueError:
            return None
        return cls(RawTableName(parts[0]), int(parts[1]), int(parts[2]), round(created.timestamp() * 1000))
