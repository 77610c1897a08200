"""Write an object's status when it changed, and report by events what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merlot_operator.context import ReconcileContext
from merlot_operator.kube.events import timestamp
from merlot_operator.kube.kinds import Object, kind_of, name_of, namespace_of
from merlot_operator.status.conditions import Condition, news, rendered, status_patch
from merlot_operator.status.stream import COMMITS_FAIL, KEYS_MOVED, REQUESTED_REASONS

BAD_NEWS = {"Accepted": "False", "Degraded": "True", "TaskSucceeded": "False", "Consuming": "False"}
BAD_NEWS |= {"MemorySufficient": "False"}
GOOD_NEWS = {"Ready": "True", "TaskSucceeded": "True", "Consuming": "True", "Executed": "True"}
GOOD_NEWS |= {"BackfillProgressing": "True"}
WANTED = REQUESTED_REASONS
"""Reasons of Consuming=False that somebody asked for: good news."""
UNWANTED = ("MessagesLost", COMMITS_FAIL, KEYS_MOVED)
"""Reasons of Consuming=True that are bad news."""


async def write_status(
    context: ReconcileContext, body: Object, conditions: Sequence[Condition], status: Mapping[str, Any]
) -> Object:
    """Write the status; return the object with it. `status` is everything but conditions and generation. A member of
    the old status that is missing in it is removed."""
    before = dict(body.get("status") or {})
    old = before.get("conditions") or []
    generation = body["metadata"]["generation"]
    shown = rendered(conditions, old, generation, timestamp(context.clock.now_ms()))
    patch = status_patch(before, {"observedGeneration": generation, "conditions": shown, **status})
    if patch is None:
        return body
    written = await context.kube.patch_status(kind_of(body), namespace_of(body), name_of(body), patch)
    context.store.keep_own(written)
    await _warn_of_pruned_fields(context, body, patch, written)
    for condition in news(old, shown):
        await _report_condition(context, body, condition)
    return written


async def _warn_of_pruned_fields(
    context: ReconcileContext, body: Object, patch: Mapping[str, Any], written: Object
) -> None:
    """Warn of status fields that an older CRD does not know: the API server drops them silently, so they would be
    written again and again."""
    stored = written.get("status") or {}
    pruned = sorted(name for name, value in patch.items() if value not in (None, [], {}) and name not in stored)
    if pruned:
        text = f"its definition does not know status.{', status.'.join(pruned)}; apply the definitions of this version"
        await context.events.warning(body, "DefinitionOutdated", text)


async def _report_condition(context: ReconcileContext, body: Object, condition: Mapping[str, Any]) -> None:
    reason, text = condition["reason"], condition["message"] or condition["reason"]
    is_wanted = condition["type"] == "Consuming" and reason in WANTED
    is_bad = BAD_NEWS.get(condition["type"]) == condition["status"] and not is_wanted
    if is_bad or (condition["type"] == "Consuming" and reason in UNWANTED):
        await context.events.warning(body, reason, text)
    elif GOOD_NEWS.get(condition["type"]) == condition["status"] or is_wanted:
        await context.events.normal(body, reason, f"{condition['type']}: {text}")
