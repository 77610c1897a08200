"""Many files to and from the deep store: one after another where nothing is waited for, else a few at a time."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.faulty_s3 import FaultyS3

from merlot.catalog.transfer import fetch_segments, upload_segments
from merlot.cluster.records import SegmentRecord
from merlot.errors import CorruptionError
from merlot.ids import TableName
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.store.deepstore import DeepStore
from merlot.store.retry import RetryPolicy
from merlot.values.types import TypeName

TABLE = TableName("t_OFFLINE")
SCHEMA = TableSchema(fields=(FieldSpec(name="a", type=TypeName.INT, role=FieldRole.DIMENSION),))
QUICK = RetryPolicy(attempts=2, first_wait=0.001)


@pytest.fixture
def built(tmp_path: Path) -> Sequence[BuiltSegment]:
    folder = tmp_path / "built"
    folder.mkdir()
    rows = [pa.table({"a": pa.array([number], pa.int32())}) for number in range(8)]
    return [
        build_segment(BuildRequest(name=f"s{number}", table="t", schema=SCHEMA), one, folder)
        for number, one in enumerate(rows)
    ]


def fetched(store: DeepStore, records: Sequence[SegmentRecord], folder: Path, *, least_wait_s: float) -> set[str]:
    """Fetches, and tells by how many threads."""
    threads = set()
    order: list[str] = []

    def note(record: SegmentRecord) -> None:
        threads.add(threading.current_thread().name)
        order.append(record.name)

    paths = fetch_segments(store, records, folder, on_fetched=note, least_wait_s=least_wait_s)
    assert [path.name for path in paths] == [f"{record.key}.mseg" for record in records]
    assert sorted(order) == sorted(record.name for record in records)
    return threads


def test_files_that_are_at_hand_are_fetched_one_after_another(built: Sequence[BuiltSegment], tmp_path: Path) -> None:
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK)
    records = upload_segments(store, built, TABLE)
    # A minute, because a busy machine makes everybody wait.
    assert fetched(store, records, tmp_path / "in", least_wait_s=60.0) == {threading.current_thread().name}


def test_files_that_are_waited_for_are_fetched_side_by_side(
    built: Sequence[BuiltSegment], s3: FaultyS3, tmp_path: Path
) -> None:
    store = DeepStore(s3.uri(), retry=QUICK)
    records = upload_segments(store, built, TABLE)
    # No wait at all, because this S3 is near.
    others = fetched(store, records, tmp_path / "in", least_wait_s=0.0) - {threading.current_thread().name}
    assert others
    assert all(name.startswith("merlot-transfer") for name in others)


@pytest.mark.parametrize("number", [0, 5])
def test_a_damaged_file_ends_the_others_and_is_told(number: int, built: Sequence[BuiltSegment], tmp_path: Path) -> None:
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK)
    records = upload_segments(store, built, TABLE)
    path = Path(records[number].url.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptionError, match="cut short"):
        fetch_segments(store, records, tmp_path / "in")
