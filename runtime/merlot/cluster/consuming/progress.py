"""What servers tell of the partitions that they consume: for people, metrics and status, not for any decision.

One small node per table and server, written every second or so. It outlives its server: whoever reads it looks at its
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from merlot.cluster import paths
from merlot.cluster.record import Record
from merlot.errors import ConflictError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, Shelf


class StreamProblem(StrEnum):
    """Why a stream, or a partition of it, is not consumed: what somebody has to look at."""

    NONE = ""
    UNREACHABLE = "UNREACHABLE"
    """The stream, or its schema registry, does not answer."""
    REFUSED = "REFUSED"
    """The stream refuses the credentials, or what they may do."""
    NOT_ALLOWED = "NOT_ALLOWED"
    """The table names a host that servers may not connect to."""
    NO_SECRET = "NO_SECRET"
    """The server does not have the Secret that the table names, or it has no keys yet."""
    GONE = "GONE"
    """The topic, the folder or the partition does not exist."""
    OUT_OF_RANGE = "OUT_OF_RANGE"
    """What comes next was deleted, and the table's policy is to stop."""
    BAD_MESSAGE = "BAD_MESSAGE"
    """A message is no row, and the table's policy is to stop."""
    MERGER_FAILED = "MERGER_FAILED"
    """A merger of the table's own fails of a row: nothing behind it is consumed until it does not."""
    NOT_COMMITTED = "NOT_COMMITTED"
    """It is consumed, and its segment cannot be committed."""
    OTHER = "OTHER"


class UpsertProgress(BaseModel):
    """What one replica of a partition of an upsert table knows of its keys."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    is_built: bool = True
    """Whether the index of keys has all that is stored; before that nothing of the partition is answered."""
    keys: int = 0
    """Of which a later row replaces the one before."""
    valid: int = 0
    """Docs that are the newest row of their key, deleted ones included."""
    invalid: int = 0
    """Docs that were replaced."""
    expired: int = 0
    """Keys that have left memory, since the server began."""
    out_of_order: int = 0
    late: int = 0
    dropped: int = 0
    """Rows that were not stored: duplicates, out of order or late, as the settings say."""
    misplaced: int = 0
    """Rows, since the server began, that are another partition's by what the table declares. Rows of a key that are in
    several partitions do not replace each other."""
    memory_bytes: int = 0
    waits_for: str = ""
    """Sealed segment that has to come before the index can be built."""
    settings: str = ""
    """`upsert_id` of what rows that come now are decided by."""
    snapshot: str = ""
    """Where snapshots of valid docs are kept: LOCAL or DEEP_STORE; empty: nowhere."""
    snapshot_ms: int | None = None
    """When the checkpoint was taken that a restart would begin with; None: there is none."""
    snapshots_missing: int = 0
    """Sealed segments that are not in it."""
    snapshot_error: str = ""
    """Why the last one could not be kept."""
    replaced: dict[str, int] = {}
    """By `name@crc`, how many docs of sealed segments were replaced by others that are sealed; those that have most."""


class MemoryProgress(BaseModel):
    """What a server that keeps keys has of memory, all tables together."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    limit_bytes: int
    """What its process may take: the container's limit, or the machine's memory."""
    taken_bytes: int
    """What it takes that cannot be dropped and read again."""
    keys_bytes: int
    """Of these, the indexes of keys."""
    needed_bytes: int
    """`taken_bytes`, and room for the keys to grow."""


class PartitionProgress(BaseModel):
    """How far one replica of a partition is. None: not known."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    partition: int
    segment: str = ""
    offset: int | None = None
    latest: int | None = None
    """First offset that the stream does not have yet."""
    lag: int | None = None
    """Messages between the two; of files, bytes."""
    lag_ms: int = 0
    """Age of the last message that was read, while there are others behind it."""
    rows: int = 0
    """Of the segment that grows."""
    total_rows: int = 0
    """Since the server began."""
    rows_per_s: float = 0.0
    memory_bytes: int = 0
    num_bad: int = 0
    samples: tuple[str, ...] = ()
    upsert: UpsertProgress | None = None
    """Of an upsert table."""
    state: str = ""
    """CONSUMING, CATCHING_UP, PAUSED or ERROR."""
    error: str = ""
    problem: str = ""
    """Of `StreamProblem`, or what a later version says."""


class ProgressRecord(Record):
    """All partitions of a table that one server consumes."""

    instance: InstanceId
    at_ms: int
    partitions: tuple[PartitionProgress, ...] = ()
    memory: MemoryProgress | None = None
    """Of a server of an upsert table."""


def write_progress(metastore: Metastore, table: TableName, record: ProgressRecord) -> None:
    """In place of what the instance wrote before; of two that write at once, either one's stays."""
    path = paths.stream_progress(table, record.instance)
    data = record.to_bytes()
    node = metastore.get(path)
    with suppress(ConflictError, NotFoundError):
        if node is None:
            metastore.create(path, data)
        else:
            metastore.put(path, data, node.version)


def read_progress(metastore: Metastore, table: TableName) -> Mapping[InstanceId, ProgressRecord]:
    """What servers told last, dead ones included."""
    folder = paths.all_progress(table)
    nodes = [paths.child(folder, name) for name in metastore.children(folder)]
    found = zip(nodes, metastore.get_many(nodes), strict=True)
    records = [ProgressRecord.from_bytes(node.data, path) for path, node in found if node is not None]
    return {record.instance: record for record in records}


def rows_of(told: Iterable[ProgressRecord], segment: str) -> int:
    """Of a consuming segment, by the replica that has most."""
    return max((one.rows for record in told for one in record.partitions if one.segment == segment), default=0)


def forget_progress(metastore: Shelf, table: TableName) -> None:
    """The table is gone."""
    folder = paths.all_progress(table)
    for name in metastore.children(folder):
        with suppress(NotFoundError):
            metastore.delete(paths.child(folder, name))
