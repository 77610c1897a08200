"""The mark that keeps a declared object until what it stands for is cleaned up."""

from __future__ import annotations

from collections.abc import Sequence

from merlot.errors import ConflictError, MerlotError, NotFoundError
from merlot_operator import handlers
from merlot_operator.context import Context
from merlot_operator.kinds import (
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


def has_finalizer(body: Object) -> bool:
    """Whether the object waits for us."""
    return FINALIZER in (body["metadata"].get("finalizers") or ())


async def ensure_finalizer(context: Context, body: Object) -> Object:
    """The object with our mark."""
    if has_finalizer(body):
        return body
    return await _set(context, body, [*(body["metadata"].get("finalizers") or ()), FINALIZER])


async def drop_finalizer(context: Context, body: Object) -> None:
    """Let the object go. If nobody else holds it, it is gone: Kopf's watch may have begun too late to tell."""
    rest = [one for one in body["metadata"]["finalizers"] if one != FINALIZER]
    gone = await _set(context, body, rest)
    if not rest:
        handlers.observe(context, kind_of(body), "DELETED", dict(gone))


async def may_skip_shared_state(context: Context, body: Object) -> bool:
    """Whoever says so, or a namespace that goes with all that is in it: its ZooKeeper may be gone already."""
    if annotations_of(body).get(FORCE_DELETE) == "true":
        return True
    try:
        namespace = await context.kube.get(NAMESPACES, None, namespace_of(body))
    except MerlotError:
        return False
    return is_deleting(namespace)


async def _set(context: Context, body: Object, finalizers: Sequence[str]) -> Object:
    """Only if nobody changed the object meanwhile: others' finalizers are in the list too."""
    kind, namespace, name = kind_of(body), namespace_of(body), name_of(body)
    metadata = {"resourceVersion": body["metadata"]["resourceVersion"], "finalizers": list(finalizers)}
    try:
        written = await context.kube.patch(kind, namespace, name, {"metadata": metadata})
    except NotFoundError:
        return body
    except ConflictError:
        context.store.put(await context.kube.get(kind, namespace, name))
        raise
    context.store.put(written)
    return written
