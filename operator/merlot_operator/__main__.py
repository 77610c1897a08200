"""`python -m merlot_operator`: run Kopf's watches and the reconcile loop until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import sys
import uuid
from functools import partial

import kopf
from kopf._cogs.structs.references import Insights

from merlot.clock import SystemClock
from merlot.errors import InvalidInputError, MerlotError
from merlot.telemetry import LogFormat, configure_logging
from merlot_operator import handlers, late_kinds
from merlot_operator.config import Config, from_environment
from merlot_operator.context import ReconcileContext
from merlot_operator.controllers.metastores import Metastores
from merlot_operator.controllers.statuses import ClusterStatuses
from merlot_operator.health import Health
from merlot_operator.kube.cache import Store
from merlot_operator.kube.client import Kube
from merlot_operator.kube.events import Events
from merlot_operator.kube.kinds import PODS, TABLES
from merlot_operator.kube.login import login
from merlot_operator.kube.ownership import Owner, check_owned
from merlot_operator.kube.writer import Writer
from merlot_operator.progress import OperatorProgress
from merlot_operator.reconcilers import loop as reconcile
from merlot_operator.reconcilers.deleted_namespaces import let_go_of_own
from merlot_operator.watchdog import Watchdog, end_at_once
from merlot_operator.workqueue import WorkQueue

_LOG = logging.getLogger(__name__)

STOP_S = 5.0
"""Seconds for the work that has to be done before the operator ends."""


def main() -> int:
    """Run the operator; return its exit code."""
    try:
        config = from_environment(os.environ)
    except InvalidInputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    configure_logging(config.log_level, LogFormat(config.log_format), role="operator")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    asyncio.run(operate(config))
    return 0


async def operate(config: Config) -> None:
    """Run until SIGTERM or SIGINT, which Kopf handles."""
    settings = kopf.OperatorSettings()
    handlers.configure(settings, config)
    context = _context(config, settings)
    registry = kopf.OperatorRegistry()
    handlers.register(registry, context)
    _register_login(registry)
    watchdog = Watchdog(context.progress, context.clock)
    watchdog.start()
    health = Health(context)
    await health.start(config.liveness_port)
    insights = Insights()
    loop = asyncio.create_task(_run(context, insights), name="reconcile")
    loop.add_done_callback(_end_with_loop)
    _register_stop(registry, context, loop)
    _LOG.info("operator starts namespaces=%s", ",".join(config.namespaces) or "all")
    before = asyncio.all_tasks()
    try:
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=settings,
            insights=insights,
            standalone=True,
            clusterwide=config.is_cluster_wide,
            namespaces=list(config.namespaces),
        )
        for task in tasks:
            # The first task that ends, by a signal or by itself, begins Kopf's shutdown, which may hang.
            task.add_done_callback(lambda _: watchdog.expect_end())
        await kopf.run_tasks(tasks, ignored=before)
    finally:
        watchdog.expect_end()
        await _stop(loop)
        await health.stop()
        await context.statuses.close()
        await context.metastores.close()
        await context.kube.close()


async def _run(context: ReconcileContext, insights: Insights) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(late_kinds.follow(context, insights))
        group.create_task(reconcile.run(context))


def _context(config: Config, settings: kopf.OperatorSettings) -> ReconcileContext:
    kube, store, clock, queue = Kube(settings), Store(), SystemClock(), WorkQueue(random.Random())
    progress = OperatorProgress(queue, config.namespaces or (None,), clock.monotonic())
    owner = Owner(config.release, f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}")
    return ReconcileContext(
        config=config,
        kube=kube,
        store=store,
        writer=Writer(kube, store),
        queue=queue,
        metastores=Metastores(config, store, partial(check_owned, kube, owner), clock),
        statuses=ClusterStatuses(config, lambda ns: (len(store.of(TABLES, ns)), len(store.of(PODS, ns)))),
        events=Events(kube, clock),
        clock=clock,
        progress=progress,
        owner=owner,
    )


def _register_login(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.login(registry=registry)
    def log_in(settings: kopf.OperatorSettings, **_: object) -> kopf.ConnectionInfo:
        return login(settings)


def _register_stop(registry: kopf.OperatorRegistry, context: ReconcileContext, loop: asyncio.Task[None]) -> None:
    """Stop the reconcile loop before Kopf cancels every task that is not its own."""

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: object) -> None:
        with contextlib.suppress(MerlotError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                await let_go_of_own(context)
        await _stop(loop)


async def _stop(loop: asyncio.Task[None]) -> None:
    loop.remove_done_callback(_end_with_loop)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


def _end_with_loop(loop: asyncio.Task[None]) -> None:
    """End the process: without its reconcile loop the operator is useless, and kubelet starts it again."""
    if not loop.cancelled():
        _LOG.critical("the reconcile loop ended", exc_info=loop.exception())
        end_at_once("the reconcile loop ended")


if __name__ == "__main__":
    sys.exit(main())
