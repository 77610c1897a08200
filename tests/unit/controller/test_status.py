"""One answer tells how the cluster is, and changes only when the cluster does."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from merlot.cluster import paths
from merlot.cluster.fence import FENCE_HEADER, take
from merlot.cluster.instances.drains import mark, marks, unmark
from merlot.cluster.instances.echoes import write_echo
from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import ReportWriter, write_report
from merlot.cluster.manifests.tables import delete_table, put_table
from merlot.cluster.records import EchoRecord, IndexingRecord, InstanceRecord, OperatorRecord, Role, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.indexing import IndexingSpec
from merlot.spec.manifest import load
from merlot.store.allowed import AllowedStores
from merlot_operator.controllers.status_answer import parse

Client = TestClient[web.Request, web.Application]

TABLE = TableName("t_OFFLINE")
ONE, TWO, BROKER = InstanceId("Server_1"), InstanceId("Server_2"), InstanceId("Broker_h_1")
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  replication: 2
  partitioning: {columns: {a: {functionName: Modulo, numPartitions: 4}}}
  schema: {fields: [{name: a, type: INT}]}
"""


@pytest.fixture
async def client(store: SqliteMetastore) -> AsyncIterator[Client]:
    service = ControllerService(store, places=AllowedPlaces(AllowedStores(own=None, prefixes=("s3://own",))))
    async with TestClient(TestServer(make_app(service))) as client:
        yield client
    service.close()


async def status(client: Client) -> dict[str, Any]:
    answer = await client.get("/status")
    assert answer.status == 200
    # What the operator takes of it, it must take: it refuses what is not of this shape.
    return parse(await answer.read())


async def until(client: Client, holds: Callable[[dict[str, Any]], bool]) -> None:
    """A table's status follows watches, which call a moment after the change."""
    async with asyncio.timeout(10):
        while not holds(await status(client)):
            await asyncio.sleep(0.01)


def go_live(store: SqliteMetastore, *instances: InstanceId) -> None:
    for instance in instances:
        role = Role.BROKER if instance == BROKER else Role.SERVER
        register(store, InstanceRecord(id=instance, role=role, host="h"))


def add_table(store: SqliteMetastore) -> None:
    put_table(store, load(MANIFEST)[0])
    records = [SegmentRecord(name=name, crc=1, size_bytes=5, url=f"file:///{name}", total_docs=10) for name in "xyz"]
    publish(store, TABLE, records)
    mutate(store, TABLE, lambda _: [Assign(dict.fromkeys("xyz", (ONE, TWO)))])


async def test_a_table_tells_how_far_servers_are_with_indexes_that_segments_lack(
    client: Client, store: SqliteMetastore
) -> None:
    go_live(store, ONE, TWO)
    add_table(store)
    declared = load(MANIFEST)[0]
    spec = declared.spec.model_copy(update={"indexing": IndexingSpec(inverted=(declared.spec.table_schema.names[-1],))})
    put_table(store, declared.model_copy(update={"spec": spec}))
    one = IndexingRecord(revision=2, wanted=3, built=1, problem="no space left")
    ReportWriter(store, TABLE, ONE).write(["x@1", "y@1", "z@1"], {}, revision=2, indexing=one)
    ReportWriter(store, TABLE, TWO).write(["x@1"], {}, revision=2, indexing=IndexingRecord(revision=0))
    table = (await status(client))["tables"]["t"]
    assert table["indexes"] == {"wanted": 3, "built": 1, "leftOut": 0, "looking": [TWO], "problem": "no space left"}
    assert table["servers"][ONE]["indexing"]["built"] == 1


async def test_no_server_of_an_older_release_is_waited_for_to_look_for_indexes(
    client: Client, store: SqliteMetastore
) -> None:
    """While a cluster is upgraded, its tables stay as much in sync as they were."""
    go_live(store, ONE)
    add_table(store)
    declared = load(MANIFEST)[0]
    spec = declared.spec.model_copy(update={"indexing": IndexingSpec(inverted=(declared.spec.table_schema.names[-1],))})
    put_table(store, declared.model_copy(update={"spec": spec}))
    ReportWriter(store, TABLE, ONE).write(["x@1"], {}, revision=2)
    written = store.get(paths.report_root(TABLE, ONE))
    assert written is not None
    assert b"indexing" not in written.data
    table = (await status(client))["tables"]["t"]
    assert table["servers"][ONE]["loaded"] == 1
    assert table.get("indexes") is None


async def test_an_empty_cluster_has_a_status(client: Client) -> None:
    body = await status(client)
    assert (body["tables"], body["instances"]) == ({}, {})


async def test_a_table_tells_what_is_loaded_where_and_which_revision_runs(
    client: Client, store: SqliteMetastore
) -> None:
    go_live(store, ONE, TWO, BROKER)
    add_table(store)
    ReportWriter(store, TABLE, ONE).write(["x@1", "y@1"], {"z@1": "disk is full"}, revision=1)
    write_report(store, TABLE, TWO, ["x@1"], {})
    write_echo(store, BROKER, EchoRecord(revisions={TABLE: 1}))
    table = (await status(client))["tables"]["t"]
    counts = ("revision", "segments", "totalDocs", "sizeBytes", "segmentsUnavailable", "segmentsLoading")
    assert [table[name] for name in counts] == [1, 3, 30, 15, 1, 2]
    assert (table["segmentsFailed"], table["unpartitioned"], table["moving"], table["suspended"]) == (
        1,
        3,
        False,
        False,
    )
    assert table["brokers"] == {BROKER: {"revision": 1, "problems": []}}
    assert table["servers"][ONE] == {
        "live": True,
        "revision": 1,
        "assigned": 3,
        "loaded": 2,
        "numErrors": 1,
        "errors": {"z@1": "disk is full"},
        "indexing": {"revision": -1, "wanted": 0, "built": 0, "leftOut": 0, "problem": ""},
        "draining": False,
        "leaving": False,
        "drained": False,
    }
    assert table["servers"][TWO]["revision"] == 0


@pytest.mark.parametrize("path", [paths.table_config(TABLE), paths.stream(TABLE)])
async def test_a_table_that_cannot_be_read_has_an_error_and_the_others_their_status(
    path: str, client: Client, store: SqliteMetastore
) -> None:
    stream = "ingestion: {stream: {type: files, topic: /nowhere}}"
    put_table(store, load(MANIFEST.replace("spec:", f"spec:\n  {stream}"))[0])
    put_table(store, load(MANIFEST.replace("name: t}", "name: u}", 1))[0])
    node = store.get(path)
    if node is None:
        store.create(path, b"damaged")
    else:
        store.put(path, b"damaged", node.version)
    tables = (await status(client))["tables"]
    assert path in tables["t"]["error"]
    assert tables["u"]["segments"] == 0
    assert tables["u"].get("error") is None


async def test_a_table_that_is_created_again_shows_nothing_of_the_one_before(
    client: Client, store: SqliteMetastore
) -> None:
    add_table(store)
    await until(client, lambda body: body["tables"]["t"]["unpartitioned"] == 3)
    delete_table(store, TABLE)
    put_table(store, load(MANIFEST.replace("  partitioning", "  suspend: true\n  partitioning"))[0])
    await until(client, lambda body: "t" in body["tables"] and body["tables"]["t"]["suspended"])
    assert (await status(client))["tables"]["t"]["revision"] == 1


async def test_what_answers_lack_is_what_brokers_say(client: Client, store: SqliteMetastore) -> None:
    """A segment that nobody has loaded yet is not missed while it is new; the one that it replaces answers."""
    go_live(store, ONE, BROKER)
    add_table(store)

    async def num_unavailable(echo: EchoRecord) -> int:
        write_echo(store, BROKER, echo)
        return int((await status(client))["tables"]["t"]["segmentsUnavailable"])

    assert await num_unavailable(EchoRecord(revisions={TABLE: 1}, missed={})) == 0
    assert await num_unavailable(EchoRecord(revisions={TABLE: 1}, missed={TABLE: 2})) == 2
    # One that does not know the table, or does not tell.
    assert await num_unavailable(EchoRecord(missed={})) == 3
    assert await num_unavailable(EchoRecord(revisions={TABLE: 1})) == 3


async def test_the_etag_is_the_same_until_something_changes(client: Client, store: SqliteMetastore) -> None:
    add_table(store)
    first = await client.get("/status")
    again = await client.get("/status", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status, await again.read()) == (304, b"")
    write_report(store, TABLE, ONE, ["x@1"], {})
    await until(client, lambda body: body["tables"]["t"]["servers"][ONE]["loaded"] == 1)
    changed = await client.get("/status", headers={"If-None-Match": first.headers["ETag"]})
    assert (changed.status, (await changed.json())["tables"]["t"]["servers"][ONE]["loaded"]) == (200, 1)


async def test_a_secret_that_is_not_there_is_told_by_its_table_until_it_is(
    client: Client, store: SqliteMetastore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MERLOT_STORE_SECRETS", json.dumps({"s3://own/m": str(tmp_path / "keys")}))
    own = "spec:\n  deepStore: {uri: 's3://own/m?region=eu', secretRef: keys}"
    put_table(store, load(MANIFEST.replace("spec:", own))[0])

    async def problem() -> str:
        return str((await status(client))["tables"]["t"]["storeProblem"])

    assert await problem() == "the deep store's Secret is not there, or empty secret=keys"
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "AWS_REGION").write_text("eu")
    assert await problem() == ""


async def test_a_table_of_before_whose_deep_store_is_not_allowed_says_so(
    client: Client, store: SqliteMetastore
) -> None:
    put_table(store, load(MANIFEST.replace("spec:", "spec:\n  deepStore: {uri: 's3://other/m'}"))[0])
    problem = (await status(client))["tables"]["t"]["storeProblem"]
    assert "deep store is not allowed uri=s3://other/m: it must be below s3://own" in problem


async def test_a_marked_server_is_drained_when_every_live_broker_says_so(
    client: Client, store: SqliteMetastore
) -> None:
    go_live(store, ONE, TWO, BROKER)
    add_table(store)
    assert (await client.post(f"/instances/{ONE}/drain")).status == 200
    token = marks(store)[ONE].token

    async def is_drained(echo: EchoRecord) -> tuple[bool, bool]:
        write_echo(store, BROKER, echo)
        body = await status(client)
        return body["tables"]["t"]["servers"][ONE]["drained"], body["instances"][ONE]["drained"]

    assert await is_drained(EchoRecord()) == (False, False)
    assert await is_drained(EchoRecord(drains={ONE: "older mark"})) == (False, False)
    assert await is_drained(EchoRecord(drains={ONE: token}, busy={ONE: (TABLE,)})) == (False, False)
    assert await is_drained(EchoRecord(drains={ONE: token})) == (True, True)
    await client.post(f"/instances/{ONE}/undrain")
    assert await is_drained(EchoRecord()) == (False, False)


async def test_marks_of_an_operator_that_was_superseded_are_refused(client: Client, store: SqliteMetastore) -> None:
    go_live(store, ONE)
    first = {FENCE_HEADER: str(take(store, "n", OperatorRecord(holder="first")))}
    second = {FENCE_HEADER: str(take(store, "n", OperatorRecord(holder="second")))}
    assert (await client.post(f"/instances/{ONE}/drain", headers=first)).status == 503
    assert not marks(store)
    assert (await client.post(f"/instances/{ONE}/drain", headers=second)).status == 200
    assert (await client.post(f"/instances/{ONE}/undrain", headers=first)).status == 503
    assert (await client.post(f"/instances/{ONE}/undrain", headers={FENCE_HEADER: "first"})).status == 400
    assert list(marks(store)) == [ONE]


async def test_a_marked_server_that_alone_reports_a_segment_is_not_drained(
    client: Client, store: SqliteMetastore
) -> None:
    """Brokers said that they route around it before it had loaded that one, or before another holder went."""
    go_live(store, ONE, TWO, BROKER)
    add_table(store)
    await client.post(f"/instances/{ONE}/drain")
    write_report(store, TABLE, ONE, ["x@1", "y@1"], {})
    write_report(store, TABLE, TWO, ["x@1"], {})
    write_echo(store, BROKER, EchoRecord(drains={ONE: marks(store)[ONE].token}))

    async def follows(is_drained: bool) -> None:
        await until(client, lambda body: body["instances"][ONE]["drained"] is is_drained)

    await until(client, lambda body: body["tables"]["t"]["servers"][ONE]["loaded"] == 2)
    await follows(False)
    write_report(store, TABLE, TWO, ["x@1", "y@1"], {})
    await follows(True)
    await client.post(f"/instances/{TWO}/drain")
    await follows(False)


async def test_a_server_that_leaves_for_good_is_not_drained_while_it_is_assigned_segments(
    client: Client, store: SqliteMetastore
) -> None:
    go_live(store, ONE, TWO)
    add_table(store)
    answer = await client.post(f"/instances/{ONE}/drain?leaving=true")
    assert (await answer.json())["leaving"] is True
    assert (await status(client))["instances"][ONE]["drained"] is False
    mutate(store, TABLE, lambda _: [Assign(dict.fromkeys("xyz", (TWO,)))])
    await until(client, lambda body: body["instances"][ONE]["drained"] is True)


def test_a_mark_keeps_its_token_when_it_becomes_one_for_good(store: SqliteMetastore) -> None:
    first = mark(store, ONE, leaving=False, now_ms=1)
    assert mark(store, ONE, leaving=False, now_ms=2) == first
    assert mark(store, ONE, leaving=True, now_ms=3) == first.model_copy(update={"leaving": True})
    assert unmark(store, ONE)
    assert not unmark(store, ONE)
    assert mark(store, ONE, leaving=False, now_ms=4).token != first.token


@pytest.mark.parametrize("path", ["/health", "/health/liveness", "/health/readiness"])
async def test_a_controller_is_healthy_while_its_metastore_answers(client: Client, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status, await answer.text()) == (200, "OK")
