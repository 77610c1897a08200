"""Demand of a namespace's Tables: how many brokers, which server pools, how large. Pure.

Tables are taken as they are run (`accepted`) and read leniently from the plain documents: a spec that an older version
accepted may be invalid now, and its Table keeps the servers that it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from merlot.spec.tenancy import Resources
from merlot.store import credentials
from merlot_operator.accepted import with_accepted_spec, with_accepted_specs
from merlot_operator.config import Config, RoleSize
from merlot_operator.desired import sizes
from merlot_operator.kube.kinds import RESTARTED_AT, Object, annotations_of, digest, fit, is_deleting, name_of
from merlot_operator.restrictions import allowed

DEFAULT_TENANT = "default"
DEFAULT_STORAGE = "10Gi"
MAX_POOL_NAME = 48
"""Longest name of a StatefulSet: its pods have a label of its name, a dash and eleven characters; labels hold 63."""
MAX_TENANT = 63
"""Longest name of a tenant, as of `spec.tenants.server.name`: a Table's own tenant is written there, and its name
may be as long."""


_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class Conflict:
    """A setting of a table that does not take effect."""

    reason: str
    message: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDemand:
    """A group of servers: a table's own, or a tenant's."""

    namespace: str
    name: str
    """Name of the StatefulSet."""
    tenant: str
    """Tenant by which servers and tables name the pool in shared state."""
    tables: tuple[str, ...]
    owner: Mapping[str, str] | None
    """Owner reference to the only Table of the pool; None for a shared tenant."""
    replicas: int
    """Number of servers: 0 if all tables of the pool are suspended, or none asks for any."""
    wanted_replicas: int
    """Number of servers if no table were suspended."""
    resources: Resources
    storage: str
    storage_class: str
    stores: Mapping[str, str]
    """Secrets by the URI of their deep store, for stores that have one of their own."""
    restarted_at: str
    deletes_claims: bool
    """True if the volumes are deleted with the pool."""
    pod_template: Mapping[str, Any] | None = None
    """Overlay for the template of the pods."""
    stream_secrets: tuple[str, ...] = ()
    """Secrets with which streams of the tables are read."""
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDemand:
    """The processes that a namespace's tables share."""

    namespace: str
    tables: tuple[str, ...]
    controller: RoleSize
    broker: RoleSize
    minion: RoleSize
    stores: Mapping[str, str] = field(default_factory=dict)
    """Secrets by the URI of their deep store, for stores that have one of their own."""
    conflict: str | None = None
    """Contradiction of two tables about the same deep store."""
    broker_template: Mapping[str, Any] | None = None
    """Overlay for the template of the brokers' pods."""


def cluster_demand(namespace: str, tables: Iterable[Object], config: Config) -> ClusterDemand | None:
    """Return the cluster of a namespace; None if there is no Table. A Table that is being deleted still counts, since
    its files need a controller. So does one that was not accepted yet, which asks for nothing else."""
    tables = sorted(tables, key=name_of)
    if not tables:
        return None
    running = sorted(with_accepted_specs(tables), key=_age)
    asking = [_at(table, "spec", "tenants", "broker") for table in running]
    is_all_suspended = len(running) == len(tables) and all(_at(table, "spec").get("suspend") for table in running)
    replicas = max(
        [tenant["replicas"] for tenant in asking if "replicas" in tenant], default=config.sizes.broker.replicas
    )
    resources = _sized(asking, config.sizes.broker.resources)
    stores, conflict = _stores(running)
    return ClusterDemand(
        namespace=namespace,
        tables=tuple(name_of(table) for table in tables),
        controller=config.sizes.controller,
        broker=RoleSize(replicas=0 if is_all_suspended else replicas, resources=resources),
        minion=config.sizes.minion,
        stores=stores,
        conflict=conflict,
        broker_template=allowed(_template(asking), "broker", config),
    )


def pool_of(table: Object) -> str:
    """Return the name of the StatefulSet of a Table's servers."""
    tenant = shared_tenant(with_accepted_spec(table))
    return own_pool(name_of(table)) if tenant is None else fit(_pool_of_tenant(tenant), MAX_POOL_NAME)


def own_pool(table: str) -> str:
    """Return the name of the StatefulSet of servers that belong to one Table alone."""
    return fit(f"merlot-server-{table}", MAX_POOL_NAME)


def _pool_of_tenant(tenant: str) -> str:
    """Return the StatefulSet's name for a tenant. Names of objects have no capitals, but `Hot` and `hot` are two
    tenants and two pools."""
    lower = tenant.lower()
    return f"merlot-tenant-{lower}" if lower == tenant else f"merlot-tenant-{lower}-{digest(tenant, 6)}"


def shared_tenant(table: Object) -> str | None:
    """Return the tenant that a Table shares with others, or None if its servers are its own."""
    name = _at(table, "spec", "tenants", "server").get("name", DEFAULT_TENANT)
    return None if name == DEFAULT_TENANT else str(name)


def tenant_of(table: Object) -> str:
    """Return the Table's tenant in shared state."""
    return shared_tenant(table) or fit(f"own-{name_of(table)}", MAX_TENANT)


def pool_demand(namespace: str, pool: str, tables: Iterable[Object], config: Config) -> PoolDemand | None:
    """Return what a namespace's Tables want of a pool; None if none of them is in it."""
    staying = [table for table in with_accepted_specs(tables) if not is_deleting(table)]
    members = sorted((table for table in staying if pool_of(table) == pool), key=_age)
    if not members:
        return None
    asking = [_at(table, "spec", "tenants", "server") for table in members]
    wanted = max(_num_servers(table, config) for table in members)
    is_all_suspended = all(_at(table, "spec").get("suspend") for table in members)
    resources = _sized(asking, config.sizes.server.resources)
    return PoolDemand(
        namespace=namespace,
        name=pool,
        tenant=tenant_of(members[0]),
        tables=tuple(sorted(map(name_of, members))),
        owner=None if shared_tenant(members[0]) else owner_reference(members[0]),
        replicas=0 if is_all_suspended else wanted,
        wanted_replicas=wanted,
        resources=resources,
        storage=resources.storage or DEFAULT_STORAGE,
        storage_class=next(
            (tenant["storageClass"] for tenant in asking if "storageClass" in tenant), config.storage_class
        ),
        stores=_stores(members)[0],
        restarted_at=_restarted_at(members),
        deletes_claims=all(_at(table, "spec").get("deletionPolicy") == "Delete" for table in members),
        pod_template=allowed(_template(asking), "server", config),
        stream_secrets=_stream_secrets(members),
        conflicts=tuple(_conflicts(members, wanted)),
    )


def _restarted_at(members: Sequence[Object]) -> str:
    """Return a text that changes when a member's annotation does. Of several instants in UTC it is the
    last, so that nothing restarts when a Table goes. Other texts have no order."""
    texts = {name_of(table): annotations_of(table).get(RESTARTED_AT, "") for table in members}
    different = {text for text in texts.values() if text}
    if len(different) < 2 or all(map(_INSTANT.fullmatch, different)):
        return max(different, default="")
    return digest({name: text for name, text in texts.items() if text})


def _age(table: Object) -> tuple[str, str]:
    """Return a sort key by age. In a conflict the oldest table wins, so that a new table changes nothing for the
    others."""
    return table["metadata"].get("creationTimestamp", ""), name_of(table)


def _conflicts(members: Sequence[Object], wanted: int) -> Iterator[Conflict]:
    """Yield settings of a pool's tables that do not take effect. `members` are sorted by age, the oldest first."""
    for choice in ("podTemplate", "storageClass"):
        tenants = [(name_of(table), _at(table, "spec", "tenants", "server")) for table in members]
        asking = [(name, tenant[choice]) for name, tenant in tenants if tenant.get(choice)]
        for name, value in asking[1:]:
            if value != asking[0][1]:
                text = f"its tenants.server.{choice} is not that of table {asking[0][0]}, which was there before"
                yield Conflict("TenantConflict", f"{text}: write the same in both", name)
    for table in members:
        replication = _at(table, "spec").get("replication", 1)
        if 0 < wanted < replication:
            text = f"replication {replication} needs as many servers, {wanted} are asked for"
            yield Conflict("TooFewServers", f"{text}: raise spec.tenants.server.replicas", name_of(table))


def _num_servers(table: Object, config: Config) -> int:
    """Return the number of servers that a table asks for. The API server writes 1 where the user says nothing, so 1
    means the default: the table's replication, or the chart's number of servers if that is larger."""
    replicas = _at(table, "spec", "tenants", "server").get("replicas", 1)
    return (
        max(_at(table, "spec").get("replication", 1), config.sizes.server.replicas) if replicas == 1 else int(replicas)
    )


def owner_reference(table: Object) -> dict[str, Any]:
    """Return an owner reference to the Table, by which Kubernetes deletes an object with it."""
    return {
        "apiVersion": table["apiVersion"],
        "kind": table["kind"],
        "name": name_of(table),
        "uid": table["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _template(asking: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first template, which is the oldest table's: two templates do not mix."""
    return next((tenant["podTemplate"] for tenant in asking if tenant.get("podTemplate")), None)


def _stores(tables: Iterable[Object]) -> tuple[dict[str, str], str | None]:
    """Return the Secret of each URI, and the contradiction of two tables about one of them, if any: the oldest table
    wins."""
    secrets: dict[str, tuple[str, str]] = {}
    conflict = None
    for table in tables:
        store = _at(table, "spec", "deepStore")
        uri, secret = credentials.without_options(str(store.get("uri", ""))), store.get("secretRef")
        if secret and credentials.keys_of(uri) is not None:
            first, used = secrets.setdefault(uri, (name_of(table), str(secret)))
            if used != secret:
                named = f"Table {first} names the Secret {used} for {uri}, Table {name_of(table)} the Secret {secret}"
                conflict = conflict or f"{named}: {used} is used; name one, or give each a URI of its own"
    return {uri: secrets[uri][1] for uri in sorted(secrets)}, conflict


def _stream_secrets(tables: Iterable[Object]) -> tuple[str, ...]:
    named = (_at(table, "spec", "ingestion", "stream").get("secretRef") for table in tables)
    return tuple(sorted({str(name) for name in named if name}))


def _sized(asking: Iterable[Mapping[str, Any]], default: Resources) -> Resources:
    asked = [Resources.model_validate(tenant["resources"]) for tenant in asking if "resources" in tenant]
    return sizes.over(default, sizes.largest(asked))


def _at(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return a mapping inside the document; empty if it is missing."""
    for name in path:
        document = document.get(name) or {}
    return document
