"""`python -m merlot_operator.uninstall`: check that the operator may go. The chart runs it before a release is removed.

Declared objects have the operator's finalizer: without the operator, an object that is deleted later would never be
gone, nor would its namespace. The program ends with 0 if no object with the finalizer is left where the operator
serves, else with 1 and a list of the objects. Objects that another release serves need that release's operator, and do
not count.
"""

from __future__ import annotations

import asyncio
import os
import sys

import kopf

from merlot.errors import InvalidInputError, MerlotError, NotFoundError
from merlot_operator.config import namespaces_in
from merlot_operator.kube.client import ForbiddenError, Kube, with_client
from merlot_operator.kube.kinds import DECLARED, LEASES, NAMESPACES, Object, ResourceKind, name_of, namespace_of
from merlot_operator.kube.ownership import MARK, owner_of
from merlot_operator.reconcilers.finalizers import has_finalizer

MOST_SHOWN = 10


async def check(kube: Kube, namespaces: tuple[str, ...], release: str) -> None:
    """Raise InvalidInputError if an object that the release serves has the finalizer in these namespaces, or anywhere
    if `namespaces` is empty. Raise it, too, if the release may not list the objects."""
    places = namespaces or (None,)
    objects = [body for place in places for kind in DECLARED for body in await _all(kube, kind, place)]
    others = {place for place in set(map(namespace_of, objects)) if await _is_of_another(kube, place, release)}
    objects = [body for body in objects if namespace_of(body) not in others]
    if not objects:
        return
    names = sorted(f"{body['kind']} {namespace_of(body)}/{name_of(body)}" for body in objects)
    shown = ", ".join([*names[:MOST_SHOWN], *(["…"] if len(names) > MOST_SHOWN else [])])
    raise InvalidInputError(
        f"{len(names)} objects need the operator to be deleted: {shown}; delete them first, or leave them as they are, "
        "and all that they run, by `helm uninstall --no-hooks`"
    )


async def _all(kube: Kube, kind: ResourceKind, namespace: str | None) -> list[Object]:
    try:
        return [body for body in await kube.list(kind, namespace) if has_finalizer(body)]
    except NotFoundError:
        return []  # The kind's definition is gone, and all of its objects with it.
    except ForbiddenError as error:
        if namespace is not None and await _is_gone(kube, namespace):
            return []
        raise InvalidInputError(
            f"nobody can tell what is declared in namespace {namespace or '*'}: {error}; give the operator's account "
            "its rights there again, or leave all as it is by `helm uninstall --no-hooks`"
        ) from error


async def _is_of_another(kube: Kube, namespace: str, release: str) -> bool:
    """Return True if the namespace's Lease names another release; False under an older chart, which passes no name."""
    if not release:
        return False
    try:
        owner = owner_of(await kube.get(LEASES, namespace, MARK))
    except NotFoundError:
        return False
    return owner is not None and owner.release != release


async def _is_gone(kube: Kube, namespace: str) -> bool:
    """Return True if the namespace is gone, and with it the operator's rights there. A namespace that is being deleted
    still exists."""
    try:
        await kube.get(NAMESPACES, None, namespace)
    except NotFoundError:
        return True
    except ForbiddenError:
        return False
    return False


def main() -> int:
    """Run the check; return the exit code."""
    try:
        asyncio.run(
            with_client(lambda kube: check(kube, namespaces_in(os.environ), os.environ.get("MERLOT_RELEASE", "")))
        )
    except (MerlotError, kopf.LoginError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
