"""The operator killed after any write, again and again, comes to the same end as one that lived."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.budget import IS_QUICK
from tests.kube.controllers import Controller
from tests.kube.operator_parts import CHILDREN, Api, Operator, eventually, run_jobs, table_word
from tests.kube.test_operator import BATCH, flights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

MOST_LIVES = 60
WRITES = (1, 3) if IS_QUICK else (1,)
"""After how many writes one operator after the other is killed, in turn."""
FEWER = {"MERLOT_NETWORK_POLICIES": "false", "MERLOT_SPARK_DRIVER_ROLE": ""}
"""Fewer objects of a kind that others stand for: each write costs the start of an operator."""
QUIET_PASSES = 15
"""An operator that made so many passes and lives has nothing to write."""

PASSING = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "ownerReferences"}
TIMES = {"lastTransitionTime", "clusterIP", "clusterIPs", "job", "batch.kubernetes.io/controller-uid", "controller-uid"}


def end_state(api: Api) -> dict[str, Any]:
    """What there is, without what differs between two runs anyway."""
    found = {
        f"{plural}/{_plain_name(one)}": _without_passing(one)
        for plural in (*CHILDREN, "tables")
        for one in api.list(plural)
        if one["metadata"]["name"] != "default"
    }
    text = json.dumps(found, sort_keys=True).replace(api.namespace, "NAMESPACE")
    text = re.sub(r"flights-all-[0-9a-f]{10}", "JOB", text)
    state: dict[str, Any] = json.loads(text)
    return state


def _plain_name(body: Any) -> str:
    """Jobs are named after their Table's uid too."""
    name: str = body["metadata"]["name"]
    return name.rpartition("-")[0] if body["metadata"].get("labels", {}).get("merlot.dev/batch") else name


def _without_passing(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in PASSING | TIMES | {"annotations", "selector"}}
        return {key: _without_passing(item) for key, item in kept.items() if key != "args"}
    if isinstance(value, list):
        return [_without_passing(item) for item in value]
    return value


@pytest.mark.timeout(600)
def test_operator_killed_after_every_write_comes_to_the_same_end(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path
) -> None:
    settings = {**settings, **FEWER}
    controller.tables = {"flights": table_word()}
    document = flights(ingestion={"batch": [BATCH]}, deletionPolicy="Retain")
    api.create("tables", document)
    assert _live_and_die(settings, tmp_path / "dying.log") > 10
    with Operator(settings, tmp_path / "last.log") as last:
        eventually(lambda: len(api.list("jobs")), 1, log=lambda: last.log)
        run_jobs(api)
        eventually(lambda: _last_batch(api), "all Running", log=lambda: last.log)
        last.settle()
    killed = end_state(api)
    with Operator(settings, tmp_path / "fresh.log") as fresh:
        api.delete("tables", "flights")
        eventually(lambda: api.get("tables", "flights"), None, log=lambda: fresh.log)
        eventually(api.children, set(), log=lambda: fresh.log)
        api.create("tables", document)
        eventually(lambda: len(api.list("jobs")), 1, log=lambda: fresh.log)
        run_jobs(api)
        eventually(lambda: _last_batch(api), "all Running", log=lambda: fresh.log)
        fresh.settle()
    assert end_state(api) == killed


@pytest.mark.timeout(600)
def test_deletion_that_is_killed_after_every_write_leaves_nothing(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path
) -> None:
    settings = {**settings, **FEWER}
    controller.tables = {"flights": table_word()}
    with Operator(settings, tmp_path / "first.log") as first:
        api.create("tables", flights(ingestion={"batch": [BATCH]}))
        eventually(lambda: len(api.list("jobs")), 1, log=lambda: first.log)
        first.settle()
    api.delete("tables", "flights")
    assert _live_and_die(settings, tmp_path / "dying.log") > 5
    with Operator(settings, tmp_path / "last.log") as last:
        eventually(lambda: api.get("tables", "flights"), None, log=lambda: last.log)
        eventually(api.children, set(), log=lambda: last.log)


def _last_batch(api: Api) -> Any:
    """As the status tells it: an operator that has nothing to do may not have heard of the Job's pod yet."""
    return api.get("tables", "flights").get("status", {}).get("lastBatch")


def _live_and_die(settings: dict[str, str], log: Path) -> int:
    """Operators with a write each, or a few, one after the other, until one has nothing left to write; returns how many
    writes they died of. Every fourth dies after a look at shared state, or a change of it, too."""
    num_writes = 0
    for life in range(MOST_LIVES):
        is_fourth = life % 4 == 3
        most = 1 if is_fourth else WRITES[life % len(WRITES)]
        arguments = (str(most), *(["shared"] if is_fourth else []))
        with Operator(settings, log, program="tests.kube.dying_operator", arguments=arguments) as operator:
            if not operator.dies_within(QUIET_PASSES):
                return num_writes
            num_writes += 0 if is_fourth else most
    raise AssertionError(f"operators go on writing: {log.read_text()[-4000:]}")
