"""An UpsertConfig on a real API server: what `kubectl get upsert` shows, and where its settings are in force."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, server_word, table_word
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import POOL, flights, wait

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

SERVER = f"Server_{POOL}-0_8098"
NAME = "latest"
KINDS = "upsertconfigs"
SPEC: dict[str, Any] = {"mode": "FULL", "comparisonColumns": ["hour"]}
TABLE: dict[str, Any] = {
    "upsert": {"configRef": NAME},
    "schema": {**flights()["spec"]["schema"], "primaryKey": ["flight", "time_hour"]},
    "indexing": {},
    "partitioning": {"columns": {"flight": {"functionName": "Modulo", "numPartitions": 2}}},
    "ingestion": {
        "stream": {"type": "kafka", "topic": "t", "properties": {"bootstrap.servers": "kafka.shop.svc:9092"}}
    },
}
WORD: dict[str, Any] = {
    "revision": 1,
    "replicas": 2,
    "inForce": 2,
    "behind": [],
    "waitsFor": "",
    "ttl": "2h",
    "keys": 1_200_000,
    "valid": 1_200_000,
    "invalid": 50_000,
    "expired": 0,
    "memoryBytes": 91_000_000,
    "worst": {"partition": 1, "memoryBytes": 46_000_000},
    "short": [],
    "backfill": None,
    "snapshots": {"wanted": True, "oldestMs": 1_700_000_000_000, "missing": 0},
}
STEP: dict[str, Any] = {
    "name": "again",
    "step": "LOAD",
    "message": "1 of 2 partitions that are not read and committed yet",
    "sinceMs": 1,
    "number": 3,
    "steps": 6,
    "cancelled": False,
    "waitsForMemory": False,
}


@pytest.fixture
def running(running: SharedOperator, controller: Controller) -> SharedOperator:
    says(controller)
    return running


def says(controller: Controller, **upsert: Any) -> None:
    controller.tables = {"flights": table_word(servers={SERVER: server_word()}, upsert={**WORD, **upsert})}


def config(**spec: Any) -> dict[str, Any]:
    metadata = {"name": NAME}
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": "UpsertConfig", "metadata": metadata, "spec": {**SPEC, **spec}}


def test_it_shows_its_tables_and_where_its_settings_are_in_force(
    api: Api, controller: Controller, running: SharedOperator, kubectl: Any
) -> None:
    api.create("tables", flights(**TABLE))
    api.create(KINDS, config())
    wait(running, lambda: api.reason("Executed", NAME, KINDS), "True/Executed")
    assert api.condition("Executed", NAME, KINDS)["message"] == "in force on 2 of 2 replicas of partitions of flights"
    lines = kubectl.check("get", "upsert", NAME, "-n", api.namespace).splitlines()
    assert lines[0].split()[:8] == ["NAME", "TABLES", "KEYS", "TTL", "MEMORY", "SNAPSHOT", "STATE", "READY"]
    shown = lines[1].split()
    assert shown[1:4] == ['["flights"]', "1200000", "none"]
    assert shown[4:6] == ["86.8", "MiB"]
    assert shown[7] == "Executed"
    assert api.reason("SnapshotsCurrent", NAME, KINDS) == "True/Current"
    [told] = api.get(KINDS, NAME)["status"]["perTable"]
    assert (told["worstPartition"], told["worstPartitionBytes"], told["invalid"]) == (1, 46_000_000, 50_000)

    api.patch(KINDS, NAME, {"spec": {"primaryKeyTtl": "5"}})
    wait(running, lambda: api.reason("Executed", NAME, KINDS), "False/Progressing")
    says(controller, revision=2, inForce=1, behind=[f"{SERVER}/1"])
    wait(running, lambda: SERVER in api.condition("Executed", NAME, KINDS)["message"])
    says(controller, revision=2, snapshots={"wanted": True, "oldestMs": None, "missing": 3})
    wait(running, lambda: api.reason("Executed", NAME, KINDS), "True/Executed")
    assert api.reason("SnapshotsCurrent", NAME, KINDS) == "False/Missing"


def test_a_backfill_and_keys_that_outgrow_memory_are_told(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    api.create(KINDS, config())
    wait(running, lambda: api.reason("Executed", NAME, KINDS), "False/NoTable")
    api.create("tables", flights(**TABLE))
    wait(running, lambda: api.reason("Executed", NAME, KINDS), "True/Executed")
    says(controller, backfill=STEP)
    wait(running, lambda: api.reason("BackfillProgressing", NAME, KINDS), "True/Load")
    assert api.get(KINDS, NAME)["status"]["state"] == "Backfill 4/6 LOAD"
    says(controller, backfill={**STEP, "step": "DONE"})
    wait(running, lambda: api.reason("BackfillProgressing", NAME, KINDS), "False/Done")
    short = {"server": SERVER, "limitBytes": 2**30, "neededBytes": 2**30 + 2**20, "keysBytes": 2**29}
    says(controller, short=[short])
    wait(running, lambda: api.reason("MemorySufficient", NAME, KINDS), "False/MemoryShort")
    wait(running, lambda: api.reason("Degraded"), "True/MemoryShort")
    wait(running, lambda: "MemoryShort" in api.event_reasons())
    assert "raise the limit" in api.condition("MemorySufficient", NAME, KINDS)["message"]


def test_what_compaction_does_and_that_it_fails_are_told(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    api.create("tables", flights(**TABLE))
    api.create(KINDS, config())
    wait(running, lambda: api.reason("CompactionSucceeding", NAME, KINDS), "False/Disabled")
    counts = {"rewritten": 12, "removed": 3, "merged": 7, "rowsRemoved": 91_000, "failing": 0}
    done = {"suspended": False, **counts, "error": ""}
    says(controller, compaction=done)
    wait(running, lambda: api.reason("CompactionSucceeding", NAME, KINDS), "True/Succeeding")
    [told] = api.get(KINDS, NAME)["status"]["perTable"]
    assert (told["segmentsRewritten"], told["segmentsRemoved"], told["rowsRemoved"]) == (12, 3, 91_000)
    assert told["segmentsMerged"] == 7
    says(controller, compaction={**done, "failing": 2, "error": "segment=f__0__1@7 cause=no room"})
    wait(running, lambda: api.reason("CompactionSucceeding", NAME, KINDS), "False/Failing")
    assert "no room" in api.condition("CompactionSucceeding", NAME, KINDS)["message"]
    wait(running, lambda: api.reason("Degraded"), "True/CompactionFails")
    says(controller, compaction=done)
    wait(running, lambda: api.reason("Degraded"), "False/AsDeclared")


def test_what_decides_rows_that_are_there_cannot_change_and_the_rest_can_go(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    api.create("tables", flights(**TABLE))
    api.create(KINDS, config())
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    wait(running, lambda: api.reason("Executed", NAME, KINDS), "True/Executed")
    api.patch(KINDS, NAME, {"spec": {"comparisonColumns": ["time_hour"]}})
    wait(running, lambda: api.reason("Accepted", NAME, KINDS), "False/Invalid")
    assert "cannot change on tables that have rows" in api.condition("Accepted", NAME, KINDS)["message"]
    assert api.get(KINDS, NAME)["status"]["state"] == "Refused"
    api.patch(KINDS, NAME, {"spec": SPEC})
    wait(running, lambda: api.reason("Accepted", NAME, KINDS), "True/Valid")
    api.delete(KINDS, NAME)
    wait(running, lambda: api.get(KINDS, NAME), None)
    wait(running, lambda: api.reason("UpsertConfigured"), "False/NoUpsertConfig")


def test_a_table_cannot_name_settings_that_would_decide_its_rows_otherwise(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    other = {**config(comparisonColumns=["time_hour"]), "metadata": {"name": "other"}}
    api.create("tables", flights(**TABLE))
    api.create(KINDS, config())
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    wait(running, lambda: api.reason("Executed", NAME, KINDS), "True/Executed")
    api.create(KINDS, other)
    wait(running, lambda: api.reason("Accepted", "other", KINDS), "True/Valid")
    api.patch("tables", "flights", {"spec": {"upsert": {"configRef": "other"}}})
    wait(running, lambda: api.reason("Accepted"), "False/ChangeRefused")
    message = api.condition("Accepted")["message"]
    assert "keep it (hour), or create a table under another name and ingest again" in message

    unfit = {**config(comparisonColumns=["nowhere"]), "metadata": {"name": "unfit"}}
    api.create(KINDS, unfit)
    wait(running, lambda: api.reason("Accepted", "unfit", KINDS), "True/Valid")
    api.patch("tables", "flights", {"spec": {"upsert": {"configRef": "unfit"}}})
    wait(running, lambda: '"unfit" does not fit' in api.condition("Accepted")["message"])
    assert api.reason("Accepted") == "False/ChangeRefused"

    api.patch("tables", "flights", {"spec": {"upsert": {"configRef": NAME}}})
    wait(running, lambda: api.reason("Accepted"), "True/Valid")
    api.patch(KINDS, NAME, {"spec": {"comparisonColumns": ["time_hour"]}})
    wait(running, lambda: api.reason("Accepted", NAME, KINDS), "False/Invalid")
    wait(running, lambda: api.reason("UpsertConfigured"), "False/UpsertConfigInvalid")
    api.patch(KINDS, NAME, {"spec": SPEC})
    wait(running, lambda: api.reason("UpsertConfigured"), "True/Fits")
