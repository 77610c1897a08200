"""Show what the deletion of a declared object waits for, in its conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merlot_operator.context import ReconcileContext
from merlot_operator.kube.kinds import FORCE_DELETE, Object
from merlot_operator.status.conditions import Condition
from merlot_operator.status.reporting import write_status

WAITS = "CleanupWaits"
HELD = {"True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that is not gone yet; `is_problem` is True if it does not go by itself."""

    text: str
    is_problem: bool


async def write_waiting(context: ReconcileContext, body: Object, obstacles: Sequence[Obstacle]) -> Object:
    """Write the conditions of a deletion that waits; return the object. The rest of its status stays."""
    return await write_conditions(context, body, waiting_conditions(obstacles))


async def write_conditions(context: ReconcileContext, body: Object, changed: Sequence[Condition]) -> Object:
    """Write these conditions; return the object. The rest of its status stays."""
    before = dict(body.get("status") or {})
    conditions = {entry["type"]: _read(entry) for entry in before.pop("conditions", ())}
    conditions |= {condition.type: condition for condition in changed}
    before.pop("observedGeneration", None)
    return await write_status(context, body, list(conditions.values()), before)


def waiting_conditions(obstacles: Sequence[Obstacle]) -> list[Condition]:
    """Return Ready, Progressing and Degraded of an object that is being deleted. Pure."""
    everything = "; ".join(obstacle.text for obstacle in obstacles)
    problems = "; ".join(obstacle.text for obstacle in obstacles if obstacle.is_problem)
    step = f"mend it, or set the annotation {FORCE_DELETE}: 'true', which leaves it behind"
    return [
        Condition("Ready", False, "Deleting", "it is being deleted"),
        Condition("Progressing", True, "Deleting", f"waits until {everything}"),
        Condition("Degraded", True, WAITS, f"waits until {problems}; {step}")
        if problems
        else Condition("Degraded", False, "Deleting"),
    ]


def _read(entry: dict[str, str]) -> Condition:
    return Condition(entry["type"], HELD.get(entry["status"]), entry["reason"], entry["message"])
