"""Location of a namespace's shared state: apart from all others, unless it began elsewhere. Nothing is ever moved.

Installations of one namespace, and of a list, once had their state at the root of the chroot and of the deep store. A
namespace that began there stays there. Its controller's arguments decide, since reading them needs no ZooKeeper;
without a controller the contents of ZooKeeper do.
"""

from __future__ import annotations

from merlot.cluster.homes import claim, find_home, namespaces_of_tables
from merlot.cluster.records import HomeRecord
from merlot.metastore.protocol import Metastore
from merlot_operator.config import Config, Home
from merlot_operator.kube.kinds import Object


def of_controller(config: Config, namespace: str, deployment: Object | None) -> Home | None:
    """Return the home that a running controller was started with, if the configuration allows it; None otherwise."""
    if deployment is None:
        return None
    own, root = config.own_home(namespace), config.root_home(namespace)
    arguments = deployment["spec"]["template"]["spec"]["containers"][0].get("args") or ()
    given = {name: value for name, _, value in (argument.partition("=") for argument in arguments)}
    home = Home(f"zk://{given.get('--zk')}", str(given.get("--deep-store")))
    if home.metastore in (own.metastore, root.metastore) and home.deep_store in (own.deep_store, root.deep_store):
        return home
    return None


def has_folder(metastore: Metastore, config: Config, namespace: str) -> bool:
    """Return True if the namespace whose state is here has a folder of its own in the deep store."""
    home = find_home(metastore)
    if home is not None:
        return home.has_folder
    # Nothing is recorded: the state is older than the record, when only cluster-wide operators made folders.
    return config.is_cluster_wide or namespace not in namespaces_of_tables(metastore)


def settle(metastore: Metastore, config: Config, namespace: str, home: Home) -> frozenset[str]:
    """Record whose home this is, if only one namespace uses it; return the other namespaces that share it."""
    folder = home.deep_store == config.own_home(namespace).deep_store
    return claim(metastore, HomeRecord(namespace=namespace, has_folder=folder))
