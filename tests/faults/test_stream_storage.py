"""Rows come in while the disk is full, or the deep store is lost or hangs: they are served, and none is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.events import COUNTS, EventFiles, events_manifest
from tests.support.faulty_s3 import FaultyS3
from tests.support.processes import can_mount, resize_disk, small_disk

from merlot.cluster.consuming.machine import Limits
from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.server.realtime import partition
from merlot.testing.patience import PATIENCE_S

FLUSH_ROWS = 500
POLL_S = 0.02


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "Limits", partial(Limits, max_retry_ms=500))


class Consuming:
    """A node that takes the events of a folder."""

    def __init__(self, session: aiohttp.ClientSession, files: EventFiles) -> None:
        self._session = session
        self.files = files

    async def call(self, method: str, path: str, body: str | None = None) -> Any:
        async with self._session.request(method, path, data=body) as answer:
            assert answer.status == 200, await answer.text()
            return json.loads(await answer.text())

    async def ask(self) -> Any:
        """A whole answer."""
        return await self.call("POST", "/query/sql", json.dumps({"sql": COUNTS}))

    async def count(self) -> int:
        """How many rows are answered, each once."""
        answer = await self.ask()
        assert answer["exceptions"] == []
        counts = answer["resultTable"]["rows"][0]
        assert counts == counts[:1] * 3
        return int(counts[0])

    async def shows(self, count: int) -> None:
        """Wait for the rows; none is taken back meanwhile."""
        last = 0
        async with asyncio.timeout(PATIENCE_S):
            while (found := await self.count()) != count:
                assert found >= last
                last = found
                await asyncio.sleep(POLL_S)

    async def tells(self, text: str) -> None:
        """Wait until what is told of the partition says so, and goes on saying it."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(3):
                while text not in (told := await self._error()):
                    await asyncio.sleep(POLL_S)
                assert told.startswith("segment not committed yet"), told
                await asyncio.sleep(0.5)

    async def is_quiet(self) -> None:
        """Wait until nothing is wrong any more."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._error():
                await asyncio.sleep(POLL_S)

    async def num_sealed(self) -> int:
        """Segments that are committed."""
        return sum(one["crc"] != 0 for one in (await self.call("GET", "/segments/events/metadata")).values())

    async def _error(self) -> str:
        told = await self.call("GET", "/tables/events/stream")
        replicas = [replica for one in told["partitions"] for replica in one["replicas"].values() if replica]
        return " ".join(str(replica.get("error", "")) for replica in replicas)


@asynccontextmanager
async def consuming(folder: Path, deep_store: str | None = None) -> AsyncIterator[Consuming]:
    node = EmbeddedNode(
        NodeConfig(data_dir=folder, http_port=0, deep_store=deep_store, stream_folders=(str(folder.parent),))
    )
    await node.start()
    headers = {"Content-Type": "application/json"}
    try:
        async with aiohttp.ClientSession(node.url, headers=headers) as session:
            found = Consuming(session, EventFiles(folder / "topic"))
            manifest = events_manifest(found.files.folder, flush_rows=FLUSH_ROWS)
            await found.call("POST", "/apply", manifest.model_dump_json(by_alias=True, exclude_unset=True))
            async with asyncio.timeout(PATIENCE_S):
                while (await found.ask())["exceptions"]:
                    await asyncio.sleep(POLL_S)
            yield found
    finally:
        await node.stop()


async def goes_on_without_sealing(events: Consuming, why: str) -> None:
    """Rows beyond the segment that cannot be sealed are served too, up to a bound."""
    before = events.files.num_events
    events.files.append(FLUSH_ROWS)
    await events.tells(why)
    events.files.append(300)
    await events.shows(before + FLUSH_ROWS + 300)
    for _ in range(20):
        events.files.append(FLUSH_ROWS)
        await asyncio.sleep(0.1)
    await events.tells(why)
    assert await events.count() < events.files.num_events, "what is not sealed takes memory: it is bounded"


async def mends(events: Consuming) -> None:
    """Afterwards all of it is there, and sealed."""
    await events.shows(events.files.num_events)
    await events.is_quiet()
    async with asyncio.timeout(PATIENCE_S):
        while await events.num_sealed() < events.files.num_events // FLUSH_ROWS - 1:
            await asyncio.sleep(POLL_S)
    assert await events.count() == events.files.num_events


async def test_lost_deep_store_holds_up_nothing_but_sealing(s3: FaultyS3, tmp_path: Path) -> None:
    async with consuming(tmp_path, s3.uri(prefix="lost")) as events:
        s3.failures = 1 << 30
        await goes_on_without_sealing(events, "deep store failed")
        assert await events.num_sealed() == 0
        s3.failures = 0
        await mends(events)


async def test_deep_store_that_hangs_holds_up_nothing_but_sealing(s3: FaultyS3, tmp_path: Path) -> None:
    async with consuming(tmp_path, s3.uri(prefix="hangs")) as events:
        s3.answers.clear()
        events.files.append(FLUSH_ROWS)
        await events.shows(FLUSH_ROWS)
        events.files.append(300)
        await events.shows(FLUSH_ROWS + 300)
        assert await events.num_sealed() == 0
        s3.answers.set()
        await mends(events)


@pytest.mark.skipif(not can_mount(), reason="mounting a small tmpfs needs root")
async def test_full_disk_holds_up_nothing_but_sealing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "server", 1 << 20) as disk:
        async with consuming(tmp_path) as events:
            filler = disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(b"x" * 4096):
                    pass
            await goes_on_without_sealing(events, "the disk is full")
            filler.unlink()
            resize_disk(disk, 256 << 20)
            await mends(events)
