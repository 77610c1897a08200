"""Ownership of a namespace: a Lease in it names the operator that serves it, by its release and its process.

The Lease is a mark, not an election. It is written when something is first declared in a namespace, and when another
process takes over the namespace. It is deleted when nothing is declared any more. Nobody renews it, so an idle operator
writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from merlot.cluster.fence import WriterSupersededError
from merlot.errors import InvalidInputError, NotFoundError, UnavailableError
from merlot_operator.kube.client import Kube
from merlot_operator.kube.events import timestamp
from merlot_operator.kube.kinds import FIELD_MANAGER, LEASES, MANAGED_BY, Object, annotations_of

MARK = "merlot-operator"
"""Name of the Lease."""
RELEASE = "merlot.dev/release"
"""Annotation of the Lease: the owner's release."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Operator process that serves a namespace."""

    release: str
    """Release, as `NAMESPACE/NAME`."""
    process: str
    """Id of the process, unique even among the processes of one release."""

    def __str__(self) -> str:
        return f"release {self.release} (process {self.process})"


class NamespaceRole(Enum):
    """Role of an operator in a namespace."""

    OWNER = auto()
    HEIR = auto()
    """Operator that may become the owner."""
    STRANGER = auto()
    """Operator that must leave the namespace to its owner."""


def namespace_role(owner: Owner | None, me: Owner, *, has_owned: bool, takes_over: bool) -> NamespaceRole:
    """Return the role of `me` in a namespace. The newest owner wins: a process that was the owner (`has_owned`) and now
    finds another owner never takes the namespace back from it. The other is its successor, or took the namespace over.

    `takes_over`: an owner of another release may be replaced too."""
    if owner == me:
        return NamespaceRole.OWNER
    if owner is None:
        return NamespaceRole.HEIR
    may_succeed = owner.release == me.release or takes_over
    return NamespaceRole.HEIR if may_succeed and not has_owned else NamespaceRole.STRANGER


def owner_of(lease: Object | None) -> Owner | None:
    """Return the owner that a Lease names; None if there is no Lease, or if it names nobody."""
    process = "" if lease is None else (lease.get("spec") or {}).get("holderIdentity") or ""
    return None if lease is None or not process else Owner(annotations_of(lease).get(RELEASE, "unknown"), process)


async def check_owned(kube: Kube, me: Owner, namespace: str) -> None:
    """Check the owner at the API server, not in the cache. A namespace without an owner passes.

    Raise WriterSupersededError if another operator owns the namespace, UnavailableError if the Lease cannot be read."""
    try:
        owner = owner_of(await kube.get(LEASES, namespace, MARK))
    except NotFoundError:
        return
    except InvalidInputError as error:
        raise UnavailableError(f"nobody can tell whose the namespace is: {error}") from error
    if owner not in (None, me):
        raise WriterSupersededError(f"{owner} serves namespace {namespace}")


def mark(namespace: str, owner: Owner, now_ms: int) -> dict[str, Any]:
    """Return the Lease that names the owner."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.name,
        "metadata": {
            "name": MARK,
            "namespace": namespace,
            "labels": {MANAGED_BY: FIELD_MANAGER},
            "annotations": {RELEASE: owner.release},
        },
        "spec": {"holderIdentity": owner.process, "acquireTime": timestamp(now_ms).replace("Z", ".000000Z")},
    }
