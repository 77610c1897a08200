"""From built segments to published ones, over a real deep store and a real metastore."""

from pathlib import Path

import pyarrow as pa
import pytest

from merlot.catalog.publish import MAX_BLOOM_CHARS, record_of, upload
from merlot.cluster.manifests import tables
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.view import load
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.spec.manifest import load as load_manifest
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.values.types import TypeName

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  timeColumn: at
  indexing: {sortedColumns: [city]}
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: city, type: STRING}
      - {name: tags, type: STRING, multiValue: true}
"""


@pytest.fixture
def table() -> Table:
    return load_manifest(MANIFEST)[0]


def build(table: Table, folder: Path) -> BuiltSegment:
    rows = pa.table(
        {
            "at": pa.array([3000, 1000, 2000], pa.int64()),
            "city": ["Oslo", "Bern", "Rome"],
            "tags": pa.array([["a"], [], ["b", "c"]], pa.list_(pa.string())),
        }
    )
    request = BuildRequest(
        name="trips_0",
        table="trips",
        schema=table.spec.table_schema,
        indexing=table.spec.indexing,
        time_column=table.spec.time_column,
    )
    return build_segment(request, rows, folder)


def test_a_record_says_what_brokers_prune_by_and_servers_load_by(table: Table, tmp_path: Path) -> None:
    built = build(table, tmp_path)
    record = record_of(built.metadata, "file:///d/trips_0", built.size_bytes)
    assert (record.name, record.total_docs, record.crc) == ("trips_0", 3, built.metadata.crc)
    assert (record.start_time_ms, record.end_time_ms) == (1000, 3000)
    assert record.ranges == {"at": (1000, 3000), "city": ("Bern", "Rome")}
    assert record.column_types == {
        "at": (TypeName.TIMESTAMP, False),
        "city": (TypeName.STRING, False),
        "tags": (TypeName.STRING, True),
    }


def test_a_record_has_no_more_filters_than_a_bucket_has_room_for(table: Table, tmp_path: Path) -> None:
    built = build(table, tmp_path)
    filters = {f"c{number}": "x" * 2700 for number in range(130)} | {"last": "x"}
    record = record_of(built.metadata, "", built.size_bytes, filters)
    assert sum(map(len, record.blooms.values())) <= MAX_BLOOM_CHARS
    assert list(record.blooms) == [*(f"c{number}" for number in range(MAX_BLOOM_CHARS // 2700)), "last"]


def test_a_record_bounds_columns_that_happen_to_be_sorted(table: Table, tmp_path: Path) -> None:
    fields = table.spec.table_schema.fields
    numbers = [fields[1].model_copy(update={"name": f"n{place}", "type": TypeName.LONG}) for place in range(10)]
    texts = [fields[1].model_copy(update={"name": name}) for name in ("short", "long")]
    schema = table.spec.table_schema.model_copy(update={"fields": (*fields, *texts, *numbers)})
    rows = pa.table(
        {
            "at": pa.array([3000, 1000, 2000], pa.int64()),
            "city": ["Oslo", "Bern", "Rome"],
            "tags": pa.array([["a"], ["a"], ["a"]], pa.list_(pa.string())),
            "short": ["c", "a", "b"],
            "long": ["c" * 65, "a", "b"],
            **{one.name: pa.array([3, 1, 2 if place else 0], pa.int64()) for place, one in enumerate(numbers)},
        }
    )
    indexing = table.spec.indexing.model_copy(update={"sorted_columns": ("at",)})
    request = BuildRequest(name="x", table="trips", schema=schema, indexing=indexing, time_column="at")
    record = record_of(build_segment(request, rows, tmp_path).metadata, "file:///d/x", 1)
    assert record.ranges["at"] == (1000, 3000)
    assert record.ranges["short"] == ("a", "c")
    assert list(record.ranges) == ["at", "short", *(f"n{place}" for place in range(1, 8))]


def test_an_uploaded_segment_is_published_and_its_file_is_where_the_record_says(
    store: SqliteMetastore, table: Table, tmp_path: Path
) -> None:
    tables.put_table(store, table)
    deep_store = DeepStore(str(tmp_path / "deep"))
    built = build(table, tmp_path)
    for _ in range(2):
        record = upload(deep_store, built, table.name)
        publish(store, table.name, [record])
    view = load(store, table.name)
    assert view.total_docs == 3
    fetched = tmp_path / "fetched.mseg"
    deep_store.fetch(view.segments["trips_0"].url, fetched, expected_size=record.size_bytes)
    assert fetched.read_bytes() == built.path.read_bytes()
    assert record.url.endswith(f"/deep/trips_OFFLINE/trips_0@{built.metadata.crc}.mseg")
