"""Paths of all nodes in the metastore: the only module that spells them.

/CONFIGS/TABLE/{table}                  TableRecord
/CONFIGS/ROLLUP/{name}                  RollupRecord: a MergeRollupTask as applied
/CONFIGS/UPSERT/{name}                  UpsertRecord: an UpsertConfig as applied
/CONFIGS/SCHEMA/{name}                  SchemaRecord: a schema in Pinot's form that was written apart from its table
/SEGMENTS/{table}                       root of the table's segments: one compare-and-set publishes anything; after
                                        a deletion that retained files, the start of the next table of its name
/SEGMENTS/{table}/{bucket}-{content}    immutable bucket of segment records and their assignment
/SEGMENT_LINEAGE/{table}/{entry}~{content}      inputs and outputs of a replacement, immutable; more names in …
/SEGMENT_LINEAGE/{table}/{entry}~{content}~{n}  … chunks
/POSITIONS/{table}/{segment}~{instance} PositionRecord of a replica that has a reason to end its segment
/STREAMS/{table}                        StreamRecord: the partitions of the table's stream, found by a server
/STREAM_CONTROLS/{table}                StreamControlRecord: the standing request of a client about the stream
/STREAM_PROGRESS/{table}/{instance}     ProgressRecord of a server that consumes the stream's partitions
/BACKFILLS/{table}                      BackfillRecord: the last backfill of an upsert table, and its step
/REPORTS/{table}/{instance}             report of what a server has loaded: a small root …
/REPORTS/{table}/{instance}/{bucket}    … and the keys of one bucket
/LIVE/{instance}                        ephemeral InstanceRecord
/ECHO/{broker}                          EchoRecord: what a broker runs, and the marked servers that it still routes to
/DRAIN/{instance}                       DrainRecord: a mark that brokers route around
/REBALANCE/{table}                      RebalanceRecord: the last rebalance that was requested
/LEASES/{name}                          the holder; /LEASES/{name}/{token}: ephemeral, the holder's pulse
/TRASH/{table}/{id}                     files that no record names any more
/CONDEMNED/{table}                      files of the trash that are being deleted now
/TASKS/{kind}/{id}                      a queued task; its runner holds the lease `task-{kind}-{id}`
/TASK_PROGRESS/{kind}/{id}              TaskProgress of its runner
/TASK_HISTORY/{kind}/{table}            the last tasks that have ended
/VALID_DOCS/{task}                      ValidDocsRecord: docs that a compaction keeps, reported by a server
/MINION_TASK_METADATA/{kind}/{table}    WatermarkRecord of a table's tasks
/STORE_ID                               unique id of this metastore
/LOST/{table}                           LostRecord: the deep store remembers segments of it that are missing here
/SURE_TIME                              a time that has surely passed, in decimal digits: milliseconds since the epoch
/HOME                                   HomeRecord: the Kubernetes namespace whose cluster this is
/OPERATORS/{namespace}                  the operator that writes what the namespace declares; its version is the fence
"""

from merlot.errors import InvalidInputError

TABLES = "/CONFIGS/TABLE"
ROLLUPS = "/CONFIGS/ROLLUP"
UPSERTS = "/CONFIGS/UPSERT"
SCHEMAS = "/CONFIGS/SCHEMA"
SEGMENTS = "/SEGMENTS"
LINEAGE = "/SEGMENT_LINEAGE"
POSITIONS = "/POSITIONS"
STREAMS = "/STREAMS"
STREAM_CONTROLS = "/STREAM_CONTROLS"
BACKFILLS = "/BACKFILLS"
REPORTS = "/REPORTS"
STREAM_PROGRESS = "/STREAM_PROGRESS"
LIVE = "/LIVE"
ECHOES = "/ECHO"
DRAINS = "/DRAIN"
REBALANCES = "/REBALANCE"
LEASES = "/LEASES"
TRASH = "/TRASH"
CONDEMNED = "/CONDEMNED"
TASKS = "/TASKS"
TASK_PROGRESS = "/TASK_PROGRESS"
TASK_HISTORY = "/TASK_HISTORY"
VALID_DOCS = "/VALID_DOCS"
TASK_METADATA = "/MINION_TASK_METADATA"
STORE_ID = "/STORE_ID"
LOST = "/LOST"
SURE_TIME = "/SURE_TIME"
HOME = "/HOME"
OPERATORS = "/OPERATORS"

MAX_NAME_BYTES = 255


def operator(namespace: str) -> str:
    """Return the path of the OperatorRecord of a namespace."""
    return _join(OPERATORS, namespace)


def table_config(table: str) -> str:
    """Return the path of the table's TableRecord."""
    return _join(TABLES, table)


def valid_docs(task_id: str) -> str:
    """Return the path of the ValidDocsRecord of a compaction."""
    return _join(VALID_DOCS, task_id)


def rollup_config(name: str) -> str:
    """Return the path of a MergeRollupTask as it was applied."""
    return _join(ROLLUPS, name)


def upsert_config(name: str) -> str:
    """Return the path of an UpsertConfig as it was applied."""
    return _join(UPSERTS, name)


def schema(name: str) -> str:
    """Return the path of a schema in Pinot's form."""
    return _join(SCHEMAS, name)


def segments_root(table: str) -> str:
    """Return the path of the root, which readers of the table's segments watch."""
    return _join(SEGMENTS, table)


def segment_bucket(table: str, bucket: int, content_id: str) -> str:
    """Return the path of an immutable bucket."""
    return f"{segments_root(table)}/{bucket}-{content_id}"


def lineage(table: str) -> str:
    """Return the parent of the details of the table's replacements."""
    return _join(LINEAGE, table)


def lineage_entry(table: str, entry: str, content_id: str) -> str:
    """Return the path of the inputs and outputs of a replacement."""
    return _join(lineage(table), f"{entry}~{content_id}")


def lineage_chunk(table: str, entry: str, content_id: str, number: int) -> str:
    """Return the path of more inputs and outputs of a replacement."""
    return f"{lineage_entry(table, entry, content_id)}~{number}"


def positions(table: str) -> str:
    """Return the parent of the positions of replicas that have a reason to end their segments."""
    return _join(POSITIONS, table)


def position(table: str, segment: str, instance: str) -> str:
    """Return the path of one replica's position in a segment."""
    return _join(positions(table), f"{segment}~{instance}")


def stream(table: str) -> str:
    """Return the path of the table's StreamRecord."""
    return _join(STREAMS, table)


def stream_control(table: str) -> str:
    """Return the path of the table's StreamControlRecord."""
    return _join(STREAM_CONTROLS, table)


def backfill(table: str) -> str:
    """Return the path of the last backfill of an upsert table."""
    return _join(BACKFILLS, table)


def reports(table: str) -> str:
    """Return the parent of the servers' reports about a table."""
    return _join(REPORTS, table)


def report_root(table: str, instance: str) -> str:
    """Return the root of one server's report."""
    return _join(reports(table), instance)


def report_bucket(table: str, instance: str, bucket: int) -> str:
    """Return the path of one bucket of a server's report."""
    return f"{report_root(table, instance)}/{bucket}"


def all_progress(table: str) -> str:
    """Return the parent of the servers' progress in the table's stream."""
    return _join(STREAM_PROGRESS, table)


def stream_progress(table: str, instance: str) -> str:
    """Return the path of one server's progress in the table's stream."""
    return _join(all_progress(table), instance)


def live(instance: str) -> str:
    """Return the path of the ephemeral of a running process."""
    return _join(LIVE, instance)


def echo(broker: str) -> str:
    """Return the path of a broker's EchoRecord."""
    return _join(ECHOES, broker)


def drain(instance: str) -> str:
    """Return the path of the mark of an instance that is about to stop."""
    return _join(DRAINS, instance)


def rebalance(table: str) -> str:
    """Return the path of the last rebalance that was requested."""
    return _join(REBALANCES, table)


def lease(name: str) -> str:
    """Return the path of a lease; its children are pulses."""
    return _join(LEASES, name)


def lost(table: str) -> str:
    """Return the path of the record of a table's loss."""
    return _join(LOST, table)


def trash(table: str) -> str:
    """Return the parent of the lists of files to delete."""
    return _join(TRASH, table)


def condemned(table: str) -> str:
    """Return the path of the list of files that are being deleted."""
    return _join(CONDEMNED, table)


def tasks(kind: str) -> str:
    """Return the parent of the queued tasks of one kind."""
    return _join(TASKS, kind)


def task(kind: str, task_id: str) -> str:
    """Return the path of a queued task."""
    return _join(tasks(kind), task_id)


def progress_of(kind: str) -> str:
    """Return the parent of the progress of tasks of one kind."""
    return _join(TASK_PROGRESS, kind)


def task_progress(kind: str, task_id: str) -> str:
    """Return the path of the progress that a task's runner reported last."""
    return _join(progress_of(kind), task_id)


def task_history(kind: str, table: str) -> str:
    """Return the path of the table's tasks that have ended."""
    return _join(_join(TASK_HISTORY, kind), table)


def task_metadata(kind: str, table: str) -> str:
    """Return the path of the WatermarkRecord of the table's tasks of this kind."""
    return _join(_join(TASK_METADATA, kind), table)


def child(parent: str, name: str) -> str:
    """Return the path of a child of a node that this module named."""
    return _join(parent, name)


def _join(parent: str, name: str) -> str:
    is_plain = bool(name) and name not in {".", ".."} and "/" not in name and name.isprintable()
    if not is_plain or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidInputError(f"name cannot be part of a path name={name!r}")
    return f"{parent}/{name}"
