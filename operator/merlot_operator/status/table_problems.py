"""Obstacles to serving a Table, and its problems: the causes behind Ready and Degraded. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from merlot_operator.desired.batch_runs import ACTIVE, Run
from merlot_operator.kube import pods as pod_facts
from merlot_operator.kube.events import ms_of
from merlot_operator.kube.kinds import Object, name_of
from merlot_operator.status.conditions import human_size
from merlot_operator.status.stream import stream_problems
from merlot_operator.status.table_facts import TableStatusFacts
from merlot_operator.status.upsert_links import UPSERT_PROBLEMS

UNCONFIRMED = "it has not compared the table with its deep store yet"
OVERDUE_MS = 900_000
"""Time in milliseconds after which a table that is not ready needs somebody to look."""
MAX_SHORT = 5
"""Largest number of servers that are named."""
CHOSEN = ("Suspended", "ScaledToZero", "NotAccepted")
"""Reasons that end when somebody changes the manifest."""


def obstacles(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    """Yield why queries are not answered in full, causes before their effects. Brokers and the controller decide: a
    refused change, a pod that loads, or a segment that is not part of the table yet takes nothing from the answers."""
    if facts.verdict.revision is None:
        yield _unserved(facts)
        return
    if facts.is_suspended:
        yield "Suspended", "spec.suspend is true: servers are stopped, data is kept; set it to false to go on"
    if facts.asks_for_no_server and not facts.pool_note.wanted:
        text = "spec.tenants.server.replicas is 0: servers are stopped, data is kept; ask for one or more to go on"
        yield "ScaledToZero", text
    if not pod_facts.num_ready(facts.brokers):
        yield "NoBroker", _no_broker(facts)
    if facts.table is None:
        if facts.ready_before.get("status") != "True" or facts.cluster.is_known:
            yield facts.silence
    elif lost := facts.table.get("metastoreLost"):
        yield "MetastoreLost", lost
    elif facts.is_doubted:
        yield "Unconfirmed", f"waits for the controller: {UNCONFIRMED}"
    elif not any(broker["revision"] for broker in facts.table["brokers"].values()):
        yield "NoBroker", "no broker knows the table yet"
    if not pod_facts.num_ready(facts.servers) and not _has_live_server(facts):
        yield "NoServer", _pods_message("server", facts.servers)
    if facts.table is not None and facts.table["segmentsUnavailable"]:
        missing, total = facts.table["segmentsUnavailable"], facts.table["segments"]
        cause = next((f": {problem.message}" for problem in pod_facts.problems(facts.servers, now_ms=facts.now_ms)), "")
        yield "SegmentsUnavailable", f"{missing} of {total} segments have no live server that holds them{cause}"


def _unserved(facts: TableStatusFacts) -> tuple[str, str]:
    """Return why the table is not served: no spec of it has been accepted and written yet."""
    if facts.verdict.refusal is not None:
        return "NotAccepted", "the table is not accepted; see condition Accepted"
    return "MetastoreUnavailable", facts.verdict.problem or "its config is not in ZooKeeper yet"


def _has_live_server(facts: TableStatusFacts) -> bool:
    return facts.table is not None and any(server["live"] for server in facts.table["servers"].values())


def _no_broker(facts: TableStatusFacts) -> str:
    if facts.cluster_note.num_brokers or facts.brokers:
        return _pods_message("broker", facts.brokers)
    return "spec.tenants.broker.replicas is 0: brokers are stopped; ask for one or more to go on"


def _pods_message(role: str, pods: Sequence[Object]) -> str:
    causes = pod_facts.problems(pods)
    if causes:
        return causes[0].message
    return f"{len(pods)} {role} pods start" if pods else f"no {role} pod is there yet"


def problems(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, the gravest problem first."""
    if facts.verdict.refusal is not None:
        yield facts.verdict.refusal.reason, facts.verdict.refusal.message
    if facts.upsert is not None and facts.upsert.reason in UPSERT_PROBLEMS:
        yield facts.upsert.reason, facts.upsert.message
    if facts.verdict.problem is not None:
        yield "MetastoreUnavailable", facts.verdict.problem
    if facts.cluster_note.shares_with:
        yield "StateShared", _sharing(facts.cluster_note.shares_with)
    if facts.cluster_note.problem is not None:
        yield "ClusterNotApplied", facts.cluster_note.problem
    if facts.pool_note.problem is not None:
        yield "PoolNotApplied", facts.pool_note.problem
    if facts.unreadable is not None:
        yield facts.silence
    yield from _store_problems(facts.table or {})
    yield from _refused_pods(facts)
    pods = [*facts.brokers, *facts.servers, *facts.controllers]
    for problem in pod_facts.problems(pods, now_ms=facts.now_ms):
        yield problem.reason, problem.message
    if facts.table is not None and facts.table["segmentsFailed"] and not facts.is_suspended:
        yield "SegmentsFailed", _segment_errors(facts.table)
    yield from stream_problems(facts)
    yield from _memory_problems(facts)
    if facts.pool_note.is_stuck:
        yield "RolloutStuck", f"{'; '.join(facts.pool_note.steps)}; see conditions SegmentsAvailable and ConfigInSync"
    if not facts.cluster.is_known and facts.was_told and pod_facts.num_ready(facts.brokers):
        yield "ControllerUnavailable", f"{facts.cluster.problem}; queries go on, what is shown may be old"
    yield from (
        (conflict.reason, conflict.message) for conflict in facts.pool_note.conflicts if conflict.table == facts.name
    )
    yield from _batch_problems(facts)
    yield from _pruning_problems(facts)
    yield from _overdue(facts)


def _store_problems(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield problems of the metastore and the deep store that the controller reports."""
    if table.get("metastoreLost"):
        yield "MetastoreLost", table["metastoreLost"]
    if table.get("storeProblem"):
        yield "StoreUnavailable", f"{table['storeProblem']}; see spec.deepStore"


def _refused_pods(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    """Yield pods that Kubernetes' own controllers cannot create, because of a quota, pod security or an admission
    plugin, and rollouts that do not end."""
    if facts.pool_note.refused is not None:
        yield "PodsRefused", facts.pool_note.refused
    for deployment in facts.deployments:
        name = name_of(deployment)
        for condition in deployment.get("status", {}).get("conditions") or ():
            if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
                yield "PodsRefused", f"Deployment {name}: {condition.get('message', 'its pods cannot be created')}"
            elif condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
                yield "RolloutStuck", f"Deployment {name}: {condition.get('message', 'its pods do not become ready')}"


def _overdue(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    """Yield a problem if the table has not been ready for OVERDUE_MS, whatever the obstacle: somebody has to look."""
    obstacle = next(obstacles(facts), None)
    since = facts.ready_before.get("lastTransitionTime")
    if obstacle is None or since is None or obstacle[0] in CHOSEN or facts.ready_before.get("status") == "True":
        return
    if facts.now_ms - ms_of(since) > OVERDUE_MS:
        yield "NotReadyInTime", f"not ready since {since}: {obstacle[1]}"


def _memory_problems(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    """Yield servers that will run out of memory when their keys grow, and compactions that fail."""
    upsert = None if facts.table is None else facts.table.get("upsert")
    if upsert is not None and upsert["short"]:
        yield "MemoryShort", shortage(upsert["short"])
    compaction = None if upsert is None else upsert.get("compaction")
    if compaction and compaction["failing"]:
        yield "CompactionFails", compaction_problem(compaction)


def _pruning_problems(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    """Yield the problems that keep brokers from pruning. Answers stay right, but every query reads more segments."""
    brokers = {} if facts.table is None else facts.table["brokers"]
    impairments = sorted({problem for broker in brokers.values() for problem in broker.get("problems") or ()})
    if impairments:
        yield "PruningImpaired", f"brokers prune less than the table wants: {'; '.join(impairments[:3])}"


def compaction_problem(compaction: Mapping[str, Any]) -> str:
    """Return how many segments cannot be rewritten, and why."""
    return f"{compaction['failing']} segments cannot be rewritten, rows that were replaced stay: {compaction['error']}"


def shortage(short: Sequence[Mapping[str, Any]]) -> str:
    """Return which servers lack how much memory, and what to do."""
    texts = [
        f"{server['server']} needs {human_size(server['neededBytes'])} with room for its keys to grow (keys take"
        f" {human_size(server['keysBytes'])}), and has {human_size(server['limitBytes'])}"
        for server in short[:MAX_SHORT]
    ]
    return f"{'; '.join(texts)}: raise the limit of the servers, add servers, or shorten the time to live"


def _sharing(others: Sequence[str]) -> str:
    return (
        f"shared state and files are one with those of {', '.join(others)}: each sees the other's tables, and of one "
        "name there is one only; see 'Parting namespaces' in docs/kubernetes.md"
    )


def _batch_problems(facts: TableStatusFacts) -> Iterator[tuple[str, str]]:
    for name, run in last_runs(facts.runs).items():
        if run["state"] == "Failed":
            yield "BatchFailed", f"batch {name}: {run.get('message', 'failed')}; see `kubectl logs job/{run['job']}`"
        elif run["state"] in ACTIVE and "message" in run:
            yield "BatchBlocked", f"batch {name}: {run['message']}"


def _segment_errors(table: Mapping[str, Any]) -> str:
    messages = sorted({text for server in table["servers"].values() for text in server["errors"].values()})
    return f"{table['segmentsFailed']} segments cannot be loaded: {'; '.join(messages[:3])}"


def last_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the newest run of each batch source."""
    last: dict[str, Run] = {}
    for run in runs:
        last.setdefault(run["name"], run)
    return last
