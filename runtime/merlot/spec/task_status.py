"""What the cluster tells about MergeRollupTask and UpsertConfig objects: written by the operator, read with kubectl."""

from pydantic import Field

from merlot.spec.model import SpecModel
from merlot.spec.status import Condition, Count


class LevelStatus(SpecModel):
    """Progress of one level."""

    name: str = Field(min_length=1)
    """Name of the level."""
    state: str | None = None
    """UpToDate, Pending, Running, Failing, Suspended, Refused or Waiting."""
    watermark: str | None = None
    """Start of the bucket that was begun last, RFC 3339."""
    delay: Count | None = None
    """Buckets between the first one to merge and the last one that could be merged by now."""
    progress: str | None = None
    """Merged buckets, out of those that can be merged by now, such as 12/31."""
    buckets_done: Count | None = None
    """Buckets in which everything is merged."""
    buckets_to_do: Count | None = None
    """Buckets that wait to be merged."""
    segments: Count | None = None
    """Segments that are the result of this level."""
    size_bytes: Count | None = None
    """Their size."""
    segments_behind_watermark: Count | None = None
    """Segments that arrived too late for this level."""
    tasks_queued: Count | None = None
    """Tasks that wait or run."""
    tasks_running: Count | None = None
    """Those of them that a minion works on."""
    tasks_poisoned: Count | None = None
    """Tasks that failed for good."""
    last_error: str | None = Field(None, max_length=32768)
    """Why the last failed task failed."""


class MergeRun(SpecModel):
    """A task that ended."""

    id: str = Field(min_length=1)
    """Its name in the queue."""
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
    """How long the last attempt took."""
    attempts: Count | None = None
    """How often it was started."""
    segments_in: Count | None = None
    """Segments that it merged."""
    segments_out: Count | None = None
    """Segments that replaced them."""
    rows_in: Count | None = None
    """Rows of the former."""
    rows_out: Count | None = None
    """Rows of the latter."""
    bytes_in: Count | None = None
    """Size of the former."""
    bytes_out: Count | None = None
    """Size of the latter."""
    error: str | None = Field(None, max_length=2048)
    """Why it failed."""


class RunningTask(SpecModel):
    """A task that a minion works on."""

    id: str = Field(min_length=1)
    """Its name in the queue."""
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
    conditions: tuple[Condition, ...] = ()
    """Aspects of the state: Accepted, Ready, Progressing, Degraded, TaskSucceeded."""
    revision: Count | None = None
    """Revision of the manifest in the cluster."""
    table: str | None = None
    """Name of the table."""
    retried_at: str | None = None
    """Value of the annotation merlot.dev/retry for which tasks that failed for good were tried again."""
    state: str | None = None
    """UpToDate, Pending, Running, Failing, Suspended, Refused or Waiting."""
    message: str | None = Field(None, max_length=32768)
    """Why, and what to do."""
    level: str | None = None
    """The level that is being merged, or the coarsest one."""
    watermark: str | None = None
    """Start of the bucket that this level began last, RFC 3339."""
    delay: Count | None = None
    """Buckets by which this level is behind."""
    progress: str | None = None
    """Merged buckets of this level, out of those that can be merged by now, such as 12/31."""
    next_run: str | None = None
    """When the schedule runs next, RFC 3339; left out if it runs more often than every ten minutes."""
    running: tuple[RunningTask, ...] = ()
    """Tasks that minions work on, five at most."""
    last_run: str | None = None
    """When tasks were last created, RFC 3339."""
    last_error: str | None = Field(None, max_length=32768)
    """Why the last failed task failed."""
    levels: tuple[LevelStatus, ...] = ()
    """Every level, from the finest to the coarsest."""
    history: tuple[MergeRun, ...] = ()
    """The last tasks that ended, the newest first."""


class UpsertTableStatus(SpecModel):
    """Keys of one table, as reported by servers, rounded."""

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
    """Memory of keys and bits on all replicas."""
    worst_partition: Count | None = None
    """The partition whose replica takes most memory."""
    worst_partition_bytes: Count | None = None
    """Memory of that replica."""
    replicas: Count | None = None
    """Replicas of partitions."""
    replicas_in_force: Count | None = None
    """Replicas that use the current settings."""
    backfill: str | None = None
    """Step of the last backfill: DISABLE_TTL, SCALE, RECOVER, LOAD, ENABLE_TTL, PRUNE or DONE."""
    segments_rewritten: Count | None = None
    """Times that compaction has rewritten a segment without its replaced rows."""
    segments_removed: Count | None = None
    """Segments that compaction has removed, since all their rows were replaced."""
    segments_merged: Count | None = None
    """Segments that compaction has merged into others."""
    rows_removed: Count | None = None
    """Rows that compaction has removed."""
    compaction_error: str | None = Field(None, max_length=32768)
    """Why a segment cannot be rewritten, after several tries."""


class UpsertConfigStatus(SpecModel):
    """State of an UpsertConfig."""

    observed_generation: Count | None = None
    """The metadata.generation that this status is about."""
    conditions: tuple[Condition, ...] = ()
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
    """When the oldest snapshot that there should be was written, RFC 3339."""
    per_table: tuple[UpsertTableStatus, ...] = ()
    """State by table."""
