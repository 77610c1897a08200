"""A removed segment of a stream comes back from the trash at its place in the partition, and the stream goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
from tests.node.nodes import OwnNode, apply, ask
from tests.node.test_lost_metastore import stream_manifest
from tests.support.events import COUNTS, EventFiles

from merlot.testing.patience import until

OF_FILE = {"url", "crc", "totalDocs", "ranges", "columns"}
OF_STREAM = {"partition", "sequence", "startOffset", "endOffset", "status", "pushTimeMs"}


async def counts(own: OwnNode) -> list[int] | None:
    answer = await ask(own.node, COUNTS)
    return None if answer["exceptions"] else list(answer["resultTable"]["rows"][0])


async def has_each_once(own: OwnNode, num_rows: int) -> None:
    async def is_so() -> bool:
        return await counts(own) == [num_rows] * 3

    await until(is_so)


async def sealed(own: OwnNode) -> dict[str, Any]:
    """Records of sealed segments, in the order of the stream."""
    found = await own.call("GET", "/segments/events/metadata")
    records = {name: one for name, one in found.items() if one["status"] == "DONE"}
    return dict(sorted(records.items(), key=lambda item: item[1]["sequence"]))


async def undelete(own: OwnNode, *names: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{own.node.url}/tables/events/undelete", data=json.dumps(names)) as answer,
    ):
        return answer.status, await answer.json()


async def with_four_sealed(own: OwnNode, files: EventFiles, *, upserts: bool = False) -> dict[str, Any]:
    await apply(own.node, stream_manifest(files.folder, upserts=upserts))
    files.append(430)

    async def are_sealed() -> dict[str, Any] | None:
        found = await sealed(own)
        return found if len(found) == 4 else None

    records = await until(are_sealed)
    assert records is not None
    return records


async def test_each_row_is_there_once_after_a_removal_is_undone_and_the_stream_goes_on(tmp_path: Path) -> None:
    files = EventFiles(tmp_path / "topic")
    async with OwnNode(tmp_path) as own:
        before = await with_four_sealed(own, files)
        await has_each_once(own, 430)
        names = list(before)
        gone = [names[0], names[2], names[3]]
        for name in gone:
            await own.call("DELETE", f"/segments/events/{name}")
        await has_each_once(own, 130)
        files.append(100)
        assert await undelete(own, *gone) == (200, {"restored": gone})
        await has_each_once(own, 530)
        after = await sealed(own)
        for name in gone:
            for field in OF_FILE | OF_STREAM:
                assert after[name].get(field) == before[name].get(field), field
        await own.restart()
        await has_each_once(own, 530)
        files.append(200)
        await has_each_once(own, 730)
        status, told = await undelete(own, names[0])
        assert (status, "exists already" in told["error"]) == (409, True)


async def test_a_segment_whose_offsets_were_consumed_again_does_not_come_back(tmp_path: Path) -> None:
    files = EventFiles(tmp_path / "topic")
    async with OwnNode(tmp_path) as own:
        before = await with_four_sealed(own, files)
        for name in before:
            await own.call("DELETE", f"/segments/events/{name}")
        await own.call("POST", "/tables/events/consumeFrom?offsets=0:0")
        answered = [30 + 430, 430, 30 + 430]

        async def has_read_again() -> bool:
            return await counts(own) == answered

        await until(has_read_again)
        status, told = await undelete(own, next(iter(before)))
        assert (status, "consumed again" in told["error"]) == (409, True)
        assert await counts(own) == answered


async def test_a_segment_of_an_upsert_tables_stream_does_not_come_back(tmp_path: Path) -> None:
    files = EventFiles(tmp_path / "topic")
    async with OwnNode(tmp_path) as own:
        name = next(iter(await with_four_sealed(own, files, upserts=True)))
        await own.call("DELETE", f"/segments/events/{name}")
        status, told = await undelete(own, name)
        assert (status, "upsert table's stream cannot be brought back" in told["error"]) == (400, True)
