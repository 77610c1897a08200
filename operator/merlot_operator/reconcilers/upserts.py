"""Reconcile one UpsertConfig: check it, also against the Tables that name it, and write it to shared state, where the
controller picks it up.
"""

from __future__ import annotations

from merlot.cluster.manifests import row_rules
from merlot.cluster.manifests import upserts as shared_upserts
from merlot.errors import InvalidInputError, MerlotError
from merlot.metastore.protocol import Metastore
from merlot.spec import manifest
from merlot.spec.upsert import UpsertConfig
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.kinds import TABLES, UPSERTS, Object, as_written, config_ref, is_deleting, name_of
from merlot_operator.reconcilers.finalizers import ensure_finalizer, forget
from merlot_operator.reconcilers.rollups import WAITING_S
from merlot_operator.reconcilers.tables import accept
from merlot_operator.status.conditions import Condition
from merlot_operator.status.reporting import write_status
from merlot_operator.status.upsert_links import degraded_by
from merlot_operator.status.upserts import UpsertStatusFacts, upsert_conditions, upsert_ready, upsert_status


async def reconcile_upsert(context: ReconcileContext, namespace: str, name: str) -> float | None:
    """Run one pass. Return in how many seconds to look again, or None if the object is gone."""
    body = context.store.get(UPSERTS, namespace, name)
    if body is None:
        return None
    if is_deleting(body):
        await forget(context, body, shared_upserts.delete_upsert)
        return None
    body = await ensure_finalizer(context, body)
    accepted, revision = Condition("Accepted", True, "Valid"), body.get("status", {}).get("revision")
    linked = [table for table in context.store.of(TABLES, namespace) if config_ref(table) == name]
    is_written = True
    try:
        config = manifest.load_document(as_written(body), UpsertConfig)
        tables = [(name_of(table), accept(table)[0]) for table in linked]
        degraded = degraded_by(config, tables)
        record = await context.metastores.call(namespace, lambda store: _put(store, config))
        revision = record.revision
    except InvalidInputError as error:
        accepted = Condition("Accepted", False, "Invalid", str(error))
        degraded = Condition("Degraded", True, "Invalid", str(error))
    except MerlotError as error:
        is_written = False
        step = f"see that ZooKeeper runs at {context.config.metastore_of(namespace)}"
        degraded = Condition("Degraded", True, "MetastoreUnavailable", f"{error}; {step}")
    names, cluster = sorted(map(name_of, linked)), context.statuses.of(namespace)
    answers = {name: cluster.tables[name].get("upsert") for name in names if name in cluster.tables}
    facts = UpsertStatusFacts(
        tables=names,
        answers={name: answer for name, answer in answers.items() if answer is not None},
        revision=revision,
        problem=cluster.problem,
        ttl=_ttl(body),
    )
    executed, *others = upsert_conditions(facts)
    conditions = [accepted, upsert_ready(accepted, degraded, executed), degraded, executed, *others]
    status = upsert_status(facts, body.get("status") or {}, refused=accepted.holds is not True)
    await write_status(context, body, conditions, status)
    return context.config.resync_s if is_written else WAITING_S


def _put(store: Metastore, config: UpsertConfig) -> shared_upserts.UpsertRecord:
    """Write the config. Raise InvalidInputError if it would change which of a table's existing rows count."""
    problems = row_rules.changed_by(store, config)
    if problems:
        raise InvalidInputError("; ".join(map(str, problems)))
    return shared_upserts.put_upsert(store, config)


def _ttl(body: Object) -> str:
    """Return the declared time to live, whichever field holds it; empty if the manifest is invalid."""
    try:
        return manifest.load_document(as_written(body), UpsertConfig).spec.primary_key_ttl or "none"
    except InvalidInputError:
        return ""
