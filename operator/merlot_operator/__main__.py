"""`python -m merlot_operator`: Kopf's watches and our loop, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys

import kopf

from merlot.clock import SystemClock
from merlot.errors import InvalidInputError
from merlot.telemetry import LogFormat, configure_logging
from merlot_operator import handlers, reconcile
from merlot_operator.apply import Writer
from merlot_operator.cluster_status import ClusterStatuses
from merlot_operator.config import Config, from_environment
from merlot_operator.context import Context
from merlot_operator.events import Events
from merlot_operator.health import Health
from merlot_operator.kube import Kube, login
from merlot_operator.metastore import Metastores
from merlot_operator.store import Store
from merlot_operator.workqueue import WorkQueue

_LOG = logging.getLogger(__name__)


def main() -> int:
    """Run the operator; returns the exit code."""
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
    """Until SIGTERM or SIGINT, which Kopf takes care of."""
    settings = kopf.OperatorSettings()
    handlers.configure(settings, config)
    context = _context(config, settings)
    registry = kopf.OperatorRegistry()
    handlers.register(registry, context)
    _register_login(registry)
    health = Health(context)
    await health.start(config.liveness_port)
    loop = asyncio.create_task(reconcile.run(context, health.listed), name="reconcile")
    loop.add_done_callback(_die_with)
    _register_stop(registry, loop)
    _LOG.info("operator starts namespaces=%s", ",".join(config.namespaces) or "all")
    try:
        await kopf.operator(
            registry=registry,
            settings=settings,
            standalone=True,
            clusterwide=config.is_cluster_wide,
            namespaces=list(config.namespaces),
        )
    finally:
        await _stop(loop)
        await health.stop()
        await context.statuses.close()
        await context.metastores.close()
        await context.kube.close()


def _context(config: Config, settings: kopf.OperatorSettings) -> Context:
    kube, store, clock = Kube(settings), Store(), SystemClock()
    return Context(
        config=config,
        kube=kube,
        store=store,
        writer=Writer(kube, store),
        queue=WorkQueue(random.Random()),
        metastores=Metastores(config),
        statuses=ClusterStatuses(config),
        events=Events(kube, clock),
        clock=clock,
    )


def _register_login(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.login(registry=registry)
    def log_in(settings: kopf.OperatorSettings, **_: object) -> kopf.ConnectionInfo:
        return login(settings)


def _register_stop(registry: kopf.OperatorRegistry, loop: asyncio.Task[None]) -> None:
    """Before Kopf cancels every task that is not its own."""

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: object) -> None:
        await _stop(loop)


async def _stop(loop: asyncio.Task[None]) -> None:
    loop.remove_done_callback(_die_with)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


def _die_with(loop: asyncio.Task[None]) -> None:
    """Without its loop the operator is of no use: end, and be started again."""
    if not loop.cancelled():
        _LOG.critical("the reconcile loop ended", exc_info=loop.exception())
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
