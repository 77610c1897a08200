"""Records of the nodes: versioned models that ignore fields that they do not know, and keep them when they are
rewritten.

A PackedRecord is zlib-compressed JSON, since its entries are much alike; every other record is plain JSON, readable by
people.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from merlot.cluster.backfill_record import BackfillRecord
from merlot.cluster.column_types import parse_columns
from merlot.cluster.record import PackedRecord, Record
from merlot.ids import InstanceId, SegmentKey, SegmentName, TableName
from merlot.values.types import TypeName

Interned = Annotated[str, AfterValidator(sys.intern)]
"""A text that thousands of records share: held once in memory."""


class PartitionRecord(Record):
    """Partitions of a column that occur in a segment."""

    function_name: Interned
    num_partitions: int
    partitions: tuple[int, ...]
    function_config: dict[str, str] | None = None


UNREADABLE = ""
"""Column name that stands for pruning information that could not be read; no column has this name."""


def _read_ranges(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return {UNREADABLE: (None, None)}


def _read_partitions(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return {UNREADABLE: PartitionRecord(function_name="", num_partitions=0, partitions=())}


def _read_blooms(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return {UNREADABLE: ""}


_NOTHING: dict[str, Any] = {}
"""Empty mapping shared by all records that have none."""
_GIVEN: dict[frozenset[str], set[str]] = {}
"""Sets of fields that were set explicitly: a few sets for all records."""


RECOVERED: Final = "merlot.recovered"
"""Key in the custom map of a segment that came back after the metastore was lost; the value is milliseconds since the
epoch."""


class SegmentRecord(Record):
    """A segment as brokers prune it and servers load it. Times are inclusive; -1 and None mean unknown."""

    name: str
    crc: int
    size_bytes: int
    url: str
    total_docs: int
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    ranges: Annotated[dict[Interned, tuple[Any, Any]], WrapValidator(_read_ranges)] = Field(default_factory=dict)
    """Least and greatest value of the time column and of sorted columns, as in the segment's footer; see
    `catalog.publish.ranges_of`."""
    partitions: Annotated[dict[Interned, PartitionRecord], WrapValidator(_read_partitions)] = Field(
        default_factory=dict
    )
    blooms: Annotated[dict[Interned, str], WrapValidator(_read_blooms)] = Field(default_factory=dict)
    """Small Bloom filters of columns, in base64. Unreadable ranges, partitions or filters must not make the segment, or
    its bucket, unreadable: see `UNREADABLE`."""
    columns: Interned = ""
    """Types of all columns, `name:TYPE` or `name:TYPE[]`, joined by commas: one text, so that records can share it."""
    distincts: Interned = ""
    """Orders of magnitude of the columns' numbers of distinct values: `cluster.distincts`. Empty in records of older
    releases."""
    creation_time_ms: int = -1
    push_time_ms: int = -1
    refresh_time_ms: int = -1
    custom_map: dict[str, str] = Field(default_factory=dict)
    status: Interned = "UPLOADED"
    """State of the file; UPLOADED: sealed and in the deep store. A later version may have other states: a text keeps
    them."""
    replaces: Interned = ""
    """Lineage entry that has this segment as an output."""
    replaced_by: Interned = ""
    """Lineage entry that has this segment as an input. The root decides the effect of both marks: `visibility`."""
    latest_time_ms: int | None = None
    """Greatest time of the rows before merges rounded their times; None: `end_time_ms`."""
    made_of: str = ""
    """Former segments whose rows it holds and whose records are gone: `origins`."""
    source: Interned = ""
    """Source of its rows. A version of the same name from another source may lack them: `coverage`."""
    stream_offsets: Interned = ""
    """Offsets of the rows of a segment that replaces a stream's segments: `parts.offsets_of`."""

    def model_post_init(self, _context: Any) -> None:
        self._share()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied._share()
        return copied

    def _share(self) -> None:
        """Share values that most records have in common, which saves half of the memory of 20,000 records. None of
        these values is changed in place: a copy of the record copies them first."""
        fields = self.__dict__
        for name in ("partitions", "blooms", "custom_map"):
            fields[name] = fields[name] or _NOTHING
        given = self.__pydantic_fields_set__
        object.__setattr__(self, "__pydantic_fields_set__", _GIVEN.setdefault(frozenset(given), given))
        object.__setattr__(self, "__pydantic_extra__", self.__pydantic_extra__ or _NOTHING)

    @property
    def is_open(self) -> bool:
        """True if rows may still come: a stream's segment that is not committed, and has no file."""
        return False

    @property
    def key(self) -> SegmentKey:
        """Identity of the segment: name@crc."""
        return SegmentKey(SegmentName(self.name), self.crc)

    @property
    def key_text(self) -> str:
        """Identity as text, as reports and requests have it, held once in memory."""
        return sys.intern(f"{self.name}@{self.crc}")

    @property
    def newest_ms(self) -> int | None:
        """Time of its newest row before any rounding; None if unknown."""
        return self.end_time_ms if self.latest_time_ms is None else self.latest_time_ms

    @property
    def column_types(self) -> Mapping[str, tuple[TypeName, bool]]:
        """Type and whether multi-value, by column. Columns of which the publisher gave no type, or a type that this
        version does not know, are missing."""
        return parse_columns(self.columns)


class ConsumingStatus(StrEnum):
    """State of a stream's segment; every partition has one segment that is not DONE (ADR 23)."""

    CONSUMING = "CONSUMING"
    """Its replicas append rows."""
    SEALING = "SEALING"
    """Its end is agreed and will not change; one of its replicas makes the file."""
    PAUSED = "PAUSED"
    """It holds the partition's place: no server consumes."""
    DONE = "DONE"
    """Its file is in the deep store: it is a segment like any other."""


class AskedEnd(StrEnum):
    """Reason why a segment must end before its rows, size or age require it."""

    NO = ""
    FORCE = "FORCE"
    """A client has requested it, or the table's settings have changed."""
    PAUSE = "PAUSE"
    """The next segment must not consume."""


class CheckpointRecord(Record):
    """Checkpoint of a partition of an upsert table at the end of a segment: the state that decides rows, besides the
    valid docs of its segments. Each of those has its `snapshot_url`. Recovery loads all of it, and resumes behind that
    end (ADR 34)."""

    largest: int
    """Largest comparison value before the end."""
    alive_from: int
    deleted_from: int
    """Comparison values below which keys (`alive_from`) and deleted keys (`deleted_from`) are dead, whatever the time
    to live."""
    column: str
    """Comparison column of these values, as `upsert.rules` writes it."""
    at_ms: int
    """Time when it was taken."""
    is_needed: bool = False
    """True if rows that it was decided by have been removed from segments since. A replay of the stored rows would then
    decide other valid docs than this checkpoint, or a later one, has."""


class StreamSegmentRecord(SegmentRecord):
    """A segment of a stream's partition, from its first row on. Offsets are numbers; an end offset is exclusive.

    This is a class of its own, so that records of batches take no more memory. Until DONE, `crc` is 0 and `url` is
    empty; ADR 23 says what `name@0` means."""

    partition: int
    sequence: int
    """Number that grows by one from segment to segment of a partition."""
    start_offset: int
    end_offset: int | None = None
    """First offset behind its rows; None while it consumes."""
    pinned: Interned = ""
    """Settings that decide its rows, as `consuming.pinned` writes them: the same for all replicas, whatever they know
    of the table. Empty when it is DONE."""
    pinned_id: Interned = ""
    """Hash of `pinned`; it is kept when the segment is DONE."""
    upsert: Interned = ""
    """Part of `pinned` that decided which rows are valid, in an upsert table. It is kept, so that the key index can be
    rebuilt."""
    sealer: Interned = ""
    """SEALING: replica that makes the file; DONE: replica that made it."""
    sealing_ms: int = -1
    """Time since which the sealer has this task."""
    asked_end: AskedEnd = AskedEnd.NO
    next_pinned: Interned = ""
    """Settings of the next segment; empty if they are the same."""
    next_offset: int | None = None
    """First offset of the next segment; None: the end of this one."""
    snapshot_url: str = ""
    """URL of its valid docs as of the partition's checkpoint: DONE segments of an upsert table."""
    snapshot_time_ms: int = -1
    """Time when these valid docs were taken."""
    checkpoint: CheckpointRecord | None = None
    """Checkpoint of the partition, taken at the end of this segment. No other segment of the partition has one."""
    lost_from: int | None = None
    """First of the offsets that the stream had lost before they were read; the last is before `start_offset`."""

    @property
    def is_open(self) -> bool:
        return self.status != ConsumingStatus.DONE


class PositionRecord(Record):
    """Offset that a replica had reached in a segment when it got a reason to end the segment."""

    segment: str
    instance: InstanceId
    offset: int
    reason: str = ""
    """ROWS, SIZE, AGE, FORCE, PEER or LOST."""
    resume: int | None = None
    """Offset at which the partition resumes by the table's policy, after LOST: the stream no longer has `offset`."""


class StreamRecord(Record):
    """Facts about a table's stream that a server has found out, for the controller, which has no access to the
    stream."""

    starts: dict[int, int] = Field(default_factory=dict)
    """First offset to read by partition. Kept as first seen: `latest` meant that moment."""
    looked_ms: int = -1
    by: str = ""
    error: str = ""
    """Reason why the last look failed."""
    problem: str = ""
    """The same reason as a value of `consuming.progress.StreamProblem`."""
    topic_id: str = ""
    """Id of the topic as it was first seen: offsets count the messages of this topic alone. Empty if the stream has no
    ids."""


class StreamControlRecord(Record):
    """Standing request of a client about a table's stream."""

    is_paused: bool = False
    since_ms: int = -1


class StreamStateRecord(Record):
    """State of a table's stream that has to outlive the metastore, or the table, as offsets do."""

    topic_id: str = ""
    starts: dict[int, int] = Field(default_factory=dict)
    """First offsets by partition, as in StreamRecord; any other partition is new, and is read from its beginning."""
    is_paused: bool = False
    backfill: BackfillRecord | None = None
    """Last backfill of an upsert table; None if there was none, and in records of older releases."""


class AnnotationRecord(Record):
    """Facts to add to the record of exactly this version of a segment; empty fields and None change nothing."""

    model_config = ConfigDict(extra="forbid")

    name: str
    crc: int
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    ranges: dict[str, tuple[Any, Any]] = Field(default_factory=dict)
    partitions: dict[str, PartitionRecord] = Field(default_factory=dict)
    blooms: dict[str, str] = Field(default_factory=dict)
    columns: str = ""


class BucketRecord(PackedRecord):
    """An immutable part of a table's segments with their assignment."""

    segments: tuple[SegmentRecord, ...] = ()
    stream_segments: tuple[StreamSegmentRecord, ...] = ()
    assignment: dict[Interned, tuple[Interned, ...]] = Field(default_factory=dict)


class LineageState(StrEnum):
    """State of a replacement of segments."""

    IN_PROGRESS = "IN_PROGRESS"
    """Inputs answer queries; outputs arrive, hidden."""
    COMPLETED = "COMPLETED"
    """Outputs answer queries; inputs are kept for the grace period."""
    REVERTED = "REVERTED"
    """Inputs answer queries again; outputs are kept for the grace period."""


class LineageMark(NamedTuple):
    """A live entry in the root: a list in JSON, since there may be a thousand."""

    state: LineageState
    since_ms: int
    """Time when it got into this state."""
    details: str
    """Content id of its LineageRecord."""
    num_from: int = 0
    num_to: int = 0
    """Numbers of its inputs and outputs: a reader who finds fewer knows that some were removed or replaced since."""


class LineageRecord(PackedRecord):
    """Inputs and outputs of a replacement. Immutable, like a bucket."""

    created_ms: int
    segments_from: tuple[str, ...] = ()
    segments_to: tuple[str, ...] = ()
    custom_map: dict[str, str] = Field(default_factory=dict)
    num_chunks: int = 0
    """Number of nodes that hold the rest of the names, in order."""


class LineageChunk(PackedRecord):
    """More inputs and outputs of an entry."""

    segments_from: tuple[str, ...] = ()
    segments_to: tuple[str, ...] = ()


class RetainedRecord(Record):
    """Remains that a deleted table keeps on purpose, for the next table of its name."""

    manifest: dict[str, Any]
    """Manifest as it was last applied."""
    num_segments: int
    deleted_ms: int = -1
    decided_by: dict[str, Any] | None = None
    """Settings of upserts by which its rows were decided."""
    stream: StreamStateRecord | None = None
    """State of its stream; None if it had none, or none is known."""


class RootRecord(Record):
    """Root of a table's segments. `epoch` grows by one with every change, whatever it changes."""

    epoch: int = 0
    num_buckets: int = 64
    buckets: dict[int, str] = Field(default_factory=dict)
    """Content id by bucket; a bucket without segments has none."""
    ring: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Recent changes: (epoch, names) or (epoch, ("bulk:<publish id>",)); for people and logs."""
    retired: tuple[str, ...] = ()
    """Buckets out of use, kept for a while for readers of an older root."""
    lineage: dict[str, LineageMark] = Field(default_factory=dict)
    """Replacements that are not cleaned up yet, by entry id. They decide the effect of the marks in records."""
    time_boundary_ms: int | None = None
    """Start of the stream's rows in a hybrid table (`boundary`); None: all rows are the table's."""
    time_boundary_moved_ms: int = -1
    """Time when the boundary was last moved."""
    is_deleted: bool = False
    retained: RetainedRecord | None = None
    """Remains of a deleted table whose files stay. Buckets and lineage stay too, for the next table of its name."""


class TrashRecord(PackedRecord):
    """Files whose records are gone, to be deleted when the grace period is over."""

    deleted_ms: int
    urls: tuple[str, ...]
    noticed_ms: int = 0
    """Start of the grace period by the cleaner's clock, since others' may be wrong; 0 until the cleaner has seen the
    list."""
    deep_store: str | None = None
    """URI of the deep store, if the deleted table named its own."""
    is_urgent: bool = False
    """True if the table is gone with its files: nothing of it waits for a grace period."""
    has_leftovers: bool = False
    """True if the table is gone: everything else in its folder, which was never published, is deleted too."""
    error: str = ""
    """Reason why the last attempt could not delete the files."""
    remnants: dict[int, dict[str, Any]] = Field(default_factory=dict)
    """Facts of a segment's record that its file does not have, by position of the URL (`remnants`). Files that no
    record named, and files of a deleted table, have none."""


class CondemnedRecord(PackedRecord):
    """Files that are being deleted: no record may name them."""

    urls: tuple[str, ...] = ()
    by: str = ""
    """Process that deletes them."""
    at_ms: int = -1
    """Time since which they are being deleted."""


class ManifestRecord(Record):
    """A manifest as it was last applied, with the defaults of that time."""

    name: str
    revision: int
    manifest: dict[str, Any]
    created_ms: int = -1
    updated_ms: int = -1

    @property
    def version(self) -> tuple[int, int]:
        """Return the time of creation and the revision, which begins at 1 again if the manifest is deleted and created
        again."""
        return self.created_ms, self.revision


class TableRecord(ManifestRecord):
    """A table as it was last applied."""

    name: TableName
    num_adopted: int = 0
    """Number of segments that the table adopted at its creation, from a table of its name whose files were retained."""
    decided_by: dict[str, Any] | None = None
    """Settings of upserts by which its rows were decided when the document that says so was last changed or deleted."""
    is_unconfirmed: bool = False
    """True until a controller has compared the new table with its deep store, which may remember segments."""


class Role(StrEnum):
    """Role of a process."""

    BROKER = "BROKER"
    SERVER = "SERVER"
    MINION = "MINION"
    CONTROLLER = "CONTROLLER"


class InstanceRecord(Record):
    """A running process and its address."""

    id: InstanceId
    role: Role
    host: str
    http_port: int = 0
    query_port: int = Field(default=0, validation_alias=AliasChoices("queryPort", "query_port", "grpcPort"))
    """Port for brokers' requests on a server, for gRPC clients on a broker. `grpcPort` is its old name."""
    tenant: str = "default"
    zone: str = ""
    """Zone that may fail as a whole; empty if it is unknown."""
    tags: tuple[str, ...] = ()
    started_ms: int = -1
    version: str = ""
    tls: bool = False
    """True if all its ports speak TLS."""


class HomeRecord(Record):
    """The Kubernetes namespace whose cluster has its state here."""

    namespace: str
    has_folder: bool = True
    """True if its files are in a folder of the deep store that bears its name; older installations have no such
    folder."""


class OperatorRecord(Record):
    """The operator that writes what a namespace declares. The next operator writes the record anew."""

    holder: str
    since_ms: int = -1


class DrainRecord(Record):
    """A mark on an instance that is about to stop: brokers use others where they can."""

    token: str = ""
    """Id of the mark, new with every mark: a broker's echo names the mark that it has seen."""
    leaving: bool = False
    """True if the instance will not come back: its segments are moved to others first."""
    since_ms: int = -1


class RebalanceRecord(Record):
    """A rebalance that somebody started or aborted."""

    id: str
    started_ms: int = -1
    num_replicas: int = 0
    """Copies of segments that other servers had to load when it started; `num_bytes` is their size."""
    num_bytes: int = 0
    is_aborted: bool = False
    servers: tuple[str, ...] = ()
    """Live servers at the time of the abort. While they are the same, loads are not evened out."""


class EchoRecord(Record):
    """A broker's report about itself."""

    revisions: dict[str, int] = Field(default_factory=dict)
    """Revision of the manifest that it runs, by table."""
    drains: dict[str, str] = Field(default_factory=dict)
    """Token of the mark that it has seen, by instance."""
    busy: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Tables in which it still routes to a marked instance, by instance. An instance that it routes around has no
    entry."""
    problems: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Reasons why it cannot prune as a table's manifest asks, by table, one line each; its answers are right all the
    same."""
    missed: dict[str, int] | None = None
    """Number of segments that answers lack, by table; a table that lacks none has no entry. None if the broker does not
    report it."""


class LeaseRecord(Record):
    """Last holder of a lease. `token` names the ephemeral that is its pulse, which a release deletes. The token is
    empty before the first holder."""

    owner: str = ""
    token: str = ""
    acquired_ms: int = -1


class IndexingRecord(Record):
    """Progress of a server with indexes and star-trees that were declared after its segments were built."""

    revision: int = -1
    """Revision of the table at the server's last look at all its segments; 0 before the first, or if the table
    asks for no indexes. -1 if the server reports nothing of indexes, as in older releases."""
    wanted: int = 0
    """Number of segments that lack an index or star-tree of the table."""
    built: int = 0
    """Number of these segments that have been given theirs."""
    left_out: int = 0
    """Number of star-trees that cannot be built from a segment's rows."""
    problem: str = ""
    """Reason why an index or star-tree that can be built was not built."""
