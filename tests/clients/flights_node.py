"""A table of flights and a node that serves it."""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
from examples.demos.local_node import LocalNode

from merlot.catalog.publish import upload
from merlot.cluster.records import SegmentRecord
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.manifest import load
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, wait_until

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec:
  timeColumn: departed
  schema:
    fields:
      - {name: departed, type: TIMESTAMP, role: dateTime}
      - {name: carrier, type: STRING}
      - {name: origin, type: STRING}
      - {name: stops, type: STRING, multiValue: true}
      - {name: cancelled, type: BOOLEAN}
      - {name: notes, type: JSON}
      - {name: tag, type: BYTES}
      - {name: fare, type: BIG_DECIMAL}
      - {name: delay, type: INT, role: metric}
      - {name: distance, type: LONG, role: metric}
      - {name: load, type: DOUBLE, role: metric}
  indexing:
    sortedColumns: [departed]
    inverted: [carrier]
"""
CARRIERS = ["AA", "B6", "DL", "UA"]
NUM_SEGMENTS = 3
ROWS_PER_SEGMENT = 40
NUM_ROWS = NUM_SEGMENTS * ROWS_PER_SEGMENT
FIRST_DAY = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


def rows_of(day: int) -> pa.Table:
    """The flights of one day: carriers take turns, delays run from -5 up."""
    numbers = range(ROWS_PER_SEGMENT)
    start = FIRST_DAY + dt.timedelta(days=day)
    departed = [(start + dt.timedelta(minutes=number)).replace(tzinfo=None) for number in numbers]
    return pa.table(
        {
            "departed": pa.array(departed, pa.timestamp("ms")),
            "carrier": [CARRIERS[number % len(CARRIERS)] for number in numbers],
            "origin": ["JFK" if number % 2 else "EWR" for number in numbers],
            "stops": [["ORD", "DEN"] if number % 2 else ["ATL"] for number in numbers],
            "cancelled": [number == 0 for number in numbers],
            "notes": [f'{{"gate": {number}}}' for number in numbers],
            "tag": [bytes([number]) for number in numbers],
            "fare": [f"{number}.25" for number in numbers],
            "delay": pa.array([number - 5 for number in numbers], pa.int32()),
            "distance": pa.array([100 * number for number in numbers], pa.int64()),
            "load": [number / 8 for number in numbers],
        }
    )


def build_records(folder: Path, deep_store: DeepStore) -> list[SegmentRecord]:
    """Build the table's segments and put them into the deep store."""
    (table,) = load(MANIFEST)
    spec = table.spec
    folder.mkdir(parents=True)
    built = [
        build_segment(
            BuildRequest(
                name=f"flights_{day}",
                table="flights",
                schema=spec.table_schema,
                indexing=spec.indexing,
                time_column=spec.time_column,
            ),
            rows_of(day),
            folder,
        )
        for day in range(NUM_SEGMENTS)
    ]
    return [upload(deep_store, one, table.name) for one in built]


@dataclass(frozen=True)
class Address:
    """Where a broker answers."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def wait_for_rows(url: str, expected: int) -> None:
    """Until every row can be queried."""

    def are_served() -> bool:
        answer = client.post(f"{url}/query/sql", json={"sql": "SELECT COUNT(*) FROM flights"}).json()
        return not answer["exceptions"] and answer["resultTable"]["rows"] == [[expected]]

    with httpx.Client(timeout=PATIENCE_S) as client:
        wait_until(are_served)


def apply_and_publish(url: str, records: Sequence[SegmentRecord]) -> None:
    """As a user does, over HTTP."""
    with httpx.Client() as client:
        client.post(f"{url}/apply", content=MANIFEST).raise_for_status()
        body = {"publishId": "first", "records": [record.model_dump(mode="json", by_alias=True) for record in records]}
        client.post(f"{url}/segments/flights/publish", json=body).raise_for_status()


@contextmanager
def flights_node(folder: Path) -> Iterator[Address]:
    """An embedded node that serves the flights."""
    node = LocalNode(folder / "data", 0)
    try:
        node.start()
        apply_and_publish(node.url, build_records(folder / "built", DeepStore(str(folder / "data" / "deepstore"))))
        wait_for_rows(node.url, NUM_ROWS)
        yield Address("127.0.0.1", node.port)
    finally:
        node.stop()
