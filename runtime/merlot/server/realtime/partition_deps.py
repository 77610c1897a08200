"""Dependencies that the partitions of a table share on a server, and the settings that decide a segment's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from merlot.clock import Clock
from merlot.cluster.records import StreamSegmentRecord
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.segment.build.request import BuildRequest
from merlot.server.files import LocalSegmentFiles
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.poller import PollCounts, Poller
from merlot.server.realtime.row_listener import RowListener
from merlot.server.tuning import StreamTuning
from merlot.spec.stream import FlushSpec
from merlot.store.deepstore import DeepStore
from merlot.streams.protocol import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSettings:
    """Settings of a segment: how its rows are read and its file is made, as pinned, and what follows the table's
    current settings."""

    request: BuildRequest
    flush: FlushSpec
    access: str
    """Properties that the stream is read with, and the name of its Secret, as text. When they change, the stream is
    opened again."""
    latest: Callable[[], OffsetRange]
    open_poller: Callable[[int, PollCounts], Poller]
    after_gap: Callable[[int, OffsetRange], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeps:
    """Dependencies of a partition on its server and its table."""

    metastore: Metastore
    table: TableName
    instance: InstanceId
    files: LocalSegmentFiles
    store: Callable[[], DeepStore]
    folder: Path
    """Folder for files that are being made."""
    clock: Clock
    seals: Executor
    """Executor that makes and uploads files."""
    writes: Executor
    """Executor that writes to the metastore."""
    memory: MemoryBudget
    settings_of: Callable[[StreamSegmentRecord], SegmentSettings]
    revision: Callable[[], int]
    """Number that grows when the table's own settings change."""
    listener_of: Callable[[int, Callable[[], Mapping[int, StreamSegmentRecord]]], RowListener]
    """Return the listener of a partition's rows, given the partition's number and a function that returns its segments
    by sequence."""
    is_loaded: Callable[[str], bool]
    """Return True if a sealed segment, `name@crc`, is loaded."""
    is_to_hold: Callable[[str], bool]
    """Return True if this server is assigned the segment of this name."""
    is_elsewhere: Callable[[str], bool]
    """Return True if a committed segment, `name@crc`, is not assigned to this server, and either another server reports
    it or its record is gone."""
    on_change: Callable[[], None]
    """Called when the segments that can be queried, or the errors, have changed; from any thread."""
    on_made: Callable[[], None]
    """Called when a sealed segment's file was made here, or has to be fetched after all; from any thread."""
    reported_as_of: Callable[[], float]
    """Return the monotonic time whose state the server's report in the metastore shows."""
    grace_s: float
    tuning: StreamTuning = field(default_factory=StreamTuning)
