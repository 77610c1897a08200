"""Table `orders` with a stream that brings the same rows as its batches, day after day."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.sample import order_rows

from merlot.spec.manifest import load_tables
from merlot.spec.table import Table

NUM_PARTITIONS = 2


def hybrid_text(folder: Path, *, selector: str = "balanced", replication: int = 1) -> str:
    """Return the manifest. A segment of the stream has 70 rows, more than the 50 of a partition's day, so segments
    rarely begin with a day."""
    return f"""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: orders}}
spec:
  timeColumn: at
  replication: {replication}
  indexing: {{sortedColumns: [at]}}
  routing: {{segmentPruners: [time], instanceSelector: {selector}}}
  schema:
    fields:
      - {{name: at, type: TIMESTAMP, role: dateTime}}
      - {{name: id, type: LONG}}
      - {{name: city, type: STRING}}
      - {{name: amount, type: LONG, role: metric}}
  ingestion:
    stream: {{type: files, topic: "{folder}", flush: {{rows: 70, age: 1h}}}}
    timeBoundary: {{unit: 1d}}
"""


def hybrid_manifest(folder: Path, *, selector: str = "balanced", replication: int = 1) -> Table:
    """Return the manifest of `hybrid_text` as a model."""
    return load_tables(hybrid_text(folder, selector=selector, replication=replication))[0]


class OrderFiles:
    """Writer of orders, day by day, to the files of a folder. The rows of a day alternate between its partitions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.num_days = 0
        self._files = [folder / str(number) / "orders.json" for number in range(NUM_PARTITIONS)]
        for file in self._files:
            file.parent.mkdir(parents=True)
            file.touch()

    def append(self, num_days: int) -> None:
        """Append the rows of the next days."""
        for _ in range(num_days):
            lines = [json.dumps(row) + "\n" for row in order_rows(self.num_days).to_pylist()]
            self.num_days += 1
            for number, path in enumerate(self._files):
                with path.open("a") as file:
                    file.write("".join(lines[number::NUM_PARTITIONS]))
