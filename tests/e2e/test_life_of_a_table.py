"""A table's life on a cluster, in order, every change under a constant load of which no query fails or is wrong."""

import time
from pathlib import Path

import pytest
from tests.e2e.e2e_changes import BROKERS, SERVERS, change_image, is_ready, is_settled, restarts, runs
from tests.e2e.e2e_cluster import MANAGED, Cluster, Json
from tests.e2e.e2e_indexes import BY_CARRIER, BY_FLIGHT, TREE, added, counts, indexed, plan
from tests.e2e.e2e_kept import stored_files
from tests.e2e.e2e_load import Load

pytestmark = pytest.mark.slow("test_whole_life.py does the same to a quarter of the flights, side by side")


def test_spark_builds_every_day_and_kubectl_tells_so(served: Cluster) -> None:
    columns = served.kubectl("get", "tables").splitlines()
    assert columns[0].split() == ["NAME", "READY", "SEGMENTS", "DOCS", "SIZE", "BROKERS", "SERVERS", "AGE"]
    assert columns[1].split()[:4] == ["flights", "True", "366", "336776"]
    (batch,) = served.get("table", "flights")["status"]["batches"]
    assert (batch["state"], batch["rowsIn"], batch["segments"]) == ("Succeeded", 336_776, 366)


def test_an_index_is_added_to_every_day(under_load: Load, served: Cluster, flights: Json) -> None:
    told = added(served, indexed(flights, inverted=["carrier", "origin", "dest", "tailnum"]), 240)
    print(f"\nindexes: {' '.join(told)}")
    shown = [counts(one) for one in told]
    assert any(built < wanted for built, wanted in shown), "kubectl shows how far servers are"
    assert shown[-1] == (732, 732), "each of two servers has 366 segments"


def test_months_are_merged_by_a_rollup_task(under_load: Load, served: Cluster) -> None:
    served.apply(
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "MergeRollupTask",
            "metadata": {"name": "flights"},
            "spec": {
                "table": "flights",
                "levels": [{"name": "monthly", "bucketTimePeriod": "1mo", "bufferTimePeriod": "0d"}],
                "schedule": "5s",
            },
        }
    )
    served.await_true("the task was accepted", lambda: served.holds("rollup", "flights", "Accepted"))


def test_servers_scale_up_and_down(under_load: Load, served: Cluster) -> None:
    for replicas in (3, 2):
        served.kubectl("scale", "table", "flights", f"--replicas={replicas}")
        served.await_true(f"{replicas} servers", lambda replicas=replicas: is_settled(served, "flights", replicas))


def test_pruners_change_without_a_restart(under_load: Load, served: Cluster) -> None:
    before = {role: restarts(served, role) for role in (SERVERS, BROKERS, "controller")}
    for pruners in (["time"], ["time", "range", "bloom"]):
        served.patch("table", "flights", {"spec": {"routing": {"segmentPruners": pruners}}})
        served.await_true("every pod echoes it", lambda: served.holds("table", "flights", "ConfigInSync"))
    assert {role: restarts(served, role) for role in before} == before


def test_a_killed_server_pod_comes_back(under_load: Load, served: Cluster) -> None:
    victim = sorted(served.pods(SERVERS))[0]
    served.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    served.await_true("two servers", lambda: is_settled(served, "flights", 2))


def test_servers_are_evicted_one_at_a_time(under_load: Load, served: Cluster) -> None:
    before = restarts(served, SERVERS)
    first, second = sorted(before)
    assert served.api.evict(first)
    assert not served.api.evict(second), "the budget spares the other one"
    served.await_true("two servers", lambda: is_settled(served, "flights", 2))
    after = restarts(served, SERVERS)
    assert (after[first] != before[first], after[second]) == (True, before[second])


def test_a_killed_broker_pod_comes_back(under_load: Load, served: Cluster) -> None:
    served.kubectl("delete", "pod", sorted(served.pods(BROKERS))[0], "--grace-period=0", "--force", "--wait=false")
    is_back = lambda: len(served.pods(BROKERS)) == 2 and all(map(is_ready, served.pods(BROKERS).values()))  # noqa: E731
    served.await_true("two brokers", is_back)


def test_zookeeper_goes_and_comes(under_load: Load, served: Cluster) -> None:
    served.kubectl("delete", "pod", "merlot-zookeeper-0", "--wait=true")
    served.kubectl("rollout", "status", "statefulset/merlot-zookeeper", "--timeout=300s")
    time.sleep(12)  # sessions that were lost end by now, and are made anew
    served.await_true("the table is ready again", lambda: is_settled(served, "flights", 2))


def test_an_operator_that_restarts_restarts_nothing(under_load: Load, served: Cluster) -> None:
    before = {role: restarts(served, role) for role in (SERVERS, BROKERS, "controller")}
    jobs = [one["metadata"]["uid"] for one in served.all("jobs", MANAGED)]
    served.kubectl("rollout", "restart", "deployment/merlot-operator")
    served.kubectl("rollout", "status", "deployment/merlot-operator", "--timeout=300s")
    time.sleep(10)
    assert {role: restarts(served, role) for role in before} == before
    assert [one["metadata"]["uid"] for one in served.all("jobs", MANAGED)] == jobs


def test_a_new_image_rolls_pod_by_pod(under_load: Load, served: Cluster, package: Path, values: Json) -> None:
    before = restarts(served, SERVERS)
    change_image(served, package, values, "runtime-next")
    is_over = lambda: runs(served, "runtime-next") and is_settled(served, "flights", 2)  # noqa: E731
    served.await_true("every pod runs the new image", is_over)
    assert not set(before.values()) & set(restarts(served, SERVERS).values())


def test_an_image_changes_while_a_slow_deep_store_loads(
    under_load: Load, served: Cluster, package: Path, values: Json
) -> None:
    """A third server joins, what moves to it comes slowly, and meanwhile the image of before comes back: to one server
    after the other."""
    before = restarts(served, SERVERS)
    served.kubectl("exec", "s3", "--", "touch", "/tmp/slow")
    try:
        served.kubectl("scale", "table", "flights", "--replicas=3")
        is_loading = lambda: "servers load" in served.condition("table", "flights", "Progressing").get("message", "")  # noqa: E731
        served.await_true("segments are on their way", is_loading)
        change_image(served, package, values, "runtime")
        served.await_true("a server restarts", lambda: set(before.values()) - set(restarts(served, SERVERS).values()))
        assert is_loading(), "everything was loaded when a server restarted: the deep store was not slow enough"
    finally:
        served.kubectl("exec", "s3", "--", "rm", "-f", "/tmp/slow")
    is_over = lambda: runs(served, "runtime") and is_settled(served, "flights", 3)  # noqa: E731
    served.await_true("every server runs the image of before", is_over)
    assert not set(before.values()) & set(restarts(served, SERVERS).values())
    served.kubectl("scale", "table", "flights", "--replicas=2")
    served.await_true("two servers", lambda: is_settled(served, "flights", 2))


def test_the_merge_has_ended(under_load: Load, served: Cluster) -> None:
    def is_merged() -> bool:
        return 12 <= served.get("table", "flights")["status"].get("segments", 0) <= 14

    served.await_true("13 segments, one per month", is_merged)
    assert served.get("table", "flights")["status"]["totalDocs"] == 336_776


def test_an_index_and_a_tree_are_added_to_months(under_load: Load, served: Cluster, flights: Json) -> None:
    before = plan(served, BY_FLIGHT), plan(served, BY_CARRIER)
    assert ("INVERTED" in before[0], "STARTREE" in before[1]) == (False, False), before
    more = indexed(flights, inverted=["carrier", "origin", "dest", "flight"], starTreeIndexConfigs=[TREE])
    told = added(served, more, 120)
    after = plan(served, BY_FLIGHT), plan(served, BY_CARRIER)
    print(f"\nindexes: {' '.join(told)}\n{before[0]}\n{after[0]}\n{before[1]}\n{after[1]}")
    assert "FILTER_INVERTED_INDEX" in after[0]
    assert "FILTER_STARTREE_INDEX(indexLookUp:star_tree[month, carrier])" in after[1]


def test_nothing_is_left(load: Load, served: Cluster) -> None:
    final = load.sums()
    served.kubectl("delete", "pod", "load", "--wait=false")
    served.kubectl("delete", "rollups,tables", "--all", "--timeout=300s")
    kinds = "pods,deployments,statefulsets,services,configmaps,jobs,pdb,networkpolicies,pvc,serviceaccounts"

    def left() -> list[str]:
        return [f"{one['kind']}/{one['metadata']['name']}" for one in served.all(kinds, MANAGED)]

    served.await_true("no object is left", lambda: not left())
    assert (final["failed"], final["wrong"]) == (0, 0), final["samples"]
    print(f"\n{final['queries']} queries, {final['retried']} retried after a reset, slowest {final['slowest_ms']} ms")
    served.await_true("no segment file is left", lambda: not stored_files(served))
