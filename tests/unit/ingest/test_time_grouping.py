"""Rows with times of any format: which segment they go to, what it says of them, and that no pruner loses one."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.time_formats import DAY_MS, instants, read_time, stored_time, time_fields
from tests.unit.broker.test_broker_pruning import snapshot_of
from tests.unit.segment.segment_tables import read_column

from merlot.broker.routing import pruning
from merlot.catalog.publish import record_of
from merlot.ingest.batch import BatchResult, RowSelection, build_from_tables
from merlot.query.plan.binding import bind
from merlot.segment.immutable import ImmutableSegment
from merlot.spec import manifest
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.table import Table
from merlot.sql.parse import parse
from merlot.values.types import TypeName

SOURCE_TYPES = {
    TypeName.INT: pa.int32(),
    TypeName.LONG: pa.int64(),
    TypeName.TIMESTAMP: pa.int64(),
    TypeName.STRING: pa.string(),
}
MOMENTS = st.lists(instants(), min_size=1, max_size=12)


def table_of(time: FieldSpec) -> Table:
    field = time.model_dump(mode="json", by_alias=True, exclude_none=True)
    document = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "flights"},
        "spec": {
            "schema": {"fields": [field]},
            "timeColumn": time.name,
            "routing": {"segmentPruners": ["time", "range"]},
        },
    }
    (table,) = manifest.load_tables(json.dumps(document))
    return table


def built(table: Table, time: FieldSpec, values: list[Any], folder: Path, stretch: RowSelection) -> BatchResult:
    rows = pa.table({time.name: pa.array(values, SOURCE_TYPES[time.type])})
    return build_from_tables(table, [rows], folder, stretch=stretch)


def held(result: BatchResult, time: FieldSpec) -> dict[str, list[Any]]:
    """The values of each segment."""
    found = {}
    for segment in result.segments:
        with ImmutableSegment.open(segment.path) as opened:
            found[segment.metadata.name] = list(read_column(opened, time))
    return found


SECONDS_AS_TEXT = FieldSpec(name="at", type=TypeName.STRING, role=FieldRole.DATE_TIME, format="EPOCH|SECONDS|1")


@settings(max_examples=50)
@example(time=SECONDS_AS_TEXT, moments=[0, 2_000, 1_000_000], asked=(0, 0))
@given(time=time_fields(), moments=MOMENTS, asked=st.tuples(instants(), instants()))
def test_a_segment_is_of_a_day_and_tells_its_times(time: FieldSpec, moments: list[int], asked: tuple[int, int]) -> None:
    values = [stored_time(time, millis) for millis in moments]
    window = (min(asked), max(asked) + 1)
    inside = [value for value in values if window[0] <= read_time(time, value) < window[1]]
    for stretch, wanted in ((RowSelection(), values), (RowSelection(window=window), inside)):
        with tempfile.TemporaryDirectory() as folder:
            result = built(table_of(time), time, values, Path(folder), stretch)
            found = held(result, time)
        assert result.bad.count == 0
        assert Counter(map(str, (value for rows in found.values() for value in rows))) == Counter(map(str, wanted))
        for segment in result.segments:
            metadata = segment.metadata
            times = [read_time(time, value) for value in found[metadata.name]]
            assert (metadata.start_time_ms, metadata.end_time_ms) == (min(times), max(times))
            assert min(times) // DAY_MS == max(times) // DAY_MS


@settings(max_examples=50)
@given(time=time_fields(), moments=MOMENTS, asked=st.lists(instants(), min_size=2))
def test_no_pruner_loses_a_row_by_its_time(time: FieldSpec, moments: list[int], asked: list[int]) -> None:
    table = table_of(time)
    with tempfile.TemporaryDirectory() as folder:
        result = built(table, time, [stored_time(time, millis) for millis in moments], Path(folder), RowSelection())
        found = held(result, time)
    records = [record_of(one.metadata, "", one.size_bytes, one.blooms) for one in result.segments]
    made = pruning.build(snapshot_of(*records), table.spec, None)
    assert made is not None
    low, high = (stored_time(time, millis) for millis in asked[:2])
    few = [stored_time(time, millis) for millis in [*asked, moments[0]]]
    conditions = {
        f"{time.name} = {literal(few[-1])}": lambda value: value == few[-1],
        f"{time.name} <> {literal(low)}": lambda value: value != low,
        f"{time.name} >= {literal(low)} AND {time.name} < {literal(high)}": lambda value: low <= value < high,
        f"NOT {time.name} > {literal(low)}": lambda value: not value > low,
        f"{time.name} IN ({', '.join(map(literal, few))})": lambda value: value in few,
    }
    for condition, is_match in conditions.items():
        where = bind(parse(f"SELECT count(*) FROM flights WHERE {condition}"), table.spec.table_schema, {}).where
        selection = made.select(where, 0, null_handling=False)
        asked_for = {key.partition("@")[0] for route in selection.routes for key in route.segments}
        assert {name for name, values in found.items() if any(map(is_match, values))} <= asked_for


def literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
