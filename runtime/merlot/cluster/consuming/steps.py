"""Events and actions of `machine`: what happens to a replica of a partition, and what it requests. Plain values.

The executor of an action answers it with the event that its docstring names, or with Failed; it may take its time. An
answer that comes late, or twice, or for an earlier segment, is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from merlot.cluster.consuming.transactions import End
from merlot.cluster.records import PositionRecord, StreamSegmentRecord
from merlot.ids import InstanceId


@dataclass(frozen=True, slots=True)
class RowEnd:
    """First message with which a segment has all rows that its settings allow. `offset` is that of the message after
    it."""

    offset: int
    docs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """Rows that a replica holds of its segment, and behind it: all rows from the segment's start on."""

    offset: int
    """Offset at which reading continues: every message before it has been read, skipped or found missing."""
    docs: int = 0
    num_bytes: int = 0
    row_end: RowEnd | None = None
    exceeds_memory: bool = False
    """True if the server's memory is used up, and no segment uses more of it than this one."""


@dataclass(frozen=True, slots=True)
class Read:
    """More messages were read, or there are none. `held` is the total now."""

    segment: str
    held: HeldRows
    has_caught_up: bool = False
    """True if the replica has all rows that were in the stream when the replica began."""


@dataclass(frozen=True, slots=True)
class MessageLost:
    """The stream does not have the next message, perhaps only for now. `resume`: offset at which the table's policy
    continues; None if it does not, and somebody has to decide."""

    segment: str
    resume: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLookedUp:
    """The table's tree has changed, or was read again.

    `segment`: name of the segment that was looked up. `record`: its record, None if it is gone. `following`: the next
    segment in the partition's chain, None if there is none."""

    segment: str
    epoch: int
    record: StreamSegmentRecord | None
    following: StreamSegmentRecord | None
    is_assigned: bool


@dataclass(frozen=True, slots=True)
class Peers:
    """Positions that replicas have published for the segment, its servers, and the live ones among them."""

    segment: str
    positions: Mapping[InstanceId, PositionRecord]
    assigned: Set[InstanceId]
    live: Set[InstanceId]


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but time has passed. This comes once a second or so."""


@dataclass(frozen=True, slots=True)
class FileBuilt:
    """The segment's rows are in a file with this content. If `docs` is 0, there is no file, and none is needed."""

    segment: str
    crc: int
    docs: int


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The file is in the deep store, under a name of its own."""

    segment: str
    url: str


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The committed file is here, and loaded."""

    segment: str


@dataclass(frozen=True, slots=True)
class SegmentSwitched:
    """The replica works on this segment now, and holds these rows of it."""

    record: StreamSegmentRecord
    held: HeldRows


@dataclass(frozen=True, slots=True)
class Failed:
    """The action could not be carried out, or it is unknown whether it was: try again later."""

    action: Action


Event = (
    Read | MessageLost | SegmentLookedUp | Peers | Tick | FileBuilt | Uploaded | Downloaded | SegmentSwitched | Failed
)


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the position. Answer: Peers."""

    position: PositionRecord


@dataclass(frozen=True, slots=True)
class Propose:
    """Propose the end. Answer: SegmentLookedUp, with the end that holds."""

    end: End


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take over making the file from the sealer `old`. Answer: SegmentLookedUp, with the present sealer."""

    segment: str
    old: str


@dataclass(frozen=True, slots=True)
class Build:
    """Make a file of the rows before `end_offset`. Answer: FileBuilt."""

    segment: str
    end_offset: int


@dataclass(frozen=True, slots=True)
class Upload:
    """Put the file into the deep store, under an unused name. Answer: Uploaded."""

    segment: str
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Make the uploaded file the segment's. `url` is None if the segment has no rows. Answer: SegmentLookedUp, with the
    result."""

    segment: str
    start_offset: int
    end_offset: int
    crc: int
    url: str | None


@dataclass(frozen=True, slots=True)
class Download:
    """Fetch and load the committed file. Answer: Downloaded."""

    record: StreamSegmentRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Work on `record` from now on, and drop the rows before its start: the committed file answers for them.

    `keep`: the file that was built here has the content of the committed segment: load it under its key first. `carry`:
    keep the rows from the new segment's start on; else drop all rows, and read on from its start. Answer:
    SegmentSwitched."""

    record: StreamSegmentRecord
    keep: bool
    carry: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """The partition is no longer this server's: stop, and drop it. No answer."""


Action = Publish | Propose | TakeOver | Build | Upload | Commit | Download | Switch | Leave
