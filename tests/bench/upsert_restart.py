"""A server's part of an upsert table from sealed files on its disk to the first answer, and from a stop to its end.

`python -m tests.bench.upsert_restart [--quick]`: a partition of 1 million keys in 5 million rows, without and with a
checkpoint, and one of 10 million keys with one; files are opened and checked, as a start does, and nothing but the
process' own start and the stream is left out. Pinot's figure, for 1 million keys, was measured on the same kind of
machine, not in this run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from tests.bench.report import Case, publish

from merlot.clock import SystemClock
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment
from merlot.server.realtime.indexed import IndexDeps
from merlot.server.realtime.snapshot_files import SnapshotFolder
from merlot.server.realtime.snapshots import SnapshotDeps, Snapshots
from merlot.server.realtime.upserts import UpsertListener
from merlot.spec.schema import TableSchema
from merlot.upsert.rules import Rules

PINOT_S = 8.0
"""Restart to queryable with 1 million keys: 8 to 16 s."""
SEGMENT_ROWS = 1_000_000
BATCH = 50_000
SETTINGS = '{"mode":"FULL","snapshot":"ENABLE","snapshotStore":"LOCAL"}'
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "key", "type": "LONG"},
            {"name": "at", "type": "LONG", "role": "dateTime", "format": "EPOCH|MILLISECONDS"},
            {"name": "amount", "type": "LONG", "role": "metric"},
        ],
        "primaryKey": ["key"],
    }
)


class Disk:
    """What is left of a server that has stopped."""

    def __init__(self, folder: Path, num_rows: int, num_keys: int) -> None:
        self._folder = folder
        self.paths: dict[int, Path] = {}
        self.records: dict[int, StreamSegmentRecord] = {}
        self._draw = np.random.default_rng(7)
        for sequence, first in enumerate(range(0, num_rows, SEGMENT_ROWS)):
            self._seal(sequence, first, num_keys)
        self.records[len(self.paths)] = _record(len(self.paths), num_rows)

    def _seal(self, sequence: int, first: int, num_keys: int) -> None:
        rows = ConsumingSegment(BuildRequest(name=f"t__0__{sequence}", table="t", schema=SCHEMA), first)
        for start in range(first, first + SEGMENT_ROWS, BATCH):
            places = np.arange(start, start + BATCH)
            # Every key occurs once in so many rows, in no order.
            keys = (places % num_keys * 7_919_999 + 13) % num_keys
            table = {"key": keys, "at": places, "amount": self._draw.integers(0, 1000, BATCH)}
            rows.append(pa.table(table), places, start + BATCH)
        folder = self._folder / str(sequence)
        folder.mkdir()
        built = rows.seal(folder, SEGMENT_ROWS)
        self.paths[sequence] = built.path
        done = {"crc": built.metadata.key.crc, "status": ConsumingStatus.DONE.value, "total_docs": SEGMENT_ROWS}
        self.records[sequence] = _record(sequence, first).model_copy(update=done)

    def start(self, pool: ThreadPoolExecutor) -> UpsertListener:
        """Open the files, and have all that is asked for before a query is answered."""
        opened = dict(zip(self.paths, pool.map(_open, self.paths.values()), strict=True))
        by_key = {self.records[sequence].key_text: segment for sequence, segment in opened.items()}

        @contextmanager
        def borrow(key: str) -> Iterator[Segment | None]:
            yield by_key.get(key)

        place = SnapshotDeps(
            metastore=cast(Any, None),
            table=cast(Any, "t_REALTIME"),
            partition=0,
            instance=cast(Any, "me"),
            folder=SnapshotFolder(self._folder / "snapshots"),
            store=cast(Any, None),
            clock=SystemClock(),
            executor=pool,
        )
        deps = IndexDeps(
            where="in a benchmark",
            rules_of=lambda record: Rules.of(unpin_upsert(record.upsert), SCHEMA, "at"),
            scan_s_of=lambda _: 0.0,
            borrow=borrow,
            clock=SystemClock(),
            on_change=lambda: None,
            misplaced=lambda _: 0,
            snapshots=Snapshots(place),
        )
        listener = UpsertListener(deps, lambda: self.records)
        assert listener.may_begin()
        return listener

    def forget(self) -> None:
        """Lose the snapshots."""
        SnapshotFolder(self._folder / "snapshots").clear()


def _open(path: Path) -> ImmutableSegment:
    return ImmutableSegment.open(path, verify=True)


def _record(sequence: int, first: int) -> StreamSegmentRecord:
    return StreamSegmentRecord(
        name=f"t__0__{sequence}",
        crc=0,
        size_bytes=0,
        url="",
        total_docs=0,
        partition=0,
        sequence=sequence,
        start_offset=first,
        upsert=SETTINGS,
        status=ConsumingStatus.CONSUMING.value,
    )


def timed(action: Callable[[], UpsertListener]) -> tuple[float, UpsertListener]:
    """Seconds, and what came of it."""
    started = time.perf_counter()
    found = action()
    return time.perf_counter() - started, found


def measured(num_rows: int, num_keys: int) -> tuple[float, float, float]:
    """Seconds of a start without a checkpoint, of a stop that writes one, and of a start with one."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:
        disk = Disk(Path(folder), num_rows, num_keys)
        disk.start(pool).close()  # kernels are compiled, files are in the page cache
        disk.forget()
        replayed, listener = timed(lambda: disk.start(pool))
        before = {number: docs.num_valid for number, docs in listener._rows.index.cut.segments.items()}  # type: ignore[union-attr]
        listener._rows.kept_in = unpin_upsert(SETTINGS).snapshots_in
        stopped = time.perf_counter()
        listener.close()
        stop_s = time.perf_counter() - stopped
        restored, listener = timed(lambda: disk.start(pool))
        after = {number: docs.num_valid for number, docs in listener._rows.index.cut.segments.items()}  # type: ignore[union-attr]
        assert sorted(after.values()) == sorted(before.values())
        assert listener.stats.keys == num_keys
        listener.close()
        return replayed, stop_s, restored


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    replayed, stop_s, restored = measured(5_000_000, 1_000_000)
    cases = [
        Case("start, 1 M keys in 5 M rows, replayed", "s", replayed, "Pinot", PINOT_S),
        Case("start, 1 M keys in 5 M rows, with a checkpoint", "s", restored, "Pinot", PINOT_S),
        Case("stop, 1 M keys in 5 M rows, checkpoint written", "s", stop_s, "Pinot", PINOT_S),
    ]
    if not quick:
        replayed, stop_s, restored = measured(10_000_000, 10_000_000)
        cases += [
            Case("start, 10 M keys, replayed", "s", replayed, "Pinot, 1 M keys", PINOT_S),
            Case("start, 10 M keys, with a checkpoint", "s", restored, "Pinot, 1 M keys", PINOT_S),
            Case("stop, 10 M keys, checkpoint written", "s", stop_s, "Pinot, 1 M keys", PINOT_S),
        ]
    publish("upsert_restart", "An upsert table's partition, from its files to the first answer", cases)


if __name__ == "__main__":
    main()
