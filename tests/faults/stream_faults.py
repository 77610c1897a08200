"""What is done to the processes of a cluster while streams are consumed."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.budget import IS_QUICK
from tests.contracts.streams.kafka_brokers import KafkaBrokers
from tests.support import crash_injector
from tests.support.processes import ClusterProcesses, RoleProcess

from merlot.testing.patience import PATIENCE_S
from merlot_spark.zookeeper import ZooKeeper

ORDER_S = 8.0
"""How long servers have until one comes to the step that it shall die at."""
CHOSEN = (
    "kill server-0",
    "freeze server-1",
    "kill broker",
    "kill controller",
    "restart zookeeper",
    "seal 0 after SIGKILL",
    "upload 0 after SIGKILL",
    "commit 0 before SIGKILL",
    "commit 0 after SIGKILL",
    "commit 0 before SIGSTOP",
    "adopt 0 before SIGKILL",
    "kill kafka",
)
"""Those of the quick level: each process once, and each step of a commit."""


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


async def thaw(process: RoleProcess, rng: random.Random) -> None:
    """Let a process go on that freezes itself; it may not have done so yet, and would then stay frozen."""
    async with asyncio.timeout(PATIENCE_S):
        while not process.is_frozen:
            await asyncio.sleep(0.01)
    await asyncio.sleep(rng.uniform(0.2, 2.0))
    process.send(signal.SIGCONT)


def taken_back(path: Path) -> bool:
    """Take an order back; False if the server has met it, which takes the file away first."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


async def order(cluster: ClusterProcesses, ordered: crash_injector.CrashOrder, rng: random.Random) -> None:
    """The server that comes to the step first meets it there; now and then both do."""
    paths = {
        one: crash_injector.give(cluster.server_dir(number), ordered) for number, one in enumerate(cluster.servers)
    }
    with suppress(TimeoutError):  # who does not come to it is hurt where it is
        async with asyncio.timeout(ORDER_S):
            while all(path.exists() for path in paths.values()):
                await asyncio.sleep(0.01)
    met = [server for server, path in paths.items() if not taken_back(path)]
    is_freeze = ordered.signal == signal.SIGSTOP
    for server in met:
        await (thaw if is_freeze else kill)(server, rng)
    if not met:
        await (freeze if is_freeze else kill)(rng.choice(cluster.servers), rng)


def faults_of_steps(cluster: ClusterProcesses) -> list[Fault]:
    """Death before and after each step of a commit, and at some write; freezes too."""
    skips = {crash_injector.WRITE: 7}
    orders = [
        crash_injector.CrashOrder(step, skips.get(step, 0), is_after, number)
        for step in crash_injector.STEPS
        for is_after, number in ((False, signal.SIGKILL), (True, signal.SIGKILL), (step == "upload", signal.SIGSTOP))
    ]
    return [Fault(str(one), partial(order, cluster, one)) for one in orders]


def faults_of(cluster: ClusterProcesses, zookeeper: ZooKeeper, kafka: KafkaBrokers | None) -> list[Fault]:
    """Each kind once; at the quick level, those that are chosen."""
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
    faults += faults_of_steps(cluster) + ([] if kafka is None else faults_of_kafka(kafka))
    return [one for one in faults if one.name in CHOSEN] if IS_QUICK else faults


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
