"""The catalog of a table that consumes a stream, written at each commit: `python -m tests.bench.catalogs`.

What a commit costs the leading controller, in CPU and in bytes for the deep store, by the number of segments of the
table: the whole catalog, and the mean of many commits as the controller writes them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.bench.metastore import COLUMNS
from tests.support.events import events_manifest

from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.transactions import Begin, End, SealedSegment
from merlot.cluster.instances.leases import Lease
from merlot.cluster.manifests import tables
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.transaction import PutSegments, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.controller.cleaning.catalogs import Catalogs
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore
from merlot.store.deepstore import DeepStore
from merlot.testing.clock import FakeClock

NUM_PARTITIONS = 16
NUM_COMMITS = 300
SERVER = InstanceId("Server_a_1")
PINNED = "{" + ",".join(f'"column_{number}":{{"type":"INT","role":"dimension"}}' for number in range(110)) + "}"
NOW_MS = 1_700_000_000_000


class CountingStore(DeepStore):
    """Counts the bytes that are written."""

    num_bytes = 0

    def put(self, source: Path, url: str) -> None:
        """As the deep store's, counted."""
        self.num_bytes += source.stat().st_size
        super().put(source, url)


@dataclass
class Bench:
    """A table whose partitions are begun and sealed in turn."""

    folder: Path
    num_segments: int
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW_MS))

    def __post_init__(self) -> None:
        self.store = SqliteMetastore(self.folder / "meta.sqlite")
        manifest = events_manifest(self.folder / "topic")
        self.record = tables.put_table(self.store, manifest, clock=self.clock)
        self.table, self.spec = self.record.name, manifest.spec
        self.files = CountingStore(str(self.folder / "deep"))
        begins = [Begin(partition=number, offset=0, servers=(SERVER,)) for number in range(NUM_PARTITIONS)]
        mutate(self.store, self.table, lambda view: transactions.begin(view, begins, PINNED, NOW_MS))
        self._fill()
        self.catalogs = Catalogs(self.store, lambda _: self.files, self.clock)
        lease = Lease.acquire(self.store, "bench", "bench", self.clock)
        assert lease is not None
        self.catalogs.lead(lease)
        assert not self.catalogs.is_lost(self.record, self.view())

    def view(self, previous: TableView | None = None) -> TableView:
        """The table as it is."""
        return load(self.store, self.table, previous)

    def _fill(self) -> None:
        """Sealed segments below the open ones, as if they had been consumed."""
        records = []
        for opened in open_segments(self.view()).values():
            for number in range(self.num_segments // NUM_PARTITIONS):
                done = _done(opened, number - self.num_segments, number)
                records.append(done)
        for start in range(0, len(records), 1000):
            mutate(self.store, self.table, lambda _, some=tuple(records[start : start + 1000]): [PutSegments(some)])

    def commit(self, number: int, previous: TableView) -> TableView:
        """Seal the open segment of a partition."""
        opened = open_segments(previous)[number % NUM_PARTITIONS]
        end = opened.start_offset + 1000
        proposed = End(segment=opened.name, offset=end, sealer=SERVER, now_ms=NOW_MS)
        mutate(self.store, self.table, lambda view: transactions.propose_end(view, proposed), previous=previous)
        sealed = SealedSegment(
            segment=opened.name,
            start_offset=opened.start_offset,
            end_offset=end,
            file=_file(opened.name, number),
            sealer=SERVER,
            now_ms=NOW_MS,
        )
        return mutate(self.store, self.table, lambda view: transactions.commit(view, sealed), previous=previous)


def _file(name: str, number: int) -> SegmentRecord:
    return SegmentRecord(
        name=name,
        crc=1_000_000_007 * (number + 1) % 2**32,
        size_bytes=36_000_000 + number,
        url=f"s3://bucket/merlot/events_OFFLINE/{name}@{number}.mseg",
        total_docs=1_000_000,
        start_time_ms=NOW_MS + number * 60_000,
        end_time_ms=NOW_MS + number * 60_000 + 59_999,
        ranges={"at": (NOW_MS + number * 60_000, NOW_MS + number * 60_000 + 59_999)},
        columns=COLUMNS,
    )


def _done(opened: StreamSegmentRecord, sequence: int, number: int) -> StreamSegmentRecord:
    name = f"events__{opened.partition}__{number}__20231114T2213Z.old"
    update = {one: getattr(_file(name, number), one) for one in ("crc", "size_bytes", "url", "total_docs", "columns")}
    update |= {"ranges": _file(name, number).ranges, "name": name, "sequence": sequence, "status": "DONE"}
    update |= {"start_offset": number, "end_offset": number + 1, "pinned": ""}
    return opened.model_copy(update=update)


def _cost(act: Callable[[], None], files: CountingStore) -> tuple[float, int]:
    """CPU milliseconds, and bytes written."""
    before, started = files.num_bytes, time.process_time()
    act()
    return (time.process_time() - started) * 1000, files.num_bytes - before


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, nargs="*", default=[10, 1_000, 10_000])
    sizes: list[int] = parser.parse_args(arguments).segments
    print(f"{'segments':>9} {'whole ms':>9} {'whole KB':>9} {'mean ms':>9} {'mean KB':>9} {'most ms':>9}")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), size)
            view = bench.commit(0, bench.view())
            whole = _cost(partial(bench.catalogs.keep, bench.record, view, bench.spec), bench.files)
            costs = []
            for number in range(1, NUM_COMMITS + 1):
                view = bench.commit(number, view)
                open_segments(view)  # which the controller has looked at by then
                costs.append(_cost(partial(bench.catalogs.keep, bench.record, view, bench.spec), bench.files))
            mean_ms, mean_kb = (sum(one[at] for one in costs) / len(costs) for at in (0, 1))
            most_ms = max(one[0] for one in costs)
            print(
                f"{size:>9,} {whole[0]:>9.1f} {whole[1] / 1000:>9.1f} {mean_ms:>9.2f} {mean_kb / 1000:>9.2f} "
                f"{most_ms:>9.1f}"
            )


if __name__ == "__main__":
    main()
