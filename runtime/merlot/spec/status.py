"""Status of a Table object. The operator writes it, and `kubectl get tables` shows it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from merlot.spec.model import SpecModel

Count = Annotated[int, Field(ge=0)]


class ConditionStatus(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class StatusCondition(SpecModel):
    """Aspect of an object's state, in Kubernetes' standard form."""

    type: str = Field(min_length=1, max_length=316)
    """Aspect: Accepted, Ready, Progressing, Degraded, ConfigInSync, SegmentsAvailable, RestartPending, Consuming or
    TaskSucceeded."""
    status: ConditionStatus
    """Status of the aspect: True, False or Unknown."""
    observed_generation: Count | None = None
    """The metadata.generation on which this is based."""
    last_transition_time: str
    """When the status last changed, RFC 3339."""
    reason: str = Field(min_length=1, max_length=1024)
    """Reason in one CamelCase word."""
    message: str = Field("", max_length=32768)
    """Reason as readable text."""


class BatchRunState(StrEnum):
    """State of a batch run. PENDING: its Job has no pod yet. WAITING: its Table or cluster is not ready."""

    WAITING = "Waiting"
    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class BatchRun(SpecModel):
    """Run of a batch source as a Job."""

    name: str = Field(min_length=1)
    """Name of the batch source."""
    job: str
    """Name of the Job."""
    state: BatchRunState
    """State of the run."""
    content: str
    """Hash of what the run builds: a run that succeeded is not repeated for the same hash."""
    slot: str | None = None
    """The scheduled time for which it runs, RFC 3339."""
    started: str | None = None
    """When the Job began, RFC 3339."""
    finished: str | None = None
    """When the Job ended, RFC 3339."""
    attempts: Count | None = None
    """Number of pods that were started."""
    rows_in: Count | None = None
    """Rows of the source that passed the filter."""
    rows_out: Count | None = None
    """Rows stored."""
    bad_rows: Count | None = None
    """Rows left out because a value did not fit its column's type."""
    segments: Count | None = None
    """Segments of the batch."""
    bytes: Count | None = None
    """Size of the batch's segments."""
    segments_replaced: Count | None = None
    """Segments that replaced an older version."""
    segments_removed: Count | None = None
    """Segments that were removed without a new version."""
    rows_replaced: Count | None = None
    """Rows of the replaced versions."""
    rows_removed: Count | None = None
    """Rows of the removed segments."""
    rows_before: Count | None = None
    """Rows of the table before the run's segments were published."""
    rows_after: Count | None = None
    """Rows of the table after they were published."""
    message: str | None = Field(None, max_length=2048)
    """Reason of a failure, or what the run waits for."""


class PartitionState(SpecModel):
    """Partition of a stream that is not consumed, or is behind."""

    partition: Count
    """Number of the partition."""
    state: str = Field(max_length=64)
    """CONSUMING, CATCHING_UP, PAUSED, ERROR, STARTING or UNKNOWN."""
    lag_messages: Count | None = None
    """Unread messages (bytes for files), to two digits."""
    lag_seconds: Count | None = None
    """Age of the last message that was read, in steps, if more messages wait."""
    problem: str | None = Field(None, max_length=64)
    """Reason why it is not consumed, in one CamelCase word."""
    message: str | None = Field(None, max_length=2048)
    """Reason why it is not consumed, as readable text."""


class StreamStatus(SpecModel):
    """Progress of consuming a table's stream. Written at most every ten seconds while there is no problem."""

    partitions: Count | None = None
    """Partitions of the stream."""
    consumed: Count | None = None
    """Partitions that a server consumes."""
    lag: str | None = Field(None, max_length=64)
    """Lag of the partition that is farthest behind, and the number of waiting messages of all partitions: 0s,
    20s/1500."""
    lag_messages: Count | None = None
    """Unread messages of all partitions (bytes for files), to two digits."""
    lag_seconds: Count | None = None
    """Largest age, over all partitions, of the last message that was read, in steps, if more messages wait."""
    bad_messages: Count | None = None
    """Messages skipped since the servers started because they are not rows, to two digits."""
    lost_messages: Count | None = None
    """Messages that were deleted before they were consumed."""
    lost: tuple[str, ...] = ()
    """The latest ranges of offsets of lost messages."""
    behind: tuple[PartitionState, ...] = ()
    """The worst few partitions that are not consumed or are behind."""
    last_error: str | None = Field(None, max_length=2048)
    """The latest error that persists."""


class TableStatus(SpecModel):
    """State of a table."""

    observed_generation: Count | None = None
    """The metadata.generation that this status is about."""
    conditions: tuple[StatusCondition, ...] = ()
    """Aspects of the state."""
    revision: Count | None = None
    """Revision of the table's config that brokers and servers should use."""
    accepted: str | None = None
    """The last accepted spec, as JSON, which stays in force while a change is refused."""
    segments: Count | None = None
    """Number of segments."""
    total_docs: Count | None = None
    """Rows in all segments."""
    segments_unpartitioned: Count | None = None
    """Segments whose records lack the partition of a column of spec.partitioning: no query prunes them by it. None if
    there are no such segments."""
    indexes: str | None = None
    """Segments that were given missing indexes and star-trees after they were built, out of all that lacked some,
    counted on each server, such as 12/40."""
    size_bytes: Count | None = None
    """Bytes of all segments, one copy of each."""
    size: str | None = None
    """Bytes of all segments in readable units, such as 1.5 GiB."""
    brokers: str | None = None
    """Ready brokers out of the desired number, such as 2/2."""
    servers: str | None = None
    """Ready servers out of the desired number, such as 3/3."""
    server_replicas: Count | None = None
    """Number of servers, for `kubectl scale`."""
    server_selector: str | None = None
    """Labels of the servers' pods, for an autoscaler."""
    broker_url: str | None = None
    """URL for queries."""
    pool: str | None = None
    """Name of the StatefulSet of the table's servers."""
    stream: StreamStatus | None = None
    """Progress of consuming its stream, if it has one."""
    last_batch: str | None = None
    """The last batch run in short, such as flights Succeeded."""
    batches: tuple[BatchRun, ...] = ()
    """Latest few runs of each batch source, the newest first."""
    plan: tuple[str, ...] = ()
    """Next actions of the operator, or what it waits for."""
