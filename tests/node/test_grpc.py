"""Queries over gRPC: the same answers as over HTTP, in blocks."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from tests.node import grpc_client, nodes
from tests.node.nodes import SHORT_WAITS

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.testing.patience import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: things}}
spec:
  schema:
    fields:
      - {{name: id, type: INT}}
      - {{name: big, type: LONG}}
      - {{name: single, type: FLOAT}}
      - {{name: double, type: DOUBLE}}
      - {{name: exact, type: BIG_DECIMAL}}
      - {{name: flag, type: BOOLEAN}}
      - {{name: at, type: TIMESTAMP, role: dateTime}}
      - {{name: word, type: STRING}}
      - {{name: words, type: STRING, multiValue: true}}
      - {{name: numbers, type: DOUBLE, multiValue: true}}
      - {{name: bytes, type: BYTES}}
      - {{name: json, type: JSON}}
  timeColumn: at
  ingestion:
    stream: {{type: files, topic: {topic}}}
"""
COLUMNS = "id, big, single, double, exact, flag, at, word, words, numbers, bytes, json"
EVERYTHING = f"SELECT {COLUMNS} FROM things ORDER BY id LIMIT 1000"
NUM_ROWS = 257


def thing(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "big": (1 << 62) + number,
        "single": number / 10,
        "double": ["NaN", "Infinity", number / 3][min(number, 2)],
        "exact": f"{number}.123456789012345678901",
        "flag": number % 2 == 0,
        "at": 1_700_000_000_000 + number,
        "word": f"w\u00f6rd {number}\n" * (number % 5),
        "words": [f"{number}", "x"],
        "numbers": [0.5, number / 7],
        "bytes": f"{number:04x}",
        "json": json.dumps({"a": number}),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedNode]:
    """With the table of things. Nobody changes it."""
    folder = tmp_path_factory.mktemp("grpc")
    write(folder / "topic" / "0", map(thing, range(NUM_ROWS)))
    node = EmbeddedNode(
        NodeConfig(
            data_dir=folder / "node", http_port=0, grpc_port=0, stream_folders=(str(folder.parent),), tuning=SHORT_WAITS
        )
    )
    await node.start()
    await nodes.apply(node, MANIFEST.format(topic=folder / "topic"))
    await nodes.until_rows(node, "SELECT COUNT(*) FROM things", [[NUM_ROWS]])
    yield node
    await node.stop()


def write(partition: Path, rows: Iterable[dict[str, Any]]) -> None:
    partition.mkdir(parents=True)
    (partition / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def as_arrow(value: Any, type_: str) -> Any:
    """What an ARROW block has for a value of the JSON answer."""
    if type_.startswith(("DOUBLE", "FLOAT")) and isinstance(value, str):
        return float(value)
    return value


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-7) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


async def test_every_encoding_and_compression_brings_the_rows_of_the_answer_over_http(node: EmbeddedNode) -> None:
    wanted = (await nodes.ask(node, EVERYTHING))["resultTable"]
    for compression in (*grpc_client.UNPACKERS, "SNAPPY"):
        for encoding in ("JSON", "ARROW"):
            form = {"compression": compression, "encoding": encoding, "blockRowSize": "100"}
            answer = await grpc_client.ask(node.grpc_port, EVERYTHING, **form)
            schema = wanted["dataSchema"]
            assert (answer.names, answer.types) == (schema["columnNames"], schema["columnDataTypes"])
            assert answer.sizes == [100, 100, 57]
            rows = wanted["rows"]
            if encoding == "ARROW":
                rows = [[as_arrow(*cell) for cell in zip(row, answer.types, strict=True)] for row in rows]
            for row, right in zip(answer.rows, rows, strict=True):
                assert all(map(same, row, right)), (compression, encoding, row, right)


async def test_whoever_asks_this_port_for_segments_reads_what_to_set(node: EmbeddedNode) -> None:
    """Trino and Pinot's Spark connector take it for a server's."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        call = channel.unary_stream("/org.apache.pinot.common.proto.PinotQueryServer/Submit")(b"")
        with pytest.raises(grpc.aio.AioRpcError) as found:
            [message async for message in call]
    assert found.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "pinot.forbid-segment-queries=true" in str(found.value.details())


async def test_the_first_message_tells_what_the_answer_took_without_its_rows(node: EmbeddedNode) -> None:
    answer = await grpc_client.ask(node.grpc_port, "SELECT id FROM things LIMIT 3")
    assert answer.head["exceptions"] == []
    assert answer.head["numRowsResultSet"] == 3
    assert answer.head["numServersQueried"] == answer.head["numServersResponded"] == 1
    assert "resultTable" not in answer.head
    assert answer.sizes == [3]


@pytest.mark.parametrize(
    ("sql", "metadata", "code", "words"),
    [
        ("SELECT FROM", {}, 150, "at least one expression"),
        ("SELECT id FROM nothing", {}, 190, "nothing"),
        ("SELECT id FROM things", {"compression": "ZIP"}, 700, "choose one of ZSTD"),
        ("SELECT id FROM things", {"encoding": "XML"}, 700, "choose one of JSON"),
        ("SELECT id FROM things", {"blockRowSize": "0"}, 700, "blockRowSize"),
        ("SELECT id FROM things", {"blockRowSize": "many"}, 700, "blockRowSize"),
        ("SELECT id FROM things", {"blockRowSize": "0" * 5_000}, 700, "blockRowSize"),
        ("SELECT id FROM things", {"blockRowSize": "1" + "0" * 5_000}, 700, "blockRowSize"),
        ("SELECT id FROM things", {"queryOptions": "timeoutMs=-1"}, 150, "timeoutMs"),
    ],
)
async def test_an_error_is_one_message_with_the_whole_answer(
    node: EmbeddedNode, sql: str, metadata: dict[str, str], code: int, words: str
) -> None:
    answer = await grpc_client.ask(node.grpc_port, sql, **metadata)
    (problem,) = answer.head["exceptions"]
    assert problem["errorCode"] == code
    assert words in problem["message"]


@pytest.mark.parametrize("message", [b"\xff" * 40, b"\x12\x04abc", b"\x12\x02\xff\xff"])
async def test_a_message_that_is_no_request_is_refused_without_a_line_in_the_log(
    node: EmbeddedNode, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            [one async for one in channel.unary_stream(grpc_client.PATH)(message)]
    assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "request is no BrokerRequest" in str(found.value.details())
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


async def test_an_answer_without_rows_is_one_message_with_its_schema(node: EmbeddedNode) -> None:
    answer = await grpc_client.ask(node.grpc_port, "SELECT id, word FROM things WHERE id < 0")
    assert answer.head["resultTable"]["dataSchema"]["columnNames"] == ["id", "word"]
    assert answer.names == []


async def test_constants_and_plans_are_answered(node: EmbeddedNode) -> None:
    assert (await grpc_client.ask(node.grpc_port, "select 1;")).rows == [[1]]
    plan = await grpc_client.ask(node.grpc_port, "EXPLAIN PLAN FOR SELECT id FROM things", encoding="ARROW")
    assert plan.names == ["Operator", "Operator_Id", "Parent_Id"]


async def test_wide_rows_come_in_blocks_that_any_client_takes(node: EmbeddedNode) -> None:
    sql = f"SELECT id, '{'x' * 40_000}' FROM things ORDER BY id LIMIT 1000"
    answer = await grpc_client.ask(node.grpc_port, sql, compression="NONE")
    assert [row[0] for row in answer.rows] == list(range(NUM_ROWS))
    assert max(answer.sizes) * 40_000 < 4 << 20


async def test_a_client_that_hangs_up_ends_its_query(node: EmbeddedNode) -> None:
    sql = "SELECT COUNT(*) FROM things WHERE REGEXP_LIKE(word, '(x+x+)+y')"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        calls = [grpc_client.submit(channel, sql) for _ in range(4)]
        for call in calls:
            call.cancel()
    await asyncio.sleep(0)

    async def is_idle() -> bool:
        running: dict[str, str] = await nodes.call(node, "GET", "/queries")
        return not running

    await until(is_idle)


async def test_clients_learn_the_port_from_the_controller(node: EmbeddedNode) -> None:
    brokers = await nodes.call(node, "GET", "/tables/livebrokers")
    assert [broker["grpcPort"] for known in brokers.values() for broker in known] == [node.grpc_port]


async def test_many_rows_of_a_stream_come_whole(node: EmbeddedNode, tmp_path: Path) -> None:
    """More than are gathered: what servers have of the end of a partition is asked for as one piece."""
    num_rows = 30_000
    for partition in range(2):
        rows = ({"id": number, "at": number} for number in range(partition, num_rows, 2))
        write(tmp_path / f"{partition}", rows)
    await nodes.apply(node, MANIFEST.replace("name: things", "name: many").format(topic=tmp_path))
    await nodes.until_rows(node, "SELECT COUNT(*) FROM many", [[num_rows]])
    answer = await grpc_client.ask(node.grpc_port, "SELECT id, word FROM many LIMIT 1000000")
    assert sorted(row[0] for row in answer.rows) == list(range(num_rows))
    assert answer.head["numRowsResultSet"] == answer.head["totalDocs"] == num_rows
    assert answer.head["numConsumingSegmentsQueried"] == 2
