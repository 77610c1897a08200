"""Refusals by Kubernetes: objects that its own controllers could not create for StatefulSets and Jobs, which only
events tell.

A quota, pod security, a LimitRange or an admission plugin refuses pods and claims, not the object that wants them. A
Job that is refused itself is tried again with growing pauses.
"""

from __future__ import annotations

from typing import Any

from merlot_operator.context import FailedAttempt, ReconcileContext
from merlot_operator.kube.events import ms_of
from merlot_operator.kube.kinds import Object, name_of

PATIENCE_S = 5.0
"""Seconds without a pod before events are looked at: a pod that is restarted is missing for a moment."""
LATEST_MS = 1_200_000
"""Age in milliseconds from which an event is ignored: controllers try again with pauses of up to 1,000 s."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""Longest pause between two attempts to create a refused Job: after a quota is raised nobody waits long."""


def next_attempt(before: FailedAttempt | None, message: str, now_s: float) -> FailedAttempt:
    """Return the record of one more failed attempt, with a doubled pause. Pure."""
    pause_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, 2 * before.pause_s)
    return FailedAttempt(message, pause_s, now_s + pause_s)


async def refusal(context: ReconcileContext, owner: Object) -> str | None:
    """Return why an object that has lacked pods for a while gets none; None if no recent event says so."""
    now = context.clock.monotonic()
    since = context.lacking_pods_since.setdefault(owner["metadata"]["uid"], now)
    if now - since < PATIENCE_S:
        return None
    events = await context.kube.events_about(owner, "FailedCreate")
    newest = max(events, key=_when, default=None)
    if newest is None or context.clock.now_ms() - _when(newest) > LATEST_MS:
        return None
    return f"{owner['kind']} {name_of(owner)}: {newest.get('message', 'its pods cannot be created')}"


def complete(context: ReconcileContext, owner: Object) -> None:
    """Note that the object lacks no pods."""
    context.lacking_pods_since.pop(owner["metadata"]["uid"], None)


def _when(event: dict[str, Any]) -> int:
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return ms_of(last or event["metadata"]["creationTimestamp"])
