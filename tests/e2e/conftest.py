"""One installation of the packaged chart in a restricted namespace, an S3 server, and a constant load of queries.

Needs KUBECONFIG (a cluster that may be written to) and MERLOT_IMAGES, images that the cluster's nodes have or can pull:
`operator=merlot/operator:e2e,runtime=merlot/runtime:e2e,runtime-next=merlot/runtime:next,spark=…,e2e=…,kafka=…`, the
last one of a Kafka broker, such as apache/kafka:4.1.0. With MERLOT_NAMESPACE, what is installed there is used if there
is something, and everything stays afterwards.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_cluster import CHART, ROOT, SMALL, Cluster, Json, pod, program
from e2e_load import Load, flights_queries

HERE = Path(__file__).parent
IMAGES = ("operator", "runtime", "runtime-next", "spark", "e2e", "kafka")
STEP_S = 900
KEPT = os.environ.get("MERLOT_NAMESPACE", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(STEP_S))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The namespace of this run, empty."""
    if not Path(os.environ.get("KUBECONFIG") or "/nonexistent").exists():
        pytest.skip("set KUBECONFIG to a cluster that may be written to (make kind-up makes one)")
    images = dict(pair.split("=", 1) for pair in os.environ.get("MERLOT_IMAGES", "").split(",") if "=" in pair)
    if missing := [name for name in IMAGES if name not in images]:
        pytest.skip(f"set MERLOT_IMAGES to NAME=IMAGE:TAG,… (missing: {', '.join(missing)}); make kind-test does")
    kubectl, helm = program("kubectl"), program("helm")
    if kubectl is None or helm is None:
        pytest.skip("install kubectl and helm, or set KUBEBUILDER_ASSETS to a folder that holds them")
    cluster = Cluster(KEPT or f"merlot-e2e-{secrets.token_hex(3)}", images, kubectl, helm)
    yield cluster
    cluster.api.close()


@pytest.fixture(scope="session")
def restricted(cluster: Cluster) -> Iterator[Cluster]:
    """The namespace is there and refuses every pod that is not restricted."""
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace, "labels": label}})
    yield cluster
    if not KEPT:
        cluster.kubectl("delete", "namespace", cluster.namespace, "--wait=false")


@pytest.fixture(scope="session")
def s3(restricted: Cluster) -> str:
    """Options of URIs of the S3 server, which holds the flights in s3://sources/flights."""
    cluster = restricted
    cluster.apply(
        pod("s3", cluster.images["e2e"], ["python", "/opt/merlot/e2e/s3.py"], readinessProbe=_exists("/tmp/ready")),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s3"},
            "spec": {"selector": {"app": "s3"}, "ports": [{"port": 5000}]},
        },
    )
    cluster.kubectl("wait", "--for=condition=Ready", "pod/s3", "--timeout=90s")
    return f"region=us-east-1&scheme=http&endpoint_override=s3.{cluster.namespace}.svc:5000"


@pytest.fixture(scope="session")
def values(restricted: Cluster, s3: str) -> Json:
    """Of the chart: small pods."""
    images: Json = {}
    for name in ("operator", "runtime", "spark"):
        repository, _, tag = restricted.images[name].rpartition(":")
        images[name] = {"repository": repository, "tag": tag}
    small = {"resources": SMALL}
    memory = {"resources": {**SMALL, "limits": {"memory": "1400Mi"}}}
    return {
        "images": images,
        "deepStore": {
            "uri": f"s3://deep/merlot?{s3}",
            "prefixes": [f"s3://deep/tiny?{s3}"],
            "credentials": {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        },
        "streams": {"hosts": ["kafka.{namespace}.svc:9092"]},
        "environment": {"AWS_EC2_METADATA_DISABLED": "true"},
        "zookeeper": {"storage": {"size": "1Gi"}, "resources": {**SMALL, "limits": {"memory": "512Mi"}}},
        "operator": {"resources": {**SMALL, "limits": {"memory": "256Mi"}}, "resyncSeconds": 20},
        "sizes": {
            "controller": small,
            "broker": {"replicas": 2, **small},
            "server": {"resources": {**SMALL, "storage": "1Gi"}},
            "minion": {"replicas": 0, "maxReplicas": 1, **small},
            "driver": memory,
            "executor": memory,
        },
    }


@pytest.fixture(scope="session")
def package(restricted: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as `helm package` makes it."""
    folder = tmp_path_factory.mktemp("chart")
    restricted.helm("package", str(CHART), "--destination", str(folder))
    (found,) = folder.glob("*.tgz")
    return found


@pytest.fixture(scope="session")
def release(restricted: Cluster, values: Json, package: Path) -> Iterator[Cluster]:
    """Merlot is installed."""
    file = package.with_name("values.yaml")
    file.write_text(yaml.safe_dump(values))
    if "merlot" not in restricted.helm("list", "--short").split():
        restricted.helm("install", "merlot", str(package), "--values", str(file), "--wait", "--timeout=4m")
    yield restricted
    if not KEPT:
        restricted.kubectl("delete", "tables,mergerolluptasks,upsertconfigs", "--all", "--timeout=100s")
        restricted.helm("uninstall", "merlot", "--wait", "--timeout=2m")


@pytest.fixture(scope="session")
def flights(s3: str) -> Json:
    """The example's table with two replicas, built by two executors out of S3, gone with its files."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "flights" / "table.yaml").read_text())
    document["spec"] |= {
        "replication": 2,
        "deletionPolicy": "Delete",
        "tenants": {"broker": {"replicas": 2}, "server": {"replicas": 2}},
        "ingestion": {
            "batch": [
                {
                    "name": "year",
                    "sourceUri": f"s3://sources/flights?{s3}",
                    "format": "PARQUET",
                    "job": {"executors": 2, "cores": 1, "retries": 1},
                }
            ]
        },
    }
    return document


@pytest.fixture(scope="session")
def served(release: Cluster, flights: Json) -> Cluster:
    """Flights answer."""
    release.apply(flights)
    is_built = lambda: release.get("table", "flights").get("status", {}).get("totalDocs") == 336_776  # noqa: E731
    release.await_true("every flight is there", is_built, 600)
    release.await_true("flights are ready", lambda: release.holds("table", "flights", "Ready"), 120)
    # Ready is the table before its segments are loaded, as an empty one.
    is_settled = lambda: release.condition("table", "flights", "Progressing").get("status") == "False"  # noqa: E731
    release.await_true("every segment is loaded", is_settled, 120)
    return release


@pytest.fixture(scope="session")
def load(served: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Queries all the time, from a pod, through the brokers' Service."""
    queries = flights_queries(tmp_path_factory.mktemp("flights"))
    # Its address, not its name: a busy cluster's DNS fails now and then, and is not what is tested.
    address = served.get("service", "merlot-broker")["spec"]["clusterIP"]
    arguments = ["python", "/opt/merlot/e2e/client.py", address, "8099", "2", "0.1"]
    served.kubectl("delete", "pod", "load", "--ignore-not-found")
    served.apply(pod("load", served.images["e2e"], arguments, {"QUERIES": json.dumps(queries)}))
    served.kubectl("wait", "--for=condition=Ready", "pod/load", "--timeout=60s")
    running = Load(served)
    running.await_queries(20)
    return running


@pytest.fixture
def under_load(load: Load, request: pytest.FixtureRequest) -> Iterator[Load]:
    """What the test does costs no query: none fails, none is wrong, until a while after it."""
    before, started = load.sums(), time.monotonic()
    yield load
    load.await_queries(30)
    after = load.sums()
    spent = time.monotonic() - started
    asked = after["queries"] - before["queries"]
    print(f"\n{request.node.name}: {spent:.0f} s, {asked} queries, {after['retried'] - before['retried']} retried")
    assert (after["failed"], after["wrong"]) == (before["failed"], before["wrong"]), after["samples"]


def _exists(path: str) -> Json:
    return {"exec": {"command": ["cat", path]}, "periodSeconds": 1, "failureThreshold": 60}
