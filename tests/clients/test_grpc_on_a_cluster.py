"""Many rows over gRPC from a cluster of processes: what the broker holds of them, and how they end before their end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import numpy as np
import pyarrow as pa
import pytest
from tests.node import grpc_client
from tests.node.grpc_client import Message
from tests.support.processes import ClusterProcesses

from merlot.catalog.publish import upload
from merlot.cluster.records import SegmentRecord
from merlot.ids import offline
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.manifest import load_tables
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import wait_until
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster

SEGMENTS, ROWS_PER_SEGMENT = 4, 150_000
NUM_ROWS = SEGMENTS * ROWS_PER_SEGMENT
WIDTH = 200
HELD_BYTES = 80_000_000
"""The rows are 130 MB, and were three times that in a broker that gathers them."""
STILL_S = 3
"""Without a request, servers are taken to be asked no more."""
(TABLE,) = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: wide}
spec:
  replication: 2
  schema:
    fields:
      - {name: id, type: LONG}
      - {name: word, type: STRING}
""")
ALL = f"SELECT id, word FROM wide LIMIT {10 * NUM_ROWS}"


def build(folder: Path, deep_store: DeepStore, number: int) -> SegmentRecord:
    ids = np.arange(ROWS_PER_SEGMENT) + number * ROWS_PER_SEGMENT
    words = pa.array([f"{word:0{WIDTH}d}" for word in range(100)]).take(pa.array(ids % 100))
    request = BuildRequest(
        name=f"wide_{number}",
        table="wide",
        schema=TABLE.spec.table_schema,
        indexing=TABLE.spec.indexing,
        time_column=None,
    )
    return upload(
        deep_store, build_segment(request, pa.table({"id": ids, "word": words}), folder), offline(TABLE.raw_name)
    )


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, shared_zookeeper: ZooKeeper) -> Iterator[ClusterProcesses]:
    """Two servers that both hold all segments."""
    folder = tmp_path_factory.mktemp("cluster")
    with ClusterProcesses(folder, f"{shared_zookeeper.hosts}/grpc-rows").with_grpc() as cluster:
        cluster.add_table(TABLE, [build(folder, cluster.deep_store, number) for number in range(SEGMENTS)])
        yield cluster


@pytest.fixture
def cluster(started: ClusterProcesses) -> ClusterProcesses:
    """All of it running, whatever the test before did."""
    started.mend(offline(TABLE.raw_name), NUM_ROWS)
    return started


class Reading:
    """An answer that is read message by message."""

    def __init__(self, cluster: ClusterProcesses, sql: str, **metadata: str) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{cluster.broker.port('--grpc-port')}")
        # Machines that run tests are busy ones.
        form = {"encoding": "ARROW", "queryOptions": "timeoutMs=60000", **metadata}
        self.call: Any = grpc_client.submit(self._channel, sql, **form)
        self.ids: list[int] = []

    async def __aenter__(self) -> Reading:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def message(self) -> Message | None:
        """None: the answer ended well."""
        data = await self.call.read()
        return None if data is grpc.aio.EOF else Message.read(data)

    async def rows(self, num_rows: int) -> None:
        """Read until so many came, or all."""
        while len(self.ids) < num_rows and (message := await self.message()) is not None:
            if "rowSize" in message.metadata:
                table = pa.ipc.open_stream(grpc_client.content_of(message)).read_all()
                self.ids += table.column(0).to_pylist()
            elif message.payload.startswith(b"{"):
                assert json.loads(message.payload)["exceptions"] == []


def until_idle(cluster: ClusterProcesses) -> None:
    wait_until(lambda: cluster.broker.get("/queries") == {})


async def test_a_broker_holds_a_part_of_the_rows_that_it_sends(cluster: ClusterProcesses) -> None:
    async with Reading(cluster, "SELECT id, word FROM wide LIMIT 1000") as reading:
        await reading.rows(NUM_ROWS)
    before = cluster.broker.peak_bytes
    for form in ({"compression": "LZ4"}, {"compression": "NONE", "blockRowSize": "100000"}):
        async with Reading(cluster, ALL, **form) as reading:
            await reading.rows(NUM_ROWS + 1)
        assert sorted(reading.ids) == list(range(NUM_ROWS))
    assert cluster.broker.peak_bytes - before < HELD_BYTES


@pytest.mark.parametrize(
    ("clauses", "wanted"),
    [
        ("WHERE id % 100 = 7 LIMIT 1000000", range(7, NUM_ROWS, 100)),
        ("WHERE id >= 200000 AND word <> 'x' LIMIT 1000000", range(200_000, NUM_ROWS)),
        ("WHERE id % 600000 < 60000 LIMIT 1000000", range(60_000)),  # ten times as dense as it is on the whole
        ("WHERE id < 0 LIMIT 1000000", range(0)),
    ],
)
async def test_a_filter_keeps_the_rows_that_it_keeps_over_http(
    cluster: ClusterProcesses, clauses: str, wanted: range
) -> None:
    async with Reading(cluster, f"SELECT id, word FROM wide {clauses}") as reading:
        await reading.rows(NUM_ROWS + 1)
    assert sorted(reading.ids) == list(wanted)
    over_http = await asyncio.to_thread(cluster.query, f"SELECT COUNT(*) FROM wide {clauses}")
    assert over_http["resultTable"]["rows"] == [[len(wanted)]]


async def test_rows_that_are_wider_than_pieces_should_be_come_in_smaller_ones(cluster: ClusterProcesses) -> None:
    before = cluster.broker.peak_bytes
    sql = f"SELECT id, '{'x' * 6000}' FROM wide WHERE id % 24 = 0 LIMIT 1000000"
    async with Reading(cluster, sql, compression="LZ4") as reading:
        await reading.rows(NUM_ROWS)
    assert sorted(reading.ids) == list(range(0, NUM_ROWS, 24))
    assert cluster.broker.peak_bytes - before < HELD_BYTES


@pytest.mark.parametrize(("clauses", "num_rows"), [("LIMIT 30001", 30_001), ("LIMIT 590000, 50000", 10_000)])
async def test_limit_and_offset_count_over_all_pieces(cluster: ClusterProcesses, clauses: str, num_rows: int) -> None:
    async with Reading(cluster, f"SELECT id FROM wide {clauses}") as reading:
        await reading.rows(NUM_ROWS)
    assert len(set(reading.ids)) == len(reading.ids) == num_rows


async def test_the_head_tells_before_the_rows_what_the_answer_over_http_tells(cluster: ClusterProcesses) -> None:
    over_http = await asyncio.to_thread(cluster.query, f"SELECT id FROM wide LIMIT {NUM_ROWS}")
    answer = await grpc_client.ask(cluster.broker.port("--grpc-port"), f"SELECT id FROM wide LIMIT {NUM_ROWS}")
    names: tuple[str, ...] = (
        "exceptions",
        "partialResult",
        "numRowsResultSet",
        "numDocsScanned",
        "totalDocs",
        "numServersQueried",
    )
    names += ("numServersResponded", "numEntriesScannedPostFilter", "numSegmentsQueried", "numSegmentsMatched")
    assert {name: answer.head[name] for name in names} == {name: over_http[name] for name in names}
    assert len(answer.rows) == answer.head["numRowsResultSet"] == NUM_ROWS


async def test_another_replica_answers_on_when_a_server_dies_amid_the_rows(cluster: ClusterProcesses) -> None:
    async with Reading(cluster, ALL) as reading:
        await reading.rows(1)
        await asyncio.to_thread(cluster.servers[0].kill)
        await reading.rows(NUM_ROWS + 1)
    assert sorted(reading.ids) == list(range(NUM_ROWS))


async def test_an_answer_never_ends_well_whose_servers_died(cluster: ClusterProcesses) -> None:
    async with Reading(cluster, ALL, compression="NONE") as reading:
        await reading.rows(1)
        for server in cluster.servers:
            await asyncio.to_thread(server.kill)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await reading.rows(NUM_ROWS + 1)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (error.value.details() or "").startswith("427 SERVER_NOT_RESPONDING: 2 servers")
    assert 0 < len(set(reading.ids)) == len(reading.ids) < NUM_ROWS


async def test_servers_are_asked_at_the_pace_of_the_client(cluster: ClusterProcesses) -> None:
    """A client that takes nothing leaves most of the rows with the servers."""
    before = await asyncio.to_thread(_num_asked, cluster)
    async with Reading(cluster, ALL, compression="NONE") as reading:
        await reading.rows(1)
        asked = [before]
        while len(asked) < STILL_S or asked[-1] != asked[-STILL_S]:
            await asyncio.sleep(1)
            asked.append(await asyncio.to_thread(_num_asked, cluster))
        await reading.rows(NUM_ROWS + 1)
    assert sorted(reading.ids) == list(range(NUM_ROWS))
    assert asked[-1] - before < (await asyncio.to_thread(_num_asked, cluster) - before) / 2


async def test_a_query_that_is_cancelled_amid_its_rows_says_so(cluster: ClusterProcesses) -> None:
    async with Reading(cluster, ALL, compression="NONE") as reading:
        await reading.rows(1)
        (number,) = await asyncio.to_thread(cluster.broker.get, "/queries")
        await asyncio.to_thread(httpx.delete, f"{cluster.broker.url}/query/{number}")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await reading.rows(NUM_ROWS + 1)
        assert error.value.code() is grpc.StatusCode.CANCELLED
        assert (error.value.details() or "").startswith("503 QUERY_CANCELLATION")
    await asyncio.to_thread(until_idle, cluster)


async def test_a_client_that_leaves_amid_the_rows_ends_its_query(cluster: ClusterProcesses) -> None:
    async with Reading(cluster, ALL, compression="NONE") as reading:
        await reading.rows(1)
        assert await asyncio.to_thread(cluster.broker.get, "/queries")
        reading.call.cancel()
        await asyncio.to_thread(until_idle, cluster)


def _num_asked(cluster: ClusterProcesses) -> float:
    """Requests for the table that servers have answered."""
    pages = [httpx.get(f"{server.url}/metrics").text.splitlines() for server in cluster.servers]
    mine = 'merlot_server_queries_total{code="0",table="wide_OFFLINE"}'
    return sum(float(line.split()[1]) for page in pages for line in page if line.startswith(mine))
