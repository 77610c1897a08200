"""A table's files on a cluster: merged by Spark in Jobs, retained, served again without their source, and deleted."""

import time

from e2e_cluster import Cluster, Json

JANUARY = 27_004
PUSHED = "pushed"
FIELDS = [
    {"name": "time_hour", "type": "TIMESTAMP", "role": "dateTime"},
    {"name": "carrier", "type": "STRING"},
    {"name": "distance", "type": "INT", "role": "metric"},
]
LISTING = (
    "from pyarrow import fs; s = fs.S3FileSystem(region='us-east-1', scheme='http', "
    "endpoint_override='127.0.0.1:5000', access_key='test', secret_key='test'); "
    "print([i.path for i in s.get_file_info(fs.FileSelector('deep', recursive=True)) "
    "if i.is_file and '/kept_OFFLINE/' in i.path])"
)


def kept(policy: str, **spec: object) -> Json:
    """A table of one month, with one server."""
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "kept"},
        "spec": {"schema": {"fields": FIELDS}, "timeColumn": "time_hour", "deletionPolicy": policy, **spec},
    }


def rollup() -> Json:
    """A month is too many rows for a task without Spark."""
    level = {"name": "monthly", "bucketTimePeriod": "1mo", "bufferTimePeriod": "0d", "maxNumRecordsPerTask": 10_000}
    spec = {"table": "kept", "schedule": "5s", "executor": "spark", "levels": [level]}
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "MergeRollupTask",
        "metadata": {"name": "kept"},
        "spec": spec,
    }


def counts(cluster: Cluster) -> tuple[int, int]:
    """Segments and docs of the table."""
    status = cluster.get("table", "kept").get("status", {})
    return status.get("segments", 0), status.get("totalDocs", 0)


def merging(cluster: Cluster) -> list[Json]:
    """Jobs of merges."""
    return [one for one in cluster.all("jobs") if "merlot.dev/task" in one["metadata"].get("annotations", {})]


def files(cluster: Cluster) -> str:
    """Of the table, in the deep store."""
    return cluster.api.execute("s3", ["python", "-c", LISTING]).strip()


def upserted(s3: str, *names: str) -> Json:
    """A table of January by its flights' keys, read once for each name, the latter before the former."""
    source = {"sourceUri": f"s3://sources/flights/2013-01.parquet?{s3}", "format": "PARQUET", "job": {"cores": 1}}
    key = ["carrier", "flight", "time_hour", "origin"]
    fields = [*FIELDS, {"name": "flight", "type": "INT"}, {"name": "origin", "type": "STRING"}]
    document = kept("Delete", ingestion={"batch": [{"name": name, **source} for name in names]})
    document["metadata"]["name"] = PUSHED
    document["spec"] |= {
        "schema": {"fields": fields, "primaryKey": key},
        "partitioning": {"columns": {"flight": {"functionName": "Modulo", "numPartitions": 2}}},
        "upsert": {"config": {"mode": "FULL"}},
    }
    return document


def test_keys_that_are_pushed_anew_replace_what_they_were(release: Cluster, s3: str) -> None:
    counted = f"SELECT COUNT(*), SUM(distance) FROM {PUSHED}"
    release.apply(upserted(s3, "january"))
    is_there = lambda number: release.get("table", PUSHED).get("status", {}).get("totalDocs") == number * JANUARY  # noqa: E731
    release.await_true("January is there", lambda: is_there(1), 300)
    release.await_true("it answers", lambda: release.ask(counted)[0][0] == JANUARY, 60)
    before = release.ask(counted)
    release.apply(upserted(s3, "january", "again"))
    release.await_true("January is there again", lambda: is_there(2), 300)
    stored = f"SET skipUpsert=true; {counted}"
    release.await_true("servers have both", lambda: release.ask(stored)[0][0] == 2 * JANUARY, 60)
    assert release.ask(counted) == before
    release.kubectl("delete", "table", PUSHED, "--timeout=180s")


def test_a_large_bucket_is_merged_by_a_job_of_spark(release: Cluster, s3: str) -> None:
    source = {"name": "january", "sourceUri": f"s3://sources/flights/2013-01.parquet?{s3}", "format": "PARQUET"}
    release.apply(kept("Retain", ingestion={"batch": [{**source, "job": {"cores": 1}}]}))
    release.await_true("January is there", lambda: counts(release)[1] == JANUARY, 300)
    assert counts(release)[0] >= 31
    release.apply(rollup())
    release.await_true("a Job merges", lambda: merging(release), 120)
    release.await_true("one segment per shard and month", lambda: counts(release)[0] <= 6, 400)
    assert counts(release)[1] == JANUARY
    release.await_true("its Job is gone with its task", lambda: not merging(release), 120)
    release.kubectl("delete", "rollup", "kept", "--timeout=60s")


def test_a_retained_table_comes_back_without_its_source_and_goes_with_its_files(release: Cluster) -> None:
    before = counts(release)
    assert before[1] == JANUARY
    release.kubectl("delete", "table", "kept", "--timeout=180s")
    assert release.get("table", "kept") == {}
    time.sleep(5)
    release.apply(kept("Delete"))
    release.await_true("its segments are served", lambda: counts(release) == before, 180)
    release.await_true("it is ready", lambda: release.holds("table", "kept", "Ready"), 180)
    accepted = release.condition("table", "kept", "Accepted")
    assert accepted["reason"] == "Adopted"
    assert accepted["message"].startswith(f"{before[0]} segments ")
    assert files(release) != "[]"
    release.kubectl("delete", "table", "kept", "--timeout=300s")
    assert files(release) == "[]"
