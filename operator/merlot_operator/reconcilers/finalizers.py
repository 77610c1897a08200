"""The finalizer that keeps a declared object until everything that it stands for is cleaned up."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from merlot.errors import ConflictError, MerlotError, NotFoundError
from merlot.metastore.protocol import Metastore
from merlot_operator import handlers
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.kinds import (
    FINALIZER,
    FORCE_DELETE,
    NAMESPACES,
    Object,
    annotations_of,
    is_deleting,
    kind_of,
    name_of,
    namespace_of,
)
from merlot_operator.reconcilers.waiting import Obstacle, write_waiting

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


def has_finalizer(body: Object) -> bool:
    """Return True if the object has the operator's finalizer."""
    return FINALIZER in (body["metadata"].get("finalizers") or ())


async def ensure_finalizer(context: ReconcileContext, body: Object) -> Object:
    """Return the object with the operator's finalizer, unless its namespace is being deleted and would wait for the
    operator."""
    if has_finalizer(body) or namespace_of(body) in context.deleting:
        return body
    return await _set(context, body, [*(body["metadata"].get("finalizers") or ()), FINALIZER])


async def drop_finalizer(context: ReconcileContext, body: Object) -> None:
    """Remove the operator's finalizer. If no other finalizer is left, handle the deletion at once: Kopf's watch may
    have begun too late to report it."""
    rest = [finalizer for finalizer in body["metadata"]["finalizers"] if finalizer != FINALIZER]
    gone = await _set(context, body, rest)
    if not rest and is_deleting(body):
        handlers.observe(context, kind_of(body), "DELETED", dict(gone))


async def clear_shared_state(
    context: ReconcileContext, body: Object, forget: Callable[[Metastore], T], skipped: T
) -> T:
    """Return the result of `forget`, which removes the object from shared state; `skipped` if shared state is away and
    may be left as it is.

    Otherwise raise the error, after conditions and an event that say what the object waits for."""
    try:
        return await context.metastores.call(namespace_of(body), forget)
    except MerlotError as error:
        if not await _may_skip_shared_state(context, body):
            where = context.config.metastore_of(namespace_of(body))
            await write_waiting(context, body, [Obstacle(f"ZooKeeper answers at {where}: {error}", is_problem=True)])
            raise
        what = (kind_of(body).plural, namespace_of(body), name_of(body))
        _LOG.warning("object goes without its shared state being removed object=%s/%s/%s", *what)
        text = f"deleted without ZooKeeper, which still knows it and its files: {error}"
        await context.events.warning(body, "LeftBehind", text)
        return skipped


async def forget(context: ReconcileContext, body: Object, delete: Callable[[Metastore, str], object]) -> None:
    """Let a deleted object go once `delete` has removed it, by its name, from shared state."""
    if not has_finalizer(body):
        return

    def deleted(store: Metastore) -> None:
        with contextlib.suppress(NotFoundError):
            delete(store, name_of(body))

    await clear_shared_state(context, body, deleted, skipped=None)
    await drop_finalizer(context, body)


def is_forced(body: Object) -> bool:
    """Return True if a user wants the object gone, whatever is left behind."""
    return annotations_of(body).get(FORCE_DELETE) == "true"


async def _may_skip_shared_state(context: ReconcileContext, body: Object) -> bool:
    """Return True if a user asks for it, or if the namespace is being deleted with all its contents: its ZooKeeper may
    be gone already."""
    return is_forced(body) or await is_namespace_going(context, namespace_of(body))


async def is_namespace_going(context: ReconcileContext, name: str) -> bool:
    """Return True if the namespace is being deleted, with everybody who could mend something there."""
    try:
        namespace = await context.kube.get(NAMESPACES, None, name)
    except MerlotError:
        return False
    return is_deleting(namespace)


async def _set(context: ReconcileContext, body: Object, finalizers: Sequence[str]) -> Object:
    """Write the finalizers if nobody has changed the object meanwhile: the list holds finalizers of others too."""
    kind, namespace, name = kind_of(body), namespace_of(body), name_of(body)
    metadata = {"resourceVersion": body["metadata"]["resourceVersion"], "finalizers": list(finalizers)}
    try:
        written = await context.kube.patch(kind, namespace, name, {"metadata": metadata})
    except NotFoundError:
        return body
    except ConflictError:
        context.store.keep(await context.kube.get(kind, namespace, name))
        raise
    context.store.keep_own(written)
    return written
