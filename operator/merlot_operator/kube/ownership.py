"""Ownership of a namespace: a Lease in it names the release of the operator that serves it, and that operator's
process.

The Lease is a mark, not an election. It is written when something is first declared in a namespace, and when another
process comes to serve it; it goes with the last declared object. Nobody renews it, so an idle operator writes nothing.
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
    """Who serves a namespace."""

    release: str
    """Release, as `NAMESPACE/NAME`."""
    process: str
    """Process, which differs between any two processes, also of one release."""

    def __str__(self) -> str:
        return f"release {self.release} (process {self.process})"


class NamespaceRole(Enum):
    """Relation of an operator to a namespace."""

    OWNER = auto()
    HEIR = auto()
    """Operator that may become the owner."""
    STRANGER = auto()


def namespace_role(owner: Owner | None, me: Owner, *, has_owned: bool, takes_over: bool) -> NamespaceRole:
    """Return the relation of `me` to a namespace. The newest process is right: a process that once was the owner and no
    longer is has a successor, or was taken over from, and never takes the namespace back."""
    if owner == me:
        return NamespaceRole.OWNER
    if owner is None:
        return NamespaceRole.HEIR
    may_succeed = owner.release == me.release or takes_over
    return NamespaceRole.HEIR if may_succeed and not has_owned else NamespaceRole.STRANGER


def owner_of(lease: Object | None) -> Owner | None:
    """Return the owner that a Lease names; None without a Lease, or if it names nobody."""
    process = "" if lease is None else (lease.get("spec") or {}).get("holderIdentity") or ""
    return None if lease is None or not process else Owner(annotations_of(lease).get(RELEASE, "unknown"), process)


async def check_owned(kube: Kube, me: Owner, namespace: str) -> None:
    """Ask the API server itself for the owner. Raise WriterSupersededError if the namespace is another operator's,
    UnavailableError if nobody can tell."""
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
