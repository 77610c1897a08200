"""Derive a Table's status. Pure: same facts, same status, so that nothing is written twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from merlot_operator.desired.batch_runs import ACTIVE, Run
from merlot_operator.kube import pods as pod_facts
from merlot_operator.kube.kinds import POOL, SELECTOR
from merlot_operator.manifests.cluster import broker_url
from merlot_operator.status.conditions import Condition, Json, human_size
from merlot_operator.status.stream import consuming, stream_answer, stream_status
from merlot_operator.status.table_facts import TableStatusFacts
from merlot_operator.status.table_problems import last_runs, obstacles, problems


def table_conditions(facts: TableStatusFacts) -> list[Condition]:
    """Return all conditions, in the order in which they are shown."""
    problem = next(problems(facts), None)
    conditions = [
        _accepted(facts),
        _ready(facts),
        _progressing(facts),
        Condition("Degraded", False, "AsDeclared") if problem is None else Condition("Degraded", True, *problem),
        _config_in_sync(facts),
        _segments_available(facts),
        _restart_pending(facts),
    ]
    if (stream := consuming(facts)) is not None:
        conditions.append(stream)
    if facts.upsert is not None:
        conditions.append(facts.upsert)
    return [*conditions, _task_succeeded(facts)] if facts.runs else conditions


def table_status(facts: TableStatusFacts) -> Json:
    """Return the status without its conditions."""
    status: Json = {
        "brokers": f"{pod_facts.num_ready(facts.brokers)}/{facts.cluster_note.num_brokers}",
        "brokerUrl": broker_url(facts.namespace),
        "plan": [*facts.pool_note.steps, *facts.pool_note.notes],
        "batches": [dict(run) for run in facts.runs],
    }
    if facts.verdict.revision is not None:
        status["revision"] = facts.verdict.revision
    if facts.verdict.accepted is not None:
        status["accepted"] = facts.verdict.accepted
    status["servers"] = f"{pod_facts.num_ready(facts.servers)}/{facts.pool_note.wanted}"
    status["serverReplicas"] = facts.pool_note.replicas
    status["serverSelector"] = f"{SELECTOR},{POOL}={facts.pool}"
    status["pool"] = facts.pool
    if facts.table is not None:
        size = int(facts.table["sizeBytes"])
        counts = {"segments": int(facts.table["segments"]), "totalDocs": int(facts.table["totalDocs"])}
        if not facts.is_doubted:  # otherwise the counts in the status are nearer to the truth
            status |= counts | {"sizeBytes": size, "size": human_size(size)}
        if (indexes := facts.table.get("indexes")) is not None:
            status["indexes"] = f"{indexes['built']}/{indexes['wanted']}"
        status["segmentsUnpartitioned"] = facts.table.get("unpartitioned") or None
    if facts.has_stream and (answer := stream_answer(facts)) is not None:
        status["stream"] = stream_status(answer)
    if facts.runs:
        status["lastBatch"] = f"{facts.runs[0]['name']} {facts.runs[0]['state']}"
    return {name: value for name, value in status.items() if value not in ([], None)}


def _accepted(facts: TableStatusFacts) -> Condition:
    if facts.verdict.refusal is not None:
        return Condition("Accepted", False, facts.verdict.refusal.reason, facts.verdict.refusal.message)
    if facts.verdict.problem is not None and facts.verdict.revision is not None and not facts.is_declared_run:
        return Condition("Accepted", None, "MetastoreUnavailable", f"not compared yet: {facts.verdict.problem}")
    num_adopted = 0 if facts.table is None else facts.table.get("adoptedSegments")
    if num_adopted:
        text = f"{num_adopted} segments that an earlier table of this name left (deletionPolicy: Retain) are its own"
        return Condition("Accepted", True, "Adopted", text)
    return Condition("Accepted", True, "Valid")


def _ready(facts: TableStatusFacts) -> Condition:
    obstacle = next(obstacles(facts), None)
    return Condition("Ready", True, "Serving") if obstacle is None else Condition("Ready", False, *obstacle)


def _progressing(facts: TableStatusFacts) -> Condition:
    steps = list(_steps(facts))
    if steps:
        return Condition("Progressing", True, steps[0][0], "; ".join(message for _, message in steps[:5]))
    return Condition("Progressing", False, "Settled")


def _steps(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    for step in facts.pool_note.steps:
        yield "RollingOut", step
    wanted, num_ready = facts.pool_note.wanted, pod_facts.num_ready(facts.servers)
    if len(facts.servers) != wanted:
        yield "Scaling", f"{len(facts.servers)} servers are there, {wanted} are wanted"
    elif num_ready < wanted:
        yield "Starting", f"{num_ready} of {wanted} servers are ready"
    if not facts.cluster.is_known and not facts.was_told:
        yield "Starting", f"the controller starts: {facts.cluster.problem}"
    if facts.table is not None and not facts.is_suspended:
        if facts.table["segmentsLoading"]:
            yield "Loading", f"servers load {facts.table['segmentsLoading']} segments"
        if facts.table["moving"]:
            yield "Rebalancing", "segments move between servers"
        if num_behind := (facts.table.get("stream") or {}).get("catchingUp"):
            yield "CatchingUp", f"servers read {num_behind} partitions of the stream from where their segments begin"
    for run in facts.runs:
        if run["state"] in ACTIVE:
            yield "Ingesting", f"batch {run['name']} is {run['state'].lower()} as Job {run['job']}"


def _config_in_sync(facts: TableStatusFacts) -> Condition:
    def condition(holds: bool | None, reason: str, message: str = "") -> Condition:
        return Condition("ConfigInSync", holds, reason, message)

    revision = facts.verdict.revision
    if revision is None:
        return condition(False, "NotWritten", facts.verdict.problem or "the config is not in ZooKeeper")
    if facts.verdict.problem is not None:
        return condition(False, "MetastoreUnavailable", facts.verdict.problem)
    if facts.verdict.refusal is not None:
        return condition(False, "NotAccepted", f"revision {revision} is served, not what is declared")
    if facts.is_suspended:
        return condition(True, "Suspended", f"revision {revision} is written")
    if facts.table is None or not facts.cluster.is_known:
        return condition(None, *facts.silence)
    behind = sorted(_behind(facts.table, revision))
    if behind:
        return condition(False, "Spreading", f"revision {revision} is not run yet by {', '.join(behind[:5])}")
    indexes = facts.table.get("indexes")
    if indexes is not None and (indexes["looking"] or indexes["built"] < indexes["wanted"]):
        return condition(False, "IndexesFailing" if indexes["problem"] else "BuildingIndexes", _indexes_text(indexes))
    return condition(True, "AllPods", f"every pod runs revision {revision}")


def _indexes_text(indexes: Mapping[str, Any]) -> str:
    """Return how far servers are with building the indexes that their segments lack."""
    if not indexes["wanted"]:
        return f"servers look for segments that lack indexes: {', '.join(indexes['looking'][:5])}"
    text = f"built indexes of {indexes['built']} of {indexes['wanted']} segments, counted on each server"
    return f"{text}: {indexes['problem']}" if indexes["problem"] else text


def _behind(table: Mapping[str, Any], revision: int) -> Iterator[str]:
    for broker, entry in table["brokers"].items():
        if entry["revision"] < revision:
            yield broker
    for server, entry in table["servers"].items():
        if entry["live"] and entry["assigned"] and entry["revision"] < revision:
            yield server


def _segments_available(facts: TableStatusFacts) -> Condition:
    def condition(holds: bool | None, reason: str, message: str = "") -> Condition:
        return Condition("SegmentsAvailable", holds, reason, message)

    if facts.table is None:
        return condition(None, *facts.silence)
    if lost := facts.table.get("metastoreLost"):
        return condition(False, "MetastoreLost", lost)
    total, missing = facts.table["segments"], facts.table["segmentsUnavailable"]
    if not total:
        return condition(True, "NoSegments", "the table is empty")
    if missing:
        return condition(False, "SegmentsUnavailable", f"{missing} of {total} segments have no live server")
    return condition(True, "AllLoaded", f"answers lack none of {total} segments")


def _restart_pending(facts: TableStatusFacts) -> Condition:
    if not facts.pool_note.num_outdated:
        return Condition("RestartPending", False, "UpToDate")
    text = f"{facts.pool_note.num_outdated} servers run with older settings"
    return Condition("RestartPending", True, "SettingsChanged", "; ".join([text, *facts.pool_note.steps]))


def _task_succeeded(facts: TableStatusFacts) -> Condition:
    last = last_runs(facts.runs)
    if facts.table is not None and facts.table.get("metastoreLost"):
        return Condition("TaskSucceeded", None, "MetastoreLost", "what batches brought is not in the metastore")
    failed = [f"{name}: {run.get('message', '')}" for name, run in last.items() if run["state"] == "Failed"]
    if failed:
        return Condition("TaskSucceeded", False, "BatchFailed", "; ".join(failed))
    pending = [_pending(name, run) for name, run in last.items() if run["state"] != "Succeeded"]
    if pending:
        return Condition("TaskSucceeded", None, "BatchUnderWay", "; ".join(pending))
    return Condition("TaskSucceeded", True, "AllBatches", f"{', '.join(last)} succeeded")


def _pending(name: str, run: Run) -> str:
    return f"{name} is {run['state'].lower()}" + (f": {run['message']}" if run.get("message") else "")
