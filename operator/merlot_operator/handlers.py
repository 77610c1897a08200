"""Watches through Kopf, which keep the store current and queue a pass for each object that a change affects.

Nothing is decided here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import kopf

from merlot_operator.config import Config
from merlot_operator.context import SETTLE_S, ReconcileContext
from merlot_operator.desired.demand import pool_of
from merlot_operator.kube.kinds import (
    COMPONENT,
    DECLARED,
    LEASES,
    POOL,
    ROLLUPS,
    SELECTOR,
    TABLE,
    TABLES,
    UPSERTS,
    Object,
    ResourceKind,
    config_ref,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
)
from merlot_operator.manifests.parts import MINION
from merlot_operator.rights import listed, watched
from merlot_operator.workqueue import QueueKey, Subject

FIRST_PAUSES_S = (0.2, 0.7, 1.5, 3.1, 6.3)
LONGEST_PAUSE_S = 15.0
_SUBJECTS = {"Table": Subject.TABLE, "MergeRollupTask": Subject.ROLLUP, "UpsertConfig": Subject.UPSERT}


def register(registry: kopf.OperatorRegistry, context: ReconcileContext) -> None:
    """Watch every kind that may be watched. `on.event` leaves no mark on objects, unlike Kopf's other handlers."""

    def watch(kind: ResourceKind) -> None:
        @kopf.on.event(kind.group or "", kind.version, kind.plural, registry=registry, id=f"watch-{kind.plural}")
        async def changed(event: Any, **_: Any) -> None:
            observe(context, kind, event["type"], dict(event["object"]))

    for kind in listed(context.config):
        watch(kind)


def observe(context: ReconcileContext, kind: ResourceKind, change: str | None, body: dict[str, Any]) -> None:
    """Store one change, and queue a pass for each object that it affects."""
    body = {"apiVersion": kind.api_version, "kind": kind.name, **body}
    if change == "DELETED":
        context.store.remove(body)
    elif not context.store.put(body):
        return
    if change == "DELETED" or is_deleting(body):
        # The whole namespace may be terminating: with ordered deletion, Kubernetes deletes its pods first.
        context.queue.wake(QueueKey(Subject.NAMESPACE, namespace_of(body)))
    wake(context, kind, body)


def wake(context: ReconcileContext, kind: ResourceKind, body: Object) -> None:
    """Queue a pass for each object that a changed object affects."""
    namespace = namespace_of(body)
    if kind in DECLARED:
        context.queue.wake(QueueKey(_SUBJECTS[kind.name], namespace, name_of(body)))
        if kind is TABLES:
            context.wake_cluster(namespace)
            context.wake_pool(namespace, pool_of(body))
            _wake_dependents(context, body)
        elif kind is UPSERTS:
            _wake_its_tables(context, body)
        return
    labels = labels_of(body)
    if kind is LEASES:
        wake_all(context, namespace)
    elif POOL in labels:
        context.wake_pool(namespace, labels[POOL])
        context.wake_tables(namespace, labels[POOL])
    elif TABLE in labels:
        context.wake_table(namespace, labels[TABLE])
    elif COMPONENT in labels:
        context.wake_cluster(namespace)
        context.wake_tables(namespace)
        if labels[COMPONENT] == MINION:
            for rollup in context.store.of(ROLLUPS, namespace):
                context.queue.wake(QueueKey(Subject.ROLLUP, namespace, name_of(rollup)), SETTLE_S)


def wake_all(context: ReconcileContext, namespace: str) -> None:
    """Queue a pass for every object in a namespace that has been created again or may have a new owner."""
    context.wake_cluster(namespace)
    for kind in DECLARED:
        for body in context.store.of(kind, namespace):
            wake(context, kind, body)


def _wake_dependents(context: ReconcileContext, table: Object) -> None:
    """Queue a pass for each object that waits for a Table or shows it in a status: objects arrive in any order."""
    namespace = namespace_of(table)
    for rollup in context.store.of(ROLLUPS, namespace):
        if rollup["spec"].get("table") == name_of(table):
            context.queue.wake(QueueKey(Subject.ROLLUP, namespace, name_of(rollup)), SETTLE_S)
    for config in context.store.of(UPSERTS, namespace):
        if name_of(config) == config_ref(table) or name_of(table) in (config.get("status", {}).get("tables") or ()):
            context.queue.wake(QueueKey(Subject.UPSERT, namespace, name_of(config)), SETTLE_S)


def _wake_its_tables(context: ReconcileContext, config: Object) -> None:
    for table in context.store.of(TABLES, namespace_of(config)):
        if config_ref(table) == name_of(config):
            context.wake_table(namespace_of(config), name_of(table), SETTLE_S)


class _EndlessBackoffs:
    """Endless pauses between attempts of watches that the API server refuses or does not answer.

    Kopf ends the whole operator once the pauses are used up, so one namespace that was deleted with its Role would end
    it. `served` reports such a namespace, and `watchdog` ends an operator that makes no progress at all."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(FIRST_PAUSES_S, itertools.repeat(LONGEST_PAUSE_S))


def configure(settings: kopf.OperatorSettings, config: Config) -> None:
    """Set Kopf's settings for production."""
    # A Role of one namespace does not permit listing namespaces and CustomResourceDefinitions.
    settings.scanning.disabled = not config.is_cluster_wide
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = _EndlessBackoffs()
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.chunk_size = 100
    # A worker that is done with an object lingers this long for its next change, and counts towards the limit.
    settings.queueing.idle_timeout = 0.1
    settings.queueing.batch_window = 0.05
    settings.queueing.worker_limit = 50
    for kind in watched(config):
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = SELECTOR
