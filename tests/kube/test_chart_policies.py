"""Who may connect to the chart's ZooKeeper: every pod that is told where it is, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.test_chart import STORE, documents, environment, render

from merlot.spec import manifest
from merlot_operator.config import Config, from_environment
from merlot_operator.desired.demand import cluster_demand, owner_reference, pool_demand, pool_of
from merlot_operator.manifests.batch import BatchPod, job
from merlot_operator.manifests.cluster import cluster_objects
from merlot_operator.manifests.merge import MergePod, merge_job
from merlot_operator.manifests.pool import pool_objects

TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights, namespace: NAMESPACE, uid: 8a0c}
spec:
  schema: {fields: [{name: carrier, type: STRING}]}
  ingestion:
    batch: [{name: all, sourceUri: "s3://bucket/flights/*.parquet", format: PARQUET, job: {executors: 2}}]
status: {revision: 1}
"""
SCOPES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "its own": ({}, {"merlot"}),
    "a list": ({"namespaces": ["a", "b"]}, {"a", "b"}),
    "all": ({"clusterWide": True}, {"merlot", "a", "b", "c"}),
}
"""What the chart is told, and which of four namespaces it then serves."""

Pod = tuple[str, Mapping[str, str], str]
"""Namespace, labels and the manifest as a text."""


def made_pods(namespace: str, config: Config) -> Iterator[Pod]:
    """All pods that the operator makes in a namespace, and executors, which drivers make."""
    table = yaml.safe_load(TABLE.replace("NAMESPACE", namespace))
    cluster = cluster_demand(namespace, [table], config)
    pool = pool_demand(namespace, pool_of(table), [table], config)
    assert cluster is not None
    assert pool is not None
    run = BatchPod(
        namespace=namespace,
        job="flights-all",
        table="flights",
        owner=owner_reference(table),
        manifest=table,
        batch=manifest.load_document(table).spec.ingestion.batch[0],
        deep_store=config.deep_store,
        secrets=[],
        is_suspended=False,
    )
    merge = MergePod(namespace=namespace, table="flights", task="t", owner=owner_reference(table))
    objects = [*cluster_objects(cluster, config, 1), *pool_objects(pool, config, 1), job(run, config)]
    for one in (*objects, merge_job(merge, config)):
        template = one.get("spec", {}).get("template")
        if template is not None:
            annotations = template["metadata"].pop("annotations", {})
            yield namespace, template["metadata"]["labels"], str(template)
            for text in annotations.values():
                if "kind: Pod" in text:
                    yield namespace, yaml.safe_load(text)["metadata"]["labels"], text


def chart_pods(rendered: list[dict[str, Any]]) -> Iterator[Pod]:
    for one in rendered:
        template = one.get("spec", {}).get("template")
        if template is not None:
            yield one["metadata"]["namespace"], template["metadata"]["labels"], str(template)


def chooses(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """A label selector of Kubernetes, as far as policies of the chart use it."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    assert all(one["operator"] == "In" for one in selector.get("matchExpressions", ()))
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", ())
    )


def admits(policy: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a policy lets a pod in. A peer without a selector of namespaces is of the policy's own."""
    own = {"matchLabels": {"kubernetes.io/metadata.name": policy["metadata"]["namespace"]}}
    return any(
        chooses(peer.get("namespaceSelector", own), {"kubernetes.io/metadata.name": namespace})
        and chooses(peer["podSelector"], labels)
        for rule in policy["spec"]["ingress"]
        for peer in rule["from"]
    )


@pytest.mark.parametrize("scope", SCOPES)
def test_zookeeper_admits_the_pods_that_are_told_where_it_is_and_no_others(helm: Path, scope: str) -> None:
    values, served = SCOPES[scope]
    done = render(helm, {**STORE, "scope": values})
    assert done.returncode == 0, done.stderr
    rendered = documents(done.stdout)
    (policy,) = (one for one in rendered if one["kind"] == "NetworkPolicy")
    (zookeeper,) = (one for one in rendered if one["kind"] == "StatefulSet")
    assert chooses(policy["spec"]["podSelector"], zookeeper["spec"]["template"]["metadata"]["labels"])
    assert policy["metadata"]["namespace"] == zookeeper["metadata"]["namespace"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert [rule["ports"] for rule in policy["spec"]["ingress"]] == [[{"protocol": "TCP", "port": "client"}]]
    config = from_environment(environment(rendered))
    address = config.metastore.removeprefix("zk://").partition("/")[0]
    pods = [*chart_pods(rendered), *(pod for place in ("merlot", "a", "b", "c") for pod in made_pods(place, config))]
    told = [pod for pod in pods if address in pod[2]]
    for namespace, labels, text in pods:
        is_chart_s = labels.get("app.kubernetes.io/managed-by") != "merlot-operator"
        is_wanted = address in text and (is_chart_s or namespace in served)
        assert admits(policy, namespace, labels) == is_wanted, (namespace, labels)
    # The operator; in each namespace controller, broker, server, minion and merge, beside a driver and executors.
    assert len(told) == 1 + 5 * 4
    assert len(pods) - len([*chart_pods(rendered)]) == 7 * 4
    assert not admits(policy, "merlot", {"app": "intruder"})
    assert not admits(policy, "other", {**zookeeper["spec"]["template"]["metadata"]["labels"]})


def test_no_policy_is_made_where_none_is_wanted_or_there_is_no_zookeeper(helm: Path) -> None:
    for values in ({"networkPolicies": False}, {"zookeeper": {"bundled": False, "address": "zk:2181"}}):
        assert "NetworkPolicy" not in {one["kind"] for one in documents(render(helm, {**STORE, **values}).stdout)}
