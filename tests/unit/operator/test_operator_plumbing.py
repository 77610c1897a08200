"""Comparison, queue, store, environment, demand and conditions: the operator's small parts."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from merlot.errors import InvalidInputError
from merlot_operator.accepted import text_of
from merlot_operator.config import Config, from_environment
from merlot_operator.desired.demand import cluster_demand, pool_demand, pool_of, tenant_of
from merlot_operator.kube.cache import Store
from merlot_operator.kube.client import Listing
from merlot_operator.kube.compare import differences, holds
from merlot_operator.kube.kinds import TABLES
from merlot_operator.kube.pods import problems
from merlot_operator.reconcilers.refusals import next_attempt
from merlot_operator.status import conditions
from merlot_operator.status.conditions import Condition
from merlot_operator.workqueue import QueueKey, Subject, WorkQueue

CONFIG = Config(metastore="zk://zk:2181/m", deep_store="s3://b/m?region=x", runtime_image="r:1", spark_image="s:1")
ONE, TWO = QueueKey(Subject.TABLE, "n", "one"), QueueKey(Subject.TABLE, "n", "two")


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1, "default": 2}, {"a": 1}),
        ({"a": 1}, {"a": 1, "empty": {}, "none": []}),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"}),
        ([{"name": "b", "x": 1}, {"name": "a", "y": 2}], [{"name": "a", "y": 2}]),
        ([{"port": 1, "protocol": "TCP"}], [{"port": 1}]),
    ],
)
def test_what_the_api_server_adds_is_no_difference(live: Any, wanted: Any) -> None:
    assert holds(live, wanted)


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": 1}),
        ({"cpu": "1"}, {"cpu": "100m"}),
        ([{"name": "b"}], [{"name": "a"}]),
        (["--x=1", "--y"], ["--x=1"]),
        ({"image": "a:1"}, {"image": "a:2"}),
    ],
)
def test_what_differs_is_seen(live: Any, wanted: Any) -> None:
    assert not holds(live, wanted)


async def test_key_is_worked_on_once_at_a_time_however_often_it_is_woken() -> None:
    queue = WorkQueue(random.Random(1))
    for _ in range(3):
        queue.wake(ONE)
    queue.wake(TWO)
    assert await queue.take() == ONE
    queue.wake(ONE)
    assert await queue.take() == TWO
    next_one = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not next_one.done()
    queue.done(ONE, None)
    assert await next_one == ONE
    queue.done(ONE, None)
    queue.done(TWO, None)
    assert len(queue) == 0


async def test_failures_are_tried_again_with_growing_pauses() -> None:
    queue = WorkQueue(random.Random(1))
    pauses = []
    for _ in range(8):
        queue.wake(ONE)
        assert await queue.take() == ONE
        pauses.append(queue.failed(ONE))
    assert pauses[0] < 2 < pauses[3] < pauses[7] <= 72


def test_what_there_is_instead_is_told_by_path() -> None:
    live = {"spec": {"a": 1, "list": [{"name": "x", "v": 1}], "deep": {"kept": True}}, "more": 0}
    wanted = {"spec": {"a": 2, "list": [{"name": "x", "v": 2}], "deep": {"kept": True, "text": ""}}, "empty": {}}
    told = {"spec.a": 1, "spec.list": [{"name": "x", "v": 1}], "spec.deep.text": None}
    assert differences(live, wanted) == told
    assert differences(live, live) == {}


def test_older_version_never_replaces_a_newer_one() -> None:
    store = Store()
    body: dict[str, Any] = {"kind": "Table", "metadata": {"name": "t", "namespace": "n", "uid": "1"}}

    def version(number: int, uid: str = "1") -> dict[str, Any]:
        return {**body, "metadata": {**body["metadata"], "resourceVersion": str(number), "uid": uid}}

    assert store.put(version(9))
    assert not store.put(version(8))
    assert store.put(version(10))
    store.remove(version(11, uid="of one before"))
    assert store.get(TABLES, "n", "t") == version(10)
    assert store.replace(TABLES, None, Listing([version(12, uid="2")], 12)) == [version(10)]
    assert store.get(TABLES, "n", "t") == version(12, uid="2")


def test_a_listing_changes_nothing_of_what_happened_while_it_was_under_way() -> None:
    store = Store()

    def body(name: str, version: int) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(version)}
        return {"kind": "Table", "metadata": metadata}

    for name in ("kept", "went", "gone before"):
        store.put(body(name, 1))
    store.put(body("came", 11))
    store.remove(body("went", 12))
    gone = store.replace(TABLES, "n", Listing([body("kept", 1), body("went", 1)], 10))
    assert gone == [body("gone before", 1)]
    assert store.of(TABLES, "n") == [body("came", 11), body("kept", 1)]


def test_namespaces_of_a_cluster_wide_operator_are_kept_apart() -> None:
    assert CONFIG.metastore_of("demo") == "zk://zk:2181/m/demo"
    assert CONFIG.deep_store_of("demo") == "s3://b/m/demo?region=x"
    assert CONFIG.controller_of("demo") == "http://merlot-controller.demo.svc:9000"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"MERLOT_METASTORE": ""}, "MERLOT_METASTORE"),
        ({"MERLOT_WORKERS": "many"}, "MERLOT_WORKERS"),
        ({"MERLOT_ENVIRONMENT": "{"}, "MERLOT_ENVIRONMENT"),
        ({"MERLOT_POD_TEMPLATES": "true"}, "MERLOT_POD_TEMPLATES must be restricted or unrestricted"),
        ({"MERLOT_CLUSTER_DEFAULTS": '{"brokr": {}}'}, "brokr"),
        ({"MERLOT_CLUSTER_DEFAULTS": '{"broker": {"resources": {"limits": {"memory": "4 GB"}}}}'}, "broker.resources"),
        ({"MERLOT_CLUSTER_DEFAULTS": '{"broker": {"replicas": "x"}}'}, "broker.replicas is wrong got='x'"),
        ({"MERLOT_CLUSTER_DEFAULTS": '{"minion": {"maxReplicas": null}}'}, "minion.maxReplicas is wrong got=None"),
        ({"MERLOT_CLUSTER_DEFAULTS": '{"broker": 3}'}, r"must have a JSON object .* got=\['broker'\]"),
    ],
)
def test_wrong_environment_is_named(changes: dict[str, str], named: str) -> None:
    required = ("MERLOT_METASTORE", "MERLOT_DEEP_STORE", "MERLOT_RUNTIME_IMAGE", "MERLOT_SPARK_IMAGE")
    with pytest.raises(InvalidInputError, match=named):
        from_environment(dict.fromkeys(required, "zk://x") | changes)


def table(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "namespace": "n"}
    status = {"accepted": text_of(spec), "revision": 1}
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("spec", "servers"),
    [
        ({}, 1),
        ({"replication": 3}, 3),
        ({"replication": 3, "tenants": {"server": {"replicas": 1}}}, 3),
        ({"tenants": {"server": {"replicas": 1}}}, 1),
        ({"replication": 2, "tenants": {"server": {"replicas": 5}}}, 5),
        ({"replication": 2, "tenants": {"server": {"replicas": 0}}}, 0),
    ],
)
def test_there_are_at_least_as_many_servers_as_replication_or_none(spec: dict[str, Any], servers: int) -> None:
    demand = pool_demand("n", "merlot-server-t", [table("t", **spec)], CONFIG)
    assert demand is not None
    assert demand.wanted_replicas == servers


def tenant(replicas: int, memory: str) -> dict[str, Any]:
    return {"server": {"name": "Shared", "replicas": replicas, "resources": {"limits": {"memory": memory}}}}


@pytest.mark.parametrize(("policy", "deletes"), [("Retain", False), ("Delete", True)])
def test_volumes_go_with_a_table_that_says_so(policy: str, deletes: bool) -> None:
    demand = pool_demand("n", "merlot-server-a", [table("a", deletionPolicy=policy)], CONFIG)
    assert demand is not None
    assert demand.deletes_claims == deletes


def test_largest_demand_of_a_tenants_tables_wins() -> None:
    tables = [table("a", tenants=tenant(2, "4Gi")), table("b", tenants=tenant(5, "512Mi")), table("c")]
    demand = pool_demand("n", pool_of(tables[0]), tables, CONFIG)
    assert demand is not None
    assert (demand.replicas, demand.resources.limits, demand.tables) == (5, {"memory": "4Gi"}, ("a", "b"))
    assert (demand.tenant, demand.owner) == ("Shared", None)
    assert tenant_of(tables[2]) == "own-c"


def test_pool_stops_only_when_all_of_its_tables_are_suspended() -> None:
    running, stopped = table("a", tenants=tenant(2, "1Gi")), table("b", tenants=tenant(2, "1Gi"), suspend=True)
    both = pool_demand("n", pool_of(running), [running, stopped], CONFIG)
    alone = pool_demand("n", pool_of(stopped), [stopped], CONFIG)
    assert both is not None
    assert alone is not None
    assert (both.replicas, alone.replicas, alone.wanted_replicas) == (2, 0, 2)
    cluster = cluster_demand("n", [stopped], CONFIG)
    assert cluster is not None
    assert (cluster.broker.replicas, cluster.controller.replicas) == (0, 1)


def test_there_are_as_many_servers_as_copies_unless_told_otherwise() -> None:
    demand = pool_demand("n", "merlot-server-a", [table("a", replication=3)], CONFIG)
    assert demand is not None
    assert demand.replicas == 3


def test_time_of_a_condition_stays_while_its_status_does() -> None:
    first = conditions.rendered([Condition("Ready", False, "NoBroker")], [], 1, "then")
    second = conditions.rendered([Condition("Ready", False, "NoServer", "x")], first, 2, "now")
    assert (second[0]["lastTransitionTime"], second[0]["observedGeneration"]) == ("then", 2)
    assert conditions.news(first, second) == second
    third = conditions.rendered([Condition("Ready", True, "Serving")], second, 2, "later")
    assert third[0]["lastTransitionTime"] == "later"


def test_unchanged_status_is_no_patch() -> None:
    assert conditions.status_patch({"a": 1, "b": [2]}, {"a": 1, "b": [2]}) is None
    assert conditions.status_patch({"a": 1, "b": 2}, {"a": 2}) == {"a": 2, "b": None}


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": status}


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, "ImageNotFound", "image"),
        (
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "secret x"}}}
                ]
            },
            "ConfigMissing",
            "secret",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 1, "message": "a\nno ZooKeeper"}},
                    }
                ]
            },
            "Crashing",
            "no ZooKeeper",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]}, "Unschedulable", "0/1"),
    ],
)
def test_pod_that_does_not_run_says_why_and_what_to_do(status: dict[str, Any], reason: str, words: str) -> None:
    [problem] = problems([pod(**status)])
    assert problem.reason == reason
    assert words in problem.message


def test_pod_that_runs_has_no_problem() -> None:
    assert not problems([pod(conditions=[{"type": "Ready", "status": "True"}])])


def test_a_job_that_is_refused_again_and_again_is_tried_with_growing_pauses() -> None:
    trial, now_s, pauses = None, 0.0, []
    for _ in range(8):
        trial = next_attempt(trial, "exceeded quota", now_s)
        pauses.append(trial.next_s - now_s)
        now_s = trial.next_s
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
