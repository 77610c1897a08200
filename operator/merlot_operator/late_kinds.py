"""Watches of kinds that are defined after the operator's start.

Kopf looks for kinds once, when it starts, unless it may watch definitions, which an operator of some namespaces may
not. So the operator asks for each kind that Kopf does not watch, and adds it once the API server has it. Until then it
is not ready, because changes of that kind would go unseen between two complete listings.
"""

from __future__ import annotations

import asyncio
import logging

import kopf
from kopf._cogs.structs.references import Insights, Resource

from merlot.errors import MerlotError
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.kinds import ResourceKind
from merlot_operator.rights import listed

_LOG = logging.getLogger(__name__)

LOOK_S = 2.0
"""Seconds between two looks; only missing kinds cost a request."""


async def follow(context: ReconcileContext, insights: Insights) -> None:
    """Have every kind watched, until cancelled."""
    context.progress.unwatched = tuple(map(_title, listed(context.config)))
    await insights.ready_resources.wait()
    while True:
        await watch_missing(context, insights)
        await asyncio.sleep(LOOK_S)


async def watch_missing(context: ReconcileContext, insights: Insights) -> None:
    """Look once for kinds that are not watched, and watch those that the API server has by now."""
    missing = []
    for kind in listed(context.config):
        resource = resource_of(kind)
        if resource in insights.watched_resources:
            continue
        if not await _is_defined(context, kind):
            missing.append(_title(kind))
            continue
        async with insights.revised:
            insights.watched_resources.add(resource)
            insights.revised.notify_all()
        _LOG.info("kind is watched from now on kind=%s", _title(kind))
    context.progress.unwatched = tuple(missing)


async def _is_defined(context: ReconcileContext, kind: ResourceKind) -> bool:
    """Return True if objects of the kind can be listed in any place that is served."""
    for place in context.progress.places:
        try:
            await context.kube.probe(kind, place)
        except (MerlotError, kopf.LoginError):
            continue
        return True
    return False


def resource_of(kind: ResourceKind) -> Resource:
    """Return the kind as Kopf describes it."""
    verbs = frozenset({"get", "list", "watch", "patch"})
    return Resource(kind.group, kind.version, kind.plural, kind=kind.name, namespaced=True, verbs=verbs)


def _title(kind: ResourceKind) -> str:
    return f"{kind.plural}.{kind.group}".rstrip(".")
