"""Segment files sent to a node, as Pinot's tools send theirs, and the paths that change nothing and say why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.node.nodes import StartNode, apply, ask
from tests.support.sample import orders_manifest, total_amount, upload_orders

from merlot.catalog import uploaded
from merlot.cluster.records import SegmentRecord
from merlot.embedded.node import EmbeddedNode
from merlot.errors import UnavailableError
from merlot.ids import TableName
from merlot.spec.table import TableSpec
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until

UPLOAD = "/v2/segments?tableName=orders&tableType=OFFLINE"


async def with_orders(start_node: StartNode) -> EmbeddedNode:
    """A node with the table, and without rows."""
    node, table = await start_node(), orders_manifest()
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    await apply(node, yaml.safe_dump({"apiVersion": table.api_version, "kind": table.kind, **document}))
    return node


async def files(folder: Path, days: list[int], revision: int = 0) -> list[bytes]:
    """Segment files, built elsewhere."""
    store = DeepStore(str(folder / "elsewhere"))
    records = await asyncio.to_thread(upload_orders, store, days, revision=revision)
    return [Path(record.url.removeprefix("file://")).read_bytes() for record in records]


def form(content: bytes) -> aiohttp.FormData:
    data = aiohttp.FormData()
    data.add_field("segment", content, filename="segment.mseg", content_type="application/octet-stream")
    return data


async def post(node: EmbeddedNode, path: str, data: Any = None, status: int = 200, **headers: str) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{node.url}{path}", data=data, headers=headers) as answer,
    ):
        found = await answer.json()
        assert answer.status == status, found
    if status != 200:
        assert found["code"] == status
    return found["status" if status == 200 else "error"]


async def until_total(node: EmbeddedNode, expected: int) -> None:
    async def is_right() -> bool:
        answer = await ask(node, "SELECT sum(amount) FROM orders")
        return bool(not answer["exceptions"] and answer["resultTable"]["rows"][0][0] == expected)

    await until(is_right)


async def test_rows_of_an_uploaded_file_are_answered_and_replaced_by_name(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = await with_orders(start_node)
    first, second = await files(tmp_path, [0, 1])
    told = await post(node, UPLOAD, form(first))
    assert told.startswith("Successfully uploaded segment: ")
    await post(node, UPLOAD, second, **{"Content-Type": "application/octet-stream"})
    await post(node, UPLOAD, form(first))  # once more, which changes nothing
    await until_total(node, total_amount([0, 1]))
    (newer,) = await files(tmp_path, [0], revision=1)
    assert "exists already" in await post(node, f"{UPLOAD}&allowRefresh=false", form(newer), 409)
    await until_total(node, total_amount([0, 1]))
    await post(node, UPLOAD, form(newer))
    await until_total(node, total_amount([0], revision=1) + total_amount([1]))


async def test_what_is_no_segment_of_the_table_is_refused_and_says_what_to_do(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = await with_orders(start_node)
    (whole,) = await files(tmp_path, [0])
    archive = b"\x1f\x8b" + bytes(600)
    assert "spec.ingestion.batch" in await post(node, UPLOAD, form(archive), 400)
    assert "spec.ingestion.batch" in await post(node, UPLOAD, form(bytes(257) + b"ustar" + bytes(300)), 400)
    assert "no segment file" in await post(node, UPLOAD, form(b"hello"), 400)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    assert "damaged" in await post(node, UPLOAD, form(bytes(damaged)), 400)
    assert "damaged" in await post(node, UPLOAD, form(whole[:-100]), 400)
    assert "no form" in await post(node, UPLOAD, b"--x", 400, **{"Content-Type": "multipart/form-data; boundary=y"})
    await post(node, "/v2/segments?tableName=none", form(whole), 404)
    await post(node, "/v2/segments", form(whole), 400)
    await post(node, "/v2/segments?tableName=orders&tableType=REALTIME", form(whole), 400)
    await post(node, UPLOAD, json.dumps({}), 400, UPLOAD_TYPE="URI", DOWNLOAD_URI="http://10.0.0.1/x")
    await apply(node, yaml.safe_dump(other_table()))
    told = await post(node, "/v2/segments?tableName=others", form(whole), 400)
    assert "expected=others got=orders" in told
    await until_total(node, 0)


def other_table() -> dict[str, Any]:
    document = orders_manifest().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", **document, "metadata": {"name": "others"}}


async def test_whoever_dies_between_file_and_record_publishes_it_the_next_time(
    start_node: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, deaths = uploaded.accept_upload, [True]

    def take_and_die(path: Path, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord:
        record = take(path, table, spec, store_uri)
        if deaths:
            raise UnavailableError(f"died amid it {deaths.pop()}")
        return record

    monkeypatch.setattr(uploaded, "accept_upload", take_and_die)
    node = await with_orders(start_node)
    (whole,) = await files(tmp_path, [0])
    assert "died amid it" in await post(node, UPLOAD, form(whole), 503)
    async with aiohttp.ClientSession() as session, session.get(f"{node.url}/segments/orders") as answer:
        assert await answer.json() == [{"OFFLINE": []}]
    await post(node, UPLOAD, form(whole))
    await until_total(node, total_amount([0]))


async def test_reload_and_reset_say_that_nothing_is_to_be_done_and_ingestion_by_request_is_refused(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = await with_orders(start_node)
    (whole,) = await files(tmp_path, [0])
    name = (await post(node, UPLOAD, form(whole))).split()[3]
    for one in ("reload", "reset"):
        for path in (f"/segments/orders/{one}", f"/segments/orders/{name}/{one}"):
            assert "by themselves" in await post(node, path)
        await post(node, f"/segments/none/{one}", status=404)
        await post(node, f"/segments/orders/none/{one}", status=404)
    await post(node, "/segments/orders/reload?forceDownload=true", status=400)
    for path in ("/ingestFromFile", "/ingestFromURI?sourceURIStr=http://10.0.0.1"):
        assert "spec.ingestion.batch" in await post(node, path, b"a,b", 400)
    await until_total(node, total_amount([0]))
