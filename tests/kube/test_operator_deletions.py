"""The end of a Table against a real API server: what it waits for is told, and somebody may stop it from waiting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kube.controllers import Controller, Controllers
from tests.kube.operator_parts import Api, Operator, run_pods, table_word
from tests.kube.sharing import SharedOperator, shared
from tests.kube.test_operator import BATCH, flights, wait
from tests.kube.test_operator_rollups import rollup

from merlot.clock import SystemClock
from merlot.cluster import paths
from merlot.cluster.manifests import tables
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.controller.cleaning.trash import DeepStoreFiles, empty_trash
from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.metastore.connect import connect
from merlot.metastore.protocol import Metastore
from merlot.store.deepstore import DeepStore
from merlot_spark.zookeeper import ZooKeeper

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

FLIGHTS = TableName("flights_OFFLINE")
NUM_SEGMENTS = 2


PREFIX = "zookeeper-"


@pytest.fixture
def prefix(request: pytest.FixtureRequest, prefix: str) -> str:
    """Namespaces of an operator whose shared state others reach too."""
    return PREFIX if "running" in request.fixturenames else prefix


@pytest.fixture(scope="module")
def shared_operator(
    merlot_api: Any, controllers: Controllers, shared_zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Its shared state is in a real ZooKeeper."""
    metastore = f"zk://{shared_zookeeper.hosts}/{{namespace}}"
    with shared(merlot_api, controllers, tmp_path_factory.mktemp("shared"), PREFIX, metastore) as operator:
        yield operator


@pytest.fixture
def metastore(api: Api, shared_zookeeper: ZooKeeper) -> Iterator[Metastore]:
    """What the operator writes its tables to."""
    metastore = connect(f"zk://{shared_zookeeper.hosts}/{api.namespace}")
    yield metastore
    metastore.close()


def serve(api: Api, operator: SharedOperator, metastore: Metastore, **spec: Any) -> None:
    """A Table with segments."""
    api.create("tables", flights(**spec))
    wait(operator, lambda: (api.get("tables", "flights").get("status") or {}).get("revision"), 1)
    records = [
        SegmentRecord(name=f"s{number}", crc=1, size_bytes=1, url=f"s3://bucket/merlot/s{number}", total_docs=1)
        for number in range(NUM_SEGMENTS)
    ]
    publish(metastore, FLIGHTS, records)


def work_off(metastore: Metastore, error: str = "") -> None:
    """What the controller does about deleted files, once."""

    def open_store(_: str | None) -> DeepStoreFiles:
        if error:
            raise UnavailableError(error)
        return DeepStore("/nonexistent-deep-store")

    empty_trash(metastore, open_store, SystemClock(), grace_ms=3_600_000)


def test_a_deletion_tells_what_it_waits_for_until_the_files_are_gone(
    api: Api, metastore: Metastore, running: SharedOperator
) -> None:
    serve(api, running, metastore, deletionPolicy="Delete")
    api.delete("tables", "flights")
    wait(running, lambda: "no controller pod is ready" in api.condition("Degraded").get("message", ""))
    assert api.reason("Ready") == "False/Deleting"
    assert api.condition("Progressing")["message"].startswith("waits until the controller deletes 2 files")
    assert "merlot.dev/force-delete: 'true'" in api.condition("Degraded")["message"]
    assert api.reason("Accepted") == "True/Valid", "what else was known stays"
    run_pods(api)
    wait(running, lambda: api.reason("Degraded"), "False/Deleting")
    work_off(metastore, "the keys were revoked")
    wait(running, lambda: "2 files: the keys were revoked" in api.condition("Degraded").get("message", ""))
    wait(running, lambda: "CleanupWaits" in api.event_reasons())
    assert api.get("deployments", "merlot-controller") is not None, "who shall delete the files stays"
    work_off(metastore)
    wait(running, lambda: api.get("tables", "flights"), None)
    wait(running, api.children, set())


def test_an_empty_table_waits_for_files_that_nobody_published(
    api: Api, metastore: Metastore, running: SharedOperator
) -> None:
    api.create("tables", flights(deletionPolicy="Delete"))
    wait(running, lambda: (api.get("tables", "flights").get("status") or {}).get("revision"), 1)
    run_pods(api)
    api.delete("tables", "flights")
    wait(running, lambda: api.condition("Progressing").get("message"), "waits until the controller looks for files")
    work_off(metastore)
    wait(running, lambda: api.get("tables", "flights"), None)


def test_a_deletion_by_force_says_what_it_leaves(api: Api, metastore: Metastore, running: SharedOperator) -> None:
    serve(api, running, metastore, deletionPolicy="Delete")
    api.delete("tables", "flights")
    wait(running, lambda: api.reason("Degraded"), "True/CleanupWaits")
    api.patch("tables", "flights", {"metadata": {"annotations": {"merlot.dev/force-delete": "true"}}})
    wait(running, lambda: api.get("tables", "flights"), None)
    wait(running, lambda: "LeftBehind" in api.event_reasons())
    [left] = [one["message"] for one in api.list("events") if one["reason"] == "LeftBehind"]
    assert left.startswith("deleted by force: the controller deletes 2 files, but no controller pod is ready")
    assert metastore.children(paths.trash(FLIGHTS)) != [], "the next controller deletes them"


def test_a_namespace_that_goes_takes_tables_along_whose_files_nobody_can_delete(
    merlot_api: Any, api: Api, metastore: Metastore, running: SharedOperator
) -> None:
    serve(api, running, metastore, deletionPolicy="Delete")
    api.delete("tables", "flights")
    wait(running, lambda: api.reason("Degraded"), "True/CleanupWaits")
    merlot_api.check("delete", "namespace", api.namespace, "--wait=false")
    wait(running, lambda: api.get("tables", "flights"), None)
    assert "left=the controller deletes 2 files, but no controller pod is ready" in running.log
    assert metastore.children(paths.trash(FLIGHTS)) != [], "a controller of a namespace of that name deletes them"


def test_a_namespace_that_goes_waits_for_what_ends_by_itself(
    merlot_api: Any, api: Api, metastore: Metastore, running: SharedOperator
) -> None:
    serve(api, running, metastore, deletionPolicy="Delete")
    run_pods(api)
    merlot_api.check("delete", "namespace", api.namespace, "--wait=false")
    api.delete("tables", "flights")
    wait(running, lambda: api.reason("Degraded"), "False/Deleting")
    running.settle()
    assert api.get("tables", "flights") is not None, "its controller is there still"
    work_off(metastore)
    wait(running, lambda: api.get("tables", "flights"), None)
    assert "something is left" not in running.log


def test_a_namespace_that_goes_waits_for_no_zookeeper(
    merlot_api: Any, api: Api, settings: dict[str, str], tmp_path: Path
) -> None:
    """The bundled one goes with it."""
    away = settings | {"MERLOT_METASTORE": "zk://127.0.0.1:1/{namespace}"}
    with Operator(away, tmp_path / "away.log") as operator:
        for plural, body in (("tables", flights()), ("mergerolluptasks", rollup())):
            name = api.create(plural, body)["metadata"]["name"]
            wait(operator, lambda plural=plural, name=name: "finalizers" in api.get(plural, name)["metadata"])
            api.delete(plural, name)
            wait(operator, lambda plural=plural, name=name: api.reason("Degraded", name, plural), "True/CleanupWaits")
        merlot_api.check("delete", "namespace", api.namespace, "--wait=false")
        wait(operator, lambda: api.list("tables") + api.list("mergerolluptasks"), [])
        assert "shared state being removed" in operator.log


def test_a_deletion_waits_for_the_pods_of_its_jobs(
    api: Api, controller: Controller, metastore: Metastore, running: SharedOperator
) -> None:
    controller.tables = {"flights": table_word()}
    api.create("tables", flights(ingestion={"batch": [BATCH]}))
    wait(running, lambda: len(api.list("jobs")), 1)
    job = api.list("jobs")[0]
    api.create("pods", driver_of(job))
    api.delete("tables", "flights")
    wait(running, lambda: "pods of its Jobs end: driver" in api.condition("Progressing").get("message", ""))
    assert tables.find_table(metastore, "flights") is not None
    api.delete("pods", "driver")
    wait(running, lambda: api.get("tables", "flights"), None)


def driver_of(job: dict[str, Any]) -> dict[str, Any]:
    spec = job["spec"]["template"]["spec"]
    kept = {key: value for key, value in spec.items() if not key.startswith("serviceAccount")}
    labels = job["spec"]["template"]["metadata"]["labels"]
    metadata = {"name": "driver", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": kept, "status": {"phase": "Running"}}


def test_a_retained_table_comes_back_with_its_segments_and_their_rules(
    api: Api, controller: Controller, metastore: Metastore, running: SharedOperator
) -> None:
    serve(api, running, metastore)
    api.delete("tables", "flights")
    wait(running, lambda: api.get("tables", "flights"), None)
    unfit = flights()
    unfit["spec"]["schema"]["fields"] = [
        one | ({"type": "INT"} if one["name"] == "carrier" else {}) for one in unfit["spec"]["schema"]["fields"]
    ]
    api.create("tables", unfit)
    wait(running, lambda: api.reason("Accepted"), "False/ChangeRefused")
    assert "deletionPolicy: Delete" in api.condition("Accepted")["message"]
    api.delete("tables", "flights")
    wait(running, lambda: api.get("tables", "flights"), None)
    controller.tables = {"flights": table_word(adoptedSegments=NUM_SEGMENTS)}
    api.create("tables", flights())
    wait(running, lambda: api.reason("Accepted"), "True/Adopted")
    assert tables.get_table(metastore, "flights").num_adopted == NUM_SEGMENTS
