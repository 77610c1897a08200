"""One life of a cluster, in order: every feature once, side by side where their waits allow, under constant queries.

The quick run is this. Other files go over the same features one at a time, in more depth and with more data.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.e2e_changes import (
    BROKERS,
    SERVERS,
    change_image,
    is_ready,
    is_settled,
    restarts,
    runs,
    servers_of,
    upgrade,
    with_runtime,
)
from tests.e2e.e2e_cluster import MANAGED, Cluster, Json
from tests.e2e.e2e_flights import Extent, await_served, flights_table, measure
from tests.e2e.e2e_indexes import BY_CARRIER, BY_FLIGHT, TREE, added, indexed, plan
from tests.e2e.e2e_indexes import counts as counted
from tests.e2e.e2e_kafka import HOST, PARTITIONS, TOPIC, Watched, broker_config, secret, table
from tests.e2e.e2e_kept import (
    JANUARY,
    KEPT,
    LARGE_ENOUGH,
    TOO_SMALL,
    await_healed,
    await_told,
    counts,
    disk,
    has_event,
    january,
    kept,
    limit,
    merging,
    rollup,
    says,
    small_table,
    stored_files,
    unlimit,
)
from tests.e2e.e2e_load import Load, flights_queries, start_load
from tests.e2e.e2e_upserts import CONFIG, NAME, Asked

SERVED = ("flights", TOPIC, NAME)
"""Tables that are asked all the time."""
ROLES = (SERVERS, BROKERS, "controller")


@pytest.fixture(scope="module")
def quarter(tmp_path_factory: pytest.TempPathFactory) -> Extent:
    """Three months have as many kinds of things as a year."""
    return measure(tmp_path_factory.mktemp("quarter"), 3)


@pytest.fixture(scope="module")
def flights(s3: str) -> Json:
    """The example's table, built by an executor."""
    return flights_table(f"s3://sources/quarter?{s3}", executors=1)


@pytest.fixture(scope="module")
def store(s3: str) -> Json:
    """A deep store of the small table's own, whose Secret is not there."""
    return {"uri": f"s3://deep/tiny?{s3}", "secretRef": "merlot-absent"}


@pytest.fixture(scope="module")
def begun(kafka: Cluster, release: Cluster, flights: Json, store: Json) -> Cluster:
    """Flights are being built, and everything else that takes a while has begun."""
    wrong = kept("Retain", deepStore=store, tenants=disk(TOO_SMALL), indexing={"sortedColumns": ["nope"]})
    release.apply(flights, table(), wrong)
    return release


@pytest.fixture(scope="module")
def served(begun: Cluster, quarter: Extent) -> Cluster:
    """Flights answer."""
    await_served(begun, quarter)
    return begun


@pytest.fixture(scope="module")
def load(served: Cluster, quarter: Extent) -> Load:
    """Queries all the time."""
    return start_load(served, flights_queries(quarter.folder, quarter.months), period_s=0.25)


@pytest.fixture
def undisturbed(exact: Asked, steady: Watched, under_load: Load) -> None:
    """What the test does makes no query of the three tables fail or be wrong, and costs no row."""


def identities(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Pods that serve, by role and name, but for those of the small table."""
    found = {role: restarts(cluster, role) for role in ROLES}
    return {role: {name: uid for name, uid in pods.items() if KEPT not in name} for role, pods in found.items()}


def uids(objects: list[Json]) -> set[str]:
    return {one["metadata"]["uid"] for one in objects}


def await_settled(cluster: Cluster, what: str, servers: int = 2) -> None:
    """Until every table that is asked has that many servers and says that it is well; upserts keep their two.

    One table after the other: a table with a stream progresses now and then, whenever it seals segments."""
    for name in SERVED:
        number = 2 if name == NAME else servers
        cluster.await_true(f"{what}: {name}", lambda name=name, number=number: is_settled(cluster, name, number))


def test_an_invalid_manifest_is_refused_at_once_with_its_path(begun: Cluster) -> None:
    with pytest.raises(AssertionError, match=r"spec\.replication"):
        begun.apply(small_table("refused", replication=0))
    with pytest.raises(AssertionError, match="timeColumn"):
        begun.patch("table", "flights", {"spec": {"timeColumn": "carrier"}})
    assert begun.get("table", "refused") == {}


def test_a_manifest_that_only_the_operator_can_judge_is_refused_by_a_condition(begun: Cluster) -> None:
    await_told(begun, KEPT, "Accepted", "False", "nope")
    begun.patch("table", KEPT, {"spec": {"indexing": None}})
    begun.await_true("it is accepted", lambda: begun.holds("table", KEPT, "Accepted"))


def test_a_secret_that_is_missing_is_named(begun: Cluster) -> None:
    await_told(begun, KEPT, "Degraded", "True", "merlot-absent")
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    begun.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "merlot-absent"}, "stringData": keys})
    begun.await_true("it is ready", lambda: begun.holds("table", KEPT, "Ready"))


def test_a_quota_without_room_for_a_job_is_told(begun: Cluster, s3: str) -> None:
    begun.await_true("flights have their Job", lambda: begun.all("jobs", MANAGED))
    limit(begun, "count/jobs.batch")
    begun.patch("table", KEPT, {"spec": {"ingestion": {"batch": [january(s3, form="ORC", retries=0)]}}})
    await_told(begun, KEPT, "Degraded", "True", "BatchBlocked", "exceeded quota")
    unlimit(begun)


def test_a_table_consumes_with_the_login_of_its_secret(watched: Watched, begun: Cluster) -> None:
    header, *rows = begun.kubectl("get", "tables", TOPIC, "-o", "wide").splitlines()
    assert "LAG" in header.split(), rows
    assert begun.condition("table", TOPIC, "Consuming")["reason"] in ("Consuming", "CatchingUp")
    arguments = servers_of(begun, TOPIC)[f"merlot-server-{TOPIC}-0"]["spec"]["containers"][0]["args"]
    assert f"--stream-hosts={HOST}.{begun.namespace}.svc:9092" in arguments


def test_a_batch_that_fails_is_told_with_its_cause(steady: Watched, begun: Cluster, s3: str) -> None:
    await_told(begun, KEPT, "TaskSucceeded", "False", "cannot read source")
    begun.patch("table", KEPT, {"spec": {"ingestion": {"batch": [january(s3, retries=0)]}}})


def test_spark_builds_every_day_and_kubectl_tells_so(steady: Watched, served: Cluster, quarter: Extent) -> None:
    header, row = served.kubectl("get", "tables", "flights").splitlines()
    assert header.split() == ["NAME", "READY", "SEGMENTS", "DOCS", "SIZE", "BROKERS", "SERVERS", "AGE"]
    assert row.split()[:4] == ["flights", "True", str(quarter.days), str(quarter.docs)]
    (batch,) = served.get("table", "flights")["status"]["batches"]
    assert (batch["state"], batch["rowsIn"], batch["segments"]) == ("Succeeded", quarter.docs, quarter.days)


def test_upserts_wait_for_their_settings_and_follow_the_stream(
    undisturbed: None, asked: Asked, served: Cluster
) -> None:
    shown = served.kubectl("get", "upsert", CONFIG).splitlines()[0].split()
    assert shown[1:7] == ["TABLES", "KEYS", "TTL", "MEMORY", "SNAPSHOT", "STATE"]


def test_a_full_disk_is_told_and_answers_go_on(undisturbed: None, served: Cluster) -> None:
    """A server's disk is a small tmpfs: what fits is loaded, the rest once the disk is larger."""
    await_told(served, KEPT, "Degraded", "True", "SegmentsFailed", "no space left on the disk")
    # For five minutes: answers do without a new segment that nobody has loaded.
    assert served.holds("table", KEPT, "Ready")
    assert not served.get("pvc", f"segments-merlot-server-{KEPT}-0")
    served.patch("table", KEPT, {"spec": {"tenants": disk(LARGE_ENOUGH)}})


def test_indexes_pruners_and_a_time_to_live_change_without_a_restart(
    undisturbed: None, served: Cluster, flights: Json, quarter: Extent
) -> None:
    before = identities(served)
    told = added(served, indexed(flights, inverted=["carrier", "origin", "dest", "tailnum"]), 300)
    print(f"\nindexes: {' '.join(told)}")
    assert counted(told[-1]) == (2 * quarter.days, 2 * quarter.days), "each of two servers has every segment"
    for pruners, ttl in ((["time"], None), (["time", "range", "bloom"], "1200")):
        served.patch("table", "flights", {"spec": {"routing": {"segmentPruners": pruners}}})
        served.patch("upsert", CONFIG, {"spec": {"primaryKeyTtl": ttl}})
        served.await_true("every pod echoes it", lambda: served.holds("table", "flights", "ConfigInSync"))
        served.await_true(f"{ttl} is in force", lambda: served.holds("upsert", CONFIG, "Executed"))
    (found,) = served.get("upsert", CONFIG)["status"]["perTable"]
    assert (found["table"], found["ttl"], found["replicas"]) == (NAME, "1200", found["replicasInForce"])
    assert served.holds("upsert", CONFIG, "MemorySufficient")
    assert identities(served) == before


def test_servers_join_and_leave_while_tasks_merge(undisturbed: None, served: Cluster, quarter: Extent) -> None:
    """A minion merges flights by months, and a Job of Spark a month that is too large for one."""
    served.await_true("the disk is large enough", lambda: served.holds("table", KEPT, "Ready"))
    await_healed(served, KEPT)
    assert counts(served)[1] == JANUARY
    assert counts(served)[0] >= 31
    level = {"name": "monthly", "bucketTimePeriod": "1mo", "bufferTimePeriod": "0d"}
    served.apply(
        rollup(),
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "MergeRollupTask",
            "metadata": {"name": "flights"},
            "spec": {"table": "flights", "levels": [level], "schedule": "5s"},
        },
    )
    for replicas in (3, 2):
        served.kubectl("scale", "table", "flights", TOPIC, f"--replicas={replicas}")
        await_settled(served, f"{replicas} servers", replicas)
    served.await_true("a Job merges", lambda: merging(served))
    is_merged = lambda: served.get("table", "flights")["status"].get("segments") == quarter.merged  # noqa: E731
    served.await_true("a segment per month", is_merged)
    assert served.get("table", "flights")["status"]["totalDocs"] == quarter.docs


def test_pods_and_a_volume_that_are_lost_come_back(undisturbed: None, served: Cluster) -> None:
    """A server of the stream, one of upserts with its volume, a broker and the controller are killed at once, and a
    server of flights is evicted. The Secret of the stream changes meanwhile."""
    served.apply(secret("second"))
    lost = f"merlot-server-{NAME}-1"
    (volume,) = [one for one in served.get("pod", lost)["spec"]["volumes"] if "persistentVolumeClaim" in one]
    before = identities(served)
    first, second = sorted(servers_of(served, "flights"))
    killed = [f"merlot-server-{TOPIC}-0", lost, min(before[BROKERS]), *before["controller"]]
    served.kubectl("delete", "pvc", volume["persistentVolumeClaim"]["claimName"], "--wait=false")
    served.kubectl("delete", "pod", *killed, "--grace-period=0", "--force", "--wait=false")
    assert served.api.evict(first)
    assert not served.api.evict(second), "the budget spares the other one"
    uids = {uid for pods in before.values() for name, uid in pods.items() if name in (*killed, first)}

    def is_back() -> bool:
        after = identities(served)
        are_there = {role: len(pods) for role, pods in after.items()} == {role: len(before[role]) for role in ROLES}
        is_other = not uids & {uid for pods in after.values() for uid in pods.values()}
        are_ready = all(is_ready(one) for role in ROLES for one in served.pods(role).values())
        return are_there and is_other and are_ready and served.holds("upsert", CONFIG, "Executed")

    served.await_true("they are back", is_back)
    await_settled(served, "all is well")
    assert restarts(served, SERVERS)[second] == before[SERVERS][second]


def test_kafka_is_killed_and_knows_the_first_login_no_more(undisturbed: None, served: Cluster) -> None:
    """Servers read the Secret again when what they have is refused."""
    address = served.get("service", HOST)["spec"]["clusterIP"]
    served.apply(broker_config(address, ["second"]))
    before = served.get("pod", f"{HOST}-0")["metadata"]["uid"]
    served.kubectl("delete", "pod", f"{HOST}-0", "--grace-period=0", "--force", "--wait=false")
    is_new = lambda: served.get("pod", f"{HOST}-0").get("metadata", {}).get("uid", before) != before  # noqa: E731
    served.await_true("another pod", is_new)
    served.kubectl("wait", "--for=condition=Ready", f"pod/{HOST}-0", "--timeout=300s")
    await_settled(served, "servers consume")


@pytest.fixture(scope="module")
def another(served: Cluster, values: Json) -> Iterator[Cluster]:
    """A second namespace."""
    another = replace(served, namespace=f"{served.namespace}-two")
    keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "merlot-deep-store"}}
    another.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": another.namespace}})
    another.apply({**keys, "stringData": values["deepStore"]["credentials"]})
    yield another
    another.api.close()
    another.kubectl("delete", "namespace", another.namespace, "--wait=false", "--ignore-not-found")


def test_an_operator_that_restarts_for_another_namespace_restarts_nothing(
    undisturbed: None, served: Cluster, another: Cluster, package: Path, values: Json
) -> None:
    """The namespace becomes a cluster of its own."""
    before, jobs = identities(served), served.all("jobs", MANAGED)
    upgrade(served, package, {**values, "scope": {"namespaces": [served.namespace, another.namespace]}}, "listed")
    fields = [{"name": "carrier", "type": "STRING"}]
    document = small_table("same", schema={"fields": fields}, tenants={"broker": {"replicas": 1}})
    del document["spec"]["timeColumn"]
    another.apply(document)
    served.patch("table", "flights", {"spec": {"limits": {"timeoutMs": 15_000}}})
    served.await_true("the first is served", lambda: served.holds("table", "flights", "ConfigInSync"))
    another.await_true("the other has servers", lambda: another.pods(SERVERS))
    assert identities(served) == before
    # A merge may have ended meanwhile, and its Job with it.
    assert uids(served.all("jobs", MANAGED)) <= uids(jobs)


def test_a_month_is_merged_by_spark_and_its_table_retained(undisturbed: None, served: Cluster) -> None:
    served.await_true("one segment per shard and month", lambda: counts(served)[0] <= 6)
    assert counts(served)[1] == JANUARY
    served.await_true("its Job is gone with its task", lambda: not merging(served))
    served.kubectl("delete", "rollup", KEPT, "--timeout=300s")
    served.kubectl("delete", "table", KEPT, "--timeout=300s")
    assert served.get("table", KEPT) == {}
    assert stored_files(served, KEPT)


def test_upserts_are_backfilled_under_queries(undisturbed: None, served: Cluster, store: Json) -> None:
    """Every key but the last ones has expired: without a backfill, what is read again would be seen twice."""
    served.apply(kept("Delete", deepStore=store))
    offsets = {str(number): 0 for number in range(PARTITIONS)}
    served.patch("upsert", CONFIG, {"spec": {"backfill": {"name": "again", "table": NAME, "fromOffsets": offsets}}})
    is_over = lambda: served.condition("upsert", CONFIG, "BackfillProgressing").get("reason") == "Done"  # noqa: E731
    served.await_true("it is done", is_over)
    assert served.holds("upsert", CONFIG, "Executed")


def test_a_retained_table_comes_back_without_its_source_and_goes_with_its_files(
    undisturbed: None, served: Cluster
) -> None:
    served.await_true("its rows are served", lambda: counts(served)[1] == JANUARY)
    served.await_true("it is ready", lambda: served.holds("table", KEPT, "Ready"))
    accepted = served.condition("table", KEPT, "Accepted")
    assert accepted["reason"] == "Adopted"
    assert accepted["message"].startswith(f"{counts(served)[0]} segments ")
    served.kubectl("delete", "table", KEPT, "--timeout=300s")
    assert not stored_files(served, KEPT)


def test_a_deleted_namespace_of_the_list_holds_up_no_other(
    undisturbed: None, served: Cluster, another: Cluster
) -> None:
    another.await_true("its table is ready", lambda: another.holds("table", "same", "Ready"))
    another.kubectl("delete", "table", "same", "--timeout=300s")
    another.kubectl("delete", "namespace", another.namespace, "--timeout=300s")
    served.patch("table", "flights", {"spec": {"limits": {"timeoutMs": 12_000}}})
    served.await_true("the first is served", lambda: served.holds("table", "flights", "ConfigInSync"))


def test_zookeeper_goes_and_comes(under_load: Load, watched: Watched, asked: Asked, served: Cluster) -> None:
    """Segments of a stream are committed once it is back: until then rows may be late, and none is lost."""
    before = watched.last(), asked.last()
    served.kubectl("scale", "statefulset", "merlot-zookeeper", "--replicas=0")
    served.patch("table", "flights", {"spec": {"limits": {"timeoutMs": 20_000}}})
    is_said = lambda: says(served, "flights", "ConfigInSync", "False", "ZooKeeper")  # noqa: E731
    served.await_true("the table says so", is_said)
    served.await_true("an event says so", lambda: has_event(served, "flights", "MetastoreUnavailable"))
    served.kubectl("scale", "statefulset", "merlot-zookeeper", "--replicas=1")
    served.await_true("it is in sync", lambda: served.holds("table", "flights", "ConfigInSync"))
    await_settled(served, "all is well")
    watched.await_visible()
    last = watched.last(), asked.last()
    assert [one["wrong"] for one in last] == [one["wrong"] for one in before], last[0]["samples"] + last[1]["samples"]


def test_a_new_image_rolls_pod_by_pod_once_it_is_there(
    undisturbed: None, served: Cluster, package: Path, values: Json
) -> None:
    before = identities(served)
    upgrade(served, package, with_runtime(values, "merlot-runtime:not-there"), "wrong")
    await_told(served, "flights", "Degraded", "True", "not-there")
    assert served.holds("table", "flights", "Ready")
    change_image(served, package, values, "runtime-next")
    served.await_true("every pod runs the new image", lambda: runs(served, "runtime-next"), 600)
    await_settled(served, "all is well")
    assert not set(before[SERVERS].values()) & set(restarts(served, SERVERS).values())
    await_healed(served, "flights")


def test_an_index_and_a_tree_are_added_to_months(under_load: Load, served: Cluster, flights: Json) -> None:
    before = plan(served, BY_FLIGHT), plan(served, BY_CARRIER)
    assert ("INVERTED" in before[0], "STARTREE" in before[1]) == (False, False), before
    more = indexed(flights, inverted=["carrier", "origin", "dest", "flight"], starTreeIndexConfigs=[TREE])
    added(served, more, 300)
    after = plan(served, BY_FLIGHT), plan(served, BY_CARRIER)
    assert "FILTER_INVERTED_INDEX" in after[0], after
    assert "FILTER_STARTREE_INDEX(indexLookUp:star_tree[month, carrier])" in after[1], after


def test_every_row_is_there_once(watched: Watched, served: Cluster) -> None:
    watched.stop_producing()

    def is_complete() -> bool:
        last = watched.last()
        return bool(last["is_stopped"] and last["sent"] == last["acked"] == last["visible"])

    served.await_true("all rows can be seen", is_complete)
    last = watched.last()
    counts = f"{last['visible']} rows, {last['queries']} queries, {last['retried']} retried"
    print(f"\n{counts}, slowest {last['slowest_ms']} ms, {last['away_s']} s without Kafka")
    assert (last["wrong"], last["lost"]) == (0, [])
    assert served.get("table", TOPIC)["status"]["segments"] > PARTITIONS, "segments were committed"


def test_nothing_is_left(load: Load, served: Cluster) -> None:
    final = load.sums()
    assert (final["failed"], final["wrong"]) == (0, 0), final["samples"]
    print(f"\n{final['queries']} queries, {final['retried']} retried after a reset, slowest {final['slowest_ms']} ms")
    served.kubectl("delete", "pod", "load", "stream", "upserts", "--wait=false")
    served.kubectl("delete", "rollups,tables,upsertconfigs", "--all", "--timeout=300s")
    kinds = "pods,deployments,statefulsets,services,configmaps,jobs,pdb,networkpolicies,pvc,serviceaccounts"

    def left(selector: str, kinds: str = kinds) -> list[str]:
        return [f"{one['kind']}/{one['metadata']['name']}" for one in served.all(kinds, selector)]

    served.await_true("no object is left", lambda: not left(MANAGED))
    served.await_true("no segment file is left", lambda: not stored_files(served))
    served.helm("uninstall", "merlot", "--wait", "--timeout=6m")
    # ZooKeeper's volume stays, as volumes do.
    kinds = kinds.replace("pvc,", "")
    served.await_true("nothing is installed", lambda: not left("app.kubernetes.io/instance=merlot", kinds))
