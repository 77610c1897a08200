"""What goes wrong is said by a condition and an event, costs other tables no query, and heals without its cause."""

from collections.abc import Callable, Iterator

import pytest
import yaml
from e2e_cluster import Cluster, Json
from e2e_load import Load

FIELDS = [
    {"name": "time_hour", "type": "TIMESTAMP", "role": "dateTime"},
    {"name": "carrier", "type": "STRING"},
    {"name": "distance", "type": "INT", "role": "metric"},
]


def table(name: str, **spec: object) -> Json:
    """A small table with one server of its own."""
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": name},
        "spec": {"schema": {"fields": FIELDS}, "timeColumn": "time_hour", "deletionPolicy": "Delete", **spec},
    }


@pytest.fixture
def tiny(served: Cluster) -> Iterator[str]:
    """Name of a table that is gone afterwards."""
    yield "tiny"
    served.kubectl("delete", "table", "tiny", "--ignore-not-found", "--timeout=120s")


def says(cluster: Cluster, name: str, type_: str, status: str, *words: str) -> bool:
    """Whether a condition has that status and its message these words."""
    found = cluster.condition("table", name, type_)
    return found.get("status") == status and all(word in f"{found['reason']} {found['message']}" for word in words)


def has_event(cluster: Cluster, name: str, word: str) -> bool:
    """Whether an event of a table has the word in its reason or message."""
    events = cluster.all("events")
    own = [one for one in events if one["involvedObject"]["name"] == name and one["involvedObject"]["kind"] == "Table"]
    return any(word in f"{one['reason']} {one['message']}" for one in own)


def test_an_invalid_manifest_is_refused_at_once_with_its_path(served: Cluster) -> None:
    with pytest.raises(AssertionError, match=r"spec\.replication"):
        served.apply(table("tiny", replication=0))
    with pytest.raises(AssertionError, match="timeColumn"):
        served.patch("table", "flights", {"spec": {"timeColumn": "carrier"}})
    assert served.get("table", "tiny") == {}


def test_a_manifest_that_only_the_operator_can_judge(under_load: Load, served: Cluster, tiny: str) -> None:
    served.apply(table(tiny, indexing={"sortedColumns": ["nope"]}))
    served.await_true("it is not accepted", lambda: says(served, tiny, "Accepted", "False", "nope"), 60)
    served.await_true("an event says so", lambda: has_event(served, tiny, "nope"), 30)
    served.patch("table", tiny, {"spec": {"indexing": None}})
    served.await_true("it is accepted", lambda: served.holds("table", tiny, "Accepted"), 60)


def test_a_missing_secret(under_load: Load, served: Cluster, tiny: str, s3: str) -> None:
    served.apply(table(tiny, deepStore={"uri": "s3://deep/tiny?" + s3, "secretRef": "merlot-absent"}))
    served.await_true("it is degraded", lambda: says(served, tiny, "Degraded", "True", "merlot-absent"), 90)
    served.await_true("an event says so", lambda: has_event(served, tiny, "merlot-absent"), 30)
    metadata = {"name": "merlot-absent"}
    served.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"A": "b"}})
    served.await_true("it is ready", lambda: served.holds("table", tiny, "Ready"), 120)


def test_a_batch_that_fails(under_load: Load, served: Cluster, tiny: str, s3: str) -> None:
    source = {
        "name": "one",
        "sourceUri": f"s3://sources/flights/2013-01.parquet?{s3}",
        "job": {"retries": 0, "cores": 1},
    }
    served.apply(table(tiny, ingestion={"batch": [{**source, "format": "ORC"}]}))
    served.await_true("it failed", lambda: says(served, tiny, "TaskSucceeded", "False", "cannot read source"), 180)
    assert has_event(served, tiny, "cannot read source")
    served.patch("table", tiny, {"spec": {"ingestion": {"batch": [{**source, "format": "PARQUET"}]}}})
    served.await_true("it succeeded", lambda: served.holds("table", tiny, "TaskSucceeded"), 300)
    has_rows = lambda: served.get("table", tiny)["status"].get("totalDocs", 0) > 20_000  # noqa: E731
    served.await_true("a month of rows is there", has_rows, 60)


def test_a_full_disk(under_load: Load, served: Cluster, tiny: str, s3: str) -> None:
    """A server's disk is a small tmpfs: what fits is loaded, the rest once the disk is larger.

    A server spares 16 MiB; 64 KiB more hold half of the days, each of which takes a page."""
    source = {"name": "one", "sourceUri": f"s3://sources/flights/2013-01.parquet?{s3}", "format": "PARQUET"}
    batch = [{**source, "job": {"retries": 0, "cores": 1}}]
    served.apply(table(tiny, tenants=disk("16448Ki"), ingestion={"batch": batch}))
    is_said = lambda: says(served, tiny, "Degraded", "True", "SegmentsFailed", "no space left on the disk")  # noqa: E731
    served.await_true("the table says so", is_said, 300)
    # For five minutes: answers do without a new segment that nobody has loaded.
    assert served.holds("table", tiny, "Ready")
    served.await_true("an event says so", lambda: has_event(served, tiny, "no space left on the disk"), 30)
    served.await_true("there is no claim", lambda: not served.get("pvc", "segments-merlot-server-tiny-0"), 60)
    served.patch("table", tiny, {"spec": {"tenants": disk("64Mi")}})
    served.await_true("it is ready", lambda: served.holds("table", tiny, "Ready"), 180)
    is_healed = lambda: served.condition("table", tiny, "Degraded").get("status") == "False"  # noqa: E731
    served.await_true("it is healed", is_healed, 60)
    assert served.get("table", tiny)["status"]["totalDocs"] > 20_000


@pytest.fixture
def limited(served: Cluster) -> Iterator[Callable[[str], None]]:
    """Lets the namespace have no more of something; without limits afterwards."""

    def limit(what: str) -> None:
        metadata = {"name": "nothing-more"}
        served.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {what: "0"}}})
        is_known = lambda: what in served.get("resourcequota", "nothing-more").get("status", {}).get("used", {})  # noqa: E731
        served.await_true("the quota is counted", is_known, 60)

    yield limit
    served.kubectl("delete", "resourcequota", "nothing-more", "--ignore-not-found")


def test_a_quota_without_room_for_a_job(
    under_load: Load, served: Cluster, tiny: str, s3: str, limited: Callable[[str], None]
) -> None:
    limited("count/jobs.batch")
    source = {"name": "one", "sourceUri": f"s3://sources/flights/2013-01.parquet?{s3}", "format": "PARQUET"}
    served.apply(table(tiny, ingestion={"batch": [{**source, "job": {"retries": 0, "cores": 1}}]}))
    is_said = lambda: says(served, tiny, "Degraded", "True", "BatchBlocked", "exceeded quota")  # noqa: E731
    served.await_true("the table says so", is_said, 90)
    served.await_true("an event says so", lambda: has_event(served, tiny, "exceeded quota"), 30)
    served.kubectl("delete", "resourcequota", "nothing-more")
    served.await_true("the batch succeeded", lambda: served.holds("table", tiny, "TaskSucceeded"), 300)


def test_a_quota_without_room_for_a_server(
    under_load: Load, served: Cluster, tiny: str, limited: Callable[[str], None]
) -> None:
    served.apply(table(tiny))
    served.await_true("it is ready", lambda: served.holds("table", tiny, "Ready"), 180)
    limited("pods")
    served.kubectl("scale", "table", tiny, "--replicas=2")
    is_said = lambda: says(served, tiny, "Degraded", "True", "PodsRefused", "exceeded quota")  # noqa: E731
    served.await_true("the table says so", is_said, 90)
    served.await_true("an event says so", lambda: has_event(served, tiny, "exceeded quota"), 30)
    assert served.holds("table", tiny, "Ready")
    served.kubectl("delete", "resourcequota", "nothing-more")
    is_healed = lambda: served.condition("table", tiny, "Degraded").get("status") == "False"  # noqa: E731
    served.await_true("it is healed", is_healed, 300)


def disk(size: str) -> Json:
    """Tenants whose servers keep segments in memory of that size."""
    volume = {"name": "segments", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    return {"server": {"podTemplate": {"spec": {"volumes": [volume]}}}}


def test_zookeeper_that_cannot_be_reached(under_load: Load, served: Cluster) -> None:
    served.kubectl("scale", "statefulset", "merlot-zookeeper", "--replicas=0")
    served.patch("table", "flights", {"spec": {"limits": {"timeoutMs": 20_000}}})
    is_said = lambda: says(served, "flights", "ConfigInSync", "False", "ZooKeeper")  # noqa: E731
    served.await_true("the table says so", is_said, 120)
    served.await_true("an event says so", lambda: has_event(served, "flights", "MetastoreUnavailable"), 30)
    served.kubectl("scale", "statefulset", "merlot-zookeeper", "--replicas=1")
    served.await_true("it is in sync", lambda: served.holds("table", "flights", "ConfigInSync"), 120)
    assert served.holds("table", "flights", "Ready")


def test_an_image_that_is_not_there_stops_the_rollout(under_load: Load, served: Cluster, package, values: Json) -> None:
    images = {**values["images"], "runtime": {**values["images"]["runtime"], "tag": "not-there"}}
    wrong, right = package.with_name("wrong.yaml"), package.with_name("values.yaml")
    wrong.write_text(yaml.safe_dump({**values, "images": images}))
    served.helm("upgrade", "merlot", str(package), "--values", str(wrong), "--wait", "--timeout=3m")
    served.await_true("it is said", lambda: says(served, "flights", "Degraded", "True", "not-there"), 120)
    served.await_true("an event says so", lambda: has_event(served, "flights", "not-there"), 30)
    served.helm("upgrade", "merlot", str(package), "--values", str(right), "--wait", "--timeout=3m")
    is_healed = lambda: served.condition("table", "flights", "Degraded").get("status") == "False"  # noqa: E731
    served.await_true("it is healed", is_healed, 180)
    assert served.holds("table", "flights", "Ready")
