"""A table that consumes Kafka on a cluster, while what it stands on goes and comes: every row is there once, soon."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_changes import BROKERS, SERVERS, change_image, is_ready, restarts, runs
from e2e_cluster import Cluster, Json
from e2e_kafka import (
    HOST,
    PARTITIONS,
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
from e2e_upserts import CONFIG, NAME, TTL, Asked, config, upserted

MOST_GAP_S = 10.0
EARLY = "early"


@pytest.fixture(scope="module")
def kafka(release: Cluster) -> Iterator[Cluster]:
    """A broker that two users may log in to, and a Secret of the first."""
    release.apply(service(), secret("first"))
    address = release.get("service", HOST)["spec"]["clusterIP"]
    release.apply(broker_config(address, ["first", "second"]), broker(release.images["kafka"]))
    yield release
    release.kubectl("delete", "statefulset,service,configmap", HOST, "--wait=false")


@pytest.fixture(scope="module")
def watched(kafka: Cluster) -> Iterator[Watched]:
    """Rows are produced, and all that were can be seen."""
    kafka.apply(table())
    kafka.kubectl("rollout", "status", f"statefulset/{HOST}", "--timeout=120s")
    kafka.await_true("brokers answer", lambda: kafka.holds("table", TOPIC, "Ready"), 180)
    watched = Watched(kafka)
    watched.start("second")
    kafka.apply(with_stream(table(), client_properties(kafka)))
    kafka.await_true("all partitions are consumed", lambda: kafka.holds("table", TOPIC, "Consuming"), 180)
    kafka.await_true("both servers consume", lambda: is_settled(kafka, 2), 180)
    watched.await_visible()
    yield watched
    kafka.kubectl("delete", "table", TOPIC, "--timeout=180s")
    kafka.kubectl("delete", "pod", "stream", "--wait=false")


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


def is_settled(cluster: Cluster, servers: int) -> bool:
    """Whether that many servers run, and every partition has its two replicas."""
    pods = cluster.pods(SERVERS)
    settled = cluster.holds("table", TOPIC, "Ready") and not cluster.holds("table", TOPIC, "Progressing")
    consumed = cluster.get("table", TOPIC)["status"].get("stream", {}).get("consumed") == PARTITIONS
    return len(pods) == servers and all(map(is_ready, pods.values())) and settled and consumed


def test_a_table_consumes_with_the_login_of_its_secret(watched: Watched, kafka: Cluster) -> None:
    columns = kafka.kubectl("get", "tables", TOPIC, "-o", "wide").splitlines()
    shown = dict(zip(columns[0].split(), columns[1].split(), strict=False))
    assert "LAG" in shown
    assert kafka.condition("table", TOPIC, "Consuming")["reason"] in ("Consuming", "CatchingUp")
    arguments = kafka.pods(SERVERS)["merlot-server-events-0"]["spec"]["containers"][0]["args"]
    assert f"--stream-hosts=kafka.{kafka.namespace}.svc:9092" in arguments


def test_partitions_follow_servers_that_come_and_go(steady: Watched, kafka: Cluster) -> None:
    for replicas in (3, 2):
        kafka.kubectl("scale", "table", TOPIC, f"--replicas={replicas}")
        kafka.await_true(f"{replicas} servers", lambda replicas=replicas: is_settled(kafka, replicas), 240)


def test_a_new_image_rolls_without_a_gap(steady: Watched, kafka: Cluster, package: Path, values: Json) -> None:
    before = restarts(kafka, SERVERS)
    change_image(kafka, package, values, "runtime-next")
    is_over = lambda: runs(kafka, "runtime-next") and is_settled(kafka, 2)  # noqa: E731
    kafka.await_true("every pod runs the new image", is_over, 360)
    assert not set(before.values()) & set(restarts(kafka, SERVERS).values())


def test_pods_are_killed(steady: Watched, kafka: Cluster) -> None:
    """A server, a broker and the controller, one after the other; the Secret changes meanwhile."""
    kafka.apply(secret("second"))
    for component in (SERVERS, BROKERS, "controller"):
        before = restarts(kafka, component)
        victim = sorted(before)[0]
        kafka.kubectl("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")

        def is_back(component: str = component, killed: str = before[victim], number: int = len(before)) -> bool:
            uids = restarts(kafka, component).values()
            return killed not in uids and len(uids) == number and is_settled(kafka, 2)

        kafka.await_true(f"another {component}", is_back, 180)


def test_kafka_is_killed_and_knows_the_first_login_no_more(steady: Watched, kafka: Cluster) -> None:
    """Servers read the Secret again when what they have is refused."""
    address = kafka.get("service", HOST)["spec"]["clusterIP"]
    kafka.apply(broker_config(address, ["second"]))
    before = kafka.get("pod", f"{HOST}-0")["metadata"]["uid"]
    kafka.kubectl("delete", "pod", f"{HOST}-0", "--grace-period=0", "--force", "--wait=false")
    is_new = lambda: kafka.get("pod", f"{HOST}-0").get("metadata", {}).get("uid", before) != before  # noqa: E731
    kafka.await_true("another pod", is_new, 60)
    kafka.kubectl("wait", "--for=condition=Ready", f"pod/{HOST}-0", "--timeout=120s")
    kafka.await_true("both servers consume", lambda: is_settled(kafka, 2), 180)


@pytest.fixture(scope="module")
def asked(watched: Watched, kafka: Cluster) -> Iterator[Asked]:
    """The same rows in an upsert table, applied before its UpsertConfig."""
    kafka.apply(upserted(kafka))
    waits = lambda: kafka.condition("table", NAME, "UpsertConfigured").get("reason") == "NoUpsertConfig"  # noqa: E731
    kafka.await_true("the table waits for its UpsertConfig", waits, 60)
    kafka.apply(config(primaryKeyTtl=TTL))
    kafka.await_true("it is in force", lambda: kafka.holds("upsert", CONFIG, "Executed"), 180)
    kafka.await_true("its brokers answer", lambda: kafka.holds("table", NAME, "Ready"), 60)
    asked = Asked(kafka)
    asked.start()
    kafka.await_true("rows are seen", lambda: asked.last()["visible"] > 0, 60)
    yield asked
    kafka.kubectl("delete", "table", NAME, "--timeout=180s")
    kafka.kubectl("delete", "upsertconfig", CONFIG, "--timeout=60s")
    kafka.kubectl("delete", "pod", "upserts", "--wait=false")


@pytest.fixture
def exact(asked: Asked, kafka: Cluster) -> Iterator[Asked]:
    """What the test does makes no answer wrong, and rows go on to be seen, each once."""
    before = asked.last()
    yield asked
    goal = asked.last()["visible"] + 1_000
    kafka.await_true("more rows are seen", lambda: asked.last()["visible"] >= goal, 60)
    last = asked.last()
    # A partition whose settings change under rows is built anew, and is told as missing for that moment.
    print(f"\nupserts: {last['queries']} queries, {last['failed'] - before['failed']} told that segments are missing")
    assert last["wrong"] == before["wrong"], last["samples"]


def test_upserts_follow_a_time_to_live_that_changes(exact: Asked, steady: Watched, kafka: Cluster) -> None:
    shown = kafka.kubectl("get", "upsert", CONFIG).splitlines()[0].split()
    assert shown[1:7] == ["TABLES", "KEYS", "TTL", "MEMORY", "SNAPSHOT", "STATE"]
    for ttl in (None, "3000"):
        kafka.patch("upsert", CONFIG, {"spec": {"primaryKeyTtl": ttl}})
        kafka.await_true(f"{ttl} is in force", lambda: kafka.holds("upsert", CONFIG, "Executed"), 120)
    (told,) = kafka.get("upsert", CONFIG)["status"]["perTable"]
    assert (told["table"], told["ttl"], told["replicas"]) == (NAME, "3000", told["replicasInForce"])
    assert kafka.holds("upsert", CONFIG, "MemorySufficient")


def test_upserts_survive_a_volume_that_is_lost(exact: Asked, steady: Watched, kafka: Cluster) -> None:
    victim = f"merlot-server-{NAME}-1"
    (volume,) = [one for one in kafka.get("pod", victim)["spec"]["volumes"] if "persistentVolumeClaim" in one]
    claim, before = volume["persistentVolumeClaim"]["claimName"], kafka.get("pod", victim)["metadata"]["uid"]
    kafka.kubectl("delete", "pvc", claim, "--wait=false")
    kafka.kubectl("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")

    def is_back() -> bool:
        found = kafka.get("pod", victim)
        is_other = found.get("metadata", {}).get("uid", before) != before
        return is_other and is_ready(found) and kafka.holds("upsert", CONFIG, "Executed")

    kafka.await_true("its replicas have the settings in force again", is_back, 180)


def test_upserts_are_backfilled_under_queries(exact: Asked, steady: Watched, kafka: Cluster) -> None:
    """Every key but the last ones has expired: without a backfill, what is read again would be seen twice."""
    offsets = {str(number): 0 for number in range(PARTITIONS)}
    backfill = {"name": "again", "table": NAME, "fromOffsets": offsets}
    kafka.patch("upsert", CONFIG, {"spec": {"backfill": backfill}})
    begun = lambda: kafka.get("upsert", CONFIG)["status"]["state"].startswith("Backfill")  # noqa: E731
    kafka.await_true("it has begun", begun, 60)
    is_over = lambda: kafka.condition("upsert", CONFIG, "BackfillProgressing").get("reason") == "Done"  # noqa: E731
    kafka.await_true("it is done", is_over, 300)
    assert kafka.holds("upsert", CONFIG, "Executed")


def test_an_upsertconfig_may_come_before_its_table(steady: Watched, kafka: Cluster) -> None:
    """Its table reads all rows anew, each with a key of its own: none is missing, none is there twice."""
    settings, document = config(), upserted(kafka)
    settings["metadata"]["name"] = f"{EARLY}-rows"
    document["metadata"]["name"] = EARLY
    document["spec"] |= {"upsert": {"configRef": f"{EARLY}-rows"}, "replication": 1}
    document["spec"]["tenants"]["server"]["replicas"] = 1
    kafka.apply(settings)
    waits = lambda: kafka.condition("upsert", f"{EARLY}-rows", "Executed").get("reason") == "NoTable"  # noqa: E731
    kafka.await_true("it waits for its table", waits, 60)
    kafka.apply(document)
    kafka.await_true("it is in force", lambda: kafka.holds("upsert", f"{EARLY}-rows", "Executed"), 180)
    kafka.await_true("it is consumed", lambda: kafka.holds("table", EARLY, "Consuming"), 120)
    kafka.await_true("its brokers answer", lambda: kafka.holds("table", EARLY, "Ready"), 60)
    goal = steady.last()["visible"]

    def is_complete() -> bool:
        rows = kafka.ask(f"SELECT part, COUNT(*), MAX(seq), SUM(seq) FROM {EARLY} GROUP BY part LIMIT 100")
        wrong = [row for row in rows if (row[2], row[3]) != (row[1] - 1, row[1] * (row[1] - 1) // 2)]
        assert not wrong, wrong
        return sum(row[1] for row in rows) >= goal

    kafka.await_true("it has every row of before", is_complete, 180)
    kafka.kubectl("delete", "table", EARLY, "--timeout=180s")
    kafka.kubectl("delete", "upsertconfig", f"{EARLY}-rows", "--timeout=60s")


def test_every_row_is_there_once(watched: Watched, kafka: Cluster) -> None:
    watched.stop_producing()

    def is_complete() -> bool:
        last = watched.last()
        return bool(last["is_stopped"] and last["sent"] == last["acked"] == last["visible"])

    kafka.await_true("all rows can be seen", is_complete, 60)
    last = watched.last()
    counts = f"{last['visible']} rows, {last['queries']} queries, {last['retried']} retried"
    print(f"\n{counts}, slowest {last['slowest_ms']} ms, {last['away_s']} s without Kafka")
    assert (last["wrong"], last["lost"]) == (0, [])
    status = kafka.get("table", TOPIC)["status"]
    assert status["segments"] > PARTITIONS, "segments were committed"
