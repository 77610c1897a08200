"""Conditions in Kubernetes' standard form, and a status that is written only when it changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_MESSAGE = 2000
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """A claim about an object; None is Unknown."""

    type: str
    holds: bool | None
    reason: str
    message: str = ""


def rendered(
    conditions: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: str
) -> list[Json]:
    """As the status holds them; the time of an unchanged one stays."""
    old = {one["type"]: one for one in before}
    result = []
    for condition in conditions:
        status = {True: "True", False: "False", None: "Unknown"}[condition.holds]
        known = old.get(condition.type)
        since = known["lastTransitionTime"] if known is not None and known["status"] == status else now
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
    """A merge patch of the status: what changed, null for what went, inside of objects too; None if nothing did."""
    changed = {name: _merged(before.get(name), value) for name, value in after.items() if before.get(name) != value}
    changed |= dict.fromkeys(before.keys() - after.keys())
    return changed or None


def _merged(before: Any, after: Any) -> Any:
    """A patch keeps the members of an object that it does not name."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return status_patch(before, after) or {}
    return after


def news(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Conditions whose status or reason is another than before: worth an event."""
    old = {one["type"]: (one["status"], one["reason"]) for one in before}
    return [one for one in after if old.get(one["type"]) != (one["status"], one["reason"])]


def human_size(num_bytes: int) -> str:
    """9.1 MiB."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
