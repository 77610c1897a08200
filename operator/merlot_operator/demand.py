"""What a namespace's Tables ask of their cluster: how many brokers, which server pools, how large. Pure.

Read from the plain documents, leniently: a Table that cannot be accepted keeps the servers that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from merlot.spec.tenancy import Resources
from merlot.store import credentials
from merlot_operator.compare import quantity
from merlot_operator.config import Config, RoleSize
from merlot_operator.kinds import RESTARTED_AT, Object, annotations_of, fit, is_deleting, name_of

DEFAULT_TENANT = "default"
DEFAULT_STORAGE = "10Gi"
MAX_POOL_NAME = 48
"""A StatefulSet's pods carry a label of its name, a dash and eleven characters; labels hold 63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDemand:
    """A group of servers: a table's own, or a tenant's."""

    namespace: str
    name: str
    """Of the StatefulSet."""
    tenant: str
    """As servers and tables name it in shared state."""
    tables: tuple[str, ...]
    owner: Mapping[str, str] | None
    """The one Table that it belongs to, as an owner reference."""
    replicas: int
    """0 if all of its tables are suspended."""
    wanted_replicas: int
    """As if none were."""
    resources: Resources
    storage: str
    storage_class: str
    stores: Mapping[str, str]
    """Secrets of the deep stores that have one of their own, by URI."""
    restarted_at: str
    deletes_claims: bool
    """Whether its volumes go with it."""
    pod_template: Mapping[str, Any] | None = None
    """What is laid over the template of its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDemand:
    """The processes that a namespace's tables share."""

    namespace: str
    tables: tuple[str, ...]
    controller: RoleSize
    broker: RoleSize
    minion: RoleSize
    stores: Mapping[str, str] = field(default_factory=dict)
    """Secrets of the deep stores that have one of their own, by URI."""
    conflict: str | None = None
    """What two tables say of the same deep store."""
    broker_template: Mapping[str, Any] | None = None
    """What is laid over the template of the brokers' pods."""


def cluster_demand(namespace: str, tables: Iterable[Object], config: Config) -> ClusterDemand | None:
    """None if there is no Table; one that is being deleted still counts, since its files want a controller."""
    tables = sorted(tables, key=name_of)
    if not tables:
        return None
    asking = [_at(table, "spec", "tenants", "broker") for table in tables]
    is_all_suspended = all(_at(table, "spec").get("suspend") for table in tables)
    replicas = max([one["replicas"] for one in asking if "replicas" in one], default=config.sizes.broker.replicas)
    resources = _largest([_resources(one) for one in asking if "resources" in one], config.sizes.broker.resources)
    stores, conflict = _stores(tables)
    return ClusterDemand(
        namespace=namespace,
        tables=tuple(name_of(table) for table in tables),
        controller=config.sizes.controller,
        broker=RoleSize(replicas=0 if is_all_suspended else replicas, resources=resources),
        minion=config.sizes.minion,
        stores=stores,
        conflict=conflict,
        broker_template=_template(asking),
    )


def pool_of(table: Object) -> str:
    """Name of the StatefulSet of a Table's servers."""
    tenant = shared_tenant(table)
    return fit(
        f"merlot-server-{name_of(table)}" if tenant is None else f"merlot-tenant-{tenant.lower()}", MAX_POOL_NAME
    )


def shared_tenant(table: Object) -> str | None:
    """The tenant that a Table shares with others, or None if its servers are its own."""
    name = _at(table, "spec", "tenants", "server").get("name", DEFAULT_TENANT)
    return None if name == DEFAULT_TENANT else str(name)


def tenant_of(table: Object) -> str:
    """The tenant in shared state."""
    return shared_tenant(table) or f"own-{name_of(table)}"


def pool_demand(namespace: str, pool: str, tables: Iterable[Object], config: Config) -> PoolDemand | None:
    """What a namespace's Tables want of one pool; None if none of them is in it."""
    members = sorted((one for one in tables if pool_of(one) == pool and not is_deleting(one)), key=name_of)
    members = [one for one in members if "upsert" not in _at(one, "spec") or "revision" in _at(one, "status")]
    if not members:
        return None
    asking = [_at(table, "spec", "tenants", "server") for table in members]
    sizes = [_resources(one) for one in asking if "resources" in one]
    replication = max(_at(table, "spec").get("replication", 1) for table in members)
    asked = [one["replicas"] for one in asking if "replicas" in one]
    wanted = max(asked) if asked else max(replication, config.sizes.server.replicas)
    is_all_suspended = all(_at(table, "spec").get("suspend") for table in members)
    resources = _largest(sizes, config.sizes.server.resources)
    return PoolDemand(
        namespace=namespace,
        name=pool,
        tenant=tenant_of(members[0]),
        tables=tuple(name_of(table) for table in members),
        owner=None if shared_tenant(members[0]) else owner_reference(members[0]),
        replicas=0 if is_all_suspended else wanted,
        wanted_replicas=wanted,
        resources=resources,
        storage=resources.storage or DEFAULT_STORAGE,
        storage_class=next((one["storageClass"] for one in asking if "storageClass" in one), config.storage_class),
        stores=_stores(members)[0],
        restarted_at=max(annotations_of(table).get(RESTARTED_AT, "") for table in members),
        deletes_claims=all(map(_deletes_claims, members)),
        pod_template=_template(asking),
    )


def owner_reference(table: Object) -> dict[str, Any]:
    """What makes an object go with its Table."""
    return {
        "apiVersion": table["apiVersion"],
        "kind": table["kind"],
        "name": name_of(table),
        "uid": table["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _deletes_claims(table: Object) -> bool:
    """Volumes of a Table that was never accepted hold nothing to retain."""
    return _at(table, "spec").get("deletionPolicy") == "Delete" or "revision" not in _at(table, "status")


def _template(asking: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first one: two do not mix."""
    return next((one["podTemplate"] for one in asking if one.get("podTemplate")), None)


def _stores(tables: Iterable[Object]) -> tuple[dict[str, str], str | None]:
    """Secret by URI; and why one of them is not that of a table: the first one in the order of names wins."""
    found: dict[str, tuple[str, str]] = {}
    conflict = None
    for table in tables:
        store = _at(table, "spec", "deepStore")
        uri, secret = credentials.without_options(str(store.get("uri", ""))), store.get("secretRef")
        if secret and uri.startswith("s3://"):  # nobody else takes keys
            first, used = found.setdefault(uri, (name_of(table), str(secret)))
            if used != secret:
                named = f"Table {first} names the Secret {used} for {uri}, Table {name_of(table)} the Secret {secret}"
                conflict = conflict or f"{named}: {used} is used; name one, or give each a URI of its own"
    return {uri: found[uri][1] for uri in sorted(found)}, conflict


def _resources(tenant: Mapping[str, Any]) -> Resources:
    return Resources.model_validate(tenant["resources"])


def _largest(asked: list[Resources], default: Resources) -> Resources:
    """The largest amount of each, over what tables ask for; the default's where none asks."""
    if not asked:
        return default
    storage = [one.storage for one in asked if one.storage is not None]
    return Resources(
        requests=dict(default.requests) | _largest_of([one.requests for one in asked]),
        limits=dict(default.limits) | _largest_of([one.limits for one in asked]),
        storage=max(storage, key=quantity) if storage else default.storage,
    )


def _largest_of(amounts: list[Mapping[str, str]]) -> dict[str, str]:
    names = sorted({name for one in amounts for name in one})
    return {name: max((one[name] for one in amounts if name in one), key=quantity) for name in names}


def _at(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """A mapping inside the document, empty if it is not there."""
    for name in path:
        document = document.get(name) or {}
    return document
