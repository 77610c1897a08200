"""`python -m merlot_operator.uninstall`: whether the operator may go. Run by the chart before a release is removed.

What users declared has a finalizer of the operator's: without it, nothing that is deleted later would ever be gone, its
namespace included. Ends with 0 if nothing is declared any more where the operator serves, or with 1 and what there is.
What another release serves needs that release's operator, and holds up no other.
"""

from __future__ import annotations

import asyncio
import os
import sys

import kopf

from merlot.errors import InvalidInputError, MerlotError, NotFoundError
from merlot_operator.config import namespaces_in
from merlot_operator.kube.client import ForbiddenError, Kube, with_client
from merlot_operator.kube.kinds import DECLARED, LEASES, NAMESPACES, Kind, Object, name_of, namespace_of
from merlot_operator.kube.ownership import MARK, owner_of
from merlot_operator.reconcilers.finalizers import has_finalizer

MOST_SHOWN = 10


async def check(kube: Kube, namespaces: tuple[str, ...], release: str) -> None:
    """Raise InvalidInputError if anything that the release serves is declared in these namespaces, in any if there are
    none."""
    places = namespaces or (None,)
    found = [one for place in places for kind in DECLARED for one in await _all(kube, kind, place)]
    others = {place for place in set(map(namespace_of, found)) if await _is_of_another(kube, place, release)}
    found = [one for one in found if namespace_of(one) not in others]
    if not found:
        return
    names = sorted(f"{one['kind']} {namespace_of(one)}/{name_of(one)}" for one in found)
    shown = ", ".join([*names[:MOST_SHOWN], *(["…"] if len(names) > MOST_SHOWN else [])])
    raise InvalidInputError(
        f"{len(names)} objects need the operator to be deleted: {shown}; delete them first, or leave them as they are, "
        "and all that they run, by `helm uninstall --no-hooks`"
    )


async def _all(kube: Kube, kind: Kind, namespace: str | None) -> list[Object]:
    try:
        return [one for one in await kube.list(kind, namespace) if has_finalizer(one)]
    except NotFoundError:
        return []  # Its definition is gone, and with it all of its objects.
    except ForbiddenError as error:
        if namespace is not None and await _is_gone(kube, namespace):
            return []
        raise InvalidInputError(
            f"nobody can tell what is declared in namespace {namespace or '*'}: {error}; give the operator's account "
            "its rights there again, or leave all as it is by `helm uninstall --no-hooks`"
        ) from error


async def _is_of_another(kube: Kube, namespace: str, release: str) -> bool:
    """True if the namespace's Lease names another release; False under an older chart, which passes no name."""
    if not release:
        return False
    try:
        owner = owner_of(await kube.get(LEASES, namespace, MARK))
    except NotFoundError:
        return False
    return owner is not None and owner.release != release


async def _is_gone(kube: Kube, namespace: str) -> bool:
    """A namespace that was deleted took the operator's rights in it along. One that is going is there still."""
    try:
        await kube.get(NAMESPACES, None, namespace)
    except NotFoundError:
        return True
    except ForbiddenError:
        return False
    return False


def main() -> int:
    """Returns the exit code."""
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
