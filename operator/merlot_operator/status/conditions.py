"""Conditions in Kubernetes' standard form, and a status that is written only when it changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_MESSAGE = 2000
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """A claim about an object; `holds` is None for Unknown."""

    type: str
    holds: bool | None
    reason: str
    message: str = ""


def rendered(
    conditions: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: str
) -> list[Json]:
    """Return the conditions as the status holds them. The transition time of an unchanged condition stays."""
    old = {condition["type"]: condition for condition in before}
    result = []
    for condition in conditions:
        status = {True: "True", False: "False", None: "Unknown"}[condition.holds]
        previous = old.get(condition.type)
        since = previous["lastTransitionTime"] if previous is not None and previous["status"] == status else now
        result.append(
            {
                "type": condition.type,
                "status": status,
                "observedGeneration": generation,
                "lastTransitionTime": since,
                "reason": condition.reason,
                "message": condition.message[:MAX_MESSAGE],
            }
        )
    return result


def status_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json | None:
    """Return a merge patch of the status: changed members, also inside of objects, and null for removed ones; None if
    nothing changed."""
    changed = {name: _merged(before.get(name), value) for name, value in after.items() if before.get(name) != value}
    changed |= dict.fromkeys(before.keys() - after.keys())
    return changed or None


def _merged(before: Any, after: Any) -> Any:
    """Return the value of a member in the patch: a merge patch keeps the members of an object that it does not name."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return status_patch(before, after) or {}
    return after


def news(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the conditions whose status or reason has changed, which are worth an event."""
    old = {condition["type"]: (condition["status"], condition["reason"]) for condition in before}
    return [
        condition for condition in after if old.get(condition["type"]) != (condition["status"], condition["reason"])
    ]


def human_size(num_bytes: int) -> str:
    """Return a size for people, such as `9.1 MiB`."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
