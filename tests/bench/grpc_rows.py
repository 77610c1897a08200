"""Ten million rows over gRPC: `python -m tests.bench.grpc_rows [--rows N]`. Linux.

A cluster of processes (ZooKeeper, a controller, two servers, a broker) over ten segments is asked for all of its rows,
in both encodings and every compression. Printed are rows a second, what is sent of each row, and the most memory that
the broker has had resident; the last is to stay below 300 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import grpc.aio
import numpy as np
import orjson
import pyarrow as pa
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
from merlot_spark.zookeeper import ZooKeeper

ROWS, SEGMENTS = 10_000_000, 10
BOUND_BYTES = 300_000_000
COMPRESSIONS = ("ZSTD", "LZ4", "LZ4_FAST", "LZ4_HIGH", "DEFLATE", "GZIP", "SNAPPY", "PASS_THROUGH")
(TABLE,) = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema:
    fields:
      - {name: a, type: LONG}
      - {name: b, type: DOUBLE}
      - {name: c, type: STRING}
""")


def build(folder: Path, deep_store: DeepStore, number: int, num_rows: int) -> SegmentRecord:
    """A segment whose `a` runs on from the one before."""
    ids = np.arange(number * num_rows, (number + 1) * num_rows)
    rows = pa.table({"a": ids, "b": ids / 8, "c": pa.array([f"name {one % 1000}" for one in ids.tolist()])})
    request = BuildRequest(
        name=f"t_{number}",
        table="t",
        schema=TABLE.spec.table_schema,
        indexing=TABLE.spec.indexing,
        time_column=None,
    )
    return upload(deep_store, build_segment(request, rows, folder), offline(TABLE.raw_name))


async def read(port: int, num_rows: int, **metadata: str) -> tuple[int, int, int]:
    """How many rows came, the sum of their first column, and their bytes."""
    count = total = num_bytes = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        sql = f"SELECT a, b, c FROM t LIMIT {num_rows}"
        async for data in grpc_client.submit(channel, sql, queryOptions="timeoutMs=120000", **metadata):
            message = Message.read(data)
            if message.payload.startswith(b"{") and (problems := orjson.loads(message.payload)["exceptions"]):
                raise SystemExit(problems)
            if "rowSize" in message.metadata:
                count += int(message.metadata["rowSize"])
                total += first_column(message)
                num_bytes += len(message.payload)
    return count, total, num_bytes


def first_column(message: Message) -> int:
    """Its sum."""
    content = grpc_client.content_of(message)
    if message.metadata["encoding"] == "ARROW":
        return int(pa.ipc.open_stream(content).read_all().column(0).to_numpy().sum())
    total = place = 0
    while place < len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        total += orjson.loads(content[place + 4 : place + 4 + size])[0]
        place += 4 + size
    return total


def main() -> int:
    """Exit code 1: rows were wrong, or the broker took too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table, and asked for")
    per_segment = parser.parse_args().rows // SEGMENTS
    num_rows = per_segment * SEGMENTS
    is_good = True
    with tempfile.TemporaryDirectory() as name, ZooKeeper(Path(name) / "zookeeper") as zookeeper:
        folder = Path(name)
        with ClusterProcesses(folder / "cluster", f"{zookeeper.hosts}/rows").with_grpc() as cluster:
            records = [build(folder, cluster.deep_store, number, per_segment) for number in range(SEGMENTS)]
            cluster.add_table(TABLE, records)
            print(f"broker at rest: {cluster.broker.peak_bytes / 1e6:.0f} MB")
            port = cluster.broker.port("--grpc-port")
            for encoding, compression in product(("ARROW", "JSON"), COMPRESSIONS):
                started = time.perf_counter()
                *found, num_bytes = asyncio.run(read(port, num_rows, encoding=encoding, compression=compression))
                elapsed_s, peak = time.perf_counter() - started, cluster.broker.peak_bytes
                print(
                    f"{encoding:5} {compression:12}: {num_rows / elapsed_s:9,.0f} rows/s, "
                    f"{num_bytes / num_rows:5.1f} bytes a row, broker at most {peak / 1e6:.0f} MB",
                    flush=True,
                )
                is_good &= found == [num_rows, num_rows * (num_rows - 1) // 2] and peak < BOUND_BYTES
    return not is_good


if __name__ == "__main__":
    sys.exit(main())
