"""What happens to a replica of a partition, and what it wants done: the events and actions of `machine`. Plain values.

Whoever carries out an action answers it with the event that its docstring names, or with Failed; it may take its time.
An answer that comes late, or twice, or for a segment of the past, is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from merlot.cluster.consuming.transactions import End
from merlot.cluster.records import PositionRecord, StreamSegmentRecord
from merlot.ids import InstanceId


@dataclass(frozen=True, slots=True)
class RowEnd:
    """The first message at which a segment has all rows that its settings allow: `offset` is the one after it."""

    offset: int
    docs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a replica has of the segment it works on, and of what follows: all rows from the segment's start on."""

    offset: int
    """Where reading goes on: every message before it has been read, skipped or found missing."""
    docs: int = 0
    num_bytes: int = 0
    row_end: RowEnd | None = None
    is_too_much: bool = False
    """The server's memory is used up, and no segment takes more of it."""


@dataclass(frozen=True, slots=True)
class Read:
    """More messages were read, or there are none; what is held now, in total."""

    segment: str
    held: Held
    has_caught_up: bool = False
    """The replica has what the stream had when it began."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream does not have the next message any more, or not yet again. `resume`: where the table's policy goes on;
    None: nowhere, somebody has to decide."""

    segment: str
    resume: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The table's tree has changed, or was looked at again. `segment`: the one that was looked for. `record`: what it
    is, None if it is gone. `following`: the next in the partition's chain that there is, None if there is none."""

    segment: str
    epoch: int
    record: StreamSegmentRecord | None
    following: StreamSegmentRecord | None
    is_assigned: bool


@dataclass(frozen=True, slots=True)
class Peers:
    """Positions that replicas have published for the segment, its servers, and those of them that live."""

    segment: str
    positions: Mapping[InstanceId, PositionRecord]
    assigned: Set[InstanceId]
    live: Set[InstanceId]


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but time has passed. Comes once a second or so."""


@dataclass(frozen=True, slots=True)
class Built:
    """The segment's rows are in a file of this content; `docs` 0: there is none, and none is needed."""

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
class Switched:
    """The replica works on this segment now; what it holds of it."""

    record: StreamSegmentRecord
    held: Held


@dataclass(frozen=True, slots=True)
class Failed:
    """The action could not be carried out, or nobody knows whether it was: try again later."""

    action: Action


Event = Read | Lost | Seen | Peers | Tick | Built | Uploaded | Downloaded | Switched | Failed


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the position. Answer: Peers."""

    position: PositionRecord


@dataclass(frozen=True, slots=True)
class Propose:
    """Agree on the end. Answer: Seen, whoever's end holds."""

    end: End


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take the making of the file from `old`. Answer: Seen, whoever has it now."""

    segment: str
    old: str


@dataclass(frozen=True, slots=True)
class Build:
    """Make a file of the rows before `end_offset`. Answer: Built."""

    segment: str
    end_offset: int


@dataclass(frozen=True, slots=True)
class Upload:
    """Put the file into the deep store, under a name that nobody has used. Answer: Uploaded."""

    segment: str
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Make the uploaded file the segment. `url` None: it has no rows. Answer: Seen, with what has become of it."""

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
    """Work on `record` from now on, and forget the rows before its start: the committed file answers for them.

    `keep`: the file that was built here is that of the committed segment, by content: load it under its key, first.
    `carry`: keep the rows from the new segment's start on; else forget them all, and read on from its start.
    Answer: Switched.
    """

    record: StreamSegmentRecord
    keep: bool
    carry: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """The partition is not this server's any more: stop, and forget it. No answer."""


Action = Publish | Propose | TakeOver | Build | Upload | Commit | Download | Switch | Leave
