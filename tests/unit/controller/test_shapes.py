"""Segments that were built by another manifest than the applied one, brought to a table by each writer there is."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spec import shapes

from merlot.catalog import uploaded
from merlot.catalog.publish import upload
from merlot.cli.client import NodeClient
from merlot.cli.replacement import Replacer
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import PublishRequest
from merlot.controller.service import ControllerService
from merlot.errors import InvalidInputError
from merlot.ingest.batch import BatchResult, build_from_tables
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.shape import ShapeError, shape_of
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot_spark.publish import AppliedTable

DAY_MS = 86_400_000
ROWS = pa.table(
    {
        "at": [DAY_MS * (19_722 + row % 3) + row for row in range(30)],
        "day": [19_722 + row % 3 for row in range(30)],
        "city": [f"city {row}" for row in range(30)],
        "rides": list(range(30)),
    }
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def service(store: SqliteMetastore) -> ControllerService:
    put_table(store, shapes.table())
    return ControllerService(store)


def built(table: Table, folder: Path) -> BatchResult:
    (folder / "out").mkdir(exist_ok=True)
    return build_from_tables(table, [ROWS], folder / "out")


def records_of(table: Table, folder: Path) -> tuple[SegmentRecord, ...]:
    deep = DeepStore(str(folder / "deep"))
    return tuple(upload(deep, one, table.name) for one in built(table, folder).segments)


@pytest.mark.parametrize("case", shapes.DIFFERENT, ids=lambda case: case.path)
def test_no_writer_publishes_rows_of_another_shape(service: ControllerService, folder: Path, case: shapes.Case) -> None:
    other = shapes.table(*case.edits)
    applied = AppliedTable(shapes.table(), deep_store=None)
    with pytest.raises(ShapeError) as told:  # a Spark job, before it builds
        applied.check(other, None)
    assert case.path in str(told.value)
    records = records_of(other, folder)
    with pytest.raises(ShapeError) as told:  # a job that did not ask, or a backfill of a table that changed meanwhile
        service.publish("trips", PublishRequest(records=records, shape=shape_of(other.spec)))
    assert case.path in str(told.value)
    if case.is_in_file:
        spec, deep = shapes.table().spec, str(folder / "uploaded")
        for one in built(other, folder).segments:
            with pytest.raises(InvalidInputError):
                uploaded.accept_upload(one.path, shapes.table().name, spec, deep)
    assert service.view("trips").segments == {}


@pytest.mark.parametrize("is_old", [False, True])
def test_a_backfill_tells_the_shape_of_the_table_that_it_built_by(folder: Path, is_old: bool) -> None:
    table, sent = shapes.table(), []

    class Recorder(NodeClient):
        def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
            return {"manifest": {}} if is_old else {"manifest": {}, "shape": {}}

        def post_json(self, path: str, body: Any) -> Any:
            sent.append((path, body.get("shape")))

    Replacer(Recorder("http://node"), "trips").put("e", records_of(table, folder), shape_of(table.spec))
    assert sent == [("/segments/trips/publish", None if is_old else shape_of(table.spec))]


def test_rows_of_the_tables_own_shape_are_published_by_each(service: ControllerService, folder: Path) -> None:
    table = shapes.table()
    AppliedTable(table, deep_store=str(folder / "deep")).check(table, str(folder / "deep"))
    records = records_of(table, folder)
    done = service.publish("trips", PublishRequest(records=records, shape=shape_of(table.spec)))
    assert sorted(done.published) == sorted(record.name for record in records)
    for one in built(table, folder).segments:
        record = uploaded.accept_upload(one.path, table.name, table.spec, str(folder / "deep"))
        assert record.key in {known.key for known in records}


@pytest.mark.parametrize("type_", ["STRING", "LONG, multiValue: true"])
def test_columns_are_compared_even_if_the_publisher_tells_no_shape(
    service: ControllerService, folder: Path, type_: str
) -> None:
    records = records_of(shapes.table((shapes.RIDES, f"name: rides, type: {type_}")), folder)
    with pytest.raises(ShapeError, match=r"column=rides applied=LONG segment's=(STRING|LONG\[\])"):
        service.publish("trips", PublishRequest(records=records))


def test_segments_from_before_a_column_was_widened_or_added_are_taken(service: ControllerService, folder: Path) -> None:
    older = shapes.table((shapes.RIDES, "name: rides, type: INT"), ("      - {name: day, type: LONG", "      # "))
    records = records_of(older, folder)
    assert len(service.publish("trips", PublishRequest(records=records)).published) == len(records)


def test_a_job_is_told_the_tables_deep_store_before_it_builds(folder: Path) -> None:
    applied = AppliedTable(shapes.table(), deep_store="s3://lake/merlot")
    with pytest.raises(InvalidInputError, match=r"applied=s3://lake/merlot .* give --deep-store s3://lake/merlot"):
        applied.check(shapes.table(), str(folder))
    applied.check(shapes.table(), "s3://lake/merlot/")
