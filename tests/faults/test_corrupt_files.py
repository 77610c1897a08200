"""Segment files rot while a server is down, or were never right; queries go on."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.load import QueryLoad
from tests.support.processes import ClusterProcesses
from tests.support.sample import ORDERS

from merlot.testing.patience import until

pytestmark = pytest.mark.cluster


def truncate(data: bytes) -> bytes:
    return data[:-1000]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


def change_version(data: bytes) -> bytes:
    return data[:4] + b"\xff\xff\xff\xff" + data[8:]


DAMAGES: tuple[Callable[[bytes], bytes], ...] = (truncate, flip, change_version, lambda _: b"")


async def until_loaded(cluster: ClusterProcesses, number: int, num_segments: int) -> None:
    await until(lambda: len(cluster.servers[number].get("/tables")[ORDERS]["loaded"]) == num_segments)


async def test_files_that_rotted_are_set_aside_and_fetched_again_while_queries_go_on(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    async with QueryLoad(cluster.broker.url, cases) as load:
        await load.answered(50)
        await asyncio.to_thread(cluster.servers[0].kill)
        files = sorted((cluster.server_dir(0) / "segments" / ORDERS).iterdir())
        for number, file in enumerate(files):
            file.write_bytes(DAMAGES[number % len(DAMAGES)](file.read_bytes()))
        cluster.servers[0].start()
        await asyncio.to_thread(cluster.servers[0].wait_ready)
        await until_loaded(cluster, 0, len(files))
        await asyncio.to_thread(cluster.wait_served, ORDERS, 800, 2)
        await load.answered(50)
        # From here on the mended server answers alone.
        await asyncio.to_thread(cluster.servers[1].stop)
        await load.answered(50)
    assert (load.tally.wrong, load.tally.examples) == ([], [])
    assert len(list((cluster.server_dir(0) / "quarantine").iterdir())) >= len(files)


async def test_a_deep_store_gone_bad_takes_nothing_from_what_is_served(
    cluster: ClusterProcesses, cases: Mapping[str, list[list[Any]]]
) -> None:
    """Both the server's and the deep store's copies are damaged: one replica cannot mend itself, the other serves."""
    stored = sorted(Path(cluster.deep_store_uri, ORDERS).glob("*.mseg"))
    async with QueryLoad(cluster.broker.url, cases) as load:
        await load.answered(20)
        await asyncio.to_thread(cluster.servers[0].kill)
        sound = {file: file.read_bytes() for file in stored}
        for number, file in enumerate(stored):
            file.write_bytes(DAMAGES[number % len(DAMAGES)](sound[file]))
            (cluster.server_dir(0) / "segments" / ORDERS / file.name).write_bytes(b"MSEG?")
        cluster.servers[0].start()
        await asyncio.to_thread(cluster.servers[0].wait_ready)
        await load.answered(100)
        await until(lambda: len(cluster.servers[0].get("/tables")[ORDERS]["errors"]) == len(stored))
        for file in stored:
            file.write_bytes(sound[file])
        await until_loaded(cluster, 0, len(stored))
    assert (load.tally.wrong, load.tally.examples) == ([], [])
