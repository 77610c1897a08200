"""One process takes rows as they come, seals them into segments, and goes on where it was."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.node.nodes import OwnNode, apply
from tests.support.events import COUNTS, EventFiles, events_manifest

from merlot.testing.patience import PATIENCE_S

POLL_S = 0.02


class Events(OwnNode):
    """A node with the table of events."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = EventFiles(folder / "topic", 2)

    async def create(self, flush_rows: int) -> None:
        manifest = events_manifest(self.files.folder, flush_rows=flush_rows)
        text = manifest.model_dump_json(by_alias=True, exclude_unset=True)
        await apply(self.node, text)

    async def counts(self) -> list[float] | None:
        answer = await self.call("POST", "/query/sql", json={"sql": COUNTS})
        if answer["exceptions"]:
            return None
        row: list[float] = answer["resultTable"]["rows"][0]
        return row

    async def segments(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.call("GET", "/segments/events/metadata")
        return found

    async def shows(self, count: int) -> None:
        """Wait until each of so many rows is answered, once."""
        last = 0.0
        async with asyncio.timeout(PATIENCE_S):
            while True:
                counts = await self.counts()
                if counts is not None:
                    assert counts[0] == counts[1] == counts[2]
                    assert counts[0] >= last
                    last = counts[0]
                    if last == count:
                        return
                await asyncio.sleep(POLL_S)


@pytest.fixture
async def events(tmp_path: Path) -> Any:
    async with Events(tmp_path) as started:
        yield started


async def num_sealed(events: Events) -> int:
    return sum(one["crc"] != 0 for one in (await events.segments()).values())


async def test_rows_are_answered_as_they_come_and_sealed_by_their_number(events: Events) -> None:
    await events.create(flush_rows=1000)
    for _ in range(10):
        events.files.append(300, 0)
        events.files.append(200, 1)
        await events.shows(events.files.num_events)
    while await num_sealed(events) < 3:
        await asyncio.sleep(POLL_S)
    await events.shows(5000)


async def test_an_answer_tells_how_fresh_its_consuming_segments_are(events: Events) -> None:
    began_ms = time.time_ns() // 1_000_000
    await events.create(flush_rows=1_000_000)
    events.files.append(300, 0)
    await events.shows(300)

    async def told() -> tuple[int, int]:
        answer = await events.call("POST", "/query/sql", json={"sql": COUNTS})
        return answer["numConsumingSegmentsQueried"], answer["minConsumingFreshnessTimeMs"]

    while (await told())[0] < 2:
        await asyncio.sleep(POLL_S)
    first_ms = (await told())[1]
    assert began_ms <= first_ms <= time.time_ns() // 1_000_000
    events.files.append(300, 1)
    await events.shows(600)
    assert (await told())[1] == first_ms, "partition 0 is as old as it was"


LOOKED_INTO = {
    "": [2, 2, 2],
    "WHERE id >= 300": [2, 1, 1],
    "WHERE mod(n, 2) = 1": [2, 2, 2],
    "WHERE mod(n, 2) = 0": [2, 2, 0],
    "WHERE city = 'nowhere'": [2, 0, 0],
}


async def test_an_answer_tells_how_many_consuming_segments_it_looked_into(events: Events) -> None:
    await events.create(flush_rows=1_000_000)
    events.files.append(300, 0)
    events.files.append(200, 1)
    await events.shows(500)
    told = {}
    for where in LOOKED_INTO:
        answer = await events.call("POST", "/query/sql", json={"sql": f"SELECT count(*), sum(n) FROM events {where}"})
        told[where] = [answer[f"numConsumingSegments{what}"] for what in ("Queried", "Processed", "Matched")]
    assert told == LOOKED_INTO


async def test_segments_that_grow_are_listed_with_their_rows(events: Events) -> None:
    await events.create(flush_rows=1_000_000)
    events.files.append(300, 0)
    events.files.append(200, 1)
    await events.shows(500)
    while sorted(one["totalDocs"] for one in (await events.segments()).values()) != [200, 300]:
        await asyncio.sleep(POLL_S)


async def test_a_restart_neither_loses_nor_doubles_rows(events: Events) -> None:
    await events.create(flush_rows=700)
    for _ in range(3):
        events.files.append(900, 0)
        events.files.append(100, 1)
        await events.shows(events.files.num_events)
        await events.restart()
        await events.shows(events.files.num_events)


async def test_a_pause_commits_what_was_read_and_going_on_reads_the_rest(events: Events) -> None:
    await events.create(flush_rows=1_000_000)
    events.files.append(500, 0)
    await events.shows(500)
    await events.call("POST", "/tables/events/pauseConsumption")
    while [one["status"] for one in (await events.call("GET", "/tables/events/stream"))["partitions"]] != [
        "PAUSED",
        "PAUSED",
    ]:
        await asyncio.sleep(POLL_S)
    events.files.append(500, 1)
    await asyncio.sleep(0.3)
    await events.shows(500)
    await events.call("POST", "/tables/events/resumeConsumption")
    await events.shows(1000)


async def test_a_forced_commit_ends_segments_that_have_rows(events: Events) -> None:
    await events.create(flush_rows=1_000_000)
    events.files.append(500, 0)
    await events.shows(500)
    await events.call("POST", "/tables/events/forceCommit")
    while await num_sealed(events) < 1:
        await asyncio.sleep(POLL_S)
    events.files.append(500, 0)
    await events.shows(1000)


async def test_a_stream_tells_where_it_is(events: Events) -> None:
    await events.create(flush_rows=1_000_000)
    events.files.append(400, 0)
    await events.shows(400)

    async def told() -> list[dict[str, Any]]:
        stream = await events.call("GET", "/tables/events/stream")
        return [replica for one in stream["partitions"] for replica in one["replicas"].values()]

    while [(one["state"], one.get("rows"), one.get("lag")) for one in await told()] != [
        ("CONSUMING", 400, 0),
        ("CONSUMING", 0, 0),
    ]:
        await asyncio.sleep(POLL_S)
