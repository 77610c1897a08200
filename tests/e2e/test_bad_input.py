"""What goes wrong is said by a condition and an event, costs other tables no query, and heals without its cause."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.e2e_changes import upgrade, with_runtime
from tests.e2e.e2e_cluster import Cluster, Json
from tests.e2e.e2e_kept import (
    LARGE_ENOUGH,
    TOO_SMALL,
    await_healed,
    await_told,
    disk,
    has_event,
    january,
    limit,
    says,
    small_table,
    unlimit,
)
from tests.e2e.e2e_load import Load

pytestmark = pytest.mark.slow("test_whole_life.py has most of this on one table, beside others")


@pytest.fixture
def tiny(served: Cluster) -> Iterator[str]:
    """Name of a table that is gone afterwards."""
    yield "tiny"
    served.kubectl("delete", "table", "tiny", "--ignore-not-found", "--timeout=300s")


def test_a_manifest_that_only_the_operator_can_judge(under_load: Load, served: Cluster, tiny: str) -> None:
    served.apply(small_table(tiny, indexing={"sortedColumns": ["nope"]}))
    await_told(served, tiny, "Accepted", "False", "nope")
    served.patch("table", tiny, {"spec": {"indexing": None}})
    served.await_true("it is accepted", lambda: served.holds("table", tiny, "Accepted"))


def test_a_missing_secret(under_load: Load, served: Cluster, tiny: str, s3: str) -> None:
    served.apply(small_table(tiny, deepStore={"uri": "s3://deep/tiny?" + s3, "secretRef": "merlot-absent"}))
    await_told(served, tiny, "Degraded", "True", "merlot-absent")
    metadata = {"name": "merlot-absent"}
    served.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"A": "b"}})
    served.await_true("it is ready", lambda: served.holds("table", tiny, "Ready"))


def test_a_batch_that_fails(under_load: Load, served: Cluster, tiny: str, s3: str) -> None:
    served.apply(small_table(tiny, ingestion={"batch": [january(s3, form="ORC", retries=0)]}))
    await_told(served, tiny, "TaskSucceeded", "False", "cannot read source")
    served.patch("table", tiny, {"spec": {"ingestion": {"batch": [january(s3, retries=0)]}}})
    served.await_true("it succeeded", lambda: served.holds("table", tiny, "TaskSucceeded"))
    has_rows = lambda: served.get("table", tiny)["status"].get("totalDocs", 0) > 20_000  # noqa: E731
    served.await_true("a month of rows is there", has_rows)


def test_a_full_disk(under_load: Load, served: Cluster, tiny: str, s3: str) -> None:
    """A server's disk is a small tmpfs: what fits is loaded, the rest once the disk is larger."""
    batch = [january(s3, retries=0)]
    served.apply(small_table(tiny, tenants=disk(TOO_SMALL), ingestion={"batch": batch}))
    await_told(served, tiny, "Degraded", "True", "SegmentsFailed", "no space left on the disk")
    # For five minutes: answers do without a new segment that nobody has loaded.
    assert served.holds("table", tiny, "Ready")
    served.await_true("there is no claim", lambda: not served.get("pvc", "segments-merlot-server-tiny-0"))
    served.patch("table", tiny, {"spec": {"tenants": disk(LARGE_ENOUGH)}})
    served.await_true("it is ready", lambda: served.holds("table", tiny, "Ready"))
    await_healed(served, tiny)
    assert served.get("table", tiny)["status"]["totalDocs"] > 20_000


@pytest.fixture
def limited(served: Cluster) -> Iterator[Callable[[str], None]]:
    """Lets the namespace have no more of something; without limits afterwards."""
    yield lambda what: limit(served, what)
    unlimit(served)


def test_a_quota_without_room_for_a_job(
    under_load: Load, served: Cluster, tiny: str, s3: str, limited: Callable[[str], None]
) -> None:
    limited("count/jobs.batch")
    served.apply(small_table(tiny, ingestion={"batch": [january(s3, retries=0)]}))
    await_told(served, tiny, "Degraded", "True", "BatchBlocked", "exceeded quota")
    unlimit(served)
    served.await_true("the batch succeeded", lambda: served.holds("table", tiny, "TaskSucceeded"))


def test_a_quota_without_room_for_a_server(
    under_load: Load, served: Cluster, tiny: str, limited: Callable[[str], None]
) -> None:
    served.apply(small_table(tiny))
    served.await_true("it is ready", lambda: served.holds("table", tiny, "Ready"))
    limited("pods")
    served.kubectl("scale", "table", tiny, "--replicas=2")
    await_told(served, tiny, "Degraded", "True", "PodsRefused", "exceeded quota")
    assert served.holds("table", tiny, "Ready")
    unlimit(served)
    await_healed(served, tiny)


def test_zookeeper_that_cannot_be_reached(under_load: Load, served: Cluster) -> None:
    served.kubectl("scale", "statefulset", "merlot-zookeeper", "--replicas=0")
    served.patch("table", "flights", {"spec": {"limits": {"timeoutMs": 20_000}}})
    is_said = lambda: says(served, "flights", "ConfigInSync", "False", "ZooKeeper")  # noqa: E731
    served.await_true("the table says so", is_said)
    served.await_true("an event says so", lambda: has_event(served, "flights", "MetastoreUnavailable"))
    served.kubectl("scale", "statefulset", "merlot-zookeeper", "--replicas=1")
    served.await_true("it is in sync", lambda: served.holds("table", "flights", "ConfigInSync"))
    assert served.holds("table", "flights", "Ready")


def test_an_image_that_is_not_there_stops_the_rollout(
    under_load: Load, served: Cluster, package: Path, values: Json
) -> None:
    upgrade(served, package, with_runtime(values, "merlot-runtime:not-there"), "wrong")
    await_told(served, "flights", "Degraded", "True", "not-there")
    upgrade(served, package, values, "right")
    await_healed(served, "flights")
    assert served.holds("table", "flights", "Ready")
