"""Replacements at 20,000 segments and 1,000 entries over ZooKeeper: `python -m tests.bench.lineage`.

The peer is Pinot's layout over the same client: one node per table that lists every entry with all of its segments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import report
from tests.bench.metastore import SERVER, TABLE, record
from tests.bench.report import Case

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import RoutingInputs, build
from merlot.cluster import paths
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import Replacement
from merlot.cluster.records import LineageRecord, RootRecord, SegmentRecord
from merlot.cluster.segments.mutations import (
    Assign,
    EndReplacement,
    ForgetReplacement,
    Mutation,
    PutOutputs,
    StartReplacement,
)
from merlot.cluster.segments.publish import PublishRequest, publish, publish_request
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView, load, load_root
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot_spark.zookeeper import ZooKeeper

PEER = "one node"
Sessions = Callable[[str], Metastore]
NUM_ENDS = 15


def output(number: int) -> SegmentRecord:
    return record(number).model_copy(update={"name": f"merged_{number}", "url": f"s3://bucket/deep/{TABLE}/m{number}"})


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """Milliseconds of CPU in this process, which is writer and reader, and on the clock."""

    cpu_ms: float
    wall_ms: float

    def __str__(self) -> str:
        return f"{self.cpu_ms:.1f} ms of CPU, {self.wall_ms:.1f} ms"

    @staticmethod
    def now() -> Cost:
        return Cost(time.process_time() * 1000, time.perf_counter() * 1000)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.cpu_ms - other.cpu_ms, self.wall_ms - other.wall_ms)


def least(costs: Iterable[Cost]) -> Cost:
    """Each figure's minimum: the others tell of the machine."""
    found = list(costs)
    return Cost(min(one.cpu_ms for one in found), min(one.wall_ms for one in found))


class Ours:
    """State in the root, names beside."""

    def __init__(self, sessions: Sessions, num_segments: int) -> None:
        self.writer, self.reader = sessions("ours"), sessions("ours")
        self.writer.create(paths.segments_root(TABLE), RootRecord().to_bytes())
        publish(self.writer, TABLE, [record(number) for number in range(num_segments)], publish_id="all")
        # Kept by the writer as by a controller, by the reader as by a broker: what does not change is not read again.
        self.written = mutate(self.writer, TABLE, lambda view: [Assign(dict.fromkeys(view.segments, (SERVER,)))])
        self.seen = load(self.reader, TABLE)

    def begin(self, number: int, size: int) -> Cost:
        """One entry of `size` inputs and one output, up to its end; what the start cost."""
        inputs = [record(place).key for place in range(number * size, (number + 1) * size)]
        outputs = (f"merged_{number}",)
        replacement = Replacement(segments_from=inputs, segments_to=outputs, entry=f"{number:032x}")
        start = Cost.now()
        entry = replacements.start_replacement(self.writer, TABLE, replacement)
        cost = Cost.now() - start
        replacements.put_outputs(self.writer, TABLE, entry, [output(number)])
        return cost

    def complete(self, numbers: range, size: int) -> None:
        """Entries from their start to their end, in one write."""
        mutations: list[Mutation] = []
        for number in numbers:
            entry, made = f"{number:032x}", output(number)
            names = tuple(record(place).name for place in range(number * size, (number + 1) * size))
            details = LineageRecord(created_ms=0, segments_from=names, segments_to=(made.name,))
            start = StartReplacement(
                entry=entry, segments_from=dict.fromkeys(names), segments_to=details.segments_to, now_ms=0
            )
            mutations += [start, PutOutputs(entry, (made,)), EndReplacement(entry=entry, details=details, now_ms=0)]
        self.written = mutate(self.writer, TABLE, lambda _: mutations, previous=self.written)

    def end(self, number: int) -> None:
        replacements.end_replacement(self.writer, TABLE, f"{number:032x}")

    def end_and_see(self, number: int) -> Cost:
        """From the end until a reader that watches has the new view."""
        return self._see(lambda: self.end(number), f"merged_{number}")

    def publish_and_see(self, number: int) -> Cost:
        new = record(number).model_copy(update={"name": f"new_{number}"})
        request = PublishRequest(records=(new,))
        return self._see(lambda: publish_request(self.writer, TABLE, request, previous=self.written), new.name)

    def _see(self, act: Callable[[], object], name: str) -> Cost:
        self.written, self.seen = load(self.writer, TABLE, self.written), load(self.reader, TABLE, self.seen)
        changed = threading.Event()
        watch = self.reader.watch(paths.segments_root(TABLE), changed.set)
        start = Cost.now()
        act()
        assert changed.wait(60)
        self.seen = load(self.reader, TABLE, self.seen)
        assert name in self.seen.visible
        cost = Cost.now() - start
        watch.cancel()
        return cost

    def root_bytes(self) -> int:
        node = self.writer.get(paths.segments_root(TABLE))
        assert node is not None
        return len(node.data)


class OneNode:
    """All entries with all names in a node of their own, beside segments that know nothing of them."""

    def __init__(self, sessions: Sessions, num_segments: int) -> None:
        self.writer, self.reader = sessions("one"), sessions("one")
        self._names = [record(number).name for number in range(num_segments)]
        self.writer.create("/LINEAGE/t", b"{}")

    def fill(self, num_entries: int, size: int) -> None:
        entries = {
            f"{number:032x}": [
                [record(place).name for place in range(number * size, (number + 1) * size)],
                [f"merged_{number}"],
                "COMPLETED" if number < num_entries - NUM_ENDS else "IN_PROGRESS",
                0,
            ]
            for number in range(num_entries)
        }
        self.writer.put("/LINEAGE/t", json.dumps(entries).encode(), 0)

    def end_and_see(self, number: int) -> Cost:
        changed = threading.Event()
        watch = self.reader.watch("/LINEAGE/t", changed.set)
        start = Cost.now()
        node = self.writer.get("/LINEAGE/t")
        assert node is not None
        entries = json.loads(node.data)
        entries[f"{number:032x}"][2] = "COMPLETED"
        self.writer.put("/LINEAGE/t", json.dumps(entries).encode(), node.version)
        assert changed.wait(60)
        seen = self.reader.get("/LINEAGE/t")
        assert seen is not None
        assert not set(entries[f"{number:032x}"][0]) & set(self._visible(seen.data))
        cost = Cost.now() - start
        watch.cancel()
        return cost

    def _visible(self, data: bytes) -> list[str]:
        """What a reader makes of it."""
        entries = json.loads(data).values()
        hidden = {
            name for inputs, outputs, state, _ in entries for name in (inputs if state == "COMPLETED" else outputs)
        }
        return [name for name in self._names if name not in hidden]

    def node_bytes(self) -> int:
        node = self.writer.get("/LINEAGE/t")
        assert node is not None
        return len(node.data)


@contextlib.contextmanager
def zookeeper(folder: Path) -> Iterator[Sessions]:
    with ZooKeeper(folder) as server:
        yield lambda chroot: ZooKeeperMetastore(f"{server.hosts}/{chroot}")


@contextlib.contextmanager
def one_process(folder: Path) -> Iterator[Sessions]:
    """Without ZooKeeper's own work and the network's: what the client's side takes."""
    stores: dict[str, SqliteMetastore] = {}

    def session(chroot: str) -> Metastore:
        if chroot not in stores:
            stores[chroot] = SqliteMetastore(folder / f"{chroot}.db")
        return stores[chroot].session()

    yield session
    for store in stores.values():
        store.close()


def measure(
    num_segments: int, num_entries: int, backend: Callable[[Path], AbstractContextManager[Sessions]]
) -> list[Case]:
    replacements.wait_until_loaded = lambda *_: None  # there are no servers
    size = num_segments // num_entries
    with tempfile.TemporaryDirectory() as folder, backend(Path(folder)) as sessions:
        ours, one = Ours(sessions, num_segments), OneNode(sessions, num_segments)
        empty = ours.root_bytes(), least(ours.publish_and_see(number) for number in range(10))
        first = num_entries - NUM_ENDS
        for number in range(0, first, 250):
            ours.complete(range(number, min(first, number + 250)), size)
        starts = least(ours.begin(number, size) for number in range(first, num_entries))
        one.fill(num_entries, size)
        ends = [least(it.end_and_see(number) for number in range(first, num_entries)) for it in (ours, one)]
        full = ours.root_bytes(), least(ours.publish_and_see(number) for number in range(10, 20))
        print(f"root without entries {empty[0]:,} bytes, with {num_entries:,} {full[0]:,} bytes")
        print(f"publish of one segment until seen: {empty[1]} without entries, {full[1]} with them")
        print(f"start of an entry of {size} segments: {starts}")
        sizes = ours.root_bytes(), one.node_bytes()
        _print_times(ours)
        for it in (ours, one):
            it.writer.close()
            it.reader.close()
    return [
        Case("end until a reader has it", "ms", ends[0].wall_ms, PEER, ends[1].wall_ms),
        Case("the same, CPU of writer and reader", "ms", ends[0].cpu_ms, PEER, ends[1].cpu_ms),
        Case("bytes that an end rewrites", "bytes", float(sizes[0]), PEER, float(sizes[1])),
    ]


def cpu_ms(act: Callable[[], object]) -> float:
    """The least of some runs."""
    times = []
    for _ in range(5):
        start = time.process_time()
        act()
        times.append((time.process_time() - start) * 1000)
    return min(times)


def _print_times(ours: Ours) -> None:
    parse = cpu_ms(lambda: load_root(ours.reader, TABLE))
    view = load(ours.reader, TABLE)
    filtered = cpu_ms(lambda: len(TableView(view.table, view.root, 0, view.buckets).visible))
    held = frozenset(str(one.key) for one in view.segments.values())
    standings = {SERVER: ServerStanding.PREFERRED}
    inputs = RoutingInputs(view=view, reports={SERVER: held}, standings=standings, now_ms=1 << 60)
    snapshot = build(inputs)
    routed = cpu_ms(lambda: build(inputs, snapshot))
    start = time.process_time()
    entries = replacements.list_entries(ours.reader, TABLE)
    listed = (time.process_time() - start) * 1000
    start = time.process_time()
    mutate(ours.writer, TABLE, lambda view: [ForgetReplacement(entry) for entry in list(view.lineage)[:100]])
    forgotten = (time.process_time() - start) * 1000
    print(f"read the root {parse:.1f} ms, visible of {len(view.segments):,} {filtered:.1f} ms, routes {routed:.1f} ms")
    print(
        f"list {len(entries):,} entries {listed:.0f} ms, clean up 100 entries in one write {forgotten:.0f} ms, of CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=20_000)
    parser.add_argument("--entries", type=int, default=1_000)
    parser.add_argument("--in-process", action="store_true", help="over SQLite: CPU alone is comparable")
    options = parser.parse_args()
    cases = measure(options.segments, options.entries, one_process if options.in_process else zookeeper)
    report.publish("lineage", f"Replacements: {options.segments:,} segments, {options.entries:,} entries", cases)


if __name__ == "__main__":
    main()
