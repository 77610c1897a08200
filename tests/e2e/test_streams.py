"""A table that consumes Kafka on a cluster, while what it stands on goes and comes: every row is there once, soon."""

from pathlib import Path

import pytest
from tests.e2e.e2e_changes import BROKERS, SERVERS, change_image, is_ready, is_settled, restarts, runs
from tests.e2e.e2e_cluster import Cluster, Json
from tests.e2e.e2e_kafka import HOST, PARTITIONS, TOPIC, Watched, broker_config, secret
from tests.e2e.e2e_upserts import CONFIG, NAME, Asked, config, upserted

EARLY = "early"

pytestmark = pytest.mark.slow("test_whole_life.py has a stream and its upserts beside other tables")


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
        kafka.await_true(f"{replicas} servers", lambda replicas=replicas: is_settled(kafka, TOPIC, replicas))


def test_a_new_image_rolls_without_a_gap(steady: Watched, kafka: Cluster, package: Path, values: Json) -> None:
    before = restarts(kafka, SERVERS)
    change_image(kafka, package, values, "runtime-next")
    is_over = lambda: runs(kafka, "runtime-next") and is_settled(kafka, TOPIC, 2)  # noqa: E731
    kafka.await_true("every pod runs the new image", is_over)
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
            return killed not in uids and len(uids) == number and is_settled(kafka, TOPIC, 2)

        kafka.await_true(f"another {component}", is_back)


def test_kafka_is_killed_and_knows_the_first_login_no_more(steady: Watched, kafka: Cluster) -> None:
    """Servers read the Secret again when what they have is refused."""
    address = kafka.get("service", HOST)["spec"]["clusterIP"]
    kafka.apply(broker_config(address, ["second"]))
    before = kafka.get("pod", f"{HOST}-0")["metadata"]["uid"]
    kafka.kubectl("delete", "pod", f"{HOST}-0", "--grace-period=0", "--force", "--wait=false")
    is_new = lambda: kafka.get("pod", f"{HOST}-0").get("metadata", {}).get("uid", before) != before  # noqa: E731
    kafka.await_true("another pod", is_new)
    kafka.kubectl("wait", "--for=condition=Ready", f"pod/{HOST}-0", "--timeout=300s")
    kafka.await_true("both servers consume", lambda: is_settled(kafka, TOPIC, 2))


def test_upserts_follow_a_time_to_live_that_changes(exact: Asked, steady: Watched, kafka: Cluster) -> None:
    shown = kafka.kubectl("get", "upsert", CONFIG).splitlines()[0].split()
    assert shown[1:7] == ["TABLES", "KEYS", "TTL", "MEMORY", "SNAPSHOT", "STATE"]
    for ttl in (None, "1200"):
        kafka.patch("upsert", CONFIG, {"spec": {"primaryKeyTtl": ttl}})
        kafka.await_true(f"{ttl} is in force", lambda: kafka.holds("upsert", CONFIG, "Executed"))
    (told,) = kafka.get("upsert", CONFIG)["status"]["perTable"]
    assert (told["table"], told["ttl"], told["replicas"]) == (NAME, "1200", told["replicasInForce"])
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

    kafka.await_true("its replicas have the settings in force again", is_back)


def test_upserts_are_backfilled_under_queries(exact: Asked, steady: Watched, kafka: Cluster) -> None:
    """Every key but the last ones has expired: without a backfill, what is read again would be seen twice."""
    offsets = {str(number): 0 for number in range(PARTITIONS)}
    backfill = {"name": "again", "table": NAME, "fromOffsets": offsets}
    kafka.patch("upsert", CONFIG, {"spec": {"backfill": backfill}})
    begun = lambda: kafka.get("upsert", CONFIG)["status"]["state"].startswith("Backfill")  # noqa: E731
    kafka.await_true("it has begun", begun)
    is_over = lambda: kafka.condition("upsert", CONFIG, "BackfillProgressing").get("reason") == "Done"  # noqa: E731
    kafka.await_true("it is done", is_over)
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
    kafka.await_true("it waits for its table", waits)
    kafka.apply(document)
    kafka.await_true("it is in force", lambda: kafka.holds("upsert", f"{EARLY}-rows", "Executed"))
    kafka.await_true("it is consumed", lambda: kafka.holds("table", EARLY, "Consuming"))
    kafka.await_true("its brokers answer", lambda: kafka.holds("table", EARLY, "Ready"))
    goal = steady.last()["visible"]

    def is_complete() -> bool:
        rows = kafka.ask(f"SELECT part, COUNT(*), MAX(seq), SUM(seq) FROM {EARLY} GROUP BY part LIMIT 100")
        wrong = [row for row in rows if (row[2], row[3]) != (row[1] - 1, row[1] * (row[1] - 1) // 2)]
        assert not wrong, wrong
        return sum(row[1] for row in rows) >= goal

    kafka.await_true("it has every row of before", is_complete)
    kafka.kubectl("delete", "table", EARLY, "--timeout=300s")
    kafka.kubectl("delete", "upsertconfig", f"{EARLY}-rows", "--timeout=300s")


def test_every_row_is_there_once(watched: Watched, kafka: Cluster) -> None:
    watched.stop_producing()

    def is_complete() -> bool:
        last = watched.last()
        return bool(last["is_stopped"] and last["sent"] == last["acked"] == last["visible"])

    kafka.await_true("all rows can be seen", is_complete)
    last = watched.last()
    counts = f"{last['visible']} rows, {last['queries']} queries, {last['retried']} retried"
    print(f"\n{counts}, slowest {last['slowest_ms']} ms, {last['away_s']} s without Kafka")
    assert (last["wrong"], last["lost"]) == (0, [])
    status = kafka.get("table", TOPIC)["status"]
    assert status["segments"] > PARTITIONS, "segments were committed"
