"""What to merge next, over 20,000 segments and three levels: `python -m tests.bench.merge_generator`. CPU time.

`theirs` is the bar of 2 s for a pass, and ZooKeeper's limit for a node.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench import report
from tests.bench.report import Case

from merlot.clock import SystemClock
from merlot.cluster.manifests import rollups, tables
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.controller.merges.facts import RollupReader
from merlot.controller.merges.generator import MergeSituation, generate
from merlot.controller.merges.passes import run_pass
from merlot.ids import TableName
from merlot.metastore.protocol import MAX_TRANSACTION_BYTES
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load
from merlot.spec.table import Table
from merlot.spec.tasks import MERGE_LEVEL, MergeRollupTask

TABLE = TableName("events_OFFLINE")
HOUR_MS = 3_600_000
BAR_MS = 2_000.0
MANIFESTS = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: events}
spec:
  timeColumn: at
  schema: {fields: [{name: at, type: TIMESTAMP, role: dateTime}]}
---
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: events}
spec:
  table: events
  levels:
    - {name: hourly, bucketTimePeriod: 1h, bufferTimePeriod: 2h, maxNumParallelBuckets: 100}
    - {name: daily, bucketTimePeriod: 1d, bufferTimePeriod: 1d}
    - {name: monthly, bucketTimePeriod: 1mo, bufferTimePeriod: 7d}
"""
ONE_BUCKET = MANIFESTS.replace("bucketTimePeriod: 1h", "bucketTimePeriod: 120mo").partition("    - {name: daily")[0]


def records(count: int, level: str = "") -> list[SegmentRecord]:
    """Hourly segments that all spill over their bucket's edge."""
    seeded = random.Random(1)
    custom_map = {MERGE_LEVEL: level} if level else {}
    found = []
    for number in range(count):
        start_ms = number * HOUR_MS + seeded.randrange(HOUR_MS)
        name = f"events_2024-01-01T00_{number:06d}"
        found.append(
            SegmentRecord(
                name=name,
                crc=seeded.randrange(1 << 32),
                size_bytes=40_000,
                url=f"s3://bucket/deep/{TABLE}/{name}.mseg",
                total_docs=920,
                start_time_ms=start_ms,
                end_time_ms=start_ms + HOUR_MS,
                custom_map=custom_map,
            )
        )
    return found


def situation(found: Sequence[SegmentRecord], text: str) -> MergeSituation:
    """Long after the last segment."""
    task = load(text)[1]
    assert isinstance(task, MergeRollupTask)
    return MergeSituation(
        rollup="events",
        revision=1,
        table=TABLE,
        spec=task.spec,
        visible={record.name: record for record in found},
        watermarks={},
        now_ms=found[-1].end_time_ms + 4_000 * 24 * HOUR_MS,
    )


def cpu_ms(action: Callable[[], object], repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return best * 1000


def whole_pass_ms(found: Sequence[SegmentRecord]) -> float:
    """Read the table, decide, and write the tasks and the watermarks, over SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteMetastore(Path(folder) / "meta.db")
        table, task = load(MANIFESTS)
        assert isinstance(table, Table)
        assert isinstance(task, MergeRollupTask)
        tables.put_table(store, table)
        rollups.put_rollup(store, task)
        publish(store, TABLE, found)
        reader = RollupReader(store, SystemClock())
        start = time.process_time()
        run_pass(store, reader, reader.get("events"))
        taken = time.process_time() - start
        store.close()
        return taken * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the decision what to merge next.")
    parser.add_argument("--quick", action="store_true", help="2,000 segments instead of 20,000")
    count = 2_000 if parser.parse_args().quick else 20_000
    fresh, merged = records(count), records(count, "monthly")
    largest = max(len(task.to_bytes()) for task in generate(situation(fresh, ONE_BUCKET)).tasks)
    with_work, without = situation(fresh, MANIFESTS), situation(merged, MANIFESTS)
    named = f"{count:,} segments"
    cases = [
        Case(f"pass over {named}, all to merge, CPU", "ms", cpu_ms(lambda: generate(with_work)), "bar", BAR_MS),
        Case(f"pass over {named}, all merged, CPU", "ms", cpu_ms(lambda: generate(without)), "bar", BAR_MS),
        Case(f"read {named}, decide and write, CPU", "ms", whole_pass_ms(fresh), "bar", BAR_MS),
        Case(f"a task that reads {named}", "bytes", largest, "node", float(MAX_TRANSACTION_BYTES)),
    ]
    report.publish("merge_generator", "What to merge next, three levels", cases)


if __name__ == "__main__":
    main()
