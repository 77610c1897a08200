"""Gate before each pass: a namespace that another operator serves is left alone.

The operator says so by an event about each object. It also sets the conditions of objects that nobody else has judged
for a while; where the owner is alive its conditions stay, or both operators would write them in turn.
"""

from __future__ import annotations

import asyncio
import logging

from merlot.errors import ConflictError, NotFoundError
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.client import ForbiddenError
from merlot_operator.kube.kinds import DECLARED, LEASES, Object
from merlot_operator.kube.ownership import MARK, NamespaceRole, Owner, mark, namespace_role, owner_of
from merlot_operator.metrics import SERVED
from merlot_operator.reconcilers.waiting import write_conditions
from merlot_operator.status.conditions import Condition

_LOG = logging.getLogger(__name__)

REASON = "ServedByAnother"
SILENT_S = 30.0
"""Seconds within which a living owner has judged an object."""


async def is_ours(context: ReconcileContext, namespace: str) -> bool:
    """Return True if this operator may write in the namespace, which it takes if it may. Raise ConflictError if another
    operator takes it first."""
    # Many passes begin at once in a new namespace.
    async with context.ownership_locks.setdefault(namespace, asyncio.Lock()):
        return await _is_ours(context, namespace)


async def _is_ours(context: ReconcileContext, namespace: str) -> bool:
    live = context.store.get(LEASES, namespace, MARK)
    owner, has_owned = owner_of(live), namespace in context.owned
    match namespace_role(owner, context.owner, has_owned=has_owned, takes_over=context.config.takes_over):
        case NamespaceRole.STRANGER if owner is not None:
            _leave(context, namespace, owner)
            return False
        case NamespaceRole.HEIR if live is not None or _is_anything_declared(context, namespace):
            await _take(context, namespace, live)
    if context.progress.left_to_others.pop(namespace, None) is not None:
        _LOG.info("namespace is served again namespace=%s", namespace)
        SERVED.labels(namespace).set(1)
    return True


async def _take(context: ReconcileContext, namespace: str, live: Object | None) -> None:
    """Write the mark. Raise ConflictError if another operator was faster."""
    wanted = mark(namespace, context.owner, context.clock.now_ms())
    try:
        if live is None:
            written = await context.kube.create(wanted)
        else:
            # Replace only the mark that was seen: of two operators that take the namespace, one fails and learns of it.
            wanted["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
            written = await context.kube.patch(LEASES, namespace, MARK, wanted)
    except ForbiddenError:
        if live is None:
            return  # A terminating namespace takes no new object, but its objects have to be cleaned up.
        raise
    except NotFoundError:
        if live is not None:
            context.store.remove(live)
        raise ConflictError(f"the Lease of namespace {namespace} was deleted meanwhile") from None
    except ConflictError:
        context.store.keep(await context.kube.get(LEASES, namespace, MARK))
        raise
    context.store.put(written)
    context.owned.add(namespace)
    _LOG.info("namespace is owned namespace=%s owner=%s before=%s", namespace, context.owner, owner_of(live))


def _leave(context: ReconcileContext, namespace: str, owner: Owner) -> None:
    text = f"{owner} serves it"
    if context.progress.left_to_others.get(namespace) != text:
        _LOG.error("namespace is left to another operator namespace=%s owner=%s", namespace, owner)
    context.progress.left_to_others[namespace] = text
    SERVED.labels(namespace).set(0)


async def report_owner(context: ReconcileContext, body: Object) -> float:
    """Say in an object's events and conditions why this operator leaves it alone; return in how many seconds to look
    again."""
    namespace = body["metadata"]["namespace"]
    owner = owner_of(context.store.get(LEASES, namespace, MARK))
    text = (
        f"release {context.config.release} leaves it alone, since {owner} serves namespace {namespace} (Lease {MARK}): "
        "take the namespace out of one release's scope, or set scope.takeOver of the release that shall serve it"
    )
    await context.events.warning(body, REASON, text)
    now = context.clock.monotonic()
    since = context.unjudged_since.setdefault(body["metadata"]["uid"], now)
    if body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"]:
        context.unjudged_since.pop(body["metadata"]["uid"])
        return context.config.resync_s
    if now - since >= SILENT_S:
        claims = (("Accepted", None), ("Ready", False), ("Degraded", True))
        await write_conditions(context, body, [Condition(kind, holds, REASON, text) for kind, holds in claims])
    return SILENT_S


async def let_go(context: ReconcileContext, namespace: str) -> None:
    """Delete the mark once nothing is declared any more and everything is torn down, so that the next operator may
    serve."""
    live = context.store.get(LEASES, namespace, MARK)
    is_done = namespace not in context.clusters and not _is_anything_declared(context, namespace)
    if live is not None and is_done and owner_of(live) == context.owner:
        await context.kube.delete(live)
        context.store.remove(live)
        context.owned.discard(namespace)
        _LOG.info("namespace is left, nothing is declared in it namespace=%s", namespace)


def _is_anything_declared(context: ReconcileContext, namespace: str) -> bool:
    return any(context.store.of(kind, namespace) for kind in DECLARED)
