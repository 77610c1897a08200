"""One installation of the packaged chart in a restricted namespace, an S3 server, and a constant load of queries.

Needs KUBECONFIG (a cluster that may be written to) and MERLOT_IMAGES, images that the cluster's nodes have or can pull:
`operator=merlot/operator:e2e,runtime=merlot/runtime:e2e,runtime-next=merlot/runtime:next,spark=…,e2e=…,kafka=…`, the
last one of a Kafka broker, such as apache/kafka:4.1.0. With MERLOT_NAMESPACE, what is installed there is used if there
is something, and everything stays afterwards.
"""

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.e2e_changes import is_settled
from tests.e2e.e2e_cluster import CHART, SMALL, Cluster, Json, pod, program
from tests.e2e.e2e_flights import Extent, await_served, flights_table, measure
from tests.e2e.e2e_kafka import (
    HOST,
    RATE,
    TOPIC,
    Watched,
    broker,
    broker_config,
    client_properties,
    secret,
    service,
    table,
    with_stream,
)
from tests.e2e.e2e_load import Load, flights_queries, start_load
from tests.e2e.e2e_upserts import CONFIG, NAME, TTL, Asked, config, upserted

HERE = Path(__file__).parent
IMAGES = ("operator", "runtime", "runtime-next", "spark", "e2e", "kafka")
STEP_S = 1200
MOST_GAP_S = 10.0
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
    """Options of URIs of the S3 server, which holds the flights in s3://sources; `release` waits for it."""
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
    if not is_installed(restricted):
        restricted.helm("install", "merlot", str(package), "--values", str(file), "--wait", "--timeout=6m")
    restricted.kubectl("wait", "--for=condition=Ready", "pod/s3", "--timeout=300s")
    yield restricted
    if not KEPT and is_installed(restricted):
        restricted.kubectl("delete", "tables,mergerolluptasks,upsertconfigs", "--all", "--timeout=300s")
        restricted.helm("uninstall", "merlot", "--wait", "--timeout=6m")


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Extent:
    """All flights."""
    return measure(tmp_path_factory.mktemp("year"), 12)


@pytest.fixture(scope="session")
def flights(s3: str) -> Json:
    """The example's table with two replicas, built by two executors out of S3, gone with its files."""
    return flights_table(f"s3://sources/flights?{s3}", executors=2)


@pytest.fixture(scope="session")
def served(release: Cluster, flights: Json, year: Extent) -> Cluster:
    """Flights answer."""
    release.apply(flights)
    await_served(release, year)
    return release


@pytest.fixture(scope="session")
def load(served: Cluster, year: Extent) -> Load:
    """Queries all the time, from a pod, through the brokers' Service."""
    return start_load(served, flights_queries(year.folder, year.months), period_s=0.1)


@pytest.fixture
def under_load(load: Load, request: pytest.FixtureRequest) -> Iterator[Load]:
    """What the test does costs no query: none fails, none is wrong, until a while after it."""
    before, started = load.sums(), time.monotonic()
    yield load
    load.await_queries(10)
    after = load.sums()
    spent = time.monotonic() - started
    asked = after["queries"] - before["queries"]
    print(f"\n{request.node.name}: {spent:.0f} s, {asked} queries, {after['retried'] - before['retried']} retried")
    assert (after["failed"], after["wrong"]) == (before["failed"], before["wrong"]), after["samples"]


@pytest.fixture(scope="module")
def kafka(restricted: Cluster) -> Iterator[Cluster]:
    """A broker that two users may log in to, and a Secret of the first. It need not be there yet."""
    restricted.apply(service(), secret("first"))
    address = restricted.get("service", HOST)["spec"]["clusterIP"]
    restricted.apply(broker_config(address, ["first", "second"]), broker(restricted.images["kafka"]))
    yield restricted
    restricted.kubectl("delete", "statefulset,service,configmap", HOST, "--wait=false")


@pytest.fixture(scope="module")
def watched(kafka: Cluster, release: Cluster) -> Iterator[Watched]:
    """Rows are produced, and all that were can be seen."""
    kafka.apply(table())
    kafka.kubectl("rollout", "status", f"statefulset/{HOST}", "--timeout=300s")
    kafka.await_true("brokers answer", lambda: kafka.holds("table", TOPIC, "Ready"))
    watched = Watched(kafka)
    watched.start("second")
    kafka.apply(with_stream(table(), client_properties(kafka)))
    kafka.await_true("all partitions are consumed", lambda: kafka.holds("table", TOPIC, "Consuming"))
    kafka.await_true("both servers consume", lambda: is_settled(kafka, TOPIC, 2))
    watched.await_visible()
    yield watched
    if is_installed(kafka):
        kafka.kubectl("delete", "table", TOPIC, "--ignore-not-found", "--timeout=300s")
    kafka.kubectl("delete", "pod", "stream", "--ignore-not-found", "--wait=false")


@pytest.fixture
def steady(watched: Watched, request: pytest.FixtureRequest) -> Iterator[Watched]:
    """What the test does costs no query and no row, and rows that Kafka has are seen in seconds."""
    before, started = watched.last(), time.monotonic()
    yield watched
    spent = time.monotonic() - started
    watched.await_visible()
    told = watched.lines(before["t"])
    last, gap_s, raw_gap_s = told[-1], max(one["gap_s"] for one in told), max(one["raw_gap_s"] for one in told)
    back = max(one["rows_back"] for one in told)
    print(
        f"\n{request.node.name}: {spent:.0f} s, {last['queries']} queries, {last['visible']} of {last['acked']} rows, "
        f"gap {gap_s} s (with Kafka's absence {raw_gap_s}), {back} rows back"
    )
    counts = (last["failed"] - before["failed"], last["wrong"] - before["wrong"], last["lost"])
    assert counts == (0, 0, []), last["samples"]
    assert gap_s < MOST_GAP_S


@pytest.fixture(scope="module")
def asked(watched: Watched, kafka: Cluster) -> Iterator[Asked]:
    """The same rows in an upsert table, applied before its UpsertConfig."""
    kafka.apply(upserted(kafka))
    waits = lambda: kafka.condition("table", NAME, "UpsertConfigured").get("reason") == "NoUpsertConfig"  # noqa: E731
    kafka.await_true("the table waits for its UpsertConfig", waits)
    kafka.apply(config(primaryKeyTtl=TTL))
    kafka.await_true("it is in force", lambda: kafka.holds("upsert", CONFIG, "Executed"))
    kafka.await_true("its brokers answer", lambda: kafka.holds("table", NAME, "Ready"))
    asked = Asked(kafka)
    asked.start()
    kafka.await_true("rows are seen", lambda: asked.last()["visible"] > 0)
    yield asked
    if is_installed(kafka):
        kafka.kubectl("delete", "table", NAME, "--ignore-not-found", "--timeout=300s")
        kafka.kubectl("delete", "upsertconfig", CONFIG, "--ignore-not-found", "--timeout=300s")
    kafka.kubectl("delete", "pod", "upserts", "--ignore-not-found", "--wait=false")


@pytest.fixture
def exact(asked: Asked, kafka: Cluster) -> Iterator[Asked]:
    """What the test does makes no answer wrong, and rows go on to be seen, each once."""
    before = asked.last()
    yield asked
    goal = asked.last()["visible"] + RATE
    kafka.await_true("more rows are seen", lambda: asked.last()["visible"] >= goal)
    last = asked.last()
    # A partition whose settings change under rows is built anew, and is told as missing for that moment.
    print(f"\nupserts: {last['queries']} queries, {last['failed'] - before['failed']} told that segments are missing")
    assert last["wrong"] == before["wrong"], last["samples"]


def is_installed(cluster: Cluster) -> bool:
    """Whether the release is there."""
    return "merlot" in cluster.helm("list", "--short").split()


def _exists(path: str) -> Json:
    return {"exec": {"command": ["cat", path]}, "periodSeconds": 1, "failureThreshold": 60}
