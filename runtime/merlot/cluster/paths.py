"""Where everything is in the metastore: the only module that spells a path.

/CONFIGS/TABLE/{table}                  TableRecord
/SEGMENTS/{table}                       root of the table's segments: one compare-and-set publishes anything
/SEGMENTS/{table}/{bucket}-{content}    immutable bucket of segment records and their assignment
/REPORTS/{table}/{instance}             what a server has loaded: a small root …
/REPORTS/{table}/{instance}/{bucket}    … and the keys of one bucket
/LIVE/{instance}                        ephemeral InstanceRecord
/LEASES/{name}                          the holder; /LEASES/{name}/{token}: ephemeral, the holder's pulse
/TRASH/{table}/{id}                     files that no record names any more
/TASKS/{kind}/{id}                      a queued task; the lease `task-{kind}-{id}` says who runs it
"""

from merlot.errors import InvalidInputError

TABLES = "/CONFIGS/TABLE"
SEGMENTS = "/SEGMENTS"
REPORTS = "/REPORTS"
LIVE = "/LIVE"
LEASES = "/LEASES"
TRASH = "/TRASH"
TASKS = "/TASKS"

MAX_NAME_BYTES = 255


def table_config(table: str) -> str:
    """The table's TableRecord."""
    return _join(TABLES, table)


def segments_root(table: str) -> str:
    """The node that readers of the table's segments watch."""
    return _join(SEGMENTS, table)


def segment_bucket(table: str, bucket: int, content_id: str) -> str:
    """One immutable bucket."""
    return f"{segments_root(table)}/{bucket}-{content_id}"


def reports(table: str) -> str:
    """Parent of the servers' reports about a table."""
    return _join(REPORTS, table)


def report_root(table: str, instance: str) -> str:
    """Root of one server's report."""
    return _join(reports(table), instance)


def report_bucket(table: str, instance: str, bucket: int) -> str:
    """One bucket of a server's report."""
    return f"{report_root(table, instance)}/{bucket}"


def live(instance: str) -> str:
    """The ephemeral of a running process."""
    return _join(LIVE, instance)


def lease(name: str) -> str:
    """The lease's node; its children are pulses."""
    return _join(LEASES, name)


def trash(table: str) -> str:
    """Parent of the lists of files to delete."""
    return _join(TRASH, table)


def tasks(kind: str) -> str:
    """Queue of one kind of task."""
    return _join(TASKS, kind)


def child(parent: str, name: str) -> str:
    """A child of a node that this module named."""
    return _join(parent, name)


def parents(path: str) -> list[str]:
    """The ancestors of a path below the root, outermost first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _join(parent: str, name: str) -> str:
    is_plain = bool(name) and name not in {".", ".."} and "/" not in name and name.isprintable()
    if not is_plain or len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidInputError(f"name cannot be part of a path name={name!r}")
    return f"{parent}/{name}"
