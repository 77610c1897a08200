"""Commits of a stream's segments in a table of 20,000: `python -m tests.bench.stream_commits`.

What a commit costs the one who writes it and one who watches, beside the same record published as a batch's.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.bench import report
from tests.bench.lineage import Cost, least
from tests.bench.metastore import COLUMNS, SERVER, TABLE, record
from tests.bench.report import Case

from merlot.cluster import paths
from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.commits import commit_segment, propose_end
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.transactions import Begin, End, SealedSegment
from merlot.cluster.records import RootRecord
from merlot.cluster.segments.publish import PublishRequest, publish, publish_request
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.metastore.protocol import Create, Op, Put
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot_spark.zookeeper import ZooKeeper

NUM_PARTITIONS = 64
NUM_ROWS = 1_000
PINNED = "{" + ",".join(f'"column_{number}":{{"type":"INT","role":"dimension"}}' for number in range(110)) + "}"
"""Settings of a wide table."""


class Counting(ZooKeeperMetastore):
    """Counts what is written."""

    num_bytes = 0
    num_writes = 0

    def multi(self, ops: Sequence[Op]) -> None:
        super().multi(ops)
        self.num_writes += 1
        self.num_bytes += sum(len(op.data) for op in ops if isinstance(op, Create | Put))


class Bench:
    """A writer, as the replica that seals, and a reader, as a broker."""

    def __init__(self, hosts: str, num_segments: int) -> None:
        self.writer, self.reader = Counting(f"{hosts}/commits"), ZooKeeperMetastore(f"{hosts}/commits")
        self.writer.create(paths.segments_root(TABLE), RootRecord().to_bytes())
        publish(self.writer, TABLE, [record(number) for number in range(num_segments)], publish_id="all")
        mutate(self.writer, TABLE, lambda view: [Assign(dict.fromkeys(view.segments, (SERVER,)))])
        begins = [Begin(partition=number, offset=0, servers=(SERVER,)) for number in range(NUM_PARTITIONS)]
        self.written = mutate(self.writer, TABLE, lambda view: transactions.begin(view, begins, PINNED, 0))
        self.seen = load(self.reader, TABLE)

    def commit(self, partition: int) -> Cost:
        """From the proposal of an end until a reader has the next segment."""
        opened = open_segments(self.written)[partition]
        end = opened.start_offset + NUM_ROWS
        file = record(partition).model_copy(update={"name": opened.name, "columns": COLUMNS})
        sealed = SealedSegment(
            segment=opened.name,
            start_offset=opened.start_offset,
            end_offset=end,
            file=file.model_copy(update={"url": f"s3://bucket/deep/{TABLE}/{opened.name}@{file.crc}.mseg"}),
            sealer=SERVER,
            now_ms=partition,
        )
        start = Cost.now()
        proposed = End(segment=opened.name, offset=end, sealer=SERVER, now_ms=0)
        assert propose_end(self.writer, TABLE, proposed, previous=self.written) is not None
        self.written = commit_segment(self.writer, TABLE, sealed, previous=self.written).view
        self._see(self.written)
        return Cost.now() - start

    def publish(self, number: int) -> Cost:
        """The same for a segment of a batch."""
        new = record(number).model_copy(update={"name": f"new_{number}"})
        start = Cost.now()
        publish_request(self.writer, TABLE, PublishRequest(records=(new,)), previous=self.written)
        self.written = load(self.writer, TABLE, self.written)
        self._see(self.written)
        return Cost.now() - start

    def _see(self, written: TableView) -> None:
        changed = threading.Event()
        watch = self.reader.watch(paths.segments_root(TABLE), changed.set)
        while True:
            self.seen = load(self.reader, TABLE, self.seen)
            if self.seen.epoch >= written.epoch:
                break
            assert changed.wait(60)
            changed.clear()
        assert len(open_segments(self.seen)) == NUM_PARTITIONS
        watch.cancel()

    def count(self, commits: int) -> tuple[Cost, float]:
        """The least cost of some commits, and bytes written by each."""
        before = self.writer.num_bytes
        cost = least(self.commit(number % NUM_PARTITIONS) for number in range(commits))
        return cost, (self.writer.num_bytes - before) / commits


def measure(num_segments: int, num_commits: int) -> list[Case]:
    with tempfile.TemporaryDirectory() as folder, ZooKeeper(Path(folder)) as server:
        bench = Bench(server.hosts, num_segments)
        committed, num_bytes = bench.count(num_commits)
        before = bench.writer.num_bytes
        published = least(bench.publish(number) for number in range(num_commits))
        bytes_published = (bench.writer.num_bytes - before) / num_commits
        bench.writer.close()
        bench.reader.close()
    return [
        Case("end and commit, until a reader has it", "ms", committed.wall_ms, "publish", published.wall_ms),
        Case("the same, CPU of writer and reader", "ms", committed.cpu_ms, "publish", published.cpu_ms),
        Case("bytes written", "bytes", num_bytes, "publish", bytes_published),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=20_000)
    parser.add_argument("--commits", type=int, default=40)
    arguments = parser.parse_args()
    cases = measure(arguments.segments, arguments.commits)
    report.publish("stream_commits", f"Commits of streams: {arguments.segments:,} segments", cases)


if __name__ == "__main__":
    main()
