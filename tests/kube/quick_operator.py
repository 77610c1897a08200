"""The operator with short pauses: what it does after a while, it does soon, so that tests need not wait for it."""

from dataclasses import replace
from typing import Any

from merlot_operator import __main__ as program
from merlot_operator import config, deletion, metastore, pools, reconcile, rollups, tables, upserts, workqueue

RESYNC_S = 0.25
PAUSE_S = 0.3


def main() -> int:
    """Run it; returns the exit code."""
    program.from_environment = _with_short_resync  # type: ignore[attr-defined]
    reconcile.STATUS_S = deletion.AGAIN_S = metastore.PAUSE_S = pools.BUSY_S = tables.SOON_S = PAUSE_S
    rollups.WAITING_S = upserts.WAITING_S = workqueue.FIRST_BACKOFF_S = PAUSE_S
    return program.main()


def _with_short_resync(environment: Any) -> config.Config:
    return replace(config.from_environment(environment), resync_s=RESYNC_S)
