"""A Table's conditions from what is known about it."""

from __future__ import annotations

from typing import Any

import pytest

from merlot_operator.cluster_status import ClusterStatus
from merlot_operator.conditions import Condition
from merlot_operator.context import ClusterNote, PoolNote
from merlot_operator.status import Refusal, TableFacts, table_conditions, table_status

AWAY = ClusterStatus(problem="controller does not answer at http://x")
BLOCKED = {"name": "all", "job": "t-all-1", "state": "Running", "message": "pod t-all-1-x: no such image"}
WAITS = Condition("UpsertConfigured", False, "NoUpsertConfig", "x")
UNFIT = Condition("UpsertConfigured", False, "UpsertConfigUnfit", "x")


def pod(name: str, *, is_ready: bool = True) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    return {"metadata": {"name": name}, "status": {"conditions": [ready]}}


def word(**changes: Any) -> dict[str, Any]:
    counts = {"segments": 3, "totalDocs": 30, "sizeBytes": 2048, "segmentsUnavailable": 0, "segmentsLoading": 0}
    server = {"live": True, "assigned": 3, "revision": 7, "errors": {"a@1": "no room on the disk"}}
    instances = {"brokers": {"b": {"revision": 7}}, "servers": {"s": server}}
    return {**counts, "segmentsFailed": 0, "moving": False, "replication": 1, **instances, **changes}


def facts(**changes: Any) -> TableFacts:
    given: dict[str, Any] = {
        "namespace": "n",
        "name": "t",
        "refusal": None,
        "revision": 7,
        "config_problem": None,
        "cluster": ClusterStatus({"t": word()}),
        "cluster_note": ClusterNote(num_brokers=1),
        "pool": "merlot-server-t",
        "pool_note": PoolNote(wanted=1, replicas=1),
        "controllers": [],
        "brokers": [pod("b")],
        "servers": [pod("s")],
        "runs": [],
        "was_ready": False,
        "is_suspended": False,
        "upsert": None,
    }
    return TableFacts(**given | changes)


def shown(given: TableFacts, kind: str) -> tuple[bool | None, str]:
    [condition] = [one for one in table_conditions(given) if one.type == kind]
    return condition.holds, condition.reason


def saying(**changes: Any) -> ClusterStatus:
    return ClusterStatus({"t": word(**changes)})


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        ({}, "Ready", (True, "Serving")),
        ({}, "Degraded", (False, "AsDeclared")),
        ({}, "Progressing", (False, "Settled")),
        ({"refusal": Refusal("Invalid", "x")}, "Accepted", (False, "Invalid")),
        ({"cluster": saying(storeProblem="no Secret")}, "Degraded", (True, "StoreUnavailable")),
        ({"cluster": saying(storeProblem="")}, "Degraded", (False, "AsDeclared")),
        ({"cluster": saying(adoptedSegments=3)}, "Accepted", (True, "Adopted")),
        ({"cluster": saying(adoptedSegments=0)}, "Accepted", (True, "Valid")),
        ({"refusal": Refusal("Invalid", "x")}, "Ready", (False, "NotAccepted")),
        ({"refusal": Refusal("Invalid", "x")}, "ConfigInSync", (False, "NotAccepted")),
        ({"is_suspended": True, "servers": []}, "Ready", (False, "Suspended")),
        ({"revision": None, "config_problem": "away"}, "Ready", (False, "MetastoreUnavailable")),
        ({"brokers": [pod("b", is_ready=False)]}, "Ready", (False, "NoBroker")),
        ({"servers": []}, "Ready", (False, "NoServer")),
        ({"servers": []}, "Progressing", (True, "Scaling")),
        ({"servers": [pod("s", is_ready=False)]}, "Progressing", (True, "Starting")),
        ({"cluster": AWAY}, "Ready", (False, "ControllerUnavailable")),
        ({"cluster": AWAY, "was_ready": True}, "Ready", (True, "Serving")),
        ({"cluster": AWAY, "was_ready": True}, "Degraded", (True, "ControllerUnavailable")),
        ({"cluster": AWAY}, "ConfigInSync", (None, "ControllerUnavailable")),
        ({"cluster": saying(brokers={"b": {"revision": 0}})}, "Ready", (False, "NoBroker")),
        ({"cluster": saying(brokers={"b": {"revision": 6}})}, "ConfigInSync", (False, "Spreading")),
        ({"cluster": saying(segmentsUnavailable=1)}, "SegmentsAvailable", (False, "SegmentsUnavailable")),
        ({"cluster": saying(segments=0)}, "SegmentsAvailable", (True, "NoSegments")),
        ({"cluster": saying(segmentsFailed=1)}, "Degraded", (True, "SegmentsFailed")),
        ({"cluster": saying(segmentsLoading=1)}, "Progressing", (True, "Loading")),
        ({"pool_note": PoolNote(("wait",), 2, 1, 1)}, "RestartPending", (True, "SettingsChanged")),
        ({"pool_note": PoolNote(("wait",), 2, 1, 1, is_stuck=True)}, "Degraded", (True, "RolloutStuck")),
        ({"pool_note": PoolNote(problem="denied", wanted=1)}, "Degraded", (True, "PoolNotApplied")),
        ({"runs": [BLOCKED]}, "Degraded", (True, "BatchBlocked")),
        ({"runs": [BLOCKED]}, "Ready", (True, "Serving")),
        ({"upsert": WAITS, "revision": None}, "Ready", (False, "UpsertNotAvailable")),
        ({"upsert": WAITS, "revision": None}, "UpsertConfigured", (False, "NoUpsertConfig")),
        ({"upsert": WAITS, "revision": None}, "Degraded", (False, "AsDeclared")),
        ({"upsert": UNFIT, "revision": None}, "Degraded", (True, "UpsertConfigUnfit")),
        ({"runs": [{"name": "a", "state": "Running", "job": "j"}]}, "TaskSucceeded", (None, "BatchUnderWay")),
        ({"runs": [{"name": "a", "state": "Failed", "job": "j"}]}, "Degraded", (True, "BatchFailed")),
    ],
)
def test_condition_has_the_reason_of_its_cause(
    changes: dict[str, Any], kind: str, expected: tuple[bool | None, str]
) -> None:
    assert shown(facts(**changes), kind) == expected


def test_server_that_holds_nothing_need_not_know_the_newest_config() -> None:
    idle = {"live": True, "assigned": 0, "revision": 0, "errors": {}}
    assert shown(facts(cluster=saying(servers={"s": idle})), "ConfigInSync") == (True, "AllPods")


def test_only_the_newest_run_of_a_batch_counts() -> None:
    runs = [{"name": "a", "state": "Succeeded", "job": "2"}, {"name": "a", "state": "Failed", "job": "1"}]
    assert shown(facts(runs=runs), "TaskSucceeded") == (True, "AllBatches")
    assert table_status(facts(runs=runs))["lastBatch"] == "a Succeeded"


def test_same_facts_give_the_same_status() -> None:
    assert table_status(facts()) == table_status(facts())
    assert table_conditions(facts()) == table_conditions(facts())


def test_what_impairs_pruning_is_told() -> None:
    brokers = {"a": {"revision": 3, "problems": []}, "b": {"revision": 3, "problems": ["pruner failed name=acme.geo"]}}
    given = facts(cluster=saying(brokers=brokers, unpartitioned=2))
    assert shown(given, "Degraded") == (True, "PruningImpaired")
    assert shown(given, "Ready") == (True, "Serving")
    assert table_status(given)["segmentsUnpartitioned"] == 2
    assert "segmentsUnpartitioned" not in table_status(facts(cluster=saying(unpartitioned=0)))


def test_errors_of_segments_are_shown_with_their_cause() -> None:
    [degraded] = [one for one in table_conditions(facts(cluster=saying(segmentsFailed=1))) if one.type == "Degraded"]
    assert "no room on the disk" in degraded.message
