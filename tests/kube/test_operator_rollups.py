"""MergeRollupTasks and UpsertConfigs, applied in any order, and what they wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, table_word
from tests.kube.sharing import SharedOperator
from tests.kube.test_operator import flights, wait

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

ORDERS = Path(__file__).resolve().parents[2] / "examples" / "orders"
JANUARY_MS = 1_767_225_600_000


def rollup(**spec: Any) -> dict[str, Any]:
    document = yaml.safe_load((ORDERS / "rollup.yaml").read_text())
    document["metadata"]["name"] = "merge"
    document["spec"] = {"table": "flights", "levels": [_level("daily", "1d")]} | spec
    return dict(document)


def _level(name: str, period: str) -> dict[str, str]:
    return {"name": name, "bucketTimePeriod": period, "bufferTimePeriod": "0d"}


def word(state: str, **more: Any) -> dict[str, Any]:
    level = {"name": "daily", "state": state, "watermarkMs": JANUARY_MS, "delay": 3, "bucketsToDo": 3, "lastError": ""}
    level |= {"segmentsBehindWatermark": 2, "progress": "28/31", "tasksRunning": 1}
    return {"name": "merge", "state": state, "message": "", "lastRunMs": JANUARY_MS, "levels": [level]} | more


def failing() -> dict[str, Any]:
    said = word("Failing", message="see the error, then POST /rollups/merge/run", lastError="sum overflows")
    said["levels"][0]["tasksPoisoned"] = 2
    return said


RUNNING = {
    "id": "merge-2",
    "level": "daily",
    "minion": "Minion_a_1",
    "phase": "READ",
    "percent": 40,
    "startedMs": JANUARY_MS,
}
ENDED = {
    "id": "merge-1",
    "outcome": "SUCCEEDED",
    "level": "daily",
    "windows": [[JANUARY_MS, JANUARY_MS + 86_400_000]],
    "startedMs": JANUARY_MS,
    "endedMs": JANUARY_MS + 12_000,
    "attempts": 1,
    "segmentsBefore": 3,
    "segmentsAfter": 1,
    "rowsBefore": 90,
    "rowsAfter": 40,
    "error": "",
}


def test_rollup_waits_for_its_table_and_then_tells_how_far_it_is(
    api: Api, controller: Controller, running: SharedOperator
) -> None:
    def reason(kind: str) -> str:
        return api.reason(kind, "merge", "mergerolluptasks")

    def status() -> dict[str, Any]:
        return dict(api.get("mergerolluptasks", "merge").get("status", {}))

    api.create("mergerolluptasks", rollup())
    wait(running, lambda: reason("Ready"), "False/NoTable")
    assert reason("Accepted") == "True/Valid"
    api.create("tables", flights())
    wait(running, lambda: reason("Ready"), "False/ControllerUnavailable")
    controller.tables = {"flights": table_word()}
    controller.rollups = {"merge": word("Running")}
    wait(running, lambda: reason("Ready"), "True/Running")
    assert (status()["level"], status()["watermark"], status()["delay"]) == ("daily", "2026-01-01T00:00:00Z", 3)
    assert status()["progress"] == status()["levels"][0]["progress"] == "28/31"
    assert status()["levels"][0]["tasksRunning"] == 1
    controller.rollups = {"merge": word("Running", running=[RUNNING], nextRunMs=JANUARY_MS + 3_600_000)}
    wait(running, lambda: status().get("nextRun"), "2026-01-01T01:00:00Z")
    [task] = status()["running"]
    assert task == {
        "id": "merge-2",
        "level": "daily",
        "minion": "Minion_a_1",
        "phase": "READ",
        "percent": 40,
        "started": "2026-01-01T00:00:00Z",
    }
    assert status()["levels"][0]["segmentsBehindWatermark"] == 2
    assert reason("Progressing") == "True/Running"
    controller.rollups = {"merge": failing()}
    wait(running, lambda: reason("TaskSucceeded"), "False/Failing")
    assert (reason("Ready"), reason("Degraded")) == ("False/Failing", "True/Failing")
    wait(running, lambda: "Failing" in api.event_reasons())
    advice = status()["message"]
    assert advice.startswith("2 tasks failed for good: sum overflows; to try again: kubectl annotate rollup merge ")
    annotation = advice.rpartition("rollup merge ")[2].partition("=")[0]
    api.patch("mergerolluptasks", "merge", {"metadata": {"annotations": {annotation: "now"}}})
    wait(running, lambda: status().get("retriedAt"), "now")
    running.settle()
    assert controller.drains == ["/rollups/merge/run"], "once"
    controller.rollups = {"merge": word("UpToDate", history=[ENDED])}
    wait(running, lambda: reason("TaskSucceeded"), "True/UpToDate")
    [run] = status()["history"]
    assert (run["outcome"], run["level"], run["seconds"], run["rowsOut"]) == ("SUCCEEDED", "daily", 12, 40)
    assert (run["start"], run["end"]) == ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert reason("Degraded") == "False/AsDeclared"
    api.delete("mergerolluptasks", "merge")
    wait(running, lambda: api.get("mergerolluptasks", "merge"), None)


def test_second_rollup_of_a_table_is_refused_and_names_the_first(api: Api, running: SharedOperator) -> None:
    api.create("tables", flights())
    wait(running, lambda: api.get("tables", "flights").get("status", {}).get("revision"), 1)
    api.create("mergerolluptasks", rollup())
    wait(running, lambda: api.reason("Accepted", "merge", "mergerolluptasks"), "True/Valid")
    second = rollup()
    second["metadata"]["name"] = "second"
    api.create("mergerolluptasks", second)
    wait(running, lambda: api.reason("Accepted", "second", "mergerolluptasks"), "False/Refused")
    assert "merge" in api.condition("Accepted", "second", "mergerolluptasks")["message"]
    api.delete("mergerolluptasks", "merge")
    wait(running, lambda: api.reason("Accepted", "second", "mergerolluptasks"), "True/Valid")


STREAMED = {
    "indexing": {},
    "partitioning": {"columns": {"flight": {"functionName": "Modulo", "numPartitions": 2}}},
    "ingestion": {
        "stream": {"type": "kafka", "topic": "t", "properties": {"bootstrap.servers": "kafka.shop.svc:9092"}}
    },
}


def test_upsert_config_is_accepted_and_linked(api: Api, running: SharedOperator) -> None:
    config = yaml.safe_load((ORDERS / "upsert.yaml").read_text())
    name = config["metadata"]["name"]
    schema = {**flights()["spec"]["schema"], "primaryKey": ["flight", "time_hour"]}
    api.create("upsertconfigs", config)
    wait(running, lambda: api.reason("Ready", name, "upsertconfigs"), "False/NoTable")
    assert api.reason("Accepted", name, "upsertconfigs") == "True/Valid"
    api.create("tables", flights(upsert={"configRef": name}, schema=schema))
    wait(running, lambda: api.get("upsertconfigs", name)["status"].get("tables"), ["flights"])
    wait(running, lambda: api.reason("UpsertConfigured"), "False/UpsertConfigUnfit")
    assert 'has no column "ordered_ms"' in api.condition("UpsertConfigured")["message"]
    api.delete("upsertconfigs", name)
    wait(running, lambda: api.get("upsertconfigs", name), None)
    wait(running, lambda: api.reason("UpsertConfigured"), "False/NoUpsertConfig")


def test_table_and_upsert_config_say_what_one_has_against_the_other(
    merlot_api: Any, api: Api, running: SharedOperator
) -> None:
    def degraded() -> str:
        return api.reason("Degraded", "latest", "upsertconfigs")

    config = {"apiVersion": "merlot.dev/v1alpha1", "kind": "UpsertConfig", "metadata": {"name": "latest"}}
    spec = {"mode": "PARTIAL", "comparisonColumns": ["hours"], "partialUpsertStrategies": {"carrier": "INCREMENT"}}
    schema = {**flights()["spec"]["schema"], "primaryKey": ["flight", "time_hour"]}
    api.create("tables", flights(upsert={"configRef": "latest"}, schema=schema, **STREAMED))
    wait(running, lambda: api.reason("UpsertConfigured"), "False/NoUpsertConfig")
    assert 'waits for the UpsertConfig "latest"' in api.condition("UpsertConfigured")["message"]
    api.create("upsertconfigs", {**config, "spec": spec})
    wait(running, degraded, "True/DoesNotFit")
    wait(running, lambda: api.reason("Degraded"), "True/UpsertConfigUnfit")
    for message in (
        api.condition("Degraded", "latest", "upsertconfigs")["message"],
        api.condition("UpsertConfigured")["message"],
    ):
        assert 'spec.comparisonColumns[0]: the table has no column "hours"' in message
        assert 'spec.partialUpsertStrategies.carrier: INCREMENT needs a number; "carrier" is STRING' in message
    assert api.reason("Accepted", "latest", "upsertconfigs") == "True/Valid"
    assert '["flights"]' in merlot_api.check("get", "upserts", f"--namespace={api.namespace}")
    wait(running, lambda: {"DoesNotFit", "UpsertConfigUnfit"} <= api.event_reasons())
    mended = {"mode": "FULL", "comparisonColumns": ["hour"], "partialUpsertStrategies": None}
    api.patch("upsertconfigs", "latest", {"spec": mended})
    wait(running, degraded, "False/AsDeclared")
    wait(running, lambda: api.reason("UpsertConfigured"), "True/Fits")
    assert api.reason("Degraded") == "False/AsDeclared"
