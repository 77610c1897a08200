"""Names of things, as types that do not mix."""

from typing import NamedTuple, NewType, Self

from merlot.errors import InvalidInputError

TableName = NewType("TableName", str)
"""Table name with its type, `flights_OFFLINE`: Pinot's tableNameWithType. Keys all shared state."""

RawTableName = NewType("RawTableName", str)
"""Table name as the user declares it and as SQL names it: `flights`."""

SegmentName = NewType("SegmentName", str)
InstanceId = NewType("InstanceId", str)
"""`Broker_host_port`, `Server_host_port`, …: the form that Pinot's clients parse."""

SEGMENT_SUFFIX = ".mseg"
"""Of the files that hold segments."""
OFFLINE_SUFFIX = "_OFFLINE"
REALTIME_SUFFIX = "_REALTIME"


class SegmentKey(NamedTuple):
    """Identity of one version of a segment, everywhere: `name@crc`."""

    name: SegmentName
    crc: int

    def __str__(self) -> str:
        return f"{self.name}@{self.crc}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `name@crc`; raises InvalidInputError."""
        name, separator, crc = text.rpartition("@")
        if not separator or not name or not crc.isdecimal():
            raise InvalidInputError(f"segment key must be name@crc got={text!r}")
        return cls(SegmentName(name), int(crc))


def offline(raw: RawTableName) -> TableName:
    """Name of the OFFLINE half of a table."""
    return TableName(raw + OFFLINE_SUFFIX)


def realtime(raw: RawTableName) -> TableName:
    """Name of the REALTIME half of a table."""
    return TableName(raw + REALTIME_SUFFIX)


def raw_name(table: str) -> RawTableName:
    """`flights` for `flights`, `flights_OFFLINE` and `flights_REALTIME`."""
    return RawTableName(table.removesuffix(OFFLINE_SUFFIX).removesuffix(REALTIME_SUFFIX))
