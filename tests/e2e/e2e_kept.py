"""A table of one month in a deep store, with one server, whose files outlive it; and what its conditions say."""

from tests.e2e.e2e_cluster import Cluster, Json

KEPT = "kept"
JANUARY = 27_004
FIELDS = [
    {"name": "time_hour", "type": "TIMESTAMP", "role": "dateTime"},
    {"name": "carrier", "type": "STRING"},
    {"name": "distance", "type": "INT", "role": "metric"},
]
LISTING = (
    "from pyarrow import fs; s = fs.S3FileSystem(region='us-east-1', scheme='http', "
    "endpoint_override='127.0.0.1:5000', access_key='test', secret_key='test'); "
    "print('\\n'.join(i.path for i in s.get_file_info(fs.FileSelector('deep', recursive=True)) if i.is_file))"
)
TOO_SMALL, LARGE_ENOUGH = "16448Ki", "64Mi"
"""A server spares 16 MiB; 64 KiB more hold half of January's days, each of which takes a page."""


def small_table(name: str, **spec: object) -> Json:
    """A small table with one server of its own."""
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": name},
        "spec": {"schema": {"fields": FIELDS}, "timeColumn": "time_hour", "deletionPolicy": "Delete", **spec},
    }


def kept(policy: str, **spec: object) -> Json:
    """A table of one month, with one server."""
    return small_table(KEPT, **{"deletionPolicy": policy, **spec})


def january(s3: str, name: str = "january", form: str = "PARQUET", **job: object) -> Json:
    """A batch of one month, which the driver builds alone."""
    return {
        "name": name,
        "sourceUri": f"s3://sources/flights/2013-01.parquet?{s3}",
        "format": form,
        "job": {"cores": 1, **job},
    }


def rollup() -> Json:
    """A month is too many rows for a task without Spark."""
    level = {"name": "monthly", "bucketTimePeriod": "1mo", "bufferTimePeriod": "0d", "maxNumRecordsPerTask": 10_000}
    spec = {"table": KEPT, "schedule": "5s", "executor": "spark", "levels": [level]}
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": "MergeRollupTask", "metadata": {"name": KEPT}, "spec": spec}


def disk(size: str) -> Json:
    """Tenants whose servers keep segments in memory of that size."""
    volume = {"name": "segments", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    return {"server": {"podTemplate": {"spec": {"volumes": [volume]}}}}


def counts(cluster: Cluster) -> tuple[int, int]:
    """Segments and docs of the table."""
    status = cluster.get("table", KEPT).get("status", {})
    return status.get("segments", 0), status.get("totalDocs", 0)


def merging(cluster: Cluster) -> list[Json]:
    """Jobs of merges."""
    return [one for one in cluster.all("jobs") if "merlot.dev/task" in one["metadata"].get("annotations", {})]


def stored_files(cluster: Cluster, table: str = "") -> list[str]:
    """Paths of a table's files in the deep store, or of all tables'."""
    listed = cluster.api.execute("s3", ["python", "-c", LISTING]).split()
    return [path for path in listed if not table or f"/{table}_OFFLINE/" in path]


def says(cluster: Cluster, name: str, type_: str, status: str, *words: str) -> bool:
    """Whether a condition has that status and its message these words."""
    found = cluster.condition("table", name, type_)
    return found.get("status") == status and all(word in f"{found['reason']} {found['message']}" for word in words)


def has_event(cluster: Cluster, name: str, word: str) -> bool:
    """Whether an event of a table has the word in its reason or message."""
    events = cluster.all("events")
    own = [one for one in events if one["involvedObject"]["name"] == name and one["involvedObject"]["kind"] == "Table"]
    return any(word in f"{one['reason']} {one['message']}" for one in own)


def await_told(cluster: Cluster, name: str, type_: str, status: str, *words: str) -> None:
    """Until a condition says it, and an event as well."""
    cluster.await_true(f"{name} says {words[-1]}", lambda: says(cluster, name, type_, status, *words))
    cluster.await_true("an event says so", lambda: has_event(cluster, name, words[-1]))


def await_healed(cluster: Cluster, name: str) -> None:
    """Until a table is no longer degraded."""
    is_healed = lambda: cluster.condition("table", name, "Degraded").get("status") == "False"  # noqa: E731
    cluster.await_true(f"{name} is healed", is_healed)


def limit(cluster: Cluster, what: str) -> None:
    """Let the namespace have no more of something."""
    metadata = {"name": "nothing-more"}
    cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {what: "0"}}})
    is_known = lambda: what in cluster.get("resourcequota", "nothing-more").get("status", {}).get("used", {})  # noqa: E731
    cluster.await_true("the quota is counted", is_known)


def unlimit(cluster: Cluster) -> None:
    """As before."""
    cluster.kubectl("delete", "resourcequota", "nothing-more", "--ignore-not-found")
