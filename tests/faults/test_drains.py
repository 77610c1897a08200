"""Servers are stopped on purpose, one at a time, as a rollout does: no query may notice."""

import asyncio
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.load import QueryLoad
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import ORDERS

from merlot.testing.patience import PATIENCE_S, until

pytestmark = pytest.mark.cluster


def post(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=PATIENCE_S) as answer:
        assert answer.status == 200


def routed(cluster: ClusterProcesses) -> Mapping[str, Any]:
    """Who is asked for what."""
    routes: Mapping[str, Any] = cluster.broker.get("/debug/routingTable/orders")[ORDERS]
    return routes


def instance_of(cluster: ClusterProcesses, server: RoleProcess) -> str:
    port = int(server.url.rpartition(":")[2])
    details = cluster.controller.get("/instances")["details"]
    return next(one["instanceName"] for one in details if int(one["port"]) == port)


def state_of(cluster: ClusterProcesses, instance: str) -> Mapping[str, Any]:
    body = cluster.controller.get("/status")
    return {**body["tables"]["orders"]["servers"].get(instance, {}), **body["instances"].get(instance, {})}


def is_taken_back(state: Mapping[str, Any]) -> bool:
    marks = [state.get(name) for name in ("live", "draining", "drained")]
    return marks == [True, False, False] and state.get("loaded") == 8


async def test_draining_stopping_and_restarting_each_server_fails_no_query(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    async with QueryLoad(cluster.broker.url, cases) as load:
        for server in cluster.servers:
            await load.answered(50)
            instance = instance_of(cluster, server)
            post(f"{cluster.controller.url}/instances/{instance}/drain")
            await until(lambda instance=instance: state_of(cluster, instance)["drained"])
            assert instance not in routed(cluster)
            await load.answered(50)
            assert await asyncio.to_thread(server.stop) == 0
            await load.answered(50)
            server.start()
            await asyncio.to_thread(server.wait_ready)
            await until(lambda instance=instance: is_taken_back(state_of(cluster, instance)))
            await asyncio.to_thread(cluster.wait_served, ORDERS, 800, 2)
            await load.answered(50)
    print(load.tally)
    assert (load.tally.wrong, load.tally.examples) == ([], [])


async def test_a_mark_that_is_taken_back_brings_the_server_into_routing_again(cluster: ClusterProcesses) -> None:
    instance = instance_of(cluster, cluster.servers[0])
    url = f"{cluster.controller.url}/instances/{instance}"
    post(f"{url}/drain")
    await until(lambda: state_of(cluster, instance)["drained"])
    post(f"{url}/undrain")
    await until(lambda: instance in routed(cluster))
    await until(lambda: not state_of(cluster, instance)["draining"])


async def test_a_third_server_joins_and_leaves_again_and_no_query_fails(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    async with QueryLoad(cluster.broker.url, cases) as load:
        third = cluster.new_server()
        try:
            third.start()
            await asyncio.to_thread(third.wait_ready)
            instance = instance_of(cluster, third)
            await until(lambda: state_of(cluster, instance).get("loaded", 0) >= 5)
            await until(lambda: not cluster.controller.get("/status")["tables"]["orders"]["moving"])
            await load.answered(50)
            post(f"{cluster.controller.url}/instances/{instance}/drain?leaving=true")
            await until(lambda: state_of(cluster, instance)["drained"])
            status = cluster.controller.get("/status")["tables"]["orders"]
            assert status["servers"][instance]["assigned"] == 0
            assert (status["segmentsUnavailable"], status["totalDocs"]) == (0, 800)
            await load.answered(50)
        finally:
            assert await asyncio.to_thread(third.stop) == 0
        await load.answered(50)
    print(load.tally)
    assert (load.tally.wrong, load.tally.examples) == ([], [])


async def test_a_new_life_of_a_server_takes_over_while_the_old_one_still_drains(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    old = cluster.servers[0]
    instance = instance_of(cluster, old)
    new = cluster.new_server(instance)
    async with QueryLoad(cluster.broker.url, cases) as load:
        await load.answered(50)
        try:
            new.start()
            await asyncio.to_thread(new.wait_ready)
            await load.answered(50)
            assert await asyncio.to_thread(old.stop) == 0
            await load.answered(50)
            await until(lambda: is_taken_back(state_of(cluster, instance)))
            assert state_of(cluster, instance)["assigned"] == 8
            await until(lambda: instance in routed(cluster))
        finally:
            assert await asyncio.to_thread(new.stop) == 0
    print(load.tally)
    assert (load.tally.wrong, load.tally.examples) == ([], [])
