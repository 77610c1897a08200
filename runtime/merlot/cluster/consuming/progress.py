"""Progress that servers report for the partitions that they consume: for people, metrics and status, not for decisions.

A table has one small node per server, written every second or so. It outlives its server, so readers check its time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from merlot.cluster import paths
from merlot.cluster.record import Record
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, NodeDeleter

_LOG = logging.getLogger(__name__)


class StreamProblem(StrEnum):
    """Reason why a stream, or a partition of it, is not consumed or not committed; somebody has to look at it."""

    NONE = ""
    UNREACHABLE = "UNREACHABLE"
    """The stream, or its schema registry, does not answer."""
    REFUSED = "REFUSED"
    """The stream refuses the credentials, or does not authorize them."""
    NOT_ALLOWED = "NOT_ALLOWED"
    """The table names a host that servers may not connect to."""
    NO_SECRET = "NO_SECRET"
    """The server does not have the Secret that the table names, or the Secret has no keys yet."""
    GONE = "GONE"
    """The topic, the folder or the partition does not exist."""
    OUT_OF_RANGE = "OUT_OF_RANGE"
    """The next messages were deleted, and the table's policy is to stop."""
    BAD_MESSAGE = "BAD_MESSAGE"
    """A message is not a row, and the table's policy is to stop."""
    MERGER_FAILED = "MERGER_FAILED"
    """The table's own merger fails on a row: nothing behind it is consumed until the merger succeeds."""
    NOT_COMMITTED = "NOT_COMMITTED"
    """The partition is consumed, but its segment cannot be committed."""
    OTHER = "OTHER"


class UpsertProgress(BaseModel):
    """State of the key index in one replica of a partition of an upsert table."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    is_built: bool = True
    """True if the key index has all stored rows; before that, queries of the partition are not answered."""
    keys: int = 0
    """Number of keys in the index: a later row of such a key replaces the one before."""
    valid: int = 0
    """Number of docs that are the newest row of their key, tombstones included."""
    invalid: int = 0
    """Number of docs that were replaced."""
    expired: int = 0
    """Number of keys that have left memory since the server began."""
    out_of_order: int = 0
    """Number of rows older than the row of their key that was already there."""
    late: int = 0
    """Number of rows that were already too old for the time to live."""
    dropped: int = 0
    """Number of rows that were not stored: duplicates, out of order or late, by the settings."""
    misplaced: int = 0
    """Number of rows since the server began that belong to another partition by the table's declaration. Rows of a key
    in several partitions do not replace each other."""
    memory_bytes: int = 0
    waits_for: str = ""
    """Sealed segment that must be loaded before the index can be built."""
    settings: str = ""
    """`upsert_id` of the settings that decide rows that arrive now."""
    snapshot: str = ""
    """Store of snapshots of valid docs: LOCAL or DEEP_STORE; empty if none are taken."""
    snapshot_ms: int | None = None
    """Time of the checkpoint that a restart would begin with; None if there is none."""
    snapshots_missing: int = 0
    """Number of sealed segments that the checkpoint lacks."""
    snapshot_error: str = ""
    """Reason why the last checkpoint could not be stored."""
    replaced: dict[str, int] = {}
    """Number of docs that docs of sealed segments have replaced, by sealed segment (`name@crc`); only the segments with
    the most such docs."""
    unsettled: tuple[str, ...] = ()
    """Sealed segments (`name@crc`) whose valid docs this replica cannot tell yet, since rows that it has not sealed
    decide them; only the first ones."""


class MemoryProgress(BaseModel):
    """Memory of a server of upsert tables, all tables together."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    limit_bytes: int
    """Memory that its process may use: the container's limit, or the machine's memory."""
    taken_bytes: int
    """Memory in use that cannot be dropped and read again."""
    keys_bytes: int
    """Part of `taken_bytes` that the key indexes use."""
    needed_bytes: int
    """`taken_bytes`, and room for the keys to grow."""


class PartitionProgress(BaseModel):
    """Progress of one replica of a partition. None means unknown."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    partition: int
    segment: str = ""
    offset: int | None = None
    latest: int | None = None
    """First offset that the stream does not have yet."""
    lag: int | None = None
    """Number of messages between `offset` and `latest`; number of bytes if the stream is of files."""
    lag_ms: int = 0
    """Age of the last message that was read, while others wait behind it."""
    rows: int = 0
    """Number of rows in the consuming segment."""
    total_rows: int = 0
    """Number of rows consumed since the server began."""
    rows_per_s: float = 0.0
    memory_bytes: int = 0
    num_bad: int = 0
    samples: tuple[str, ...] = ()
    upsert: UpsertProgress | None = None
    """State of the key index; None if the table is no upsert table."""
    state: str = ""
    """CONSUMING, CATCHING_UP, PAUSED or ERROR."""
    error: str = ""
    problem: str = ""
    """A value of `StreamProblem`, or one of a later version."""


class ProgressRecord(Record):
    """Progress of all partitions of a table that one server consumes."""

    instance: InstanceId
    at_ms: int
    partitions: tuple[PartitionProgress, ...] = ()
    memory: MemoryProgress | None = None
    """Memory of a server of an upsert table."""


def write_progress(metastore: Metastore, table: TableName, record: ProgressRecord) -> None:
    """Write the record in place of the instance's last one. If two writes coincide, one of them stays."""
    path = paths.stream_progress(table, record.instance)
    data = record.to_bytes()
    node = metastore.get(path)
    with suppress(ConflictError, NotFoundError):
        if node is None:
            metastore.create(path, data)
        else:
            metastore.put(path, data, node.version)


def remove_progress(metastore: Metastore, table: TableName, instance: InstanceId) -> None:
    """Delete the record of a server that consumes nothing of the table any more."""
    with suppress(NotFoundError):
        metastore.delete(paths.stream_progress(table, instance))


def read_progress(metastore: Metastore, table: TableName) -> Mapping[InstanceId, ProgressRecord]:
    """Return the last record of each server, dead servers included. Records that cannot be read are left out: their
    servers' partitions are not known."""
    folder = paths.all_progress(table)
    nodes = [paths.child(folder, name) for name in metastore.children(folder)]
    records: list[ProgressRecord] = []
    for path, node in zip(nodes, metastore.get_many(nodes), strict=True):
        try:
            records += [] if node is None else [ProgressRecord.from_bytes(node.data, path)]
        except CorruptionError as error:
            _LOG.warning("progress of a server left out table=%s cause=%s", table, error)
    return {record.instance: record for record in records}


def rows_of(records: Iterable[ProgressRecord], segment: str) -> int:
    """Return the number of rows of a consuming segment in the replica that has the most."""
    partitions = (partition for record in records for partition in record.partitions)
    return max((partition.rows for partition in partitions if partition.segment == segment), default=0)


def forget_progress(metastore: NodeDeleter, table: TableName) -> None:
    """Delete the records of a deleted table."""
    folder = paths.all_progress(table)
    for name in metastore.children(folder):
        with suppress(NotFoundError):
            metastore.delete(paths.child(folder, name))
