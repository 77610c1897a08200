"""What the deletion of a declared object waits for, in its conditions and, if something is wrong, as an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merlot_operator.context import Context
from merlot_operator.kube.kinds import FORCE_DELETE, Object
from merlot_operator.status.conditions import Condition
from merlot_operator.status.reporting import write_status

WAITS = "CleanupWaits"
HELD = {"True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that is not gone yet; a problem if it does not go by itself."""

    text: str
    is_problem: bool


async def tell_waiting(context: Context, body: Object, obstacles: Sequence[Obstacle]) -> Object:
    """The object with its status; what else was in it stays."""
    return await tell_conditions(context, body, waiting_conditions(obstacles))


async def tell_conditions(context: Context, body: Object, told: Sequence[Condition]) -> Object:
    """The object with these conditions; what else was in its status stays."""
    before = dict(body.get("status") or {})
    conditions = {one["type"]: _read(one) for one in before.pop("conditions", ())}
    conditions |= {one.type: one for one in told}
    before.pop("observedGeneration", None)
    return await write_status(context, body, list(conditions.values()), before)


def waiting_conditions(obstacles: Sequence[Obstacle]) -> list[Condition]:
    """Ready, Progressing and Degraded of an object that is being deleted. Pure."""
    everything = "; ".join(one.text for one in obstacles)
    problems = "; ".join(one.text for one in obstacles if one.is_problem)
    step = f"mend it, or set the annotation {FORCE_DELETE}: 'true', which leaves it behind"
    return [
        Condition("Ready", False, "Deleting", "it is being deleted"),
        Condition("Progressing", True, "Deleting", f"waits until {everything}"),
        Condition("Degraded", True, WAITS, f"waits until {problems}; {step}")
        if problems
        else Condition("Degraded", False, "Deleting"),
    ]


def _read(shown: dict[str, str]) -> Condition:
    return Condition(shown["type"], HELD.get(shown["status"]), shown["reason"], shown["message"])
