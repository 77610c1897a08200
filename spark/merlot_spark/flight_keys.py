"""How many flights a board has to remember, and what that takes, with a time to live and without: counted and drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from merlot_spark.demo import Client
from merlot_spark.line_charts import Panel, Series, line_chart

NAMES: Final = {"flightboard": "without a time to live", "flightboard_day": "time to live of a day"}
"""Tables, and what is said of them."""


@dataclass
class KeyCounts:
    """Keys in memory and their bytes, by the day that the events had reached."""

    keys: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in NAMES})
    memory: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in NAMES})

    def note(self, client: Client, day: float) -> None:
        """Ask each table how many it has now."""
        for name in NAMES:
            told = upserts_of(client, name)
            self.keys[name].append((day, sum(one["keys"] for one in told)))
            self.memory[name].append((day, sum(one["memoryBytes"] for one in told) / 2**20))

    def chart(self) -> str:
        """As SVG."""
        panels = [
            Panel(title, [Series(said, counts[name]) for name, said in NAMES.items()])
            for title, counts in (("primary keys in memory", self.keys), ("memory of the index, MiB", self.memory))
        ]
        return line_chart("Flights of 2013 as upserts: what is remembered", "day of the year", panels)


def upserts_of(client: Client, table: str) -> list[dict[str, Any]]:
    """What each replica tells of its keys."""
    partitions = client.call(f"/tables/{table}/stream")["partitions"]
    return [replica["upsert"] for one in partitions for replica in one["replicas"].values() if replica.get("upsert")]
