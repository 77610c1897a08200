"""Files as executors read them, local and in S3: filters and derived columns, what is counted, what is refused."""

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Place

from merlot.errors import InvalidInputError, NotFoundError
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot_spark import sources, sql_columns
from merlot_spark.build_segments import JobOptions, build_segments
from merlot_spark.report import JobReport

FIELDS = [
    {"name": "id", "type": "INT"},
    {"name": "code", "type": "STRING"},
    {"name": "ratio", "type": "DOUBLE", "role": "metric"},
]
DOCUMENT: dict[str, Any] = {
    "apiVersion": "merlot.dev/v1alpha1",
    "kind": "Table",
    "metadata": {"name": "things"},
    "spec": {"schema": {"fields": FIELDS}},
}
LOADED = manifest.load(json.dumps(DOCUMENT))[0]
assert isinstance(LOADED, Table)
TABLE: Table = LOADED


@pytest.fixture
def build(
    spark: SparkSession, tmp_path: Path, rows_of: Callable[..., pa.Table]
) -> Callable[..., tuple[JobReport, list[tuple[Any, ...]]]]:
    """Build a source's segments; the report, and the rows that are stored, sorted."""

    def run(uri: str, file_format: str, **more: Any) -> tuple[JobReport, list[tuple[Any, ...]]]:
        deep = tmp_path / "deep"
        for path in deep.rglob("*.mseg"):
            path.unlink()
        batch = BatchIngestion.model_validate({"sourceUri": uri, "format": file_format, **more})
        rows = sources.read(spark, batch, TABLE)
        options = JobOptions(parallelism=1)
        report = build_segments(
            rows, TABLE, deep_store=str(deep), controller_url=None, ingestion=batch, options=options
        )
        paths = list(deep.rglob("*.mseg"))
        stored = rows_of(paths, ["id", "code", "ratio"]).to_pylist() if paths else []
        return report, sorted((tuple(row.values()) for row in stored), key=str)

    return run


Build = Callable[..., tuple[JobReport, list[tuple[Any, ...]]]]


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def rows(first: int, count: int = 4) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int32()), "code": [f"c{one}" for one in ids], "ratio": [1.5] * count})


def test_a_bucket_is_read_by_row_groups_of_all_files_below_a_folder(bucket: Place, build: Build) -> None:
    bucket.put("a/day=1/x.parquet", parquet(rows(0), row_group_size=2))
    bucket.put("a/day=2/y.parquet", parquet(rows(10).drop(["code"])))
    bucket.put("a/_SUCCESS", b"")
    bucket.put("a/empty.parquet", b"")
    report, stored = build(bucket.uri("a"), "PARQUET")
    assert [row[:2] for row in stored] == [
        (0, "c0"),
        (1, "c1"),
        *((one, None) for one in (10, 11, 12, 13)),
        (2, "c2"),
        (3, "c3"),
    ]
    assert (report.num_files, report.empty_files, report.absent_columns) == (3, 1, ())
    assert len(build(bucket.uri("a/day=?/x.parquet"), "PARQUET")[1]) == 4
    assert len(build(bucket.uri("a/*"), "PARQUET", filter="id < 11")[1]) == 5


@pytest.mark.parametrize("compress", [gzip.compress, bytes], ids=["gzip", "plain"])
def test_a_bucket_holds_text_and_orc_too(
    bucket: Place, build: Build, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    ending = ".gz" if compress is gzip.compress else ""
    name = f"c{ending}"
    bucket.put(f"{name}/1.csv{ending}", compress(b"\xef\xbb\xbfid,code,ratio\n1,a,2\nid,code,ratio\n2,b,1,too long\n"))
    bucket.put(f"{name}/2.csv{ending}", compress(b'ratio,code,id\r\n0.5,"c\r\nd",3\r\n'))
    report, stored = build(bucket.uri(name), "CSV", maxBadRowShare=0.5)
    assert stored == [(1, "a", 2.0), (3, "c\r\nd", 0.5)]
    assert report.bad.by_reason == {"id: not a value of INT": 1, "the line is no record": 1}
    bucket.put(f"{name}.json{ending}", compress(b'{"id": 1, "code": "a"}\nno json\n'))
    report, stored = build(bucket.uri(f"{name}.json{ending}"), "JSON", maxBadRowShare=0.5)
    assert (stored, report.absent_columns) == ([(1, "a", None)], ("ratio",))
    pyarrow.orc.write_table(rows(5), str(tmp_path / "x.orc"))
    bucket.put(f"{name}.orc", (tmp_path / "x.orc").read_bytes())
    assert [row[0] for row in build(bucket.uri(f"{name}.orc"), "ORC")[1]] == [5, 6, 7, 8]


def test_one_daemon_of_python_workers_serves_a_whole_job(folder: Place, build: Build, spark: SparkSession) -> None:
    for number in range(3):
        folder.put(f"f/{number}.parquet", parquet(rows(number)))
    build(folder.uri("f"), "PARQUET", filter="id >= 0")
    jvm: Any = spark.sparkContext._gateway
    found = subprocess.run(
        ["ps", "--ppid", str(jvm.proc.pid), "-o", "args="], capture_output=True, text=True, check=True
    )
    assert found.stdout.count("worker_daemon") == 1


def test_files_are_read_by_several_tasks(folder: Place, spark: SparkSession) -> None:
    for number in range(3):
        folder.put(f"f/{number}.parquet", parquet(rows(number)))
    batch = BatchIngestion.model_validate({"sourceUri": folder.uri("f"), "format": "PARQUET"})
    assert sources.read(spark, batch, TABLE)._pieces().rdd.getNumPartitions() == 3


def test_wrong_sources_are_said_plainly(bucket: Place, build: Build) -> None:
    bucket.put("f/x.parquet", b"no parquet")
    with pytest.raises(InvalidInputError, match=r"cannot read source file=sources/f/x\.parquet"):
        build(bucket.uri("f"), "PARQUET")
    with pytest.raises(NotFoundError, match="no source files uri=s3://sources/none"):
        build(bucket.uri("none"), "PARQUET")


JSON_LINES = (
    b'{"id":1,"code":"a","ratio":10.5}\n{oops\n{"id":"x","code":"b","ratio":20}\n{"id":4,"code":"d","ratio":2}\n'
)


def test_a_filter_does_not_hide_bad_rows(folder: Place, build: Build) -> None:
    folder.put("f.json", JSON_LINES)
    report, stored = build(folder.uri("f.json"), "JSON", filter="ratio > 10", maxBadRowShare=0.5)
    assert stored == [(1, "a", 10.5)]
    assert report.bad.by_reason == {"id: not a value of INT": 1, "the line is no record": 1}
    assert (report.rows_in, report.rows_filtered, report.rows_out) == (4, 1, 1)
    assert "1 rows left out by the filter" in report.to_text()
    with pytest.raises(InvalidInputError, match="too many bad rows"):
        build(folder.uri("f.json"), "JSON", filter="ratio > 10", maxBadRowShare=0.4)


def test_an_expression_that_fails_makes_a_bad_row(folder: Place, build: Build) -> None:
    folder.put("f.csv", b"id,code,n\n1,a,5\n2,b,x\n3,c,\n4,d,9\n")
    report, stored = build(
        folder.uri("f.csv"), "CSV", filter="n > 4", derivedColumns={"ratio": "10 / (n - 9)"}, maxBadRowShare=0.5
    )
    assert stored == [(1, "a", -2.5)]
    assert report.bad.by_reason == {"filter: the expression fails": 1, "ratio: the expression fails": 1}
    assert [(one.file.rpartition("/")[2], one.row_number) for one in report.bad.samples] == [("f.csv", 2), ("f.csv", 4)]
    assert (report.rows_in, report.rows_filtered) == (4, 1)


def test_expressions_see_numbers_of_text_as_the_table_does(folder: Place, build: Build) -> None:
    folder.put("f.csv", b"id,code,ratio\n1,a,10.5\n2,b,9.5\n3,c,oops\n")
    report, stored = build(folder.uri("f.csv"), "CSV", filter="ratio > 10", maxBadRowShare=0.5)
    assert stored == [(1, "a", 10.5)]
    assert report.bad.by_reason == {"ratio: not a value of DOUBLE": 1}
    derived = {"ratio": "cast(replace(ratio, 'x', '') AS DOUBLE)", "code": "concat(CODE, extra)"}
    folder.put("g.csv", b"id,code,ratio,extra\n1,a,1x0,!\n")
    assert build(folder.uri("g.csv"), "CSV", derivedColumns=derived)[1] == [(1, "a!", 10.0)]


def test_rows_meet_what_sql_made_of_them_whatever_the_batches(folder: Place, build: Build, spark: SparkSession) -> None:
    """Spark cuts batches anew, and values that it has no type for do not pass it."""
    ids = range(3000)
    nanos = pa.array([1_356_998_400_000_000_000 + one for one in ids], pa.timestamp("ns"))
    table = pa.table({"id": ids, "code": nanos, "other": [one * 2 for one in ids]})
    folder.put("f/1.parquet", parquet(table, row_group_size=700))
    folder.put("f/2.parquet", parquet(table.slice(0, 1).set_column(2, "other", pa.array(["6000"]))))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "128")
    try:
        report, stored = build(
            folder.uri("f"), "PARQUET", filter="other % 3 = 0", derivedColumns={"ratio": "other / 2"}
        )
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
    expected = [one for one in ids if one % 3 == 0]
    assert sorted((row[0], row[2]) for row in stored) == sorted([*((one, float(one)) for one in expected), (0, 3000.0)])
    assert all(row[1].startswith("2013-01-01") for row in stored)
    assert (report.rows_in, report.rows_filtered) == (3001, 2000)


@pytest.mark.parametrize(
    ("file_format", "expressions", "message"),
    [
        ("JSON", {"filter": "nope > 1"}, r"no column columns=\['nope'\]"),
        ("CSV", {"filter": "nope > 1"}, r"no column columns=\['nope'\]; it has id, code, ratio$"),
        ("CSV", {"derivedColumns": {"ratio": "rand(7)"}}, "column: rand gives a row another value"),
        ("CSV", {"derivedColumns": {"code": "concat(code, uuid())"}}, "column: uuid gives"),
        ("CSV", {"derivedColumns": {"code": "input_file_name()"}}, "column: input_file_name gives"),
        ("CSV", {"filter": "unix_timestamp() > id"}, "column: current_timestamp gives"),
        ("CSV", {"filter": "current_date() > DATE '2013-01-31'"}, "column: current_date gives"),
        ("CSV", {"filter": "id >"}, "wrong filter or derived column"),
        ("CSV", {"filter": "struct(*) IS NULL"}, "name columns instead of"),
        ("CSV", {"derivedColumns": {"ratio": "row_number() OVER (ORDER BY id)"}}, "more than one row"),
        ("CSV", {"derivedColumns": {"ratio": "explode(array(1, 2))"}}, "wrong filter or derived column"),
        ("CSV", {"filter": "max(id) > 1"}, "wrong filter or derived column"),
        ("CSV", {"derivedColumns": {"ratio": "id / 2", "code": "concat(RATIO, '!')"}}, "column=code needs=ratio"),
    ],
)
def test_expressions_that_cannot_be_are_refused(
    folder: Place,
    build: Build,
    file_format: str,
    expressions: dict[str, Any],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder.put("f", JSON_LINES.splitlines()[0] if file_format == "JSON" else b"id,code,ratio\n1,a,1\n")
    with pytest.raises(InvalidInputError, match=message) as raised:
        build(folder.uri("f"), file_format, **expressions)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""


def test_a_damaged_file_is_told_by_name_from_an_executor(folder: Place, build: Build) -> None:
    folder.put("f.json.gz", gzip.compress(JSON_LINES * 1000)[:-20])
    with pytest.raises(InvalidInputError, match=r"cannot read source file=.*/f\.json\.gz"):
        build(folder.uri("f.json.gz"), "JSON", maxBadRowShare=1.0)


def test_records_without_any_column_of_the_table_are_refused(folder: Place, build: Build) -> None:
    folder.put("f.json", b'{"x": 1}\n')
    with pytest.raises(InvalidInputError, match="source has no column of the table"):
        build(folder.uri("f.json"), "JSON")


def test_a_source_of_empty_files_has_no_rows(folder: Place, build: Build) -> None:
    folder.put("f/1.csv", b"")
    folder.put("f/2.csv", b"id,code,ratio\n")
    report, stored = build(folder.uri("f"), "CSV")
    assert (report.rows_in, stored, report.empty_files) == (0, [], 1)


def test_types_that_spark_lacks_become_wider_for_expressions() -> None:
    wide = sql_columns._common
    assert wide([pa.dictionary(pa.int32(), pa.large_string())]) == pa.string()
    assert wide([pa.timestamp("ns", "Europe/Paris")]) == pa.timestamp("us", "UTC")
    assert wide([pa.list_(pa.uint8())]) == pa.list_(pa.int16())
    assert wide([pa.uint64()]) == pa.decimal128(20, 0)
    assert wide([pa.int32(), pa.float64()]) == pa.float64()
    assert wide([pa.int32(), pa.string()]) == pa.string()
    assert wide([pa.duration("s"), pa.month_day_nano_interval()]) == pa.string()
