"""Where a namespace's shared state is: apart from all others, unless it began elsewhere. Nothing is ever moved.

Installations of one namespace, and of a list, once had their state at the root of the chroot and of the deep store. Who
is there stays there: first by what its controller runs with, which needs no ZooKeeper, else by what ZooKeeper holds.
"""

from __future__ import annotations

from merlot.cluster.homes import claim, find_home, namespaces_of_tables
from merlot.cluster.records import HomeRecord
from merlot.metastore.protocol import Metastore
from merlot_operator.config import Config, Home
from merlot_operator.kube.kinds import Object


def of_controller(config: Config, namespace: str, deployment: Object | None) -> Home | None:
    """What a controller that is there runs with, if that is one of the places that the configuration allows."""
    if deployment is None:
        return None
    own, root = config.own_home(namespace), config.root_home(namespace)
    arguments = deployment["spec"]["template"]["spec"]["containers"][0].get("args") or ()
    given = {name: value for name, _, value in (one.partition("=") for one in arguments)}
    home = Home(f"zk://{given.get('--zk')}", str(given.get("--deep-store")))
    if home.metastore in (own.metastore, root.metastore) and home.deep_store in (own.deep_store, root.deep_store):
        return home
    return None


def has_folder(metastore: Metastore, config: Config, namespace: str) -> bool:
    """Whether the namespace whose state is here has a folder of its own in the deep store."""
    home = find_home(metastore)
    if home is not None:
        return home.has_folder
    # Before it was written down, only cluster-wide operators made folders.
    return config.is_cluster_wide or namespace not in namespaces_of_tables(metastore)


def settle(metastore: Metastore, config: Config, namespace: str, home: Home) -> frozenset[str]:
    """Write down whose home this is, if it is only one's; returns the others that share it."""
    folder = home.deep_store == config.own_home(namespace).deep_store
    return claim(metastore, HomeRecord(namespace=namespace, has_folder=folder))
