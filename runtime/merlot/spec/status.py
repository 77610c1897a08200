"""What the cluster tells about a Table object: written by the operator, read with `kubectl get tables`."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from merlot.spec.model import SpecModel

Count = Annotated[int, Field(ge=0)]


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(SpecModel):
    """One aspect of an object's state, in Kubernetes' standard form."""

    type: str = Field(min_length=1, max_length=316)
    """Which aspect: Accepted, Ready, Progressing, Degraded, ConfigInSync, SegmentsAvailable, RestartPending,
    Consuming or TaskSucceeded."""
    status: ConditionStatus
    """Whether it is true."""
    observed_generation: Count | None = None
    """The metadata.generation that this is based on."""
    last_transition_time: str
    """When the status last changed, RFC 3339."""
    reason: str = Field(min_length=1, max_length=1024)
    """Why, in one CamelCase word."""
    message: str = Field("", max_length=32768)
    """Why, as readable text."""


class BatchRunState(StrEnum):
    """Where a run of a batch is. PENDING: its Job has no pod yet. WAITING: its Table or cluster is not ready."""

    WAITING = "Waiting"
    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class BatchRun(SpecModel):
    """One run of a batch source: a Job."""

    name: str = Field(min_length=1)
    """Name of the batch source."""
    job: str
    """Name of the Job."""
    state: BatchRunState
    """State of the run."""
    content: str
    """What it builds, as a hash: a run that succeeded is not repeated for the same."""
    slot: str | None = None
    """The scheduled time that it runs for, RFC 3339."""
    started: str | None = None
    """When the Job began, RFC 3339."""
    finished: str | None = None
    """When the Job ended, RFC 3339."""
    attempts: Count | None = None
    """Pods that were started."""
    rows_in: Count | None = None
    """Rows of the source that passed the filter."""
    rows_out: Count | None = None
    """Rows stored."""
    bad_rows: Count | None = None
    """Rows left out, because a value did not fit its column's type."""
    segments: Count | None = None
    """Segments of the batch."""
    bytes: Count | None = None
    """Their size."""
    segments_replaced: Count | None = None
    """Segments that replaced an older version."""
    segments_removed: Count | None = None
    """Segments that were removed without a new version."""
    rows_replaced: Count | None = None
    """Rows of the older versions."""
    rows_removed: Count | None = None
    """Rows of the removed segments."""
    rows_before: Count | None = None
    """Rows of the table before the run's segments were published."""
    rows_after: Count | None = None
    """Rows of the table from then on."""
    message: str | None = Field(None, max_length=2048)
    """What went wrong, or what it waits for."""


class PartitionState(SpecModel):
    """A partition of a stream that is not consumed, or is behind."""

    partition: Count
    """Its number."""
    state: str = Field(max_length=64)
    """CONSUMING, CATCHING_UP, PAUSED, ERROR, STARTING or UNKNOWN."""
    lag_messages: Count | None = None
    """Unread messages (bytes for files), to two digits."""
    lag_seconds: Count | None = None
    """Age of the last message that was read, while there are others behind it, in steps."""
    problem: str | None = Field(None, max_length=64)
    """Why it is not consumed, in one CamelCase word."""
    message: str | None = Field(None, max_length=2048)
    """Why, as readable text."""


class StreamStatus(SpecModel):
    """How far a table's stream is consumed. Written at most every ten seconds while all is well."""

    partitions: Count | None = None
    """Partitions of the stream."""
    consumed: Count | None = None
    """Those that a server consumes."""
    lag: str | None = Field(None, max_length=64)
    """Lag of the partition that is farthest behind, and the messages of all that wait: 0s, 20s/1500."""
    lag_messages: Count | None = None
    """Unread messages of all partitions (bytes for files), to two digits."""
    lag_seconds: Count | None = None
    """The largest age of the last message that was read of a partition, while there are others behind it, in steps."""
    bad_messages: Count | None = None
    """Messages skipped because they are not rows, since the servers started, to two digits."""
    lost_messages: Count | None = None
    """Messages that were deleted before they were consumed."""
    lost: tuple[str, ...] = ()
    """Their offsets, the last few ranges."""
    behind: tuple[PartitionState, ...] = ()
    """Partitions that are not consumed, or are behind: the worst few."""
    last_error: str | None = Field(None, max_length=2048)
    """The latest error that persists."""


class TableStatus(SpecModel):
    """State of a table."""

    observed_generation: Count | None = None
    """The metadata.generation that this status is about."""
    conditions: tuple[Condition, ...] = ()
    """Aspects of the state."""
    revision: Count | None = None
    """Revision of the table's config that brokers and servers should run."""
    accepted: str | None = None
    """The last accepted spec, as JSON, which stays in force while a change is refused."""
    segments: Count | None = None
    """Number of segments."""
    total_docs: Count | None = None
    """Rows in all segments."""
    segments_unpartitioned: Count | None = None
    """Segments whose records tell no partition of a column of spec.partitioning: no query prunes them by it. None if
    there are none."""
    indexes: str | None = None
    """Segments that were given indexes and star-trees after they were built, of those that lack some, counted on each
    server, such as 12/40."""
    size_bytes: Count | None = None
    """Bytes of all segments, one copy of each."""
    size: str | None = None
    """The same in readable units, such as 1.5 GiB."""
    brokers: str | None = None
    """Ready brokers out of those wanted, such as 2/2."""
    servers: str | None = None
    """Ready servers out of those wanted, such as 3/3."""
    server_replicas: Count | None = None
    """Number of servers, for `kubectl scale`."""
    server_selector: str | None = None
    """Labels of the servers' pods, for an autoscaler."""
    broker_url: str | None = None
    """Where to send queries."""
    pool: str | None = None
    """Name of the StatefulSet of the table's servers."""
    stream: StreamStatus | None = None
    """How far its stream is consumed, if it has one."""
    last_batch: str | None = None
    """The last batch run in short, such as flights Succeeded."""
    batches: tuple[BatchRun, ...] = ()
    """Runs of the batch sources, the newest first; the last few of each."""
    plan: tuple[str, ...] = ()
    """What the operator is about to do, or waits for."""
