"""The loop: takes keys off the queue, reconciles each, and comes back to all of them sooner or later.

Level-based: a pass looks at what is there and at what shall be, never at what happened. A pass that fails is repeated
with growing pauses, and holds up no other key. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from merlot.errors import InvalidInputError, MerlotError, UnavailableError
from merlot_operator import served
from merlot_operator.context import SETTLE_S, ReconcileContext
from merlot_operator.kube.kinds import ROLLUPS, TABLES, UPSERTS, ResourceKind, namespace_of
from merlot_operator.metrics import FAILURES, PASS_SECONDS, PASSES, QUEUE
from merlot_operator.reconcilers.clusters import reconcile_cluster
from merlot_operator.reconcilers.deleted_namespaces import reconcile_namespace
from merlot_operator.reconcilers.ownership import is_ours, let_go, report_owner
from merlot_operator.reconcilers.pools import reconcile_pool
from merlot_operator.reconcilers.rollups import reconcile_rollup
from merlot_operator.reconcilers.tables import reconcile_table
from merlot_operator.reconcilers.upserts import reconcile_upsert
from merlot_operator.workqueue import QueueKey, Subject

_LOG = logging.getLogger(__name__)

STATUS_S = 3.0
"""Seconds between two looks at a namespace's controller; an unchanged status costs it a 304."""
NAMESPACES_S = 1.0
"""Seconds between two looks for namespaces with Tables: a new namespace's controller is first asked within this
time."""
PASS_S = 45.0
"""Time limit of a pass in seconds. The next pass goes on where it was cut off: each does only what is left to do."""
TURN_S = 1.0
CLOSE_IDLE_S = 60.0

Reconcile = Callable[[ReconcileContext, str, str], Awaitable[float | None]]


async def _cluster(context: ReconcileContext, namespace: str, _: str) -> float | None:
    return await reconcile_cluster(context, namespace)


RECONCILES: Mapping[Subject, Reconcile] = {
    Subject.TABLE: reconcile_table,
    Subject.POOL: reconcile_pool,
    Subject.CLUSTER: _cluster,
    Subject.NAMESPACE: reconcile_namespace,
    Subject.ROLLUP: reconcile_rollup,
    Subject.UPSERT: reconcile_upsert,
}

KINDS: Mapping[Subject, ResourceKind] = {Subject.TABLE: TABLES, Subject.ROLLUP: ROLLUPS, Subject.UPSERT: UPSERTS}


async def run(context: ReconcileContext) -> None:
    """Run everything but Kopf's watches, until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_note_turns(context))
        for place in context.progress.places:
            group.create_task(served.follow(context, place))
        for _ in range(context.config.workers):
            group.create_task(_work(context))
        group.create_task(_ask_controllers(context))
        group.create_task(_close_idle(context))


async def _note_turns(context: ReconcileContext) -> None:
    """Note again and again that the event loop turns."""
    while True:
        context.progress.turned_at = context.clock.monotonic()
        await asyncio.sleep(TURN_S)


async def _close_idle(context: ReconcileContext) -> None:
    while True:
        await asyncio.sleep(CLOSE_IDLE_S)
        await context.metastores.close_idle()


async def _work(context: ReconcileContext) -> None:
    while True:
        key = await context.queue.take()
        if not context.progress.serves(key.namespace):
            context.queue.done(key, None)  # The listing of the place will wake all that there is.
            context.progress.passes.pop(key, None)
            continue
        started = time.perf_counter()
        context.progress.passes.setdefault(key, context.clock.monotonic())
        try:
            async with asyncio.timeout(PASS_S) as limit:
                again_s = await _pass(context, key)
        except MerlotError as error:
            _report(context, key, error)
        except Exception:  # noqa: BLE001 - the outermost loop of a pass: a bug in one must not stop the others
            if limit.expired():
                # The pass stays noted as not ended: if this happens again and again, the process ends.
                _report(context, key, UnavailableError(f"a pass does not end waited_s={PASS_S:.0f}"))
                continue
            _LOG.exception("pass failed key=%s", key)
            context.note_failure(key, "the pass failed by a bug of the operator: see its log")
            FAILURES.labels(key.subject, "bug").inc()
            context.queue.failed(key)
        else:
            context.queue.done(key, again_s)
        context.progress.passes.pop(key, None)
        PASSES.labels(key.subject).inc()
        PASS_SECONDS.labels(key.subject).observe(time.perf_counter() - started)
        QUEUE.set(len(context.queue))


async def _pass(context: ReconcileContext, key: QueueKey) -> float | None:
    """Reconcile the key's subject, unless its namespace is another operator's or is being deleted."""
    if key.namespace in context.deleting and key.subject is not Subject.NAMESPACE:
        context.queue.wake(QueueKey(Subject.NAMESPACE, key.namespace), SETTLE_S)
        return None
    if await is_ours(context, key.namespace):
        again_s = await RECONCILES[key.subject](context, key.namespace, key.name)
        if again_s is None:
            await let_go(context, key.namespace)
        return again_s
    kind = KINDS.get(key.subject)
    body = None if kind is None else context.store.get(kind, key.namespace, key.name)
    return None if body is None else await report_owner(context, body)


def _report(context: ReconcileContext, key: QueueKey, error: MerlotError) -> None:
    delay_s = context.queue.failed(key)
    context.note_failure(key, str(error))
    level = logging.ERROR if isinstance(error, InvalidInputError) else logging.WARNING
    _LOG.log(level, "pass failed key=%s again_s=%.1f cause=%s", key, delay_s, error)
    FAILURES.labels(key.subject, type(error).__name__).inc()


async def _ask_controllers(context: ReconcileContext) -> None:
    """Keep a task for each namespace that has Tables, which asks its controller for its status."""
    asking: dict[str, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            namespaces = {namespace_of(body) for body in context.store.all(TABLES)}
            for namespace in namespaces - asking.keys():
                asking[namespace] = group.create_task(_ask_controller(context, namespace))
            for namespace in asking.keys() - namespaces:
                asking.pop(namespace).cancel()
            await asyncio.sleep(NAMESPACES_S)


async def _ask_controller(context: ReconcileContext, namespace: str) -> None:
    while True:
        try:
            context.wake_changed(namespace, await context.statuses.refresh(namespace))
        except Exception:  # noqa: BLE001 - the outermost loop: what one controller answers must not end all the others
            _LOG.exception("controller cannot be asked namespace=%s", namespace)
            FAILURES.labels("status", "bug").inc()
        await asyncio.sleep(STATUS_S)
