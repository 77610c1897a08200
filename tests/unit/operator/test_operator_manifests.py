"""What is written to Kubernetes, byte by byte. Run as a program, this file records it anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from merlot.spec import manifest
from merlot_operator.config import Config, from_environment
from merlot_operator.desired.demand import cluster_demand, owner_reference, pool_demand, pool_of
from merlot_operator.manifests.batch import BatchPod, job
from merlot_operator.manifests.cluster import cluster_objects
from merlot_operator.manifests.pool import pool_objects, stateful_set

GOLDEN = Path(__file__).with_name("golden")
SIZES = """
{"broker": {"replicas": 2, "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}},
 "server": {"resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "storage": "20Gi"}},
 "executor": {"resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "3Gi"}}}}
"""
ENVIRONMENT = {
    "MERLOT_METASTORE": "zk://zookeeper:2181/merlot",
    "MERLOT_DEEP_STORE": "s3://bucket/merlot?region=eu",
    "MERLOT_RUNTIME_IMAGE": "merlot-runtime:1",
    "MERLOT_SPARK_IMAGE": "merlot-spark:1",
    "MERLOT_IMAGE_PULL_SECRETS": "pull",
    "MERLOT_DEEP_STORE_SECRET": "deep-store",
    "MERLOT_ENVIRONMENT": '{"AWS_ENDPOINT_URL": "http://s3:9000"}',
    "MERLOT_CLUSTER_DEFAULTS": SIZES,
    "MERLOT_SPARK_DRIVER_ROLE": "ClusterRole/merlot-spark-driver",
    "MERLOT_STORAGE_CLASS": "fast",
}
TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights, namespace: demo, uid: 8a0c}
spec:
  schema: {fields: [{name: carrier, type: STRING}]}
  replication: 2
  deletionPolicy: Delete
  deepStore: {uri: "s3://own/flights", secretRef: own-store}
  tenants:
    server: {replicas: 3, resources: {limits: {memory: 4Gi}}}
  ingestion:
    batch:
      - name: all
        sourceUri: s3://bucket/flights/*.parquet
        format: PARQUET
        job: {executors: 2, cores: 2, retries: 1, deadline: 1h}
"""


def config() -> Config:
    return from_environment(ENVIRONMENT)


def table() -> dict[str, Any]:
    return dict(yaml.safe_load(TABLE))


def served() -> dict[str, Any]:
    """The Table once it was accepted."""
    return {**table(), "status": {"revision": 1}}


def cluster() -> list[dict[str, Any]]:
    demand = cluster_demand("demo", [served()], config())
    assert demand is not None
    return cluster_objects(demand, config(), num_minions=1)


def pool() -> list[dict[str, Any]]:
    demand = pool_demand("demo", pool_of(served()), [served()], config())
    assert demand is not None
    return pool_objects(demand, config(), demand.replicas)


def batch() -> list[dict[str, Any]]:
    declared = manifest.load_document(table())
    run = BatchPod(
        namespace="demo",
        job="flights-all-0123456789",
        table="flights",
        owner=owner_reference(table()),
        manifest={"metadata": {"name": "flights"}},
        batch=declared.spec.ingestion.batch[0],
        deep_store="s3://own/flights",
        secrets=["own-store"],
        is_suspended=False,
    )
    return [job(run, config())]


BUILDERS = {"cluster": cluster, "pool": pool, "batch": batch}


def text_of(name: str) -> str:
    return yaml.safe_dump_all(BUILDERS[name](), sort_keys=False, width=120)


@pytest.mark.parametrize("name", BUILDERS)
def test_objects_are_as_recorded(name: str) -> None:
    assert text_of(name) == (GOLDEN / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", BUILDERS)
def test_every_pod_is_restricted(name: str) -> None:
    pods = [one["spec"]["template"]["spec"] for one in BUILDERS[name]() if "template" in one.get("spec", {})]
    assert pods
    for pod in pods:
        security = pod["securityContext"]
        assert security["runAsNonRoot"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_names_of_long_tables_fit_the_labels_of_their_pods() -> None:
    document = table()
    document["metadata"]["name"] = "a" * 63
    assert len(pool_of(document)) <= 48
    other = table()
    other["metadata"]["name"] = "a" * 62 + "b"
    assert pool_of(document) != pool_of(other)


def write() -> None:
    """Record the objects as they are now."""
    GOLDEN.mkdir(exist_ok=True)
    for name in BUILDERS:
        (GOLDEN / f"{name}.yaml").write_text(text_of(name))


def keyed(name: str, secret: str, uri: str) -> dict[str, Any]:
    """A Table of a shared tenant, with a deep store of its own."""
    own = served()
    own["metadata"]["name"] = name
    own["spec"] |= {"deepStore": {"uri": uri, "secretRef": secret}, "tenants": {"server": {"name": "shared"}}}
    return own


def test_whoever_touches_files_gets_the_secrets_of_all_stores_side_by_side() -> None:
    tables = [keyed("a", "keys-a", "s3://a/m"), keyed("b", "keys-b", "s3://b/m"), keyed("c", "none", "file:///c")]
    demand, shared = cluster_demand("demo", tables, config()), pool_demand("demo", pool_of(tables[0]), tables, config())
    assert demand is not None
    assert shared is not None
    assert demand.conflict is None
    for one in [*cluster_objects(demand, config(), num_minions=1), *pool_objects(shared, config(), 1)]:
        if "template" not in one.get("spec", {}):
            continue
        pod = one["spec"]["template"]["spec"]
        container = pod["containers"][0]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        mounted = {entry["mountPath"] for entry in container["volumeMounts"]}
        if container["name"] == "broker":
            assert "MERLOT_STORE_SECRETS" not in variables
            assert "envFrom" not in container, "it touches no file"
            assert mounted == {"/tmp"}
            continue
        folders = json.loads(variables["MERLOT_STORE_SECRETS"] or "")
        assert folders == {"s3://a/m": "/etc/merlot/stores/keys-a", "s3://b/m": "/etc/merlot/stores/keys-b"}
        assert set(folders.values()) <= mounted
        secrets = [entry["secret"] for entry in pod["volumes"] if "secret" in entry]
        assert secrets == [{"secretName": f"keys-{name}", "optional": True} for name in "ab"]
        assert container["envFrom"] == [{"secretRef": {"name": "deep-store"}}], "of the cluster's own store"


def test_servers_get_the_secrets_of_their_tables_streams_as_files() -> None:
    tables = [keyed(name, "keys", "s3://a/m") for name in ("a", "b", "c")]
    before = pool_demand("demo", pool_of(tables[0]), tables, config())
    for table, secret in zip(tables, ("merlot-trips", "merlot-clicks", "merlot-trips"), strict=True):
        table["spec"]["ingestion"] = {"stream": {"type": "kafka", "secretRef": secret}}
    after = pool_demand("demo", pool_of(tables[0]), tables, config())
    assert before is not None
    assert after is not None
    without, pod = (stateful_set(one, config(), 1)["spec"]["template"] for one in (before, after))
    assert "--secrets-dir" not in yaml.safe_dump(without)
    assert without["metadata"]["annotations"] != pod["metadata"]["annotations"], "servers restart with them"
    [container] = pod["spec"]["containers"]
    assert "--secrets-dir=/etc/merlot/streams" in container["args"]
    volumes = {entry["name"]: entry["secret"]["secretName"] for entry in pod["spec"]["volumes"] if "secret" in entry}
    mounted = {volumes[entry["name"]]: entry for entry in container["volumeMounts"] if entry["name"] in volumes}
    for secret in ("merlot-clicks", "merlot-trips"):
        assert mounted[secret]["mountPath"] == f"/etc/merlot/streams/{secret}"
        assert mounted[secret]["readOnly"]


def test_two_secrets_for_one_store_are_told_and_the_first_is_used() -> None:
    tables = [keyed("b", "keys-b", "s3://s/m"), keyed("a", "keys-a", "s3://s/m")]
    demand = cluster_demand("demo", tables, config())
    assert demand is not None
    assert dict(demand.stores) == {"s3://s/m": "keys-a"}
    assert demand.conflict is not None
    assert "Table a names the Secret keys-a for s3://s/m, Table b the Secret keys-b" in demand.conflict


if __name__ == "__main__":
    write()
