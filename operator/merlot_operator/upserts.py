"""Reconcile one UpsertConfig: checked, kept in shared state, and said plainly not to be executed in this version."""

from __future__ import annotations

import contextlib

from merlot.cluster import upserts as shared_upserts
from merlot.cluster.metastore import Metastore
from merlot.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from merlot.spec import manifest
from merlot.spec.upsert import NOT_EXECUTED, UpsertConfig
from merlot_operator.conditions import Condition
from merlot_operator.context import Context
from merlot_operator.finalizers import clear_shared_state, drop_finalizer, ensure_finalizer, has_finalizer
from merlot_operator.kinds import TABLES, UPSERTS, Object, is_deleting, name_of
from merlot_operator.reporting import write_status
from merlot_operator.rollups import WAITING_S, plain


async def reconcile_upsert(context: Context, namespace: str, name: str) -> float | None:
    """One pass; returns in how many seconds to look again, None if it is gone."""
    body = context.store.get(UPSERTS, namespace, name)
    if body is None:
        return None
    if is_deleting(body):
        await _delete(context, body)
        return None
    body = await ensure_finalizer(context, body)
    accepted, problem, revision = Condition("Accepted", True, "Valid"), None, body.get("status", {}).get("revision")
    try:
        config = manifest.load_document(plain(body), UpsertConfig)
        record = await context.metastores.call(namespace, lambda store: shared_upserts.put_upsert(store, config))
        revision = record.revision
    except InvalidInputError as error:
        accepted = Condition("Accepted", False, "Invalid", str(error))
    except (UnavailableError, ConflictError) as error:
        problem = f"{error}; see that ZooKeeper runs at {context.config.metastore_of(namespace)}"
    tables = [name_of(one) for one in context.store.of(TABLES, namespace) if _refers(one, name)]
    degraded = (
        Condition("Degraded", False, "AsDeclared")
        if problem is None
        else Condition("Degraded", True, "MetastoreUnavailable", problem)
    )
    conditions = [accepted, Condition("Ready", False, "NotExecuted", NOT_EXECUTED), degraded]
    status = {"tables": tables, "revision": revision}
    kept = {name: value for name, value in status.items() if value not in (None, [])}
    await write_status(context, body, conditions, kept)
    return WAITING_S if problem else context.config.resync_s


def _refers(table: Object, name: str) -> bool:
    return bool((table["spec"].get("upsert") or {}).get("configRef") == name)


async def _delete(context: Context, body: Object) -> None:
    if not has_finalizer(body):
        return

    def forget(store: Metastore) -> None:
        with contextlib.suppress(NotFoundError):
            shared_upserts.delete_upsert(store, name_of(body))

    await clear_shared_state(context, body, forget, skipped=None)
    await drop_finalizer(context, body)
