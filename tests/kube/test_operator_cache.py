"""What the operator remembers may be old: before it takes anything away it asks the API server itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kopf
import pytest
from tests.kube.operator_parts import Api, write_kubeconfig
from tests.kube.test_operator import POOL, flights

from merlot_operator import __main__ as program
from merlot_operator.accepted import text_of
from merlot_operator.config import from_environment
from merlot_operator.context import ClusterNote, PoolNote, ReconcileContext
from merlot_operator.desired.demand import pool_demand
from merlot_operator.kube.kinds import TABLES
from merlot_operator.manifests.pool import stateful_set
from merlot_operator.reconcilers.clusters import reconcile_cluster
from merlot_operator.reconcilers.pools import reconcile_pool
from merlot_operator.reconcilers.tables import SOON_S, reconcile_table

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]


@pytest.fixture
async def context(
    api: Api, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ReconcileContext]:
    """An operator's parts, which have heard of nothing yet."""
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "own", api.url, api.token)))
    found = program._context(from_environment(settings), kopf.OperatorSettings())
    yield found
    await found.statuses.close()
    await found.metastores.close()
    await found.kube.close()


def with_servers(api: Api, context: ReconcileContext, *, is_accepted: bool) -> None:
    """A Table with servers, of which the operator has heard of the servers alone."""
    declared = flights()
    table = api.create("tables", declared)
    accepted = {**table, "status": {"revision": 1, "accepted": text_of(table["spec"])}}
    if is_accepted:
        api.patch("tables", "flights", {"status": accepted["status"]}, "status")
    demand = pool_demand(api.namespace, POOL, [accepted], context.config)
    assert demand is not None
    made = api.create("statefulsets", stateful_set(demand, context.config, 1))
    context.store.put({"apiVersion": "apps/v1", "kind": "StatefulSet", **made})
    assert context.store.of(TABLES, api.namespace) == []


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_servers_of_a_table_that_no_listing_has_told_of_yet_stay(
    api: Api, context: ReconcileContext, is_accepted: bool
) -> None:
    with_servers(api, context, is_accepted=is_accepted)
    assert await reconcile_pool(context, api.namespace, POOL) is None
    assert api.get("statefulsets", POOL) is not None
    [known] = context.store.of(TABLES, api.namespace)
    assert known["metadata"]["name"] == "flights"
    api.delete("tables", "flights")
    gone: dict[str, Any] = {**known}
    context.store.remove(gone)
    assert await reconcile_pool(context, api.namespace, POOL) is None
    assert api.get("statefulsets", POOL) is None


async def test_what_tables_share_stays_while_one_is_there_that_no_listing_has_told_of(
    api: Api, context: ReconcileContext
) -> None:
    with_servers(api, context, is_accepted=True)
    api.create("deployments", deployment())
    made = api.get("deployments", "merlot-broker")
    context.store.put({"apiVersion": "apps/v1", "kind": "Deployment", **made})
    assert await reconcile_cluster(context, api.namespace) is None
    assert api.get("deployments", "merlot-broker") is not None
    api.delete("tables", "flights")
    assert await reconcile_cluster(context, api.namespace) is None
    assert api.get("deployments", "merlot-broker") is None


async def test_a_table_whose_cluster_goes_during_its_pass_waits_for_the_next_one(
    api: Api, context: ReconcileContext
) -> None:
    """It was deleted and made anew at once."""
    context.store.put({"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", **api.create("tables", flights())})
    context.clusters[api.namespace] = ClusterNote()
    context.pools[api.namespace, POOL] = PoolNote()
    await context.statuses.refresh(api.namespace)

    async def tear_down() -> None:
        del context.clusters[api.namespace]

    again_s, _ = await asyncio.gather(reconcile_table(context, api.namespace, "flights"), tear_down())
    assert again_s == SOON_S
    assert "status" not in api.get("tables", "flights")


async def test_a_listing_has_all_pages_and_tells_of_each(
    api: Api, context: ReconcileContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merlot_operator.kube.client.PAGE", 2)
    names = [f"table-{number}" for number in range(5)]
    for name in names:
        api.create("tables", flights(name))
    heard: list[None] = []
    listing = await context.kube.list_all(TABLES, api.namespace, heard=lambda: heard.append(None))
    assert [one["metadata"]["name"] for one in listing.items] == names
    assert len(heard) == 3


def deployment() -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "merlot-operator", "merlot.dev/scope": "cluster"}
    pod = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "broker", "image": "broker"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "merlot-broker", "labels": labels},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": pod},
    }
