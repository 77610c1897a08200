"""Record which Kubernetes namespace the state in a chroot belongs to, so that no two namespaces share a chroot.

The chroot has a record of it once `claim` was called; before that, the manifests of its tables tell.
"""

from __future__ import annotations

import contextlib

from merlot.cluster import paths
from merlot.cluster.manifests.tables import find_table, list_tables
from merlot.cluster.records import HomeRecord
from merlot.errors import ConflictError
from merlot.metastore.protocol import Metastore


def find_home(metastore: Metastore) -> HomeRecord | None:
    """Return the record of the namespace that has claimed the chroot; None if none has."""
    node = metastore.get(paths.HOME)
    return None if node is None else HomeRecord.from_bytes(node.data, paths.HOME)


def namespaces_of_tables(metastore: Metastore) -> frozenset[str]:
    """Return the namespaces in which the tables here were declared."""
    declared = (record.manifest["metadata"].get("namespace") for record in list_tables(metastore).values())
    return frozenset(namespace for namespace in declared if namespace)


def declaring_namespace(metastore: Metastore) -> str | None:
    """Return the namespace whose operator writes the tables here; None if no operator does."""
    home = find_home(metastore)
    if home is not None:
        return home.namespace
    operators = metastore.children(paths.OPERATORS)
    return next(iter(sorted(operators)), None)


def is_home_of(metastore: Metastore, namespace: str) -> bool:
    """Return True if the namespace's state is here, by the chroot's record or by the tables of the namespace."""
    home = find_home(metastore)
    return (home is not None and home.namespace == namespace) or namespace in namespaces_of_tables(metastore)


def claim(metastore: Metastore, record: HomeRecord) -> frozenset[str]:
    """Claim the chroot for a namespace, unless tables of other namespaces are here; return the other namespaces that
    share it."""
    others = namespaces_of_tables(metastore) - {record.namespace}
    home = find_home(metastore)
    if home is None and not others:
        with contextlib.suppress(ConflictError):
            metastore.create(paths.HOME, record.to_bytes())
        home = find_home(metastore)
    return others if home is None else (others | {home.namespace}) - {record.namespace}


def other_owner(metastore: Metastore, table: str, namespace: str) -> str | None:
    """Return the other namespace that declared the table of this name, in a chroot that several share; None if there is
    none."""
    record = find_table(metastore, table)
    owner = None if record is None else record.manifest["metadata"].get("namespace")
    return None if owner in (None, namespace) else str(owner)
