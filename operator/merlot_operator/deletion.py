"""A Table's end: its Jobs, its servers, its state in ZooKeeper, then its finalizer. Each step looks what is there, so a
pass that was cut short is continued by the next."""

from __future__ import annotations

import contextlib

from merlot.cluster import tables as shared_tables
from merlot.cluster.metastore import Metastore
from merlot.errors import NotFoundError
from merlot_operator import demand as demands
from merlot_operator.context import Context
from merlot_operator.finalizers import clear_shared_state, drop_finalizer, has_finalizer
from merlot_operator.kinds import JOBS, STATEFUL_SETS, TABLE, Object, name_of

AGAIN_S = 2.0


async def delete_table(context: Context, body: Object) -> float | None:
    """One pass; returns in how many seconds to look again, None if it is done."""
    if not has_finalizer(body):
        return None
    namespace, name = body["metadata"]["namespace"], name_of(body)
    jobs = context.store.with_label(JOBS, namespace, TABLE, name)
    (await context.writer.delete_all(jobs)).check()
    pool = demands.pool_of(body)
    context.wake_pool(namespace, pool)
    is_clean = await clear_shared_state(context, body, lambda store: _forget(store, body), skipped=True)
    is_pool_gone = demands.shared_tenant(body) is not None or context.store.get(STATEFUL_SETS, namespace, pool) is None
    if not (is_clean and is_pool_gone):
        return AGAIN_S
    await drop_finalizer(context, body)
    return None


def _forget(metastore: Metastore, body: Object) -> bool:
    """Remove the table from shared state; returns whether nothing of it is left to do. Files that shall go are deleted
    by the controller, which is there as long as a Table is."""
    deletes = body["spec"].get("deletionPolicy") == "Delete"
    with contextlib.suppress(NotFoundError):
        files = shared_tables.Files.NOW if deletes else shared_tables.Files.KEEP
        shared_tables.delete_table(metastore, name_of(body), files=files)
    return not deletes or shared_tables.files_left(metastore, name_of(body)) is None
