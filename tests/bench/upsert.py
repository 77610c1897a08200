"""The upsert engine on one core: `python -m tests.bench.upsert [--keys 10000000] [--quick]`, beside Pinot's figures.

Upserts per second of CPU time, bytes a key takes (resident memory, at its peak while the index grows and after it), and
what a reader and a commit cost. Each case runs in a process of its own, pinned to one core. Pinot's figures were
measured on the same kind of machine, not in this run; they are of whole servers, ours of the engine alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.bench.report import ROOT, Case, publish
from tests.bench.upsert_modes import dedup, partial

from merlot.spec.schema import TableSchema
from merlot.spec.upserting import UpsertSpec
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules

PEER = "Pinot"
PINOT_ROWS_PER_S = 102_000.0
PINOT_BYTES_PER_KEY = 129.0
BATCH = 20_000
SEGMENT_ROWS = 500_000


def prune(upserts: PartitionUpserts) -> tuple[float, float]:
    """Milliseconds of all that a commit leaves to do, and of the longest part of it, in which no row is read."""
    upserts.committed()
    parts, has_more = [], True
    while has_more:
        started = time.perf_counter()
        has_more = upserts.tidy()
        parts.append(1000 * (time.perf_counter() - started))
    return sum(parts), max(parts)


def rules(key_type: str, **spec: str) -> Rules:
    """Upserts by one key column of a type."""
    fields = [
        {"name": "key", "type": key_type},
        {"name": "at", "type": "LONG", "role": "dateTime", "format": "EPOCH|MILLISECONDS"},
    ]
    schema = TableSchema.model_validate({"fields": fields, "primaryKey": ["key"]})
    return Rules.of(UpsertSpec.model_validate({"mode": "FULL", **spec}), schema, "at")


class Feed:
    """Rows into a partition, batch by batch, a segment after the other."""

    def __init__(self, upserts: PartitionUpserts, key_type: str) -> None:
        self.upserts = upserts
        self._is_text = key_type == "STRING"
        self._num_rows = 0

    def table(self, numbers: np.ndarray) -> pa.Table:
        """Rows of keys by their numbers, later ones with later times."""
        keys = pa.array([f"customer-{number:09d}" for number in numbers.tolist()]) if self._is_text else numbers
        times = np.arange(self._num_rows, self._num_rows + len(numbers))
        self._num_rows += len(numbers)
        return pa.table({"key": keys, "at": times})

    def add(self, rows: pa.Table) -> None:
        """One batch."""
        segment, doc = divmod(self._num_rows - rows.num_rows, SEGMENT_ROWS)
        self.upserts.add(rows, segment, doc)
        self.upserts.publish()


def spread(first: int, count: int) -> np.ndarray:
    """Distinct numbers in no order."""
    return (np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def speed(key_type: str, num_keys: int) -> dict[str, float]:
    """A million keys, five times each: the first time they are new."""
    feed = Feed(PartitionUpserts(rules(key_type)), key_type)
    feed.add(feed.table(spread(0, BATCH)))
    taken = 0.0
    for _ in range(5):
        for first in range(0, num_keys, BATCH):
            rows = feed.table(spread(first, BATCH) if key_type == "LONG" else np.arange(first, first + BATCH))
            started = time.process_time()
            feed.add(rows)
            taken += time.process_time() - started
    return {"rowsPerS": 5 * num_keys / taken}


def resident_bytes(name: str = "VmRSS") -> int:
    """Of this process; VmHWM is the peak since it was last forgotten."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise AssertionError(name)


def memory(num_keys: int) -> dict[str, float]:
    """Keys that are all new, and then expire."""
    warm = Feed(PartitionUpserts(rules("LONG", primaryKeyTtl="1s")), "LONG")
    warm.add(warm.table(spread(0, BATCH)))
    prune(warm.upserts)
    feed = Feed(PartitionUpserts(rules("LONG", primaryKeyTtl=str(num_keys))), "LONG")
    before = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")
    worst = 0.0
    for first in range(0, num_keys, BATCH):
        feed.add(feed.table(spread(first, BATCH)))
        if first >= num_keys // 4 and first % (num_keys // 64) < BATCH:
            worst = max(worst, (resident_bytes("VmHWM") - before) / (first + BATCH))
    after = resident_bytes()
    started = time.perf_counter()
    for _ in range(1000):
        feed.upserts.cut.valid(0)
    cut_us = 1000 * (time.perf_counter() - started)
    peak = resident_bytes("VmHWM")
    for first in range(num_keys, num_keys + num_keys // 2, BATCH):
        feed.add(feed.table(spread(first, BATCH)))
    prune_ms, longest_ms = prune(feed.upserts)
    return {
        "bytesPerKey": (after - before) / num_keys,
        "peakBytesPerKey": (peak - before) / num_keys,
        "worstBytesPerKey": worst,
        "cutUs": cut_us,
        "pruneMs": prune_ms,
        "longestPruneMs": longest_ms,
        "keysAfterPruning": feed.upserts.stats.keys,
        "bytesPerKeyAfterPruning": (resident_bytes() - before) / feed.upserts.stats.keys,
    }


CASES: dict[str, Callable[[int], dict[str, float]]] = {
    "long": lambda keys: speed("LONG", keys),
    "string": lambda keys: speed("STRING", keys),
    "memory": memory,
    "partial": partial,
    "dedup": dedup,
}


def measured(case: str, keys: int) -> dict[str, float]:
    """A case in a process of its own, on one core."""
    command = [sys.executable, "-m", "tests.bench.upsert", "--case", case, "--keys", str(keys)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    print(f"{case} keys={keys:,} {found}")
    return found


def sizes(keys: int) -> list[Case]:
    """What a key takes among so many."""
    held, at = measured("memory", keys), f"{keys // 1_000_000} M keys"
    return [
        Case(f"a key, {at}", "bytes", held["bytesPerKey"], PEER, PINOT_BYTES_PER_KEY),
        Case(f"a key, {at}, peak", "bytes", held["peakBytesPerKey"], PEER, PINOT_BYTES_PER_KEY),
        Case(f"a key, from a quarter of {at} on, worst", "bytes", held["worstBytesPerKey"], PEER, PINOT_BYTES_PER_KEY),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.case:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(json.dumps(CASES[arguments.case](arguments.keys)))
        return
    keys = 1_000_000 if arguments.quick else arguments.keys
    numbers, texts = measured("long", 1_000_000), measured("string", 1_000_000)
    merged, firsts = measured("partial", 200_000), measured("dedup", 200_000)
    cases = [
        Case("full upserts, LONG key", "rows/s of CPU", numbers["rowsPerS"], PEER, PINOT_ROWS_PER_S),
        Case("full upserts, STRING key", "rows/s of CPU", texts["rowsPerS"], PEER, PINOT_ROWS_PER_S),
        Case("rows merged and stored, 7 columns", "rows/s of CPU", merged["rowsPerS"], "none", 0.0),
        Case("rows of first keys, 7 columns", "rows/s of CPU", firsts["rowsPerS"], "none", 0.0),
    ]
    for number in (keys,) if arguments.quick else (keys, 5 * keys):
        cases += sizes(number)
    publish("upsert", "Upserts, engine alone, one core", cases)


if __name__ == "__main__":
    main()
