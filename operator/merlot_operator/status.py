"""A Table's status from what is known about it. Pure: same facts, same status, so that nothing is written twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merlot_operator import pods as pod_facts
from merlot_operator.cluster_status import ClusterStatus
from merlot_operator.conditions import Condition, Json, human_size
from merlot_operator.context import ClusterNote, PoolNote
from merlot_operator.kinds import POOL, SELECTOR, Object
from merlot_operator.manifests.cluster import broker_url
from merlot_operator.spark_jobs import ACTIVE, Run
from merlot_operator.upsert_links import UPSERT_PROBLEMS

UNKNOWN_TABLE = "the controller does not know the table yet"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a Table is not accepted."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """All that a Table's status is derived from."""

    namespace: str
    name: str
    refusal: Refusal | None
    revision: int | None
    """Of its config in shared state; None if it is not there, or nobody knows."""
    config_problem: str | None
    """Why its config could not be written."""
    cluster: ClusterStatus
    cluster_note: ClusterNote
    pool: str
    pool_note: PoolNote
    controllers: Sequence[Object]
    brokers: Sequence[Object]
    servers: Sequence[Object]
    runs: Sequence[Run]
    was_ready: bool
    is_suspended: bool
    upsert: Condition | None
    """Condition UpsertConfigured, if it names an UpsertConfig."""

    @property
    def table(self) -> Mapping[str, Any] | None:
        """The controller's word on it."""
        return self.cluster.tables.get(self.name)


def table_conditions(facts: TableFacts) -> list[Condition]:
    """All conditions, in the order in which they are shown."""
    problem = next(_problems(facts), None)
    conditions = [
        _accepted(facts),
        _ready(facts),
        _progressing(facts),
        Condition("Degraded", False, "AsDeclared") if problem is None else Condition("Degraded", True, *problem),
        _config_in_sync(facts),
        _segments_available(facts),
        _restart_pending(facts),
    ]
    if facts.upsert is not None:
        conditions.append(facts.upsert)
    return [*conditions, _task_succeeded(facts)] if facts.runs else conditions


def table_status(facts: TableFacts) -> Json:
    """The status but for its conditions."""
    status: Json = {
        "brokers": f"{pod_facts.num_ready(facts.brokers)}/{facts.cluster_note.num_brokers}",
        "brokerUrl": broker_url(facts.namespace),
        "plan": [*facts.pool_note.steps, *facts.pool_note.notes],
        "batches": [dict(run) for run in facts.runs],
    }
    if facts.revision is not None:
        status["revision"] = facts.revision
    if facts.upsert is None:
        status["servers"] = f"{pod_facts.num_ready(facts.servers)}/{facts.pool_note.wanted}"
        status["serverReplicas"] = facts.pool_note.replicas
        status["serverSelector"] = f"{SELECTOR},{POOL}={facts.pool}"
        status["pool"] = facts.pool
    if facts.table is not None:
        size = int(facts.table["sizeBytes"])
        counts = {"segments": int(facts.table["segments"]), "totalDocs": int(facts.table["totalDocs"])}
        status |= counts | {"sizeBytes": size, "size": human_size(size)}
        status["segmentsUnpartitioned"] = facts.table.get("unpartitioned") or None
    if facts.runs:
        status["lastBatch"] = f"{facts.runs[0]['name']} {facts.runs[0]['state']}"
    return {name: value for name, value in status.items() if value not in ([], None)}


def _accepted(facts: TableFacts) -> Condition:
    if facts.refusal is not None:
        return Condition("Accepted", False, facts.refusal.reason, facts.refusal.message)
    num_adopted = 0 if facts.table is None else facts.table.get("adoptedSegments", 0)
    if num_adopted:
        text = f"{num_adopted} segments that an earlier table of this name left (deletionPolicy: Retain) are its own"
        return Condition("Accepted", True, "Adopted", text)
    return Condition("Accepted", True, "Valid")


def _ready(facts: TableFacts) -> Condition:
    obstacle = next(_obstacles(facts), None)
    return Condition("Ready", True, "Serving") if obstacle is None else Condition("Ready", False, *obstacle)


def _obstacles(facts: TableFacts) -> Iterator[tuple[str, str]]:
    """Why queries are not answered in full, the cause before its effects."""
    if facts.refusal is not None:
        yield "NotAccepted", "the table is not accepted; see condition Accepted"
    if facts.upsert is not None:
        yield (
            "UpsertNotAvailable",
            "upserts are not executed in this version: nothing is ingested or served; remove spec.upsert, or wait",
        )
    if facts.is_suspended:
        yield "Suspended", "spec.suspend is true: servers are stopped, data is kept; set it to false to go on"
    if facts.revision is None:
        yield "MetastoreUnavailable", facts.config_problem or "its config is not in ZooKeeper yet"
    if not pod_facts.num_ready(facts.brokers):
        yield "NoBroker", _pods_message("broker", facts.brokers)
    if not pod_facts.num_ready(facts.servers):
        yield "NoServer", _pods_message("server", facts.servers)
    if facts.table is None:
        if not facts.was_ready or facts.cluster.is_known:
            yield "ControllerUnavailable", facts.cluster.problem or UNKNOWN_TABLE
        return
    if not any(broker["revision"] for broker in facts.table["brokers"].values()):
        yield "NoBroker", "no broker knows the table yet"
    missing = facts.table["segmentsUnavailable"]
    if missing:
        yield (
            "SegmentsUnavailable",
            f"{missing} of {facts.table['segments']} segments have no live server that holds them",
        )


def _pods_message(role: str, pods: Sequence[Object]) -> str:
    found = pod_facts.problems(pods)
    if found:
        return found[0].message
    return f"{len(pods)} {role} pods start" if pods else f"no {role} pod is there yet"


def _progressing(facts: TableFacts) -> Condition:
    steps = list(_steps(facts))
    if steps:
        return Condition("Progressing", True, steps[0][0], "; ".join(message for _, message in steps[:5]))
    return Condition("Progressing", False, "Settled")


def _steps(facts: TableFacts) -> Iterator[tuple[str, str]]:
    for step in facts.pool_note.steps:
        yield "RollingOut", step
    wanted, num_ready = facts.pool_note.wanted, pod_facts.num_ready(facts.servers)
    if len(facts.servers) != wanted:
        yield "Scaling", f"{len(facts.servers)} servers are there, {wanted} are wanted"
    elif num_ready < wanted:
        yield "Starting", f"{num_ready} of {wanted} servers are ready"
    if facts.table is not None and not facts.is_suspended:
        if facts.table["segmentsLoading"]:
            yield "Loading", f"servers load {facts.table['segmentsLoading']} segments"
        if facts.table["moving"]:
            yield "Rebalancing", "segments move between servers"
    for run in facts.runs:
        if run["state"] in ACTIVE:
            yield "Ingesting", f"batch {run['name']} is {run['state'].lower()} as Job {run['job']}"


def _problems(facts: TableFacts) -> Iterator[tuple[str, str]]:
    """What is wrong, the gravest first."""
    if facts.refusal is not None:
        yield facts.refusal.reason, facts.refusal.message
    if facts.upsert is not None and facts.upsert.reason in UPSERT_PROBLEMS:
        yield facts.upsert.reason, facts.upsert.message
    if facts.config_problem is not None:
        yield "MetastoreUnavailable", facts.config_problem
    if facts.cluster_note.shares_with:
        yield "StateShared", _sharing(facts.cluster_note.shares_with)
    if facts.cluster_note.problem is not None:
        yield "ClusterNotApplied", facts.cluster_note.problem
    if facts.pool_note.problem is not None:
        yield "PoolNotApplied", facts.pool_note.problem
    if facts.table is not None and facts.table.get("storeProblem"):
        yield "StoreUnavailable", f"{facts.table['storeProblem']}; see spec.deepStore.secretRef"
    for problem in pod_facts.problems([*facts.brokers, *facts.servers, *facts.controllers]):
        yield problem.reason, problem.message
    if facts.table is not None and facts.table["segmentsFailed"] and not facts.is_suspended:
        yield "SegmentsFailed", _segment_errors(facts.table)
    if facts.pool_note.is_stuck:
        yield "RolloutStuck", f"{'; '.join(facts.pool_note.steps)}; see conditions SegmentsAvailable and ConfigInSync"
    if not facts.cluster.is_known and pod_facts.num_ready(facts.brokers):
        yield "ControllerUnavailable", f"{facts.cluster.problem}; queries go on, what is shown may be old"
    yield from _batch_problems(facts)
    yield from _pruning_problems(facts)


def _pruning_problems(facts: TableFacts) -> Iterator[tuple[str, str]]:
    """Answers are right all the same, but every query asks for more segments than it should."""
    brokers = {} if facts.table is None else facts.table["brokers"]
    found = sorted({problem for broker in brokers.values() for problem in broker.get("problems", ())})
    if found:
        yield "PruningImpaired", f"brokers prune less than the table wants: {'; '.join(found[:3])}"


def _sharing(others: Sequence[str]) -> str:
    return (
        f"shared state and files are one with those of {', '.join(others)}: each sees the other's tables, and of one "
        "name there is one only; see 'Parting namespaces' in docs/kubernetes.md"
    )


def _batch_problems(facts: TableFacts) -> Iterator[tuple[str, str]]:
    for name, run in _last_runs(facts.runs).items():
        if run["state"] == "Failed":
            yield "BatchFailed", f"batch {name}: {run.get('message', 'failed')}; see `kubectl logs job/{run['job']}`"
        elif run["state"] in ACTIVE and "message" in run:
            yield "BatchBlocked", f"batch {name}: {run['message']}"


def _segment_errors(table: Mapping[str, Any]) -> str:
    messages = sorted({text for server in table["servers"].values() for text in server["errors"].values()})
    return f"{table['segmentsFailed']} segments cannot be loaded: {'; '.join(messages[:3])}"


def _config_in_sync(facts: TableFacts) -> Condition:
    def condition(holds: bool | None, reason: str, message: str = "") -> Condition:
        return Condition("ConfigInSync", holds, reason, message)

    if facts.revision is None:
        return condition(False, "NotWritten", facts.config_problem or "the config is not in ZooKeeper")
    if facts.config_problem is not None:
        return condition(False, "MetastoreUnavailable", facts.config_problem)
    if facts.refusal is not None:
        return condition(False, "NotAccepted", f"revision {facts.revision} is served, not what is declared")
    if facts.is_suspended:
        return condition(True, "Suspended", f"revision {facts.revision} is written")
    if facts.table is None or not facts.cluster.is_known:
        return condition(
            None, "ControllerUnavailable", facts.cluster.problem or "the controller does not know the table"
        )
    behind = sorted(_behind(facts.table, facts.revision))
    if behind:
        return condition(False, "Spreading", f"revision {facts.revision} is not run yet by {', '.join(behind[:5])}")
    return condition(True, "AllPods", f"every pod runs revision {facts.revision}")


def _behind(table: Mapping[str, Any], revision: int) -> Iterator[str]:
    for broker, entry in table["brokers"].items():
        if entry["revision"] < revision:
            yield broker
    for server, entry in table["servers"].items():
        if entry["live"] and entry["assigned"] and entry["revision"] < revision:
            yield server


def _segments_available(facts: TableFacts) -> Condition:
    def condition(holds: bool | None, reason: str, message: str = "") -> Condition:
        return Condition("SegmentsAvailable", holds, reason, message)

    if facts.table is None:
        return condition(
            None, "ControllerUnavailable", facts.cluster.problem or "the controller does not know the table"
        )
    total, missing = facts.table["segments"], facts.table["segmentsUnavailable"]
    if not total:
        return condition(True, "NoSegments", "the table is empty")
    if missing:
        return condition(False, "SegmentsUnavailable", f"{missing} of {total} segments have no live server")
    return condition(True, "AllLoaded", f"{total} segments are served")


def _restart_pending(facts: TableFacts) -> Condition:
    if not facts.pool_note.num_outdated:
        return Condition("RestartPending", False, "UpToDate")
    text = f"{facts.pool_note.num_outdated} servers run with older settings"
    return Condition("RestartPending", True, "SettingsChanged", "; ".join([text, *facts.pool_note.steps]))


def _task_succeeded(facts: TableFacts) -> Condition:
    last = _last_runs(facts.runs)
    failed = [f"{name}: {run.get('message', '')}" for name, run in last.items() if run["state"] == "Failed"]
    if failed:
        return Condition("TaskSucceeded", False, "BatchFailed", "; ".join(failed))
    pending = [_pending(name, run) for name, run in last.items() if run["state"] != "Succeeded"]
    if pending:
        return Condition("TaskSucceeded", None, "BatchUnderWay", "; ".join(pending))
    return Condition("TaskSucceeded", True, "AllBatches", f"{', '.join(last)} succeeded")


def _pending(name: str, run: Run) -> str:
    return f"{name} is {run['state'].lower()}" + (f": {run['message']}" if run.get("message") else "")


def _last_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """The newest run of each batch source."""
    last: dict[str, Run] = {}
    for run in runs:
        last.setdefault(run["name"], run)
    return last
