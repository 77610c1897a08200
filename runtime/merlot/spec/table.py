"""Table manifest: one document declares everything about a table. The models of its parts are re-exported here."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from merlot.ids import RawTableName, TableName, offline, realtime
from merlot.spec.column_names import ColumnName
from merlot.spec.formats import BatchFormat
from merlot.spec.indexing import (
    Compression,
    Encoding,
    IndexingSpec,
    PartitionEnforcement,
    PartitionFunctionSpec,
    PartitioningSpec,
)
from merlot.spec.ingestion import (
    BatchIngestion,
    BatchJob,
    CsvOptions,
    IngestionSpec,
    OverwriteWindow,
    TimeBoundarySpec,
)
from merlot.spec.model import SpecModel
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.spec.stream import (
    BadMessages,
    DecoderSpec,
    DecoderType,
    FlushSpec,
    MessageCsv,
    OutOfRange,
    StreamIngestion,
)
from merlot.spec.tenancy import DeepStoreSpec, Resources, TenantSpec, TenantsSpec
from merlot.spec.upserting import TableUpsert
from merlot.values.durations import Duration, duration_ms
from merlot.values.periods import DAY_MS

__all__ = [
    "API_VERSION",
    "BadMessages",
    "BatchFormat",
    "BatchIngestion",
    "BatchJob",
    "Compression",
    "CsvOptions",
    "DecoderSpec",
    "DecoderType",
    "DeepStoreSpec",
    "DeletionPolicy",
    "Duration",
    "Encoding",
    "FieldRole",
    "FieldSpec",
    "FlushSpec",
    "IndexingSpec",
    "IngestionSpec",
    "InstanceSelector",
    "MessageCsv",
    "ObjectMeta",
    "OutOfRange",
    "OverwriteWindow",
    "PartitionEnforcement",
    "PartitionFunctionSpec",
    "PartitioningSpec",
    "PushType",
    "QueryLimits",
    "Resources",
    "RoutingSpec",
    "StreamIngestion",
    "Table",
    "TableSchema",
    "TableSpec",
    "TenantSpec",
    "TenantsSpec",
    "TimeBoundarySpec",
    "duration_ms",
]

API_VERSION = "merlot.dev/v1alpha1"


class PushType(StrEnum):
    """Effect of a new batch of segments on the table."""

    APPEND = "APPEND"
    REFRESH = "REFRESH"


class DeletionPolicy(StrEnum):
    """Effect of deleting a table on its data."""

    RETAIN = "Retain"
    DELETE = "Delete"


class InstanceSelector(StrEnum):
    """How a broker chooses among the replicas of a segment."""

    BALANCED = "balanced"
    STRICT_REPLICA_GROUP = "strictReplicaGroup"


class ObjectMeta(SpecModel):
    """Name and labels, as of every Kubernetes object."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=63)
    """Name of the table in SQL. Kubernetes requires lower-case letters, digits and dashes."""
    namespace: str | None = None
    """Kubernetes namespace; a cluster outside Kubernetes ignores it."""
    labels: Mapping[str, str] = {}
    """Labels; Merlot does not change them."""
    annotations: Mapping[str, str] = {}
    """Annotations; Merlot does not change them."""


class RoutingSpec(SpecModel):
    """How brokers choose servers."""

    instance_selector: InstanceSelector = InstanceSelector.BALANCED
    """balanced: each query is spread over the replicas of each segment. strictReplicaGroup: all segments of a partition
    are on the same servers, and a query asks one of them for the partition. A stream's partitions count; for batches,
    the partitions of spec.partitioning if it has one column. Upsert tables are always routed so."""
    segment_pruners: Annotated[tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=20)] = ()
    """Pruners by which brokers leave out segments that cannot match; none if left out, and the order does not matter.
    empty: no rows. time: least and greatest value of timeColumn. range: least and greatest values of sorted columns,
    declared or not. partition: partitions of spec.partitioning. bloom: filters of spec.indexing.bloom, up to 2 KB each.
    Names with a dot are those of installed packages."""


MAX_TIMEOUT_MS: Final = DAY_MS
"""Longest timeout: a day, more than any query may take."""
MAX_COUNT: Final = 10**15


class QueryLimits(SpecModel):
    """Limits of a query. A query that exceeds one ends with an error; nothing is left out silently. If a limit is left
    out, the node's default applies. A query's option cannot raise a limit; the answer's queryWarnings say so."""

    timeout_ms: int | None = Field(None, ge=1, le=MAX_TIMEOUT_MS)
    """Longest time of a query in milliseconds. A longer timeoutMs of a query is reduced to it, and the answer says
    so."""
    max_rows: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Most rows of an answer."""
    max_groups: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Most groups that a GROUP BY or DISTINCT may hold."""
    max_bytes: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Most bytes that a server may return for one query."""
    max_queries_per_second: float | None = Field(None, gt=0, le=1e9)
    """Most queries of the table per second in the whole cluster: each live broker gets a share. More queries are
    refused with error 429."""


class TableSpec(SpecModel):
    """Columns, storage, sources and resources of a table."""

    table_schema: TableSchema = Field(alias="schema")
    """Columns and primary key."""
    time_column: ColumnName | None = None
    """The dateTime column that decides a row's segment, retention and time pruning; cannot change."""
    replication: int = Field(1, ge=1, le=100)
    """Number of servers that hold each segment."""
    retention: Duration | None = None
    """Age at which segments are deleted, such as 30d; kept forever if left out."""
    push_type: PushType = PushType.APPEND
    """APPEND: a batch adds its segments. There is one per UTC day (or ingestion.daysPerSegment) and partition, and a
    new segment replaces the old one. So a batch must hold whole days; if it seems to hold less, it is refused (see
    replaceRows of the batch). REFRESH: a batch replaces all of the table's segments."""
    indexing: IndexingSpec = IndexingSpec()
    """Storage and indexes."""
    partitioning: PartitioningSpec | None = None
    """How rows are spread over partitions."""
    routing: RoutingSpec = RoutingSpec()
    """How brokers choose servers."""
    ingestion: IngestionSpec = IngestionSpec()
    """Sources of the table's rows."""
    limits: QueryLimits = QueryLimits()
    """Limits of the table's queries."""
    null_handling: bool = False
    """True: queries treat nulls as SQL does (comparisons with them are unknown, aggregates skip them, answers show
    them). False, as in Pinot: a null is its column's default value, such as -2147483648. A query's own
    enableNullHandling takes precedence. A query over several tables handles nulls if any of the tables says true."""
    tenants: TenantsSpec = TenantsSpec()
    """Processes that serve the table."""
    deep_store: DeepStoreSpec | None = None
    """Place of the segment files; the cluster's own deep store if left out."""
    upsert: TableUpsert | None = None
    """Upserts: later rows replace earlier rows of the same primary key. Cannot be added or removed later."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """Effect of deleting the table on its segment files and, in Kubernetes, on its servers' volumes. Retain: they stay,
    and the next table of that name gets the segments again, if its schema fits. Delete: they are deleted."""
    suspend: bool = False
    """True pauses the controller's work on the table (retention, assignment, tasks), and brokers refuse its queries
    (error 191). In Kubernetes its servers and batch jobs stop too; data stays."""

    @property
    def is_strict(self) -> bool:
        """True if a query asks one server for all of a partition. Upsert tables always do, since replicas may differ in
        which of their rows are valid."""
        return self.upsert is not None or self.routing.instance_selector is InstanceSelector.STRICT_REPLICA_GROUP

    @property
    def deep_store_uri(self) -> str | None:
        """Deep store that the table declares; None if its files are in the cluster's own."""
        return None if self.deep_store is None else self.deep_store.uri

    @property
    def retention_ms(self) -> int | None:
        """Age in milliseconds at which segments are deleted, or None."""
        return None if self.retention is None else duration_ms(self.retention)


class Table(SpecModel):
    """Table of the cluster."""

    api_version: Literal["merlot.dev/v1alpha1"]
    """Version of the API."""
    kind: Literal["Table"]
    """Kind of object."""
    metadata: ObjectMeta
    """Name and labels."""
    spec: TableSpec
    """Columns, storage, sources and resources of the table."""

    @property
    def raw_name(self) -> RawTableName:
        """Name of the table in SQL."""
        return RawTableName(self.metadata.name)

    @property
    def name(self) -> TableName:
        """Key of the table in shared state, `flights_OFFLINE`."""
        return offline(self.raw_name)

    @property
    def realtime_name(self) -> TableName | None:
        """`flights_REALTIME` if the table has a stream, else None."""
        return None if self.spec.ingestion.stream is None else realtime(self.raw_name)
