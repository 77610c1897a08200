"""Status of MergeRollupTask and UpsertConfig objects. The operator writes it, and kubectl shows it."""

from pydantic import Field

from merlot.spec.model import SpecModel
from merlot.spec.status import Count, StatusCondition


class LevelStatus(SpecModel):
    """Progress of one level."""

    name: str = Field(min_length=1)
    """Name of the level."""
    state: str | None = None
    """UpToDate, Pending, Running, Failing, Suspended, Refused or Waiting."""
    watermark: str | None = None
    """Start of the latest bucket that was begun, RFC 3339."""
    delay: Count | None = None
    """Buckets between the first one to merge and the last one that can be merged by now."""
    progress: str | None = None
    """Merged buckets, out of all that can be merged by now, such as 12/31."""
    buckets_done: Count | None = None
    """Buckets in which everything is merged."""
    buckets_to_do: Count | None = None
    """Buckets that wait to be merged."""
    segments: Count | None = None
    """Segments that this level produced."""
    size_bytes: Count | None = None
    """Bytes of these segments."""
    segments_behind_watermark: Count | None = None
    """Segments that arrived too late for this level."""
    tasks_queued: Count | None = None
    """Tasks that wait or run."""
    tasks_running: Count | None = None
    """Tasks on which a minion works."""
    tasks_poisoned: Count | None = None
    """Tasks that failed for good."""
    last_error: str | None = Field(None, max_length=32768)
    """Reason why the last failed task failed."""


class MergeRun(SpecModel):
    """Task that ended."""

    id: str = Field(min_length=1)
    """Name of the task in the queue."""
    outcome: str
    """SUCCEEDED, POISONED (failed for good) or CANCELLED."""
    level: str | None = None
    """Name of the level."""
    start: str | None = None
    """Start of its first bucket, RFC 3339."""
    end: str | None = None
    """End of its last bucket, RFC 3339."""
    finished: str | None = None
    """When it ended, RFC 3339."""
    seconds: Count | None = None
    """Duration of the last attempt."""
    attempts: Count | None = None
    """Number of times it was started."""
    segments_in: Count | None = None
    """Segments that it merged."""
    segments_out: Count | None = None
    """Segments that replaced them."""
    rows_in: Count | None = None
    """Rows of the merged segments."""
    rows_out: Count | None = None
    """Rows of the resulting segments."""
    bytes_in: Count | None = None
    """Bytes of the merged segments."""
    bytes_out: Count | None = None
    """Bytes of the resulting segments."""
    error: str | None = Field(None, max_length=2048)
    """Reason why it failed."""


class RunningTask(SpecModel):
    """Task on which a minion works."""

    id: str = Field(min_length=1)
    """Name of the task in the queue."""
    level: str | None = None
    """Name of the level."""
    minion: str | None = None
    """The minion that works on it."""
    phase: str | None = None
    """Current phase: FETCH, READ, ORDER, WRITE, START, UPLOAD, LOAD, among others."""
    percent: Count | None = None
    """Share of rows that this phase has processed, in steps of ten."""
    started: str | None = None
    """When the minion began, RFC 3339."""


class MergeRollupTaskStatus(SpecModel):
    """State of the merges of a table."""

    observed_generation: Count | None = None
    """The metadata.generation that this status is about."""
    conditions: tuple[StatusCondition, ...] = ()
    """Aspects of the state: Accepted, Ready, Progressing, Degraded, TaskSucceeded."""
    revision: Count | None = None
    """Revision of the manifest in the cluster."""
    table: str | None = None
    """Name of the table."""
    retried_at: str | None = None
    """Value of the annotation merlot.dev/retry for which permanently failed tasks were last retried."""
    state: str | None = None
    """UpToDate, Pending, Running, Failing, Suspended, Refused or Waiting."""
    message: str | None = Field(None, max_length=32768)
    """Reason of the state, and what to do."""
    level: str | None = None
    """The level that is being merged, or the coarsest one."""
    watermark: str | None = None
    """Start of the latest bucket that this level began, RFC 3339."""
    delay: Count | None = None
    """Buckets by which this level is behind."""
    progress: str | None = None
    """Merged buckets of this level, out of all that can be merged by now, such as 12/31."""
    next_run: str | None = None
    """Next time of the schedule, RFC 3339; left out if it runs more often than every ten minutes."""
    running: tuple[RunningTask, ...] = ()
    """Tasks on which minions work, five at most."""
    last_run: str | None = None
    """When tasks were last created, RFC 3339."""
    last_error: str | None = Field(None, max_length=32768)
    """Reason why the last failed task failed."""
    levels: tuple[LevelStatus, ...] = ()
    """Every level, from the finest to the coarsest."""
    history: tuple[MergeRun, ...] = ()
    """The last tasks that ended, the newest first."""


class UpsertTableStatus(SpecModel):
    """Keys of one table as servers report them, rounded."""

    table: str = Field(min_length=1)
    """Name of the Table."""
    ttl: str | None = None
    """How long keys are remembered; left out if forever."""
    keys: Count | None = None
    """Primary keys whose row a later row would replace."""
    valid: Count | None = None
    """Stored rows that are the newest of their key."""
    invalid: Count | None = None
    """Stored rows that were replaced."""
    expired: Count | None = None
    """Keys that have left memory since the servers started."""
    memory_bytes: Count | None = None
    """Memory of keys and valid-doc bits on all replicas."""
    worst_partition: Count | None = None
    """Partition of the replica that takes most memory."""
    worst_partition_bytes: Count | None = None
    """Memory of that replica."""
    replicas: Count | None = None
    """Replicas of partitions."""
    replicas_in_force: Count | None = None
    """Replicas that use the current settings."""
    backfill: str | None = None
    """Step of the last backfill: DISABLE_TTL, SCALE, RECOVER, LOAD, ENABLE_TTL, PRUNE or DONE."""
    segments_rewritten: Count | None = None
    """Number of times that compaction has rewritten a segment without its replaced rows."""
    segments_removed: Count | None = None
    """Segments that compaction has removed because all their rows were replaced."""
    segments_merged: Count | None = None
    """Segments that compaction has merged into others."""
    rows_removed: Count | None = None
    """Rows that compaction has removed."""
    compaction_error: str | None = Field(None, max_length=32768)
    """Reason why a segment cannot be rewritten, after several tries."""


class UpsertConfigStatus(SpecModel):
    """State of an UpsertConfig."""

    observed_generation: Count | None = None
    """The metadata.generation that this status is about."""
    conditions: tuple[StatusCondition, ...] = ()
    """Aspects of the state: Accepted, Ready, Degraded, Executed, SnapshotsCurrent, BackfillProgressing,
    MemorySufficient, CompactionSucceeding."""
    revision: Count | None = None
    """Revision of the manifest in the cluster."""
    tables: tuple[str, ...] = ()
    """Tables that name it."""
    state: str | None = None
    """Executed, Progressing, Waiting, NoTable, MemoryShort, Refused, or the step of a backfill."""
    ttl: str | None = None
    """How long keys are remembered."""
    keys: Count | None = None
    """Primary keys of all its tables, rounded."""
    memory: str | None = None
    """Memory of the keys on all replicas, rounded."""
    snapshot: str | None = None
    """Time of the oldest snapshot that should exist, RFC 3339."""
    per_table: tuple[UpsertTableStatus, ...] = ()
    """State by table."""
