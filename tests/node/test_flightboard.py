"""What real flights come to by their events: the same as DuckDB's arg_max over all of them."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import duckdb
import pyarrow as pa
from examples.demos import quickstart_data
from examples.demos.flight_events import KEY, manifests, read_events, write_events
from tests.node.nodes import SHORT_WAITS

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.testing.patience import PATIENCE_S

COLUMNS = (*KEY, "dest", "state", "delay", "happened")
BOARD = f"SELECT {', '.join(COLUMNS)} FROM flightboard ORDER BY {', '.join(KEY)} LIMIT 1000000"


def newest(events: pa.Table) -> list[list[Any]]:
    """By DuckDB: the event that happened last of each flight."""
    rest = ", ".join(f"arg_max({name}, happened)" for name in ("dest", "state", "delay"))
    sql = f"SELECT {', '.join(KEY)}, {rest}, max(happened) FROM events GROUP BY ALL ORDER BY {', '.join(KEY)}"
    with duckdb.connect() as connection:
        connection.register("events", events)
        return [list(row) for row in connection.execute(sql).fetchall()]


async def test_the_board_shows_the_last_event_of_each_flight(tmp_path: Path) -> None:
    events = read_events(quickstart_data.flights_file(tmp_path), num_days=1)
    half, topic = events.num_rows // 2, tmp_path / "topic"
    write_events(events.slice(0, half), topic)
    node = EmbeddedNode(
        NodeConfig(data_dir=tmp_path / "data", http_port=0, stream_folders=(str(tmp_path),), tuning=SHORT_WAITS)
    )
    await node.start()
    try:
        async with aiohttp.ClientSession() as session:

            async def shown() -> list[list[Any]]:
                async with session.post(f"{node.url}/query/sql", json={"sql": BOARD}) as answer:
                    table = (await answer.json()).get("resultTable")
                return [] if table is None else table["rows"]

            async def shows(wanted: list[list[Any]]) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while len(found := await shown()) != len(wanted) or in_ms(found) != wanted:
                        await asyncio.sleep(0.05)

            text = manifests(topic, 300)
            async with session.post(f"{node.url}/apply", data=text) as answer:
                assert answer.status == 200, await answer.text()
            await shows(newest(events.slice(0, half)))
            write_events(events.slice(half), topic)
            await shows(newest(events))
    finally:
        await node.stop()


def in_ms(rows: list[list[Any]]) -> list[list[Any]]:
    """Timestamps as numbers."""
    places = [COLUMNS.index(name) for name in ("departs", "happened")]
    return [[_ms(value) if place in places else value for place, value in enumerate(row)] for row in rows]


def _ms(text: str) -> int:
    return int(pa.scalar(text).cast(pa.timestamp("ms")).cast(pa.int64()).as_py())
