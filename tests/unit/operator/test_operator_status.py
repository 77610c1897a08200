"""A Table's conditions from what is known about it."""

from __future__ import annotations

from typing import Any

import pytest

from merlot.spec.status import TableStatus
from merlot_operator.context import ClusterNote, PoolNote
from merlot_operator.controllers.statuses import ClusterStatus
from merlot_operator.desired.demand import Conflict
from merlot_operator.kube.events import timestamp
from merlot_operator.status.conditions import Condition, status_patch
from merlot_operator.status.table import table_conditions, table_status
from merlot_operator.status.table_facts import Refusal, SpecVerdict, TableStatusFacts
from merlot_operator.status.upserts import upsert_ready

NOW_MS = 1_800_000_000_000
SINCE = {"status": "False", "lastTransitionTime": timestamp(NOW_MS - 3_600_000)}
READY = {"status": "True", "lastTransitionTime": timestamp(NOW_MS - 3_600_000)}
NEW = SpecVerdict()
REFUSED = SpecVerdict(Refusal("Invalid", "x"))
CHANGE_REFUSED = SpecVerdict(Refusal("ChangeRefused", "x"), revision=7, accepted="{}")
UNWRITTEN = SpecVerdict(None, "away", 7, "{}")
OVERDUE = "ProgressDeadlineExceeded"
CONFLICT, OTHERS = Conflict("TooFewServers", "x", "t"), Conflict("TooFewServers", "x", "other")
AWAY = ClusterStatus(problem="controller does not answer at http://x")
UNREADABLE = ClusterStatus(unreadable={"t": "record cannot be read"})
BLOCKED = {"name": "all", "job": "t-all-1", "state": "Running", "message": "pod t-all-1-x: no such image"}
WAITS = Condition("UpsertConfigured", False, "NoUpsertConfig", "x")
UNFIT = Condition("UpsertConfigured", False, "UpsertConfigUnfit", "x")


def pod(name: str, *, is_ready: bool = True, since: dict[str, str] | None = None) -> dict[str, Any]:
    ready = {"type": "Ready", **(since or {}), "status": "True" if is_ready else "False"}
    return {"metadata": {"name": name}, "status": {"conditions": [ready]}}


def stuck(name: str) -> dict[str, Any]:
    """Its node is gone: it should have ended an hour ago."""
    return {"metadata": {"name": name, "deletionTimestamp": SINCE["lastTransitionTime"]}, "spec": {"nodeName": "lost"}}


def deployment(kind: str, status: str, reason: str) -> dict[str, Any]:
    condition = {"type": kind, "status": status, "reason": reason, "message": "x"}
    return {"metadata": {"name": "merlot-broker"}, "status": {"conditions": [condition]}}


def word(**changes: Any) -> dict[str, Any]:
    counts = {"segments": 3, "totalDocs": 30, "sizeBytes": 2048, "segmentsUnavailable": 0, "segmentsLoading": 0}
    server = {"live": True, "assigned": 3, "revision": 7, "errors": {"a@1": "no room on the disk"}}
    instances = {"brokers": {"b": {"revision": 7}}, "servers": {"s": server}}
    return {**counts, "segmentsFailed": 0, "moving": False, "replication": 1, **instances, **changes}


def facts(**changes: Any) -> TableStatusFacts:
    given: dict[str, Any] = {
        "namespace": "n",
        "name": "t",
        "verdict": SpecVerdict(revision=7, accepted="{}"),
        "is_declared_run": True,
        "cluster": ClusterStatus({"t": word()}),
        "cluster_note": ClusterNote(num_brokers=1),
        "pool": "merlot-server-t",
        "pool_note": PoolNote(wanted=1, replicas=1),
        "controllers": [],
        "brokers": [pod("b")],
        "servers": [pod("s")],
        "runs": [],
        "deployments": [],
        "ready_before": {},
        "was_told": True,
        "now_ms": NOW_MS,
        "asks_for_no_server": False,
        "is_suspended": False,
        "has_stream": False,
        "upsert": None,
    }
    return TableStatusFacts(**given | changes)


def saying(**changes: Any) -> ClusterStatus:
    return ClusterStatus({"t": word(**changes)})


def streaming(**changes: Any) -> dict[str, Any]:
    """Of a table with a stream of two partitions that are consumed, but for what changes."""
    counts = {"partitions": 2, "consumed": 2, "catchingUp": 0, "lag": 0, "lagMs": 0, "bad": 0, "numLost": 0}
    member = {**counts, "paused": False, "looked": True, "problem": "", "error": "", "worst": [], "lost": []}
    return {"has_stream": True, "cluster": saying(stream=member | {"handingOver": {}} | changes)}


def failing(problem: str, state: str = "ERROR") -> dict[str, Any]:
    """A partition that nobody consumes."""
    return {"partition": 1, "state": state, "lag": 12_000, "lagMs": 300_000, "problem": problem, "error": "x y=1"}


def shown(given: TableStatusFacts, kind: str) -> tuple[bool | None, str]:
    [condition] = [one for one in table_conditions(given) if one.type == kind]
    return condition.holds, condition.reason


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        ({}, "Ready", (True, "Serving")),
        ({}, "Degraded", (False, "AsDeclared")),
        ({}, "Progressing", (False, "Settled")),
        ({"verdict": REFUSED}, "Accepted", (False, "Invalid")),
        ({"cluster": saying(storeProblem="no Secret")}, "Degraded", (True, "StoreUnavailable")),
        ({"cluster": saying(storeProblem="")}, "Degraded", (False, "AsDeclared")),
        ({"cluster": saying(metastoreLost="it is new")}, "Ready", (False, "MetastoreLost")),
        ({"cluster": saying(metastoreLost="it is new")}, "Degraded", (True, "MetastoreLost")),
        ({"cluster": saying(metastoreLost="it is new")}, "SegmentsAvailable", (False, "MetastoreLost")),
        ({"cluster": saying(metastoreLost="")}, "Ready", (True, "Serving")),
        ({"cluster": saying(unconfirmed=True)}, "Ready", (False, "Unconfirmed")),
        ({"cluster": saying(unconfirmed=True)}, "Degraded", (False, "AsDeclared")),
        ({"cluster": saying(unconfirmed=False)}, "Ready", (True, "Serving")),
        ({"cluster": saying(stream=None)}, "Progressing", (False, "Settled")),
        ({"cluster": saying(adoptedSegments=None)}, "Accepted", (True, "Valid")),
        ({"cluster": saying(brokers={"b": {"revision": 7, "problems": None}})}, "Degraded", (False, "AsDeclared")),
        ({"cluster": UNREADABLE}, "Ready", (False, "TableUnreadable")),
        ({"cluster": UNREADABLE}, "Degraded", (True, "TableUnreadable")),
        ({"cluster": UNREADABLE}, "ConfigInSync", (None, "TableUnreadable")),
        ({"cluster": UNREADABLE}, "SegmentsAvailable", (None, "TableUnreadable")),
        ({"cluster": UNREADABLE, "has_stream": True}, "Consuming", (None, "TableUnreadable")),
        ({"cluster": UNREADABLE, "name": "other"}, "Degraded", (False, "AsDeclared")),
        (
            {"cluster": saying(metastoreLost="it is new"), "runs": [{"name": "a", "state": "Succeeded", "job": "j"}]},
            "TaskSucceeded",
            (None, "MetastoreLost"),
        ),
        ({"cluster": saying(adoptedSegments=3)}, "Accepted", (True, "Adopted")),
        ({"cluster": saying(adoptedSegments=0)}, "Accepted", (True, "Valid")),
        ({"verdict": REFUSED}, "Ready", (False, "NotAccepted")),
        ({"verdict": CHANGE_REFUSED}, "Accepted", (False, "ChangeRefused")),
        ({"verdict": CHANGE_REFUSED}, "Degraded", (True, "ChangeRefused")),
        ({"verdict": CHANGE_REFUSED}, "Ready", (True, "Serving")),
        ({"verdict": CHANGE_REFUSED}, "ConfigInSync", (False, "NotAccepted")),
        ({"is_suspended": True, "servers": []}, "Ready", (False, "Suspended")),
        ({"verdict": SpecVerdict(problem="away")}, "Ready", (False, "MetastoreUnavailable")),
        ({"verdict": SpecVerdict(problem="away")}, "Accepted", (True, "Valid")),
        ({"verdict": UNWRITTEN, "is_declared_run": False}, "Accepted", (None, "MetastoreUnavailable")),
        ({"verdict": UNWRITTEN}, "Accepted", (True, "Valid")),
        ({"verdict": UNWRITTEN}, "Ready", (True, "Serving")),
        ({"brokers": [pod("b", is_ready=False)]}, "Ready", (False, "NoBroker")),
        ({"servers": [], "cluster": saying(servers={})}, "Ready", (False, "NoServer")),
        ({"servers": [pod("s", is_ready=False)]}, "Ready", (True, "Serving")),
        ({"servers": [pod("s", is_ready=False)], "cluster": saying(servers={})}, "Ready", (False, "NoServer")),
        ({"cluster": saying(segmentsLoading=9, moving=True)}, "Ready", (True, "Serving")),
        ({"cluster": saying(segmentsUnavailable=1)}, "Ready", (False, "SegmentsUnavailable")),
        ({"asks_for_no_server": True, "pool_note": PoolNote()}, "Ready", (False, "ScaledToZero")),
        ({"asks_for_no_server": True}, "Ready", (True, "Serving")),
        ({"servers": []}, "Progressing", (True, "Scaling")),
        ({"servers": [pod("s", is_ready=False)]}, "Progressing", (True, "Starting")),
        ({"cluster": AWAY}, "Ready", (False, "ControllerUnavailable")),
        ({"cluster": AWAY, "ready_before": READY}, "Ready", (True, "Serving")),
        ({"cluster": AWAY, "ready_before": READY}, "Degraded", (True, "ControllerUnavailable")),
        ({"cluster": AWAY, "was_told": False}, "Degraded", (False, "AsDeclared")),
        ({"cluster": AWAY, "was_told": False}, "Progressing", (True, "Starting")),
        ({"cluster": AWAY, "was_told": False, "ready_before": SINCE}, "Degraded", (True, "NotReadyInTime")),
        ({"brokers": [], "ready_before": SINCE}, "Degraded", (True, "NotReadyInTime")),
        ({"brokers": [], "ready_before": READY}, "Degraded", (False, "AsDeclared")),
        ({"is_suspended": True, "ready_before": SINCE}, "Degraded", (False, "AsDeclared")),
        ({"servers": [stuck("s")]}, "Degraded", (True, "PodStuck")),
        ({"brokers": [pod("b", is_ready=False, since=SINCE)]}, "Degraded", (True, "NotReady")),
        ({"pool_note": PoolNote(refused="exceeded quota", wanted=1)}, "Degraded", (True, "PodsRefused")),
        ({"deployments": [deployment("ReplicaFailure", "True", "FailedCreate")]}, "Degraded", (True, "PodsRefused")),
        ({"deployments": [deployment("Progressing", "False", OVERDUE)]}, "Degraded", (True, "RolloutStuck")),
        ({"pool_note": PoolNote(wanted=1, conflicts=(CONFLICT,))}, "Degraded", (True, "TooFewServers")),
        ({"pool_note": PoolNote(wanted=1, conflicts=(OTHERS,))}, "Degraded", (False, "AsDeclared")),
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
        (streaming(), "Consuming", (True, "Consuming")),
        (streaming(catchingUp=1), "Consuming", (True, "CatchingUp")),
        (streaming(catchingUp=1), "Progressing", (True, "CatchingUp")),
        (streaming(misplaced=460), "Consuming", (True, "KeysMoved")),
        (streaming(misplaced=460), "Degraded", (True, "KeysMoved")),
        (streaming(misplaced=0), "Degraded", (False, "AsDeclared")),
        (streaming(numLost=330, lost=[[0, 120, 450]]), "Consuming", (True, "MessagesLost")),
        (streaming(numLost=330, lost=[[0, 120, 450]]), "Degraded", (False, "AsDeclared")),
        (streaming(worst=[failing("NOT_COMMITTED", "CONSUMING")]), "Consuming", (True, "CommitsFail")),
        (streaming(worst=[failing("NOT_COMMITTED", "CONSUMING")]), "Degraded", (True, "CommitsFail")),
        (streaming(paused=True, consumed=0), "Consuming", (False, "Paused")),
        (streaming(paused=True, consumed=0), "Degraded", (False, "AsDeclared")),
        (streaming() | {"is_suspended": True}, "Consuming", (False, "Suspended")),
        ({"has_stream": True}, "Consuming", (None, "ControllerUnavailable")),
        (streaming(partitions=0, consumed=0, looked=False), "Consuming", (None, "Starting")),
        (streaming(partitions=0, consumed=0), "Consuming", (False, "NoPartitions")),
        (streaming(consumed=0), "Consuming", (None, "Starting")),
        (streaming(consumed=1, worst=[failing("", "STARTING")]), "Consuming", (None, "Starting")),
        (streaming(consumed=1, worst=[failing("", "UNKNOWN")]), "Consuming", (False, "NotConsumed")),
        (streaming(consumed=1, worst=[failing("", "UNKNOWN")]), "Degraded", (True, "NotConsumed")),
        (streaming(consumed=1, worst=[failing("UNREACHABLE")]), "Consuming", (False, "StreamUnreachable")),
        (streaming(consumed=1, worst=[failing("REFUSED")]), "Consuming", (False, "CredentialsRefused")),
        (streaming(consumed=1, worst=[failing("NO_SECRET")]), "Degraded", (True, "SecretMissing")),
        (streaming(consumed=1, worst=[failing("OUT_OF_RANGE")]), "Consuming", (False, "OffsetOutOfRange")),
        (streaming(consumed=1, worst=[failing("BAD_MESSAGE")]), "Consuming", (False, "BadMessage")),
        (streaming(consumed=1, worst=[failing("of a later version")]), "Consuming", (False, "StreamFailed")),
        (streaming(consumed=1, worst=[failing("OTHER"), failing("GONE")]), "Consuming", (False, "TopicMissing")),
        (
            streaming(consumed=0, partitions=0, problem="REFUSED", error="no"),
            "Consuming",
            (False, "CredentialsRefused"),
        ),
        (streaming(error="no", problem="UNREACHABLE"), "Consuming", (True, "Consuming")),
        (streaming(consumed=1, worst=[failing("REFUSED")]), "Ready", (True, "Serving")),
        ({"upsert": WAITS}, "Ready", (True, "Serving")),
        ({"upsert": WAITS, "verdict": NEW}, "UpsertConfigured", (False, "NoUpsertConfig")),
        ({"upsert": WAITS, "verdict": NEW}, "Degraded", (False, "AsDeclared")),
        ({"upsert": UNFIT, "verdict": NEW}, "Degraded", (True, "UpsertConfigUnfit")),
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


def test_what_went_of_an_object_in_the_status_is_taken_away() -> None:
    before = {"stream": {"lag": "0s", "lastError": "x", "behind": [1]}, "size": "1 B"}
    after = {"stream": {"lag": "5s/1", "behind": [2]}, "size": "1 B"}
    assert status_patch(before, after) == {"stream": {"lag": "5s/1", "behind": [2], "lastError": None}}
    assert status_patch(after, after) is None
    assert status_patch(before, {}) == {"stream": None, "size": None}


def test_a_table_without_a_stream_has_no_condition_of_one() -> None:
    assert not [one for one in table_conditions(facts()) if one.type == "Consuming"]
    assert "stream" not in table_status(facts())


def test_the_status_tells_how_far_a_stream_is_consumed() -> None:
    word = streaming(
        consumed=1, lag=12_000, lagMs=300_000, numLost=330, lost=[[0, 120, 450]], worst=[failing("REFUSED")]
    )
    status = table_status(facts(**word))["stream"]
    behind = {"partition": 1, "state": "ERROR", "lagMessages": 12_000, "lagSeconds": 300}
    assert status == {
        "partitions": 2,
        "consumed": 1,
        "lag": "5m/12000",
        "lagMessages": 12_000,
        "lagSeconds": 300,
        "lostMessages": 330,
        "lost": ["partition 0: offsets 120 to 449"],
        "behind": [behind | {"problem": "CredentialsRefused", "message": "x y=1"}],
        "lastError": "x y=1",
    }
    TableStatus.model_validate({"stream": status})


@pytest.mark.parametrize(
    ("messages", "lag_ms", "text"),
    [
        (0, 0, "0s"),
        (90, 2_000, "2s/90"),
        (12, 7_200_000, "2h/12"),
        (5, 172_800_000, "2d/5"),
        (1200, 0, "1200 messages"),
    ],
)
def test_a_lag_fits_a_column(messages: int, lag_ms: int, text: str) -> None:
    status = table_status(facts(**streaming(lag=messages, lagMs=lag_ms)))
    assert status["stream"]["lag"] == text


def test_what_impairs_pruning_is_told() -> None:
    brokers = {"a": {"revision": 3, "problems": []}, "b": {"revision": 3, "problems": ["pruner failed name=acme.geo"]}}
    given = facts(cluster=saying(brokers=brokers, unpartitioned=2))
    assert shown(given, "Degraded") == (True, "PruningImpaired")
    assert shown(given, "Ready") == (True, "Serving")
    assert table_status(given)["segmentsUnpartitioned"] == 2
    assert "segmentsUnpartitioned" not in table_status(facts(cluster=saying(unpartitioned=0)))


@pytest.mark.parametrize(
    ("indexes", "reason", "shown_as"),
    [
        ({"built": 12, "wanted": 40, "looking": [], "problem": ""}, "BuildingIndexes", "12/40"),
        ({"built": 0, "wanted": 0, "looking": ["Server_a"], "problem": ""}, "BuildingIndexes", "0/0"),
        ({"built": 39, "wanted": 40, "looking": [], "problem": "no space left"}, "IndexesFailing", "39/40"),
        ({"built": 40, "wanted": 40, "looking": [], "problem": ""}, "AllPods", "40/40"),
        (None, "AllPods", None),
    ],
)
def test_indexes_that_are_still_made_are_told(
    indexes: dict[str, object] | None, reason: str, shown_as: str | None
) -> None:
    given = facts(cluster=saying(indexes=indexes))
    assert shown(given, "ConfigInSync") == (reason == "AllPods", reason)
    assert shown(given, "Ready") == (True, "Serving")
    assert table_status(given).get("indexes") == shown_as


def test_errors_of_segments_are_shown_with_their_cause() -> None:
    [degraded] = [one for one in table_conditions(facts(cluster=saying(segmentsFailed=1))) if one.type == "Degraded"]
    assert "no room on the disk" in degraded.message


GOOD, BAD = Condition("Accepted", True, "Valid"), Condition("Degraded", False, "AsDeclared")


@pytest.mark.parametrize(
    ("accepted", "degraded", "executed", "expected"),
    [
        (GOOD, BAD, Condition("Executed", False, "NoTable", "x"), (False, "NoTable")),
        (GOOD, BAD, Condition("Executed", False, "Waiting", "x"), (False, "Waiting")),
        (GOOD, BAD, Condition("Executed", False, "Progressing", "x"), (True, "Accepted")),
        (GOOD, BAD, Condition("Executed", None, "ControllerUnavailable", "x"), (True, "Accepted")),
        (GOOD, BAD, Condition("Executed", True, "Executed", "x"), (True, "Executed")),
        (Condition("Accepted", False, "Invalid"), BAD, Condition("Executed", True, "Executed"), (False, "Invalid")),
        (GOOD, Condition("Degraded", True, "DoesNotFit"), Condition("Executed", True, "E"), (False, "DoesNotFit")),
    ],
)
def test_an_upsert_config_is_ready_if_a_table_is_upserted_by_it(
    accepted: Condition, degraded: Condition, executed: Condition, expected: tuple[bool, str]
) -> None:
    ready = upsert_ready(accepted, degraded, executed)
    assert (ready.holds, ready.reason) == expected
    assert executed.reason == ready.reason or ready.reason != "Executed"
