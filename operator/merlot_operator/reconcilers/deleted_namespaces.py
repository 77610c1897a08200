"""Namespaces that are deleted with the operator's rights in them, or with the operator: declared objects are let go
first.

Kubernetes deletes the contents of such a namespace in any order. The rights, the ZooKeeper or this very process may be
gone a moment later, and an object that still has the finalizer then would hold up the namespace for ever. A
cluster-wide operator in another namespace loses nothing, and cleans up as usual (`deletion`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from merlot.cluster.manifests import rollups as shared_rollups
from merlot.cluster.manifests import upserts as shared_upserts
from merlot.errors import ConflictError, MerlotError
from merlot.metastore.protocol import Metastore
from merlot_operator import handlers
from merlot_operator.config import Config
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.kinds import (
    DECLARED,
    ROLLUPS,
    TABLES,
    UPSERTS,
    Object,
    ResourceKind,
    kind_of,
    name_of,
    namespace_of,
)
from merlot_operator.reconcilers.deletion import forget_table
from merlot_operator.reconcilers.finalizers import drop_finalizer, has_finalizer, is_namespace_going

_LOG = logging.getLogger(__name__)

ATTEMPTS = 3
"""Attempts to drop a finalizer from an object that others change too."""

_FORGET: Mapping[ResourceKind, Callable[[Metastore, Object], object]] = {
    TABLES: forget_table,
    ROLLUPS: lambda store, body: shared_rollups.delete_rollup(store, name_of(body)),
    UPSERTS: lambda store, body: shared_upserts.delete_upsert(store, name_of(body)),
}


def outlives(config: Config, namespace: str) -> bool:
    """Return True if the operator and its rights stay when the namespace is deleted."""
    return config.is_cluster_wide and config.release.partition("/")[0] != namespace


async def reconcile_namespace(context: ReconcileContext, namespace: str, _: str) -> float | None:
    """Run one pass, after something was deleted in the namespace."""
    if outlives(context.config, namespace):
        return None
    if not await is_namespace_going(context, namespace):
        if namespace in context.deleting:  # Another namespace of this name has been created.
            context.deleting.discard(namespace)
            handlers.wake_all(context, namespace)
        return None
    context.deleting.add(namespace)
    bodies = [body for kind in DECLARED for body in context.store.of(kind, namespace) if has_finalizer(body)]
    await asyncio.gather(*(_let_go(context, body) for body in bodies))
    for body in bodies:
        await _clean(context, body)
    return None


async def let_go_of_own(context: ReconcileContext) -> None:
    """Let the objects of the operator's own namespace go before the operator ends: it may end with its namespace."""
    own = context.config.release.partition("/")[0]
    if any(context.store.of(kind, own) for kind in DECLARED):
        await reconcile_namespace(context, own, "")


async def _let_go(context: ReconcileContext, body: Object) -> None:
    kind, namespace, name = kind_of(body), namespace_of(body), name_of(body)
    for attempt in range(ATTEMPTS):
        live = context.store.get(kind, namespace, name)
        if live is None or not has_finalizer(live):
            return
        try:
            await drop_finalizer(context, live)
        except ConflictError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            _LOG.info("object goes with its namespace object=%s/%s/%s", kind.plural, namespace, name)


async def _clean(context: ReconcileContext, body: Object) -> None:
    """Remove the object's state from ZooKeeper, if ZooKeeper is still there."""
    forget = _FORGET[kind_of(body)]
    try:
        await context.metastores.call(namespace_of(body), lambda store: forget(store, body))
    except MerlotError as error:
        what = (kind_of(body).plural, namespace_of(body), name_of(body))
        _LOG.warning("object went without its shared state being removed object=%s/%s/%s cause=%s", *what, error)
