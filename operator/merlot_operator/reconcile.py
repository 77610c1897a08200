"""The loop: takes keys off the queue, reconciles each, and comes back to all of them sooner or later.

Level-based: a pass looks at what is there and at what shall be, never at what happened. A pass that fails is repeated
with growing pauses, and holds up no other key. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from merlot.errors import InvalidInputError, MerlotError, NotFoundError
from merlot_operator import handlers
from merlot_operator.clusters import reconcile_cluster
from merlot_operator.context import Context
from merlot_operator.kinds import DECLARED, SELECTOR, TABLES, Kind, namespace_of
from merlot_operator.metrics import FAILURES, PASS_SECONDS, PASSES, QUEUE
from merlot_operator.pools import reconcile_pool
from merlot_operator.rights import listed as listed_kinds
from merlot_operator.rollups import reconcile_rollup
from merlot_operator.tables import reconcile_table
from merlot_operator.upserts import reconcile_upsert
from merlot_operator.workqueue import Key, Subject

_LOG = logging.getLogger(__name__)

STATUS_S = 3.0
"""Between two looks at a namespace's controller; an unchanged status costs it a 304."""
RELIST_S = 600.0
"""Between two complete listings, for what a watch may have missed."""
FIRST_RELIST_S = 20.0
"""The second listing comes soon: what was deleted between the first and the start of the watches told nobody."""

Reconcile = Callable[[Context, str, str], Awaitable[float | None]]


async def _cluster(context: Context, namespace: str, _: str) -> float | None:
    return await reconcile_cluster(context, namespace)


RECONCILES: Mapping[Subject, Reconcile] = {
    Subject.TABLE: reconcile_table,
    Subject.POOL: reconcile_pool,
    Subject.CLUSTER: _cluster,
    Subject.ROLLUP: reconcile_rollup,
    Subject.UPSERT: reconcile_upsert,
}


async def run(context: Context, listed: Callable[[], None]) -> None:
    """Everything but Kopf's watches, until cancelled. `listed` is called whenever all objects have been listed."""
    await _list_for_the_first_time(context)
    listed()
    async with asyncio.TaskGroup() as group:
        for _ in range(context.config.workers):
            group.create_task(_work(context))
        group.create_task(_relist(context, listed))
        group.create_task(_ask_controllers(context))


async def _list_for_the_first_time(context: Context) -> None:
    """Nothing is decided before everything is known: who sees no Tables would delete their servers."""
    while True:
        try:
            await list_all(context)
            return
        except MerlotError as error:
            _LOG.warning("objects cannot be listed yet cause=%s", error)
            await asyncio.sleep(2)


async def list_all(context: Context) -> None:
    """Take over complete listings of all kinds, and wake everything."""
    for kind in listed_kinds(context.config):
        for namespace in context.config.namespaces or (None,):
            await _list_kind(context, kind, namespace)
    for kind in listed_kinds(context.config):
        for body in list(context.store.all(kind)):
            handlers.wake(context, kind, body)


async def _list_kind(context: Context, kind: Kind, namespace: str | None) -> None:
    try:
        bodies = await context.kube.list(kind, namespace, "" if kind in DECLARED else SELECTOR)
    except NotFoundError:
        if kind is TABLES:
            raise
        return  # Its definition is not installed: Kopf watches it once it is.
    for gone in context.store.replace(kind, namespace, bodies):
        handlers.wake(context, kind, gone)


async def _relist(context: Context, listed: Callable[[], None]) -> None:
    pause_s = FIRST_RELIST_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = RELIST_S
        try:
            await list_all(context)
            listed()
        except MerlotError as error:
            _LOG.warning("objects cannot be listed cause=%s", error)


async def _work(context: Context) -> None:
    while True:
        key = await context.queue.take()
        started = time.perf_counter()
        try:
            again_s = await RECONCILES[key.subject](context, key.namespace, key.name)
        except MerlotError as error:
            _report(context, key, error)
        except Exception:  # noqa: BLE001 - the outermost loop of a pass: a bug in one must not stop the others
            _LOG.exception("pass failed key=%s", key)
            FAILURES.labels(key.subject, "bug").inc()
            context.queue.failed(key)
        else:
            context.queue.done(key, again_s)
        PASSES.labels(key.subject).inc()
        PASS_SECONDS.labels(key.subject).observe(time.perf_counter() - started)
        QUEUE.set(len(context.queue))


def _report(context: Context, key: Key, error: MerlotError) -> None:
    delay_s = context.queue.failed(key)
    level = logging.ERROR if isinstance(error, InvalidInputError) else logging.WARNING
    _LOG.log(level, "pass failed key=%s again_s=%.1f cause=%s", key, delay_s, error)
    FAILURES.labels(key.subject, type(error).__name__).inc()


async def _ask_controllers(context: Context) -> None:
    """Look at the status of every namespace that has Tables."""
    asking: dict[str, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            namespaces = {namespace_of(body) for body in context.store.all(TABLES)}
            for namespace in namespaces - asking.keys():
                asking[namespace] = group.create_task(_ask_controller(context, namespace))
            for namespace in asking.keys() - namespaces:
                asking.pop(namespace).cancel()
            await asyncio.sleep(1)


async def _ask_controller(context: Context, namespace: str) -> None:
    while True:
        context.wake_changed(namespace, await context.statuses.refresh(namespace))
        await asyncio.sleep(STATUS_S)
