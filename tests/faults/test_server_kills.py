"""Servers die without a word while queries run."""

import asyncio
import random
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from tests.budget import count, seed
from tests.support.load import QueryLoad
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import ORDERS

pytestmark = pytest.mark.cluster

NUM_KILLS = count("MERLOT_KILLS", quick=2, every=8, fuzz=200)
BOTH_SHARE = 0.2
"""Of the kills but the first: the other replica dies too before the first is back."""


async def restart(server: RoleProcess, rng: random.Random) -> None:
    await asyncio.sleep(rng.uniform(0, 0.3))
    server.start()
    await asyncio.to_thread(server.wait_ready)


async def is_back(cluster: ClusterProcesses, server: RoleProcess) -> None:
    """Started again, and the broker has heard of it: the other one may go."""
    server.start()
    await asyncio.to_thread(server.wait_ready)
    await asyncio.to_thread(cluster.wait_served, ORDERS, 800, 2)


@pytest.mark.timeout(600 + 20 * NUM_KILLS)
async def test_every_answer_is_right_or_says_that_it_is_not_whole(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    rng = random.Random(seed())
    print(f"seed={seed()} (MERLOT_SEED), kills={NUM_KILLS} (MERLOT_KILLS)")
    num_kills = 0
    async with QueryLoad(cluster.broker.url, cases) as load:
        while num_kills < NUM_KILLS:
            await load.answered(rng.randrange(1, 60))
            victims = rng.sample(cluster.servers, 2 if not num_kills or rng.random() < BOTH_SHARE else 1)
            for victim in victims:
                await asyncio.to_thread(victim.kill)
                num_kills += 1
                await load.answered(rng.randrange(1, 20))
            await asyncio.gather(*(restart(victim, rng) for victim in victims))
        # When all are back, nothing is flagged any more, though a broker may take its time to trust them.
        num_flagged = -1
        while load.tally.num_flagged != num_flagged:
            num_flagged = load.tally.num_flagged
            await load.answered(200)
    print(f"kills={num_kills} {load.tally}")
    assert load.tally.wrong == []


async def test_with_two_replicas_the_death_of_one_fails_no_query(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    async with QueryLoad(cluster.broker.url, cases) as load:
        for victim in cluster.servers:
            await load.answered(50)
            await asyncio.to_thread(victim.kill)
            await load.answered(100)
            await is_back(cluster, victim)
    assert (load.tally.wrong, load.tally.examples) == ([], [])


async def test_a_frozen_server_costs_time_and_no_rows(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    victim = cluster.servers[0]
    async with QueryLoad(cluster.broker.url, cases) as load:
        await load.answered(50)
        victim.send(signal.SIGSTOP)
        await asyncio.sleep(1)
        victim.send(signal.SIGCONT)
        await load.answered(200)
    assert load.tally.wrong == []


@pytest.mark.slow("test_drains drains, stops and restarts each server while queries run")
async def test_a_drained_server_fails_no_query(cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]) -> None:
    async with QueryLoad(cluster.broker.url, cases) as load:
        for server in cluster.servers:
            await load.answered(50)
            assert await asyncio.to_thread(server.stop) == 0
            await load.answered(50)
            await is_back(cluster, server)
            await load.answered(50)
    assert (load.tally.wrong, load.tally.examples) == ([], [])
