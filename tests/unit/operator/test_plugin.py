"""What `kubectl merlot` shows: the tree of a table, and what a change would cost."""

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from merlot_operator.plugin.changes import Cost, changes, summary
from merlot_operator.plugin.kubectl import Kubectl
from merlot_operator.plugin.main import _plan_table, main
from merlot_operator.plugin.tree import table_tree

TABLE: dict[str, Any] = {
    "apiVersion": "merlot.dev/v1alpha1",
    "kind": "Table",
    "metadata": {"name": "trips", "generation": 3},
    "spec": {
        "schema": {"fields": [{"name": "at", "type": "TIMESTAMP", "role": "dateTime"}, {"name": "n", "type": "INT"}]},
        "timeColumn": "at",
    },
    "status": {
        "segments": 2,
        "totalDocs": 1500,
        "sizeBytes": 2048,
        "plan": ["restart merlot-server-trips-0"],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "observedGeneration": 3},
            {"type": "Degraded", "status": "False", "reason": "AsDeclared", "observedGeneration": 3},
            {"type": "Progressing", "status": "True", "reason": "R", "message": "1 of 2", "observedGeneration": 2},
        ],
        "batches": [{"name": "year", "state": "Failed", "rowsIn": 5, "message": "no source files"}],
    },
}


def pod(name: str, component: str, *, is_ready: bool = True, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    labels = {"merlot.dev/component": component}
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions, **status}}


def test_a_tree_shows_what_each_server_holds() -> None:
    waiting = [{"restartCount": 2, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]
    pods = [
        pod("merlot-broker-1", "broker", podIP="10.0.0.1"),
        pod("merlot-server-trips-0", "server"),
        pod("merlot-server-trips-1", "server", is_ready=False, containerStatuses=waiting),
    ]
    entry = {
        "loaded": 1,
        "assigned": 2,
        "revision": 7,
        "numErrors": 1,
        "errors": {"trips_1@5": "crc"},
        "draining": True,
    }
    known = {
        "servers": {"Server_merlot-server-trips-0_8098": entry},
        "brokers": {"Broker_10.0.0.1_8099": {"revision": 7}},
    }
    assert table_tree(TABLE, pods, known).lines() == [
        "Table trips: 2 segments, 1,500 rows, 2.0 KiB",
        "├─ Conditions",
        "│  ├─ ✓ Ready=True Serving",
        "│  ├─ ✓ Degraded=False AsDeclared",
        "│  └─ … Progressing=True R: 1 of 2 (of an older spec)",
        "├─ Under way",
        "│  └─ restart merlot-server-trips-0",
        "├─ Controllers (0 of 0 ready)",
        "├─ Brokers (1 of 1 ready)",
        "│  └─ ✓ merlot-broker-1 ready, config revision 7",
        "├─ Servers (1 of 2 ready)",
        "│  ├─ ✓ merlot-server-trips-0 ready, 1 of 2 segments, config revision 7 (draining)",
        "│  │  └─ ✗ trips_1@5: crc",
        "│  └─ ✗ merlot-server-trips-1 ImagePullBackOff: no such image, 2 restarts",
        "└─ Batches",
        "   └─ year Failed, 5 rows: no source files",
    ]


def test_a_silent_controller_is_said_so() -> None:
    fresh = {**TABLE, "status": {}}
    lines = table_tree(fresh, [], None).lines()
    assert "│  └─ none yet: does the operator run?" in lines
    assert lines[-1] == "└─ The controller does not answer: segments per server are not known"


def test_the_error_of_a_table_that_the_controller_cannot_read_is_shown() -> None:
    answer = {"name": "trips", "error": "record cannot be read", "servers": {}, "brokers": {}}
    expected = "└─ ✗ The controller cannot read the table: record cannot be read"
    assert expected in (line.replace("├", "└") for line in table_tree(TABLE, [], answer).lines())


KUBECTL = """#!/bin/sh
case "$*" in
    *apply*) cat "$(dirname "$0")/after.json" ;;
    *--namespace=prod*tables*) cat "$(dirname "$0")/before.json" ;;
    *deployments*) echo '{"items": []}' ;;
    *) echo 'tables.merlot.dev "trips" not found' >&2; exit 1 ;;
esac
"""


def test_a_plan_compares_with_the_table_in_the_namespace_of_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {**TABLE, "metadata": {**TABLE["metadata"], "namespace": "prod"}}
    after = {**before, "spec": {**before["spec"], "timeColumn": "n"}}
    for name, body in (("before", before), ("after", after)):
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert _plan_table(Kubectl(), after)
    assert "timeColumn" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "value", "cost"),
    [
        ("limits.timeoutMs", 500, Cost.HOT),
        ("routing.segmentPruners", ["time"], Cost.HOT),
        ("retention", "30d", Cost.HOT),
        ("replication", 2, Cost.SCALE),
        ("tenants.server.replicas", 3, Cost.SCALE),
        ("tenants.server.resources", {"limits": {"memory": "2Gi"}}, Cost.RESTART),
        ("tenants.server.resources.storage", "2Gi", Cost.HOT),
        ("tenants.broker.resources.requests.cpu", "1", Cost.RESTART),
        ("ingestion.batch", [{"sourceUri": "s3://b/x", "format": "CSV"}], Cost.JOB),
        ("suspend", True, Cost.SCALE),
        ("timeColumn", "n", Cost.REFUSED),
        ("schema.fields", [{"name": "at", "type": "TIMESTAMP", "role": "dateTime"}], Cost.REFUSED),
    ],
)
def test_a_change_has_its_cost(path: str, value: Any, cost: Cost) -> None:
    after = copy.deepcopy(TABLE)
    *folders, last = path.split(".")
    place = after["spec"]
    for folder in folders:
        place = place.setdefault(folder, {})
    place[last] = value
    found = changes(TABLE, after, {})
    assert found[-1].cost is cost, found
    assert (cost is Cost.REFUSED) == summary(found).startswith("refused")


def test_nothing_changes_nothing() -> None:
    assert summary(changes(TABLE, copy.deepcopy(TABLE), {})) == "nothing changes"


@pytest.mark.parametrize(
    ("indexing", "effect"),
    [({"inverted": ["n"]}, "servers make the indexes"), ({"sortedColumns": ["n"]}, "segments built from now on")],
)
def test_an_index_is_made_of_what_is_there_and_an_order_is_not(indexing: Any, effect: str) -> None:
    after = copy.deepcopy(TABLE)
    after["spec"]["indexing"] = indexing
    (change,) = changes(TABLE, after, {})
    assert (change.cost, effect in change.effect) == (Cost.HOT, True), change


def test_a_new_column_is_a_reload() -> None:
    after = copy.deepcopy(TABLE)
    after["spec"]["schema"]["fields"].append({"name": "more", "type": "LONG"})
    (change,) = changes(TABLE, after, {})
    assert change.cost is Cost.RELOAD


def test_a_change_below_a_column_with_dots_in_its_name_is_shown() -> None:
    before, after = copy.deepcopy(TABLE), copy.deepcopy(TABLE)
    for table, units in ((before, ["DAY"]), (after, ["DAY", "HOUR"])):
        table["spec"]["schema"]["fields"].append({"name": "event.at", "type": "TIMESTAMP"})
        table["spec"]["indexing"] = {"timestampGranularities": {"event.at": units}}
    assert [one.path for one in changes(before, after, {})] == ["indexing.timestampGranularities.event.at"]


def test_defaults_that_a_definition_once_filled_in_are_no_change() -> None:
    filled = copy.deepcopy(TABLE)
    for column in filled["spec"]["schema"]["fields"]:
        column |= {"role": column.get("role", "dimension"), "multiValue": False}
    assert changes(filled, TABLE, {}) == []
    added = copy.deepcopy(TABLE)
    added["spec"]["schema"]["fields"].append({"name": "m", "type": "INT"})
    assert [one.path for one in changes(filled, added, {})] == ["schema.fields"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*No such file or directory"),
        (b"\xff\xfe", "cannot read .*codec can't decode"),
        (b"{", "cannot read .*while parsing"),
        (b"[1]", "is no manifest"),
        (b"kind: Table\nmetadata: {}\n", "has no metadata.name"),
    ],
)
def test_a_plan_of_what_is_no_manifest_is_refused_in_one_line(
    content: bytes | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "table.yaml"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["kubectl-merlot", "plan", "-f", str(path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
