"""What the partitions of a table share on a server, and what decides the rows of each segment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from merlot.clock import Clock
from merlot.cluster.records import StreamSegmentRecord
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.segment.build.request import BuildRequest
from merlot.server.files import SegmentFiles
from merlot.server.realtime.intake import Counts, Intake
from merlot.server.realtime.memory import MemoryRoom
from merlot.server.realtime.sink import RowSink
from merlot.spec.stream import FlushSpec
from merlot.store.deepstore import DeepStore
from merlot.streams.protocol import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a segment's rows are read and its file is made, by its pinned settings; and what is the table's as it is."""

    request: BuildRequest
    flush: FlushSpec
    access: str
    """What else the stream is read with, such as addresses: when it changes, it is opened anew."""
    latest: Callable[[], OffsetRange]
    open_intake: Callable[[int, Counts], Intake]
    after_gap: Callable[[int, OffsetRange], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Whatever a partition needs of its server and its table."""

    metastore: Metastore
    table: TableName
    instance: InstanceId
    files: SegmentFiles
    store: Callable[[], DeepStore]
    folder: Path
    """For files that are being made."""
    clock: Clock
    seals: Executor
    """Makes and uploads files."""
    writes: Executor
    """Writes to the metastore."""
    room: MemoryRoom
    settings_of: Callable[[StreamSegmentRecord], Settings]
    revision: Callable[[], int]
    """Grows when the table's own settings have changed."""
    sink_of: Callable[[int, Callable[[], Mapping[int, StreamSegmentRecord]]], RowSink]
    """Where the rows of a partition go; called with its number, and with what tells its segments by sequence."""
    is_loaded: Callable[[str], bool]
    """Whether a sealed segment, `name@crc`, is served."""
    is_to_hold: Callable[[str], bool]
    """Whether a segment, by name, is one that this server has to serve."""
    on_change: Callable[[], None]
    """What may be asked for, or errors, have changed; any thread."""
    on_made: Callable[[], None]
    """A sealed segment's file has been made here, or has to be fetched after all; any thread."""
    told_as_of: Callable[[], float]
    """The time, monotonic, whose state the server's report in the metastore has."""
    grace_s: float
