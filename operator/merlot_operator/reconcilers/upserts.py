"""Reconcile one UpsertConfig: checked, against the Tables that name it too, kept in shared state, and said plainly not
to be executed in this version."""

from __future__ import annotations

import contextlib

from merlot.cluster.manifests import upserts as shared_upserts
from merlot.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from merlot.metastore.protocol import Metastore
from merlot.spec import manifest
from merlot.spec.upsert import NOT_EXECUTED, UpsertConfig
from merlot_operator.context import Context
from merlot_operator.kube.kinds import TABLES, UPSERTS, Object, as_written, is_deleting, name_of
from merlot_operator.reconcilers.finalizers import clear_shared_state, drop_finalizer, ensure_finalizer, has_finalizer
from merlot_operator.reconcilers.rollups import WAITING_S
from merlot_operator.reconcilers.tables import accept
from merlot_operator.status.conditions import Condition
from merlot_operator.status.reporting import write_status
from merlot_operator.status.upsert_links import config_ref, degraded_by


async def reconcile_upsert(context: Context, namespace: str, name: str) -> float | None:
    """One pass; returns in how many seconds to look again, None if it is gone."""
    body = context.store.get(UPSERTS, namespace, name)
    if body is None:
        return None
    if is_deleting(body):
        await _delete(context, body)
        return None
    body = await ensure_finalizer(context, body)
    accepted, revision = Condition("Accepted", True, "Valid"), body.get("status", {}).get("revision")
    linked = [one for one in context.store.of(TABLES, namespace) if config_ref(one) == name]
    is_written = True
    try:
        config = manifest.load_document(as_written(body), UpsertConfig)
        degraded = degraded_by(config, [(name_of(one), accept(one)[0]) for one in linked])
        record = await context.metastores.call(namespace, lambda store: shared_upserts.put_upsert(store, config))
        revision = record.revision
    except InvalidInputError as error:
        accepted = Condition("Accepted", False, "Invalid", str(error))
        degraded = Condition("Degraded", True, "Invalid", str(error))
    except (UnavailableError, ConflictError) as error:
        is_written = False
        step = f"see that ZooKeeper runs at {context.config.metastore_of(namespace)}"
        degraded = Condition("Degraded", True, "MetastoreUnavailable", f"{error}; {step}")
    conditions = [accepted, Condition("Ready", False, "NotExecuted", NOT_EXECUTED), degraded]
    status = {"tables": sorted(map(name_of, linked)), "revision": revision}
    kept = {name: value for name, value in status.items() if value not in (None, [])}
    await write_status(context, body, conditions, kept)
    return context.config.resync_s if is_written else WAITING_S


async def _delete(context: Context, body: Object) -> None:
    if not has_finalizer(body):
        return

    def forget(store: Metastore) -> None:
        with contextlib.suppress(NotFoundError):
            shared_upserts.delete_upsert(store, name_of(body))

    await clear_shared_state(context, body, forget, skipped=None)
    await drop_finalizer(context, body)
