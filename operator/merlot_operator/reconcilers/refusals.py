"""What Kubernetes' own controllers could not create: they tell only by events, of StatefulSets and Jobs that lack pods.

A quota, pod security, a LimitRange or an admission plugin refuses pods and claims, not the object that wants them. A
Job that is refused itself is tried again with growing pauses.
"""

from __future__ import annotations

from typing import Any

from merlot_operator.context import Context, Trial
from merlot_operator.kube.events import ms_of
from merlot_operator.kube.kinds import Object, name_of

PATIENCE_S = 5.0
"""A pod that is restarted is missing for a moment, and nobody looks why."""
LATEST_MS = 1_200_000
"""Controllers try again with pauses of up to 1,000 s: what is older has nothing to say."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""Between two attempts to make a Job that is refused: whoever mends a quota need not wait long."""


def next_trial(before: Trial | None, message: str, now_s: float) -> Trial:
    """After one more attempt that failed. Pure."""
    pause_s = FIRST_PAUSE_S if before is None else min(LONGEST_PAUSE_S, 2 * before.pause_s)
    return Trial(message, pause_s, now_s + pause_s)


async def refusal(context: Context, owner: Object) -> str | None:
    """Why an object that has lacked pods for a while gets none; None if nothing is said of it."""
    now = context.clock.monotonic()
    since = context.lacking.setdefault(owner["metadata"]["uid"], now)
    if now - since < PATIENCE_S:
        return None
    events = await context.kube.events_about(owner, "FailedCreate")
    newest = max(events, key=_when, default=None)
    if newest is None or context.clock.now_ms() - _when(newest) > LATEST_MS:
        return None
    return f"{owner['kind']} {name_of(owner)}: {newest.get('message', 'its pods cannot be created')}"


def complete(context: Context, owner: Object) -> None:
    """The object lacks nothing."""
    context.lacking.pop(owner["metadata"]["uid"], None)


def _when(event: dict[str, Any]) -> int:
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return ms_of(last or event["metadata"]["creationTimestamp"])
