"""Status and conditions of an UpsertConfig, from the controller's answers about the Tables that name it. Pure.

Numbers come rounded from the controller, so that a status is only written when something has changed that matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merlot_operator.kube.events import timestamp_or_none
from merlot_operator.status.conditions import Condition, Json, human_size
from merlot_operator.status.table_problems import compaction_problem, shortage

UpsertAnswer = Mapping[str, Any]
DONE = "DONE"
UNUSED = ("NoTable", "Waiting")
"""Reasons of Executed for which the UpsertConfig applies to no table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertStatusFacts:
    """Facts from which an UpsertConfig's status is derived."""

    tables: Sequence[str]
    """Tables that name the UpsertConfig."""
    answers: Mapping[str, UpsertAnswer]
    """The controller's answer about the upserts of each table, except of tables that it does not know yet."""
    revision: int | None
    """Revision of the manifest in shared state."""
    problem: str | None
    """Reason why the controller is silent."""
    ttl: str = ""
    """Time to live that is declared."""


def upsert_conditions(facts: UpsertStatusFacts) -> list[Condition]:
    """Return the conditions: it is in force, its snapshots are current, it is being backfilled, memory suffices, and
    compaction succeeds."""
    return [_executed(facts), _snapshots(facts), _backfill(facts), _memory(facts), _compaction(facts)]


def upsert_ready(accepted: Condition, degraded: Condition, executed: Condition) -> Condition:
    """Return Ready: True if tables are upserted by it. They follow a change from their next segment on, even without a
    controller."""
    for condition, wanted in ((accepted, True), (degraded, False)):
        if condition.holds is not wanted:
            return Condition("Ready", False, condition.reason, condition.message)
    if executed.reason in UNUSED:
        return Condition("Ready", False, executed.reason, executed.message)
    if executed.holds is True:
        return Condition("Ready", True, "Executed", executed.message)
    return Condition("Ready", True, "Accepted", "tables that name it follow it from their next segment on")


def upsert_status(facts: UpsertStatusFacts, before: Mapping[str, Any], refused: bool) -> Json:
    """Return the status without its conditions."""
    status: Json = {"tables": list(facts.tables), "revision": facts.revision, "ttl": facts.ttl or None}
    if facts.problem is not None:
        retained = ("keys", "memory", "snapshot", "perTable")
        status |= {name: before[name] for name in retained if name in before}
        status["state"] = "Refused" if refused else before.get("state")
    else:
        answers = facts.answers
        oldest = [timestamp_or_none(answer["snapshots"].get("oldestMs")) for answer in answers.values()]
        status |= {
            "state": "Refused" if refused else _state(facts),
            "keys": sum(answer["keys"] for answer in answers.values()) if answers else None,
            "memory": human_size(sum(answer["memoryBytes"] for answer in answers.values())) if answers else None,
            "snapshot": min(filter(None, oldest), default=None),
            "perTable": [_table(name, answer) for name, answer in sorted(answers.items())],
        }
    return {name: value for name, value in status.items() if value not in (None, "", [])}


def _state(facts: UpsertStatusFacts) -> str:
    """Return the state in a word or two: what matters most."""
    if not facts.tables:
        return "NoTable"
    if any(answer["short"] for answer in facts.answers.values()):
        return "MemoryShort"
    for _, backfill in _backfills(facts):
        if backfill["step"] != DONE:
            return f"Backfill {backfill['number'] + 1}/{backfill['steps']} {backfill['step']}"
    executed = _executed(facts)
    return executed.reason if executed.holds is not True else "Executed"


def _executed(facts: UpsertStatusFacts) -> Condition:
    def condition(holds: bool | None, reason: str, message: str = "") -> Condition:
        return Condition("Executed", holds, reason, message)

    if not facts.tables:
        return condition(False, "NoTable", "no Table names it in spec.upsert.configRef")
    if facts.problem is not None:
        return condition(None, "ControllerUnavailable", facts.problem)
    waiting = [f"{name}: {answer['waitsFor']}" for name, answer in facts.answers.items() if answer["waitsFor"]]
    if waiting:
        return condition(False, "Waiting", "; ".join(waiting))
    old = [name for name in facts.tables if _is_old(name, facts)]
    if old:
        return condition(False, "Progressing", f"the controller has not taken it up yet for {', '.join(old)}")
    behind = [f"{name}: {', '.join(answer['behind'])}" for name, answer in facts.answers.items() if answer["behind"]]
    total = sum(answer["replicas"] for answer in facts.answers.values())
    in_force = sum(answer["inForce"] for answer in facts.answers.values())
    counts = f"in force on {in_force} of {total} replicas of partitions"
    if behind or not total:
        return condition(False, "Progressing", "; ".join([counts, *behind]))
    return condition(True, "Executed", f"{counts} of {', '.join(facts.tables)}")


def _is_old(name: str, facts: UpsertStatusFacts) -> bool:
    answer = facts.answers.get(name)
    return answer is None or facts.revision is None or answer["revision"] < facts.revision


def _snapshots(facts: UpsertStatusFacts) -> Condition:
    snapshots = {name: answer["snapshots"] for name, answer in facts.answers.items()}
    if snapshots and not any(snapshot["wanted"] for snapshot in snapshots.values()):
        return Condition("SnapshotsCurrent", False, "Disabled", "snapshot: ENABLE would have them written")
    errors = [f"{name}: {snapshot['error']}" for name, snapshot in sorted(snapshots.items()) if snapshot.get("error")]
    if errors:
        return Condition("SnapshotsCurrent", False, "Failing", "; ".join(errors))
    missing = [
        f"{name}: {snapshot['missing']} segments" for name, snapshot in sorted(snapshots.items()) if snapshot["missing"]
    ]
    if missing:
        return Condition("SnapshotsCurrent", False, "Missing", f"no snapshot yet of {'; '.join(missing)}")
    if all(snapshot.get("oldestMs") is None for snapshot in snapshots.values()):
        return Condition("SnapshotsCurrent", None, "NoSnapshots", "no segment has one yet")
    return Condition("SnapshotsCurrent", True, "Current")


def _backfills(facts: UpsertStatusFacts) -> Iterator[tuple[str, UpsertAnswer]]:
    """Return each table's backfill, those that are under way first."""
    backfills = [(name, answer["backfill"]) for name, answer in sorted(facts.answers.items()) if answer.get("backfill")]
    return iter(sorted(backfills, key=lambda item: item[1]["step"] == DONE))


def _backfill(facts: UpsertStatusFacts) -> Condition:
    name, backfill = next(_backfills(facts), ("", None))
    if backfill is None:
        return Condition("BackfillProgressing", False, "NoBackfill")
    where = f"{backfill['name']} of table {name}"
    if backfill["step"] == DONE:
        reason = "Cancelled" if backfill["cancelled"] else "Done"
        since = timestamp_or_none(backfill["sinceMs"])
        return Condition("BackfillProgressing", False, reason, where if since is None else f"{where} since {since}")
    text = f"{where}: step {backfill['number'] + 1} of {backfill['steps']}, {backfill['step']}"
    message = f"{text}; waits for {backfill['message']}" if backfill["message"] else text
    if backfill["waitsForMemory"]:
        return Condition("BackfillProgressing", False, "NeedsMemory", message)
    reason = "".join(part.capitalize() for part in backfill["step"].split("_"))
    return Condition("BackfillProgressing", True, reason, message)


def _memory(facts: UpsertStatusFacts) -> Condition:
    short = {server["server"]: server for answer in facts.answers.values() for server in answer["short"]}
    if short:
        servers = [server for _, server in sorted(short.items())]
        return Condition("MemorySufficient", False, "MemoryShort", shortage(servers))
    if not facts.answers:
        return Condition("MemorySufficient", None, "Unknown")
    return Condition("MemorySufficient", True, "Sufficient")


def _compaction(facts: UpsertStatusFacts) -> Condition:
    compactions = {
        name: compaction for name, answer in sorted(facts.answers.items()) if (compaction := answer.get("compaction"))
    }
    if not compactions:
        reason, text = (
            ("Disabled", "compaction would take rows out that were replaced") if facts.answers else ("Unknown", "")
        )
        return Condition("CompactionSucceeding", False if facts.answers else None, reason, text)
    failing = [
        f"{name}: {compaction_problem(compaction)}" for name, compaction in compactions.items() if compaction["failing"]
    ]
    if failing:
        return Condition("CompactionSucceeding", False, "Failing", "; ".join(failing))
    if all(compaction["suspended"] for compaction in compactions.values()):
        return Condition("CompactionSucceeding", False, "Suspended", "compaction.suspend is true")
    return Condition("CompactionSucceeding", True, "Succeeding")


def _table(name: str, answer: UpsertAnswer) -> Json:
    worst, backfill, compaction = answer.get("worst"), answer.get("backfill"), answer.get("compaction") or {}
    entry: Json = {
        "table": name,
        **{count: answer[count] for count in ("keys", "valid", "invalid", "expired")},
        "memoryBytes": answer["memoryBytes"],
        "worstPartition": None if worst is None else worst["partition"],
        "worstPartitionBytes": None if worst is None else worst["memoryBytes"],
        "replicas": answer["replicas"],
        "replicasInForce": answer["inForce"],
        "ttl": answer["ttl"],
        "backfill": None if backfill is None else backfill["step"],
        "segmentsRewritten": compaction.get("rewritten"),
        "segmentsRemoved": compaction.get("removed"),
        "segmentsMerged": compaction.get("merged"),
        "rowsRemoved": compaction.get("rowsRemoved"),
        "compactionError": compaction.get("error"),
    }
    return {key: value for key, value in entry.items() if value not in (None, "")}
