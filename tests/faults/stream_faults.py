"""What is done to the processes of a cluster while streams are consumed."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from kafka_brokers import KafkaBrokers

from merlot.testing import dying
from merlot.testing.processes import ClusterProcesses, RoleProcess
from merlot_spark.zookeeper import ZooKeeper

ORDER_S = 8.0
"""How long a server has to come to the step that it shall die at."""


@dataclass(frozen=True)
class Fault:
    """Something that is done to somebody."""

    name: str
    act: Callable[[random.Random], Awaitable[None]]


async def kill(process: RoleProcess, rng: random.Random) -> None:
    await asyncio.to_thread(process.kill)
    await asyncio.sleep(rng.uniform(0, 0.5))
    process.start()
    await asyncio.to_thread(process.wait_ready)


async def freeze(process: RoleProcess, rng: random.Random) -> None:
    process.send(signal.SIGSTOP)
    await asyncio.sleep(rng.uniform(0.2, 2.0))
    process.send(signal.SIGCONT)


async def order(cluster: ClusterProcesses, ordered: dying.Order, rng: random.Random) -> None:
    """One of the servers meets it at the step."""
    number = rng.randrange(len(cluster.servers))
    server, path = cluster.servers[number], dying.give(cluster.server_dir(number), ordered)
    try:
        async with asyncio.timeout(ORDER_S):
            while path.exists():
                await asyncio.sleep(0.01)
    except TimeoutError:
        path.unlink(missing_ok=True)  # the other one does all of it; it is hurt where it is
    await (freeze if ordered.signal == signal.SIGSTOP else kill)(server, rng)


def faults_of_steps(cluster: ClusterProcesses) -> list[Fault]:
    """Death before and after each step of a commit, and at some write; freezes too."""
    skips = {dying.WRITE: 7}
    orders = [
        dying.Order(step, skips.get(step, 0), is_after, number)
        for step in dying.STEPS
        for is_after, number in ((False, signal.SIGKILL), (True, signal.SIGKILL), (step == "upload", signal.SIGSTOP))
    ]
    return [Fault(str(one), partial(order, cluster, one)) for one in orders]


def faults_of(cluster: ClusterProcesses, zookeeper: ZooKeeper, kafka: KafkaBrokers | None) -> list[Fault]:
    """Each kind once."""
    victims = [*cluster.servers, cluster.broker, cluster.controller]
    kinds = {"kill": kill, "freeze": freeze}
    faults = [Fault(f"{kind} {victim.name}", partial(act, victim)) for victim in victims for kind, act in kinds.items()]

    async def restart_zookeeper(_: random.Random) -> None:
        await asyncio.to_thread(zookeeper.restart)

    async def freeze_zookeeper(rng: random.Random) -> None:
        zookeeper.freeze()
        await asyncio.sleep(rng.uniform(0.2, 2.0))
        zookeeper.thaw()

    faults += [Fault("restart zookeeper", restart_zookeeper), Fault("freeze zookeeper", freeze_zookeeper)]
    return faults + faults_of_steps(cluster) + ([] if kafka is None else faults_of_kafka(kafka))


def faults_of_kafka(kafka: KafkaBrokers) -> list[Fault]:
    async def restart_kafka(rng: random.Random) -> None:
        number = rng.choice(kafka.numbers)
        await asyncio.to_thread(kafka.kill, number)
        await asyncio.sleep(rng.uniform(0, 1.0))
        await asyncio.to_thread(kafka.start, number)

    async def freeze_kafka(rng: random.Random) -> None:
        number = rng.choice(kafka.numbers)
        kafka.freeze(number)
        await asyncio.sleep(rng.uniform(0.2, 3.0))
        kafka.thaw(number)

    return [Fault("kill kafka", restart_kafka), Fault("freeze kafka", freeze_kafka)]
