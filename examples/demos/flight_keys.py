"""Count and draw how many flights a board has to remember, and the memory for it, with a time to live and without."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from examples.demos.demo import DemoClient
from examples.demos.line_charts import Panel, Series, line_chart

NAMES: Final = {"flightboard": "without a time to live", "flightboard_day": "time to live of a day"}
"""Tables, and their legends in the chart."""


@dataclass
class KeyCounts:
    """Numbers of keys in memory and their bytes, by the day that the events had reached."""

    keys: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in NAMES})
    memory: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in NAMES})

    def note(self, client: DemoClient, day: float) -> None:
        """Ask each table for its current counts."""
        for name in NAMES:
            reports = upserts_of(client, name)
            self.keys[name].append((day, sum(report["keys"] for report in reports)))
            self.memory[name].append((day, sum(report["memoryBytes"] for report in reports) / 2**20))

    def chart(self) -> str:
        """Return the chart as SVG."""
        panels = [
            Panel(title, [Series(legend, counts[name]) for name, legend in NAMES.items()])
            for title, counts in (("primary keys in memory", self.keys), ("memory of the index, MiB", self.memory))
        ]
        return line_chart("Flights of 2013 as upserts: what is remembered", "day of the year", panels)


def upserts_of(client: DemoClient, table: str) -> list[dict[str, Any]]:
    """Return each replica's report about its keys."""
    partitions = client.call(f"/tables/{table}/stream")["partitions"]
    return [
        replica["upsert"]
        for partition in partitions
        for replica in partition["replicas"].values()
        if replica.get("upsert")
    ]
