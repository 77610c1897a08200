"""`segment annotate` against the controller's endpoint, a metastore and a deep store."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from merlot.catalog.publish import upload
from merlot.cli.main import run
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import AnnotationRecord, SegmentRecord
from merlot.cluster.segments.annotate import annotate
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.view import TableView, load
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.manifest import load as load_manifest
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore

Captured = pytest.CaptureFixture[str]
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: visits}
spec:
  timeColumn: at
  indexing: {sortedColumns: [city], noDictionary: [user]}
  partitioning: {columns: {user: {functionName: Modulo, numPartitions: 4}}}
  schema:
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: city, type: STRING}
      - {name: user, type: LONG}
"""
USERS = {"whole": [1, 5, 9], "mixed": [1, 2], "full": [3]}


@pytest.fixture
def table() -> Table:
    return load_manifest(MANIFEST)[0]


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    return tmp_path / "deep"


@pytest.fixture
def filled(node: Any, table: Table, deep: Path) -> Any:
    """A node with three segments, of which `full` alone has pruning info; they were built before partitioning."""
    put_table(node.metastore, table)
    records = [built_record(table, deep, name, users) for name, users in USERS.items()]
    bare = [record.model_copy(update={"ranges": {}, "partitions": {}}) for record in records[:2]]
    publish(node.metastore, table.name, [*bare, records[2]])
    return node


def built_record(table: Table, deep: Path, name: str, users: Sequence[int]) -> SegmentRecord:
    rows = pa.table({"at": list(range(len(users))), "city": [f"c{user}" for user in users], "user": users})
    spec = table.spec
    request = BuildRequest(
        name=name,
        table="visits",
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=spec.time_column,
        partitioning=spec.partitioning if name == "full" else None,
    )
    return upload(DeepStore(str(deep)), build_segment(request, rows, deep.parent), table.name)


def view_of(node: Any, table: Table) -> TableView:
    return load(node.metastore, table.name)


def test_records_are_completed_from_files_and_what_does_not_comply_is_told(
    filled: Any, table: Table, capsys: Captured
) -> None:
    before = view_of(filled, table)
    assert run(["segment", "annotate", "visits"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "visits: 2 segments annotated\n  1 had all there is to tell\n"
    assert "warning: 1 segment not partitioned as declared" in captured.err
    assert "mixed user: rows are of 2 of 4 partitions by Modulo: 1, 2" in captured.err
    after = view_of(filled, table)
    whole, mixed = after.segments["whole"], after.segments["mixed"]
    assert whole.partitions["user"].partitions == (1,)
    assert whole.ranges == {"at": (0, 2), "city": ("c1", "c9"), "user": (1, 9)}
    assert (mixed.partitions, mixed.ranges) == ({}, {"at": (0, 1), "city": ("c1", "c2"), "user": (1, 2)})
    assert after.segments["full"] == before.segments["full"]
    assert {(one.key, one.url) for one in after.segments.values()} == {
        (one.key, one.url) for one in before.segments.values()
    }
    assert after.epoch == before.epoch + 1


def test_annotating_again_changes_nothing(filled: Any, table: Table, capsys: Captured) -> None:
    assert run(["segment", "annotate", "visits"]) == 0
    before = view_of(filled, table)
    capsys.readouterr()
    assert run(["segment", "annotate", "visits", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["annotated"], told["unchanged"], told["complete"]) == ([], ["mixed"], ["full", "whole"])
    assert view_of(filled, table).epoch == before.epoch


def test_a_dry_run_and_a_choice_of_segments(filled: Any, table: Table, tmp_path: Path, capsys: Captured) -> None:
    before = view_of(filled, table)
    assert run(["segment", "annotate", "visits", "--dry-run"]) == 0
    assert "2 segments annotated (dry run)" in capsys.readouterr().out
    assert view_of(filled, table).epoch == before.epoch
    file = tmp_path / "table.yaml"
    file.write_text(MANIFEST)
    assert run(["segment", "annotate", "--table", str(file), "whole"]) == 0
    segments = view_of(filled, table).segments
    assert segments["whole"].partitions
    assert not segments["mixed"].ranges
    assert run(["segment", "annotate", "visits", "nothing"]) == 1
    assert "no such segment in visits: nothing" in capsys.readouterr().err


def test_damaged_and_missing_files_are_told_and_the_rest_goes_on(
    filled: Any, table: Table, deep: Path, capsys: Captured
) -> None:
    files = {file.name.partition("@")[0]: file for file in (deep / "visits_OFFLINE").iterdir()}
    files["mixed"].unlink()
    assert run(["segment", "annotate", "visits"]) == 1
    captured = capsys.readouterr()
    assert "failed: mixed: not in the deep store" in captured.err
    assert view_of(filled, table).segments["whole"].partitions


def test_info_that_cannot_be_read_is_replaced(filled: Any, table: Table, capsys: Captured) -> None:
    record = view_of(filled, table).segments["whole"]
    fields = {**record.model_dump(by_alias=True), "crc": 1, "ranges": 7, "partitions": [1]}
    broken = SegmentRecord.model_validate(fields).model_copy(update={"crc": 0})
    publish(filled.metastore, table.name, [broken])
    publish(filled.metastore, table.name, [broken.model_copy(update={"crc": record.crc})])
    assert run(["segment", "annotate", "visits", "whole"]) == 0
    mended = view_of(filled, table).segments["whole"]
    assert mended.ranges == {"at": (0, 2), "city": ("c1", "c9"), "user": (1, 9)}
    assert list(mended.partitions) == ["user"]


def test_a_version_that_was_replaced_meanwhile_is_left_alone(filled: Any, table: Table) -> None:
    annotations = [AnnotationRecord(name="whole", crc=1, ranges={"at": (5, 6)}), AnnotationRecord(name="gone", crc=1)]
    before = view_of(filled, table)
    result = annotate(filled.metastore, table.name, annotations)
    assert result.replaced == ("whole", "gone")
    assert view_of(filled, table).epoch == before.epoch
