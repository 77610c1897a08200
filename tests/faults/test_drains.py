"""Servers are stopped on purpose, one at a time, as a rollout does: no query may notice."""

import asyncio
import json
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from merlot.testing.load import QueryLoad
from merlot.testing.processes import PATIENCE_S, ClusterProcesses, RoleProcess
from merlot.testing.servers import until

pytestmark = pytest.mark.cluster


def call(url: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
        return json.load(answer)


async def eventually(condition: Callable[[], object]) -> None:
    """As long as processes may take to start on a busy machine."""
    await until(condition, PATIENCE_S)


def instance_of(cluster: ClusterProcesses, server: RoleProcess) -> str:
    port = int(server.url.rpartition(":")[2])
    details = call(f"{cluster.controller.url}/instances")["details"]
    return next(one["instanceName"] for one in details if int(one["port"]) == port)


def state_of(cluster: ClusterProcesses, instance: str) -> Mapping[str, Any]:
    body = call(f"{cluster.controller.url}/status")
    return {**body["tables"]["orders"]["servers"].get(instance, {}), **body["instances"].get(instance, {})}


async def test_draining_stopping_and_restarting_each_server_fails_no_query(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    async with QueryLoad(cluster.broker.url, cases) as load:
        for server in cluster.servers:
            await load.answered(50)
            instance = instance_of(cluster, server)
            call(f"{cluster.controller.url}/instances/{instance}/drain", "POST")
            await eventually(lambda instance=instance: state_of(cluster, instance)["drained"])
            routed = call(f"{cluster.broker.url}/debug/routingTable/orders")["orders_OFFLINE"]
            assert instance not in routed
            await load.answered(50)
            assert await asyncio.to_thread(server.stop) == 0
            await load.answered(50)
            server.start()
            await asyncio.to_thread(server.wait_ready)
            await eventually(lambda instance=instance: state_of(cluster, instance).get("loaded") == 8)
            state = state_of(cluster, instance)
            assert (state["live"], state["draining"], state["drained"]) == (True, False, False)
            await load.answered(50)
    print(load.tally)
    assert (load.tally.wrong, load.tally.examples) == ([], [])


async def test_a_mark_that_is_taken_back_brings_the_server_into_routing_again(cluster: ClusterProcesses) -> None:
    instance = instance_of(cluster, cluster.servers[0])
    url = f"{cluster.controller.url}/instances/{instance}"
    call(f"{url}/drain", "POST")
    await eventually(lambda: state_of(cluster, instance)["drained"])
    call(f"{url}/undrain", "POST")
    await eventually(lambda: instance in call(f"{cluster.broker.url}/debug/routingTable/orders")["orders_OFFLINE"])
    assert not state_of(cluster, instance)["draining"]


async def test_a_third_server_joins_and_leaves_again_and_no_query_fails(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    async with QueryLoad(cluster.broker.url, cases) as load:
        third = cluster.new_server()
        try:
            third.start()
            await asyncio.to_thread(third.wait_ready)
            instance = instance_of(cluster, third)
            await eventually(lambda: state_of(cluster, instance).get("loaded", 0) >= 5)
            await eventually(lambda: not call(f"{cluster.controller.url}/status")["tables"]["orders"]["moving"])
            await load.answered(50)
            call(f"{cluster.controller.url}/instances/{instance}/drain?leaving=true", "POST")
            await eventually(lambda: state_of(cluster, instance)["drained"])
            status = call(f"{cluster.controller.url}/status")["tables"]["orders"]
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
            state = state_of(cluster, instance)
            assert (state["live"], state["loaded"], state["assigned"]) == (True, 8, 8)
            routed = call(f"{cluster.broker.url}/debug/routingTable/orders")["orders_OFFLINE"]
            assert instance in routed
        finally:
            assert await asyncio.to_thread(new.stop) == 0
    print(load.tally)
    assert (load.tally.wrong, load.tally.examples) == ([], [])
