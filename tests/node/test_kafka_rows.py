"""A node consumes a topic of Kafka, seals it and goes on after a restart: a real one if MERLOT_KAFKA names it, else
librdkafka's mock cluster."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.contracts.streams.kafka_topics import REAL, KafkaTopic, mock_cluster, mock_topic, real_topic
from tests.node.nodes import SHORT_WAITS
from tests.support.events import COUNTS, events_manifest

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.testing.patience import PATIENCE_S

POLL_S = 0.05


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[EmbeddedNode]:
    node = EmbeddedNode(NodeConfig(data_dir=folder, http_port=0, tuning=SHORT_WAITS))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def manifest(topic: KafkaTopic) -> str:
    table = events_manifest(Path("unused"), flush_rows=400).model_dump(mode="json", by_alias=True, exclude_unset=True)
    stream = {"type": "kafka", "topic": topic.name, "properties": {"bootstrap.servers": topic.servers}}
    table["spec"]["ingestion"]["stream"] |= stream
    return json.dumps(table)


def write(topic: KafkaTopic, first: int, count: int) -> None:
    for partition in range(2):
        numbers = range(first + partition * count // 2, first + (partition + 1) * count // 2)
        values: list[bytes | None] = [json.dumps({"id": number, "city": "x", "n": 1}).encode() for number in numbers]
        topic.write(partition, values)


async def call(node: EmbeddedNode, path: str, body: str, content_type: str) -> Any:
    headers = {"Content-Type": content_type}
    async with aiohttp.ClientSession(node.url) as session, session.post(path, data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def shows(node: EmbeddedNode, count: int) -> None:
    """Wait until each of so many rows is answered, once."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await call(node, "/query/sql", json.dumps({"sql": COUNTS}), "application/json")
            if not answer["exceptions"]:
                row = answer["resultTable"]["rows"][0]
                assert row[0] == row[1] == row[2]
                if row[0] == count:
                    return
            await asyncio.sleep(POLL_S)


async def test_rows_of_a_topic_are_answered_once_and_over_a_restart(tmp_path: Path) -> None:
    with ExitStack() as exits:
        topic = exits.enter_context(real_topic() if REAL else mock_topic(*exits.enter_context(mock_cluster())))
        async with started(tmp_path) as node:
            await call(node, "/apply", manifest(topic), "application/yaml")
            await asyncio.to_thread(write, topic, 0, 1000)
            await shows(node, 1000)
        await asyncio.to_thread(write, topic, 1000, 1000)
        async with started(tmp_path) as node:
            await shows(node, 2000)
            await asyncio.to_thread(write, topic, 2000, 500)
            await shows(node, 2500)


@pytest.mark.cluster
@pytest.mark.skipif(not REAL, reason="MERLOT_KAFKA names no Kafka, and the mock cluster makes no topic anew")
async def test_nothing_is_read_of_a_topic_that_was_made_anew_while_no_server_ran(tmp_path: Path) -> None:
    with ExitStack() as exits:
        topic = exits.enter_context(real_topic())
        async with started(tmp_path) as node:
            await call(node, "/apply", manifest(topic), "application/yaml")
            await asyncio.to_thread(write, topic, 0, 1000)
            await shows(node, 1000)
            await has_recorded_its_topic(node)
        await asyncio.to_thread(topic.make_anew)
        await asyncio.to_thread(write, topic, 5000, 3000)
        async with started(tmp_path) as node:
            for text in ("topic was deleted and made anew", "delete the table and apply it again"):
                await says(node, text)
                sql = "SELECT COUNT(*), MAX(id) FROM events"
                answer = await call(node, "/query/sql", json.dumps({"sql": sql}), "application/json")
                [[count, largest]] = answer["resultTable"]["rows"]
                assert (count <= 1000, largest < 1000) == (True, True), (
                    "rows of the new topic are among those of the old"
                )


async def stream_of(node: EmbeddedNode) -> Any:
    async with aiohttp.ClientSession(node.url) as session, session.get("/tables/events/stream") as answer:
        return await answer.json()


async def has_recorded_its_topic(node: EmbeddedNode) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not (await stream_of(node))["topicId"]:
            await asyncio.sleep(POLL_S)


async def says(node: EmbeddedNode, text: str) -> None:
    """Wait until every partition says that it is not consumed, and why."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await stream_of(node)
            errors = [replica["error"] for one in found["partitions"] for replica in one["replicas"].values()]
            if len(errors) == 2 and all(text in error for error in errors):
                return
            await asyncio.sleep(POLL_S)
