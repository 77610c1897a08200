"""Table of events that arrive as lines of growing files, and the invariants of its answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from merlot.spec.table import Table

COUNTS = "SELECT count(*), count(DISTINCT id), sum(n) FROM events"
"""Query whose three results are equal if each row is there exactly once."""


def events_manifest(folder: Path, *, flush_rows: int = 1000, replication: int = 1) -> Table:
    """Return a table whose stream is the files of a folder."""
    fields = [
        {"name": "id", "type": "LONG", "role": "dimension"},
        {"name": "city", "type": "STRING", "role": "dimension"},
        {"name": "n", "type": "LONG", "role": "metric"},
    ]
    stream = {"type": "files", "topic": str(folder), "flush": {"rows": flush_rows, "age": "1h"}}
    return Table.model_validate(
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "Table",
            "metadata": {"name": "events"},
            "spec": {"schema": {"fields": fields}, "ingestion": {"stream": stream}, "replication": replication},
        }
    )


def event(number: int) -> str:
    """Return the text of one message."""
    return json.dumps({"id": number, "city": f"city {number % 7}", "n": 1})


class EventFiles:
    """Writer of events to the partitions of a folder; ids begin at 0 and have no gap over all partitions."""

    def __init__(self, folder: Path, num_partitions: int = 1) -> None:
        self.folder = folder
        self.num_events = 0
        self._files: Sequence[Path] = [folder / str(number) / "events.json" for number in range(num_partitions)]
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def append(self, count: int, partition: int = 0) -> None:
        """Append this many events in one write."""
        ids = range(self.num_events, self.num_events + count)
        with self._files[partition].open("a") as file:
            file.write("".join(f"{event(number)}\n" for number in ids))
        self.num_events += count

    def settle(self) -> None:
        """Do nothing: an event is in its file as soon as `append` returns."""
