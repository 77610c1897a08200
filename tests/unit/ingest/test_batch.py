"""Batch ingestion without Spark: files of every format to segments per day and partition."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from merlot.catalog.publish import record_of
from merlot.cluster.segments.publish import PublishRequest
from merlot.cluster.segments.shapes import check_shape
from merlot.errors import InvalidInputError, NotFoundError
from merlot.ingest.bad_rows import BadRow, BadRows
from merlot.ingest.batch import (
    NO_BOUND_MS,
    BadRowsError,
    BatchResult,
    RowSelection,
    build_from_files,
    check_bad_rows,
    check_stretch,
    source_text,
)
from merlot.spec import manifest
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table

Write = Callable[[pa.Table, Path], None]
DAY_MS = 86_400_000
ROWS = pa.table(
    {
        "at": [2 * DAY_MS, 5, DAY_MS - 1, DAY_MS],
        "code": ["a", None, 'b, "quoted"', "c"],
        "n": pa.array([1, 2, None, 4], pa.int32()),
    }
)


def table_of(**spec: Any) -> Table:
    fields = [
        {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
        {"name": "code", "type": "STRING"},
        {"name": "n", "type": "INT"},
    ]
    document = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "t"},
        "spec": {"schema": {"fields": fields}, "timeColumn": "at", **spec},
    }
    (table,) = manifest.load(json.dumps(document))
    return table


def build(path: Path | str, folder: Path, table: Table | None = None, **ingestion: Any) -> BatchResult:
    source = BatchIngestion.model_validate({"sourceUri": str(path), "format": "PARQUET", **ingestion})
    folder.mkdir(exist_ok=True)
    return build_from_files(table or table_of(), source, folder)


def identities(result: BatchResult) -> list[str]:
    return [str(built.metadata.key) for built in result.segments]


def write_json(rows: pa.Table, path: Path) -> None:
    path.write_text("\n".join(json.dumps(row) for row in rows.to_pylist()))


@pytest.mark.parametrize(
    ("file_format", "write"),
    [
        ("PARQUET", pq.write_table),
        ("ORC", pyarrow.orc.write_table),
        ("CSV", pyarrow.csv.write_csv),
        ("JSON", write_json),
    ],
)
def test_every_format_gives_one_segment_per_day(tmp_path: Path, file_format: str, write: Write) -> None:
    pq.write_table(ROWS, tmp_path / "expected")
    expected = build(tmp_path / "expected", tmp_path / "one")
    path = tmp_path / "data"
    write(ROWS, str(path) if file_format == "ORC" else path)  # type: ignore[arg-type]
    result = build(path, tmp_path / "two", format=file_format)
    assert identities(result) == identities(expected)
    assert [built.metadata.name for built in result.segments] == ["t_1970-01-01", "t_1970-01-02", "t_1970-01-03"]
    assert [built.metadata.num_docs for built in result.segments] == [2, 1, 1]
    assert result.bad.count == 0


def test_folders_and_globs_are_read_by_path(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(4):
        pq.write_table(ROWS.slice(number, 1), data / f"part-{number}.parquet")
    (data / "_SUCCESS").write_text("")
    whole = build(data, tmp_path / "one")
    assert whole.rows_in == 4
    assert build(f"{data}/part-[01]*", tmp_path / "two").rows_in == 2
    assert build(data.as_uri(), tmp_path / "three").rows_in == 4
    with pytest.raises(NotFoundError, match="no source files"):
        build(f"{data}/nothing-*", tmp_path / "four")


def test_partitions_split_days(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "data")
    table = table_of(partitioning={"columns": {"n": {"functionName": "Modulo", "numPartitions": 2}}})
    result = build(tmp_path / "data", tmp_path / "out", table)
    assert [(one.metadata.name, one.metadata.partitions["n"].partitions) for one in result.segments] == [
        ("t_1970-01-01_p0", (0,)),
        ("t_1970-01-02_p0", (0,)),
        ("t_1970-01-03_p1", (1,)),
    ]


def test_rows_that_are_not_partitioned_as_asserted_are_kept_without_partition_info(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"at": [1, 2, DAY_MS], "n": [1, 2, 3]}), tmp_path / "data")
    columns = {"n": {"functionName": "Modulo", "numPartitions": 2}}
    table = table_of(partitioning={"columns": columns, "enforce": "assert"})
    result = build(tmp_path / "data", tmp_path / "out", table)
    astray, right = (one.metadata for one in result.segments)
    assert (astray.num_docs, astray.partitions) == (2, {})
    assert right.partitions["n"].partitions == (1,)
    assert result.unpartitioned == {"t_1970-01-01": {"n": "rows are of 2 of 2 partitions by Modulo: 0, 1"}}
    assert "segment is not partitioned segment=t_1970-01-01 column=n" in caplog.text


def test_values_that_have_no_partition_leave_an_asserted_segment_without_partition_info(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": [1, 2], "code": ["7", "x"]}), tmp_path / "data")
    columns = {"code": {"functionName": "Modulo", "numPartitions": 2}}
    table = table_of(partitioning={"columns": columns, "enforce": "assert"})
    result = build(tmp_path / "data", tmp_path / "out", table)
    assert result.segments[0].metadata.num_docs == 2
    assert "Modulo partitions whole numbers" in result.unpartitioned["t_1970-01-01"]["code"]


def test_a_column_without_dictionary_is_partitioned_too(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "data")
    table = table_of(
        partitioning={"columns": {"n": {"functionName": "Modulo", "numPartitions": 2}}},
        indexing={"noDictionary": ["n"]},
    )
    result = build(tmp_path / "data", tmp_path / "out", table)
    assert [one.metadata.partitions["n"].partitions for one in result.segments] == [(0,), (0,), (1,)]


def test_bad_csv_lines_and_values_are_counted(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("at,code,n\n1,a,1\n2,b\n3,c,x\n,d,4\n")
    with pytest.raises(BadRowsError, match="bad=3 rows=4") as caught:
        build(tmp_path / "data", tmp_path / "out", format="CSV")
    assert caught.value.bad.by_reason == {"at: no time": 1, "n: not a value of INT": 1, "the line is no record": 1}
    assert not list((tmp_path / "out").iterdir())
    assert build(tmp_path / "data", tmp_path / "out", format="CSV", maxBadRowShare=0.75).bad.count == 3


def test_too_many_bad_rows_name_the_commonest_faults_and_where_they_are_in_the_first_line() -> None:
    samples = (
        BadRow("n: not a value of INT", (("code", "a"), ("n", "x")), "1.csv", 2, "n", "x"),
        BadRow("n: not a value of INT", (("code", "a"), ("n", "y")), "1.csv", 3, "n", "y"),
        BadRow("the line is no record", (("line", "oops"),), "2.csv", 4),
    )
    bad = BadRows({"at: no time": 1, "n: not a value of INT": 1700, "the line is no record": 2, "rare": 1}, samples)
    with pytest.raises(BadRowsError) as refused:
        check_bad_rows(bad, 2000, 0.5, table_of())
    assert str(refused.value).splitlines()[0] == (
        "too many bad rows, nothing was published table=t bad=1704 rows=2000 maxBadRowShare=0.5: "
        "1,700 × n: not a value of INT (1.csv row 2: n = 'x'); "
        """2 × the line is no record (2.csv row 4: {"line": "oops"}); 1 × at: no time"""
    )


@pytest.mark.parametrize(("share", "num_bad", "num_rows"), [(0.29, 29, 100), (0.07, 7, 100), (0.3, 3, 10), (1.0, 5, 5)])
def test_the_share_of_bad_rows_is_what_was_declared_to_the_row(share: float, num_bad: int, num_rows: int) -> None:
    """0.29 * 100 is less than 29 in doubles."""
    check_bad_rows(BadRows({"reason": num_bad}), num_rows, share, table_of())
    if num_bad < num_rows:
        with pytest.raises(BadRowsError, match=rf"maxBadRowShare={share}"):
            check_bad_rows(BadRows({"reason": num_bad + 1}), num_rows, share, table_of())


@pytest.mark.parametrize(
    ("window", "suffix", "spec", "refusal"),
    [
        (None, "", {"pushType": "REFRESH"}, None),
        ((DAY_MS, 3 * DAY_MS), "", {}, None),
        ((-NO_BOUND_MS, DAY_MS), "", {}, None),
        ((0, NO_BOUND_MS), "", {}, None),
        ((DAY_MS, DAY_MS + 6), "_extra", {}, None),
        ((DAY_MS, DAY_MS + 6), "", {}, "cuts a UTC day"),
        ((DAY_MS + 6, NO_BOUND_MS), "", {}, "cuts a UTC day"),
        ((-7 * DAY_MS, 14 * DAY_MS), "", {"ingestion": {"daysPerSegment": 7}}, None),
        ((0, DAY_MS), "", {"ingestion": {"daysPerSegment": 7}}, "cuts 7 days of one segment"),
        (None, "_extra~1of2", {}, "cannot contain ~"),
        ((DAY_MS, 2 * DAY_MS), "", {"pushType": "REFRESH"}, "all of a REFRESH table"),
        ((DAY_MS, 2 * DAY_MS), "_extra", {"pushType": "REFRESH"}, "all of a REFRESH table"),
        ((DAY_MS, 2 * DAY_MS), "", {"timeColumn": None}, "with a time column"),
    ],
)
def test_a_window_is_published_only_if_it_takes_the_place_of_nothing_more(
    window: tuple[int, int] | None, suffix: str, spec: dict[str, Any], refusal: str | None
) -> None:
    stretch = RowSelection(window=window, name_suffix=suffix)
    if refusal is None:
        check_stretch(stretch, table_of(**spec))
    else:
        with pytest.raises(InvalidInputError, match=refusal):
            check_stretch(stretch, table_of(**spec))


def test_days_that_are_small_share_a_segment(tmp_path: Path) -> None:
    """Stretches are counted from 1970-01-01, backwards too, so that every batch cuts days alike."""
    days = [-8, -7, -1, 0, 6, 7, 13, 14]
    rows = pa.table({"at": [day * DAY_MS + 5 for day in days], "code": ["a"] * 8, "n": pa.array(days, pa.int32())})
    pq.write_table(rows, tmp_path / "in.parquet")
    result = build(tmp_path / "in.parquet", tmp_path / "out", table_of(ingestion={"daysPerSegment": 7}))
    found = {one.metadata.name: one.metadata.num_docs for one in result.segments}
    assert found == {
        "t_1969-12-18": 1, "t_1969-12-25": 2, "t_1970-01-01": 2, "t_1970-01-08": 2, "t_1970-01-15": 1
    }  # fmt: skip


def test_first_days_of_year_1_share_a_segment_that_begins_with_them(tmp_path: Path) -> None:
    first = (date.min - date(1970, 1, 1)).days
    days = [first, first + 2, first + 3]
    rows = pa.table({"at": [day * DAY_MS for day in days], "code": ["a"] * 3, "n": pa.array(days, pa.int32())})
    pq.write_table(rows, tmp_path / "in.parquet")
    table = table_of(ingestion={"daysPerSegment": 7})
    result = build(tmp_path / "in.parquet", tmp_path / "out", table)
    found = {one.metadata.name: one.metadata.num_docs for one in result.segments}
    assert found == {"t_0001-01-01": 2, "t_0001-01-04": 1}
    records = tuple(record_of(one.metadata, "", one.size_bytes, one.blooms) for one in result.segments)
    check_shape("t", table.spec, PublishRequest(records=records))


def test_a_large_day_becomes_parts_of_equal_size(tmp_path: Path) -> None:
    rows = {
        "at": [row * 1000 for row in range(11)] + [DAY_MS],
        "code": ["a"] * 12,
        "n": pa.array(range(12), pa.int32()),
    }
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    result = build(tmp_path / "in.parquet", tmp_path / "out", table_of(ingestion={"maxRowsPerSegment": 4}))
    found = {one.metadata.name: one.metadata.num_docs for one in result.segments}
    assert found == {"t_1970-01-01~1of3": 3, "t_1970-01-01~2of3": 4, "t_1970-01-01~3of3": 4, "t_1970-01-02": 1}


def test_days_of_a_segment_need_a_time_column() -> None:
    with pytest.raises(InvalidInputError, match="daysPerSegment counts days of timeColumn"):
        table_of(timeColumn=None, ingestion={"daysPerSegment": 7})


def test_a_source_is_told_by_its_files_and_its_filter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert source_text(BatchIngestion(source_uri="s3://b/*.csv", format=BatchFormat.CSV)) == "s3://b/*.csv"
    # As a manifest of before may have it, from which the object was made without a check.
    open_secret = BatchIngestion.model_construct(source_uri="s3://b/x.csv?secret_key=hunter2", filter=None)
    assert "hunter2" not in source_text(open_secret)
    filtered = BatchIngestion(source_uri="am.csv", format=BatchFormat.CSV, filter="n > 1")
    assert source_text(filtered) == f"{tmp_path}/am.csv where n > 1"


def test_csv_without_header_has_the_columns_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1;a;NA\n")
    options = {"header": False, "delimiter": ";", "nullValue": "NA"}
    (built,) = build(tmp_path / "data", tmp_path / "out", format="CSV", csv=options).segments
    assert built.metadata.columns["n"].num_nulls == 1


def test_bad_json_lines_and_mixed_values_are_counted(tmp_path: Path) -> None:
    lines = ['{"at": 1, "n": 1, "code": {"x": [1]}}', "{oops", "[1]", '{"at": 2, "n": "x", "code": "y"}', '{"at": 3}']
    (tmp_path / "data").write_text("\n".join(lines))
    result = build(tmp_path / "data", tmp_path / "out", format="JSON", maxBadRowShare=0.9)
    assert result.bad.by_reason == {"n: not a value of INT": 1, "the line is no record": 2}
    assert result.segments[0].metadata.columns["code"].max == '{"x": [1]}'


def test_a_file_of_another_format_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not parquet")
    with pytest.raises(InvalidInputError, match=r"cannot read source file=.*/data format=PARQUET"):
        build(tmp_path / "data", tmp_path / "out")


def test_an_empty_source_gives_no_segment(tmp_path: Path) -> None:
    pq.write_table(ROWS.slice(0, 0), tmp_path / "data")
    assert build(tmp_path / "data", tmp_path / "out").segments == ()
