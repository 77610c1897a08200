"""What the nodes hold: versioned models that ignore, and keep when they rewrite, the fields they do not know.

Buckets are zlib-compressed JSON, since their records repeat themselves; everything else is plain JSON, for people.
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
"""A text that thousands of records share: kept once in memory."""


class PartitionRecord(Record):
    """The partitions of a column that occur in a segment."""

    function_name: Interned
    num_partitions: int
    partitions: tuple[int, ...]
    function_config: dict[str, str] | None = None


UNREADABLE = ""
"""Column under which pruning information stands that could not be read; no column has this name."""


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
"""The empty mapping of every record that has none."""
_GIVEN: dict[frozenset[str], set[str]] = {}
"""Sets of fields that were given: a few for all records."""


RECOVERED: Final = "merlot.recovered"
"""In the custom map of a segment that came back after the metastore was lost: milliseconds since the epoch."""


class SegmentRecord(Record):
    """What brokers prune by and servers load by. Times are inclusive; -1 and None mean unknown."""

    name: str
    crc: int
    size_bytes: int
    url: str
    total_docs: int
    start_time_ms: int | None = None
    end_time_ms: int | None = None
    ranges: Annotated[dict[Interned, tuple[Any, Any]], WrapValidator(_read_ranges)] = Field(default_factory=dict)
    """Least and greatest value of the time column and of every sorted column, as in the segment's footer."""
    partitions: Annotated[dict[Interned, PartitionRecord], WrapValidator(_read_partitions)] = Field(
        default_factory=dict
    )
    blooms: Annotated[dict[Interned, str], WrapValidator(_read_blooms)] = Field(default_factory=dict)
    """Bloom filters of columns, those that are small, in base64. What cannot be read of the three must not make the
    segment, or its bucket, unreadable: see `UNREADABLE`."""
    columns: Interned = ""
    """`name:TYPE` or `name:TYPE[]` of every column, joined by commas: one text, so that records can share it."""
    creation_time_ms: int = -1
    push_time_ms: int = -1
    refresh_time_ms: int = -1
    custom_map: dict[str, str] = Field(default_factory=dict)
    status: Interned = "UPLOADED"
    """UPLOADED: sealed and in the deep store. A later version may know more: a text, so that it is kept."""
    replaces: Interned = ""
    """Lineage entry whose output it is."""
    replaced_by: Interned = ""
    """Lineage entry whose input it is. What the two mean is in the root: `visibility`."""
    latest_time_ms: int | None = None
    """Greatest time of the rows that it was made of, before merges rounded them; None: `end_time_ms`."""
    made_of: str = ""
    """Segments whose rows it holds and whose records are gone: `origins`."""
    source: Interned = ""
    """What its rows were read from; a version of the same name from elsewhere may lack them: `coverage`."""
    stream_offsets: Interned = ""
    """Of a segment that took the place of a stream's: where its rows are from, `parts.offsets_of`."""

    def model_post_init(self, _context: Any) -> None:
        self._share()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied._share()
        return copied

    def _share(self) -> None:
        """Have in common what most records have alike: half of what 20,000 took. None of it is changed in place: a copy
        copies it first."""
        fields = self.__dict__
        for name in ("partitions", "blooms", "custom_map"):
            fields[name] = fields[name] or _NOTHING
        given = self.__pydantic_fields_set__
        object.__setattr__(self, "__pydantic_fields_set__", _GIVEN.setdefault(frozenset(given), given))
        object.__setattr__(self, "__pydantic_extra__", self.__pydantic_extra__ or _NOTHING)

    @property
    def is_open(self) -> bool:
        """Whether rows may still come: a stream's segment that is not committed, and has no file."""
        return False

    @property
    def key(self) -> SegmentKey:
        """Its identity: name@crc."""
        return SegmentKey(SegmentName(self.name), self.crc)

    @property
    def key_text(self) -> str:
        """The key as reports and requests have it: one text for all who have it in memory."""
        return sys.intern(f"{self.name}@{self.crc}")

    @property
    def newest_ms(self) -> int | None:
        """When its newest row was, however times were rounded; None if nobody knows."""
        return self.end_time_ms if self.latest_time_ms is None else self.latest_time_ms

    @property
    def column_types(self) -> Mapping[str, tuple[TypeName, bool]]:
        """Type and whether multi-value, by column; a column that the publisher told nothing of, or nothing that this
        version knows, is missing."""
        return parse_columns(self.columns)


class ConsumingStatus(StrEnum):
    """Where a segment of a stream is; every partition has one that is not DONE (ADR 23)."""

    CONSUMING = "CONSUMING"
    """Its replicas append rows."""
    SEALING = "SEALING"
    """Its end is agreed and will not change; one of its replicas makes the file."""
    PAUSED = "PAUSED"
    """It keeps the partition's place: nobody consumes."""
    DONE = "DONE"
    """Its file is in the deep store: a segment as any other."""


class AskedEnd(StrEnum):
    """Why a segment shall end before its rows, size or age say so."""

    NO = ""
    FORCE = "FORCE"
    """Somebody asked for it, or the table's settings have changed."""
    PAUSE = "PAUSE"
    """The next one shall not consume."""


class CheckpointRecord(Record):
    """A partition of an upsert table at the end of a segment: what decides beside the valid docs of its segments, of
    which each has its `snapshot_url`. Recovery takes them, and goes on behind that end (ADR 34)."""

    largest: int
    """The largest comparison value seen before the end."""
    alive_from: int
    deleted_from: int
    """Below which values keys, and deleted keys, are dead whatever the time to live comes to."""
    column: str
    """The comparison column that these are values of, as `upsert.rules` writes it."""
    at_ms: int
    """When it was taken."""
    is_needed: bool = False
    """Whether rows that it was decided by were taken out of segments since: replaying what is stored would come to
    other valid docs than it, or a later one, has."""


class StreamSegmentRecord(SegmentRecord):
    """A segment of a stream's partition, from its first row on. Offsets are numbers; an end is the first one after.

    A class of its own, so that records of batches take no more memory. Until DONE, `crc` is 0 and `url` empty: what
    `name@0` means is in ADR 23.
    """

    partition: int
    sequence: int
    """Grows by one from segment to segment of a partition."""
    start_offset: int
    end_offset: int | None = None
    """None while it consumes."""
    pinned: Interned = ""
    """Settings that decide its rows, as `spec.pinned` writes them: the same for all replicas, whatever they know of the
    table. Empty when it is DONE."""
    pinned_id: Interned = ""
    """A hash of `pinned`, which stays."""
    upsert: Interned = ""
    """Of an upsert table: what of `pinned` decided which of its rows are valid. It stays, for whoever builds the index
    of keys again."""
    sealer: Interned = ""
    """SEALING: the replica that makes the file; DONE: the one that made it."""
    sealing_ms: int = -1
    """Since when that is its task."""
    asked_end: AskedEnd = AskedEnd.NO
    next_pinned: Interned = ""
    """Settings of the next segment; empty: the same."""
    next_offset: int | None = None
    """Where the next segment starts; None: at the end of this one."""
    snapshot_url: str = ""
    """DONE, of an upsert table: where its valid docs are, as of the partition's checkpoint."""
    snapshot_time_ms: int = -1
    """When these were taken."""
    checkpoint: CheckpointRecord | None = None
    """Of the segment at whose end the partition's checkpoint was taken; no other one of the partition has it."""
    lost_from: int | None = None
    """The stream had lost the offsets from here to the start before they were read."""

    @property
    def is_open(self) -> bool:
        return self.status != ConsumingStatus.DONE


class PositionRecord(Record):
    """How far a replica had come in a segment when it got a reason to end it."""

    segment: str
    instance: InstanceId
    offset: int
    reason: str = ""
    """ROWS, SIZE, AGE, FORCE, PEER or LOST."""
    resume: int | None = None
    """LOST: where the partition goes on by the table's policy, now that the stream does not have `offset`."""


class StreamRecord(Record):
    """What a server has found out about a table's stream, for the controller, which has no access to it."""

    starts: dict[int, int] = Field(default_factory=dict)
    """Where to begin, by partition. Kept as they were first seen: `latest` was then."""
    looked_ms: int = -1
    by: str = ""
    error: str = ""
    """Why the last look failed."""
    problem: str = ""
    """The same as one of `consuming.progress.StreamProblem`."""
    topic_id: str = ""
    """The id of the topic as it was first seen: offsets count its messages alone. Empty if the stream does not say."""


class StreamControlRecord(Record):
    """What somebody asked of a table's stream, for as long as it holds."""

    is_paused: bool = False
    since_ms: int = -1


class StreamStateRecord(Record):
    """State of a table's stream that has to outlive the metastore, or the table, as offsets do."""

    topic_id: str = ""
    starts: dict[int, int] = Field(default_factory=dict)
    """First offsets by partition, as in StreamRecord; any other partition is new, and is read from its beginning."""
    is_paused: bool = False
    backfill: BackfillRecord | None = None
    """The last backfill of an upsert table; None if there was none, and in records of older releases."""


class AnnotationRecord(Record):
    """What to add to the record of this very version of a segment; what is empty or None stays as it is."""

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
    """Where a replacement of segments is."""

    IN_PROGRESS = "IN_PROGRESS"
    """Inputs answer; outputs come in, unseen."""
    COMPLETED = "COMPLETED"
    """Outputs answer; inputs are kept a while."""
    REVERTED = "REVERTED"
    """Inputs answer again; outputs are kept a while."""


class LineageMark(NamedTuple):
    """A live entry as the root has it: a list, since there may be a thousand."""

    state: LineageState
    since_ms: int
    """When it got into this state."""
    details: str
    """Content id of its LineageRecord."""
    num_from: int = 0
    num_to: int = 0
    """How many inputs and outputs it has: whoever finds fewer knows that some were removed or replaced since."""


class LineageRecord(PackedRecord):
    """What an entry replaces by what. Immutable, like a bucket."""

    created_ms: int
    segments_from: tuple[str, ...] = ()
    segments_to: tuple[str, ...] = ()
    custom_map: dict[str, str] = Field(default_factory=dict)
    num_chunks: int = 0
    """Nodes that hold the rest of the names, in order."""


class LineageChunk(PackedRecord):
    """More names of an entry."""

    segments_from: tuple[str, ...] = ()
    segments_to: tuple[str, ...] = ()


class RetainedRecord(Record):
    """What a deleted table has left on purpose, for the next one of its name."""

    manifest: dict[str, Any]
    """As it was last applied."""
    num_segments: int
    deleted_ms: int = -1
    decided_by: dict[str, Any] | None = None
    """Settings of upserts by which its rows were decided."""
    stream: StreamStateRecord | None = None
    """State of its stream; None if nothing was known of one."""


class RootRecord(Record):
    """Root of a table's segments. `epoch` grows by one with every change, whatever it changes."""

    epoch: int = 0
    num_buckets: int = 64
    buckets: dict[int, str] = Field(default_factory=dict)
    """Content id by bucket; a bucket without segments has none."""
    ring: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Recent changes: (epoch, names) or (epoch, ("bulk:<publish id>",)); for people and logs."""
    retired: tuple[str, ...] = ()
    """Buckets out of use, kept a while for readers that hold an older root."""
    lineage: dict[str, LineageMark] = Field(default_factory=dict)
    """Replacements that are not cleaned up yet, by entry id: what they make of records' marks, this root decides."""
    time_boundary_ms: int | None = None
    """Start of the stream's rows in a hybrid table (`boundary`); None: all rows are the table's."""
    time_boundary_moved_ms: int = -1
    """Since when."""
    is_deleted: bool = False
    retained: RetainedRecord | None = None
    """Of a deleted table whose files stay: buckets and lineage are as they were, for whoever creates it again."""


class TrashRecord(PackedRecord):
    """Files whose records are gone, to be deleted when the grace period is over."""

    deleted_ms: int
    urls: tuple[str, ...]
    noticed_ms: int = 0
    """Start of the grace period by the cleaner's clock, since others' may be wrong; 0: it has not seen the list yet."""
    deep_store: str | None = None
    """URI of the deep store, if the table that is gone named one of its own."""
    is_urgent: bool = False
    """Its table is gone, with its files: nothing of the table waits for a grace period."""
    has_leftovers: bool = False
    """Of a table that is gone: all that is in its folder, and was never published, goes too."""
    error: str = ""
    """Why the files could not be deleted at the last attempt."""
    remnants: dict[int, dict[str, Any]] = Field(default_factory=dict)
    """By position of the URL: what the segment's record said and its file does not (`remnants`). None is kept of files
    that no record named, nor of those of a deleted table."""


class CondemnedRecord(PackedRecord):
    """Files that are being deleted: no record may name them."""

    urls: tuple[str, ...] = ()
    by: str = ""
    """Who deletes them."""
    at_ms: int = -1
    """Since when."""


class ManifestRecord(Record):
    """A manifest as it was last applied, with the defaults of that day."""

    name: str
    revision: int
    manifest: dict[str, Any]
    created_ms: int = -1
    updated_ms: int = -1


class TableRecord(ManifestRecord):
    """A table as it was last applied."""

    name: TableName
    num_adopted: int = 0
    """Segments that it took over when it was created, from a table of its name whose files were retained."""
    decided_by: dict[str, Any] | None = None
    """Settings of upserts by which its rows were decided when the document that says so was last changed or deleted."""
    is_unconfirmed: bool = False
    """True until a controller has compared the new table with its deep store, which may remember segments."""


class Role(StrEnum):
    """What a process does."""

    BROKER = "BROKER"
    SERVER = "SERVER"
    MINION = "MINION"
    CONTROLLER = "CONTROLLER"


class InstanceRecord(Record):
    """A running process and where it is reached."""

    id: InstanceId
    role: Role
    host: str
    http_port: int = 0
    query_port: int = Field(default=0, validation_alias=AliasChoices("queryPort", "query_port", "grpcPort"))
    """Port for brokers' requests on a server, for gRPC clients on a broker. `grpcPort` is its old name."""
    tenant: str = "default"
    tags: tuple[str, ...] = ()
    started_ms: int = -1
    version: str = ""


class HomeRecord(Record):
    """The Kubernetes namespace whose cluster has its state here."""

    namespace: str
    has_folder: bool = True
    """Whether its files are in a folder of the deep store that bears its name; older installations have none."""


class OperatorRecord(Record):
    """The operator that writes what a namespace declares. Whoever comes next writes it anew."""

    holder: str
    since_ms: int = -1


class DrainRecord(Record):
    """A mark on an instance that shall stop: brokers ask others where they can."""

    token: str = ""
    """New with every mark: a broker's echo tells which one it has taken up."""
    leaving: bool = False
    """True: it will not come back, its segments go to others first."""
    since_ms: int = -1


class RebalanceRecord(Record):
    """A rebalance that somebody asked for, or put an end to."""

    id: str
    started_ms: int = -1
    num_replicas: int = 0
    """Copies of segments that had to be loaded by other servers, when it started; `num_bytes` of them."""
    num_bytes: int = 0
    is_aborted: bool = False
    servers: tuple[str, ...] = ()
    """Aborted: the live servers of that time. While they are the same, loads are not evened out."""


class EchoRecord(Record):
    """What a broker runs, written by itself."""

    revisions: dict[str, int] = Field(default_factory=dict)
    """Revision of the manifest by table."""
    drains: dict[str, str] = Field(default_factory=dict)
    """Token of the mark that it has taken up, by instance."""
    busy: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Tables in which it still routes to a marked instance, by instance; one that it routes around has no entry."""
    problems: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """What keeps it from pruning as the table wants, by table, a line each; queries are right all the same."""
    missed: dict[str, int] | None = None
    """Segments that answers lack, by table; one that lacks none has no entry. None: a broker that does not tell."""


class LeaseRecord(Record):
    """Who holds a lease; `token` names the ephemeral that is the holder's pulse, empty once released."""

    owner: str = ""
    token: str = ""
    acquired_ms: int = -1


class IndexingRecord(Record):
    """How far a server is with indexes and star-trees that were declared after its segments were built."""

    revision: int = -1
    """Revision of the table by which it looked at all its segments last, 0 before it did; -1 of a server that says
    nothing of indexes, as those of older releases do."""
    wanted: int = 0
    """Segments that lack something of what the table asks for."""
    built: int = 0
    """Those of them that were given it."""
    left_out: int = 0
    """Star-trees that cannot be made of a segment's rows."""
    problem: str = ""
    """Why one of the others was not."""
