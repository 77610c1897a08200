"""The operator with short pauses: what it does after a while, it does soon, so that tests need not wait for it."""

from dataclasses import replace
from typing import Any

from merlot.metastore.connect import connect
from merlot.metastore.protocol import Metastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot_operator import __main__ as program
from merlot_operator import config, context, handlers, workqueue
from merlot_operator.controllers import metastores
from merlot_operator.kube import pods
from merlot_operator.reconcilers import deletion, loop, pools, refusals, rollups, tables, upserts

RESYNC_S = PAUSE_S = 0.1
SETTLE_S = 0.05
PATIENCE_S = 0.3
"""For what Kubernetes' own controllers do soon."""
SILENCE_S = 2.0
"""A metastore that says nothing for so long is away."""


def main() -> int:
    """Run it; returns the exit code."""
    program.from_environment = _with_short_resync  # type: ignore[attr-defined]
    metastores.connect = _connect  # type: ignore[attr-defined]
    loop.STATUS_S = loop.NAMESPACES_S = deletion.AGAIN_S = metastores.PAUSE_S = metastores.SUPERSEDED_S = PAUSE_S
    pools.BUSY_S = tables.SOON_S = tables.BUSY_S = rollups.WAITING_S = upserts.WAITING_S = PAUSE_S
    workqueue.FIRST_BACKOFF_S = PAUSE_S
    context.SETTLE_S = handlers.SETTLE_S = SETTLE_S  # type: ignore[attr-defined]
    refusals.PATIENCE_S = PATIENCE_S
    pods.STUCK_MS = tables.STUCK_MS = round(1000 * PATIENCE_S)
    return program.main()


def _connect(url: str) -> Metastore:
    scheme, _, hosts = url.partition("://")
    return ZooKeeperMetastore(hosts, operation_timeout_s=SILENCE_S) if scheme == "zk" else connect(url)


def _with_short_resync(environment: Any) -> config.Config:
    return replace(config.from_environment(environment), resync_s=RESYNC_S)
