"""Shared state at 20,000 segments over ZooKeeper, beside one znode per segment: `python -m tests.bench.metastore`.

The peer is Pinot's layout over the same client, pipelined as well: a record per znode, the reader getting each.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import broker_load, report
from tests.bench.report import Case

from merlot.cluster import paths
from merlot.cluster.column_types import format_columns
from merlot.cluster.instances.reports import ReportReader, ReportWriter
from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Create
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.values.types import TypeName
from merlot_spark.zookeeper import ZooKeeper

TABLE = TableName("flights_OFFLINE")
SERVER = InstanceId("Server_host_1")
PEER = "znode each"
COLUMNS = format_columns({f"column_{number}": (TypeName.INT, False) for number in range(21)})


def record(number: int, crc: int = 1) -> SegmentRecord:
    name = f"flights_2013-01-01_{number}"
    return SegmentRecord(
        name=name,
        crc=3_000_000_000 + number + crc,
        size_bytes=40_000 + number,
        url=f"s3://bucket/deep/{TABLE}/{name}@{3_000_000_000 + number + crc}.mseg",
        total_docs=920,
        start_time_ms=1_356_998_400_000 + number * 86_400_000,
        end_time_ms=1_357_084_799_000 + number * 86_400_000,
        ranges={"time_hour": (1_356_998_400_000 + number, 1_357_084_799_000 + number)},
        columns=COLUMNS,
    )


def once_ms(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


class Ours:
    """The table's tree."""

    def __init__(self, hosts: str, records: list[SegmentRecord]) -> None:
        self.writer, self.reader = ZooKeeperMetastore(f"{hosts}/ours"), ZooKeeperMetastore(f"{hosts}/ours")
        self.writer.create(paths.segments_root(TABLE), RootRecord().to_bytes())
        self._records = records
        self.view: TableView | None = None

    def publish(self) -> None:
        publish(self.writer, TABLE, self._records, publish_id="all")

    def load(self) -> None:
        self.view = load(self.reader, TABLE)
        assert len(self.view.segments) == len(self._records)

    def change_and_see(self, number: int) -> float:
        """From a writer's decision to the reader's new view, the watch between them."""
        seen = threading.Event()
        written = load(self.writer, TABLE, self.view)
        watch = self.reader.watch(paths.segments_root(TABLE), seen.set)
        name = self._records[number].name
        start = time.perf_counter()
        mutate(self.writer, TABLE, lambda _: [Assign({name: (SERVER,)})], previous=written)
        assert seen.wait(10)
        self.view = load(self.reader, TABLE, self.view)
        assert self.view.assignment[name] == (SERVER,)
        elapsed = (time.perf_counter() - start) * 1000
        watch.cancel()
        return elapsed


class ZnodeEach:
    """A znode per segment and its name as the only index."""

    def __init__(self, hosts: str, records: list[SegmentRecord]) -> None:
        self.writer, self.reader = ZooKeeperMetastore(f"{hosts}/each"), ZooKeeperMetastore(f"{hosts}/each")
        self.writer.create("/SEGMENTS/t", b"")
        self._records = records
        self.loaded: dict[str, SegmentRecord] = {}

    def publish(self) -> None:
        creates = [Create(f"/SEGMENTS/t/{one.name}", one.to_bytes()) for one in self._records]
        for start in range(0, len(creates), 500):
            self.writer.multi(creates[start : start + 500])

    def load(self) -> None:
        names = [f"/SEGMENTS/t/{name}" for name in self.reader.children("/SEGMENTS/t")]
        records = [
            SegmentRecord.from_bytes(node.data, path)
            for path, node in zip(names, self.reader.get_many(names), strict=True)
            if node is not None
        ]
        self.loaded = {one.name: one for one in records}
        assert len(self.loaded) == len(self._records)

    def change_and_see(self, number: int) -> float:
        seen = threading.Event()
        path = f"/SEGMENTS/t/{self._records[number].name}"
        watch = self.reader.watch(path, seen.set)
        start = time.perf_counter()
        node = self.writer.get(path)
        assert node is not None
        self.writer.put(path, record(number, crc=2).to_bytes(), node.version)
        assert seen.wait(10)
        changed = self.reader.get(path)
        assert changed is not None
        self.loaded[self._records[number].name] = SegmentRecord.from_bytes(changed.data, path)
        elapsed = (time.perf_counter() - start) * 1000
        watch.cancel()
        return elapsed


def measure(num_segments: int, repeats: int) -> list[Case]:
    records = [record(number) for number in range(num_segments)]
    with tempfile.TemporaryDirectory() as folder, ZooKeeper(Path(folder)) as server:
        ours, each = Ours(server.hosts, records), ZnodeEach(server.hosts, records)
        publishing = once_ms(ours.publish), once_ms(each.publish)
        loading = report.median_ms(ours.load, repeats), report.median_ms(each.load, repeats)
        changing = [sorted(one.change_and_see(number) for number in range(20))[10] for one in (ours, each)]
        print_reports(ours, [str(one.key) for one in records])
        for one in (ours.writer, ours.reader, each.writer, each.reader):
            one.close()
    return [
        Case(f"publish {num_segments:,} records", "ms", publishing[0], PEER, publishing[1]),
        Case(f"load {num_segments:,} records into a view", "ms", loading[0], PEER, loading[1]),
        Case("change one record until a reader has it", "ms", changing[0], PEER, changing[1]),
    ]


def print_reports(ours: Ours, keys: list[str]) -> None:
    """Reports have no peer: Helix writes one znode per server, which ends at a megabyte."""
    writer, reader = ReportWriter(ours.writer, TABLE, SERVER), ReportReader(ours.reader, TABLE)
    print(f"report {len(keys):,} loaded segments: {once_ms(lambda: writer.write(keys, {})):.1f} ms")
    print(f"read it: {once_ms(reader.read):.1f} ms")
    print(f"report one more: {once_ms(lambda: writer.write([*keys, 'one_more@1'], {})):.1f} ms")
    print(f"read that: {once_ms(reader.read):.1f} ms")


def print_broker_loads(num_segments: int) -> None:
    """A broker's cold start has no peer here: Pinot reads a znode per segment and then builds each pruner anew."""
    for with_blooms in (False, True):
        with tempfile.TemporaryDirectory() as folder, ZooKeeper(Path(folder)) as server:
            found = broker_load.measure(server.hosts, num_segments, with_blooms=with_blooms)
        what = "with a Bloom filter of 1 KB each" if with_blooms else "with bounds and partitions"
        print(
            f"broker starts on {num_segments:,} segments {what}: {found['ms']:,.0f} ms, CPU {found['cpu_ms']:,.0f} ms"
        )
        memory = f"{found['bytes_per_segment']:,.0f} bytes per segment"
        print(f"  {memory}, {found['pruning_bytes_per_segment']:,.0f} of them arrays that pruning reads")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 segments")
    arguments = parser.parse_args()
    num_segments, repeats = (2_000, 3) if arguments.quick else (20_000, 5)
    cases = measure(num_segments, repeats)
    print_broker_loads(num_segments // 2)
    report.publish("metastore", f"Shared state over ZooKeeper, {num_segments:,} segments", cases)


if __name__ == "__main__":
    main()
