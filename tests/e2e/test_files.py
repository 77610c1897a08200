"""A table's files on a cluster: merged by Spark in Jobs, retained, served again without their source, and deleted."""

import time

import pytest
from tests.e2e.e2e_cluster import Cluster, Json
from tests.e2e.e2e_kept import FIELDS, JANUARY, counts, january, kept, merging, rollup, stored_files

PUSHED = "pushed"

pytestmark = pytest.mark.slow("test_whole_life.py has a table that is merged by Spark, retained and adopted")


def upserted(s3: str, *names: str) -> Json:
    """A table of January by its flights' keys, read once for each name, the latter before the former."""
    key = ["carrier", "flight", "time_hour", "origin"]
    fields = [*FIELDS, {"name": "flight", "type": "INT"}, {"name": "origin", "type": "STRING"}]
    document = kept("Delete", ingestion={"batch": [january(s3, name) for name in names]})
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
    release.await_true("January is there", lambda: is_there(1))
    release.await_true("it answers", lambda: release.ask(counted)[0][0] == JANUARY)
    before = release.ask(counted)
    release.apply(upserted(s3, "january", "again"))
    release.await_true("January is there again", lambda: is_there(2))
    stored = f"SET skipUpsert=true; {counted}"
    release.await_true("servers have both", lambda: release.ask(stored)[0][0] == 2 * JANUARY)
    assert release.ask(counted) == before
    release.kubectl("delete", "table", PUSHED, "--timeout=300s")


def test_a_large_bucket_is_merged_by_a_job_of_spark(release: Cluster, s3: str) -> None:
    release.apply(kept("Retain", ingestion={"batch": [january(s3)]}))
    release.await_true("January is there", lambda: counts(release)[1] == JANUARY)
    assert counts(release)[0] >= 31
    release.apply(rollup())
    release.await_true("a Job merges", lambda: merging(release))
    release.await_true("one segment per shard and month", lambda: counts(release)[0] <= 6, 400)
    assert counts(release)[1] == JANUARY
    release.await_true("its Job is gone with its task", lambda: not merging(release))
    release.kubectl("delete", "rollup", "kept", "--timeout=300s")


def test_a_retained_table_comes_back_without_its_source_and_goes_with_its_files(release: Cluster) -> None:
    before = counts(release)
    assert before[1] == JANUARY
    release.kubectl("delete", "table", "kept", "--timeout=300s")
    assert release.get("table", "kept") == {}
    time.sleep(5)
    release.apply(kept("Delete"))
    release.await_true("its segments are served", lambda: counts(release) == before)
    release.await_true("it is ready", lambda: release.holds("table", "kept", "Ready"))
    accepted = release.condition("table", "kept", "Accepted")
    assert accepted["reason"] == "Adopted"
    assert accepted["message"].startswith(f"{before[0]} segments ")
    assert stored_files(release, "kept")
    release.kubectl("delete", "table", "kept", "--timeout=300s")
    assert not stored_files(release, "kept")
