"""The build job against a real controller API and a local deep store."""

import datetime as dt
import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import Replacement
from merlot.cluster.segments.condemned import condemn, pardon
from merlot.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from merlot.ingest.batch import BadRowsError, RowSelection
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.shape import shape_of
from merlot.spec.table import Table
from merlot.spec.tasks import ROUNDED_TO
from merlot_spark import build_segments as build_job
from merlot_spark import sources
from merlot_spark.build_segments import JobOptions, build_segments
from merlot_spark.expressions import setting
from merlot_spark.publish import ControllerClient, PublishOrder
from merlot_spark.report import JobReport

RowsOf = Callable[[Iterable[Path], Iterable[str]], pa.Table]

MANIFEST: dict[str, Any] = {
    "apiVersion": "merlot.dev/v1alpha1",
    "kind": "Table",
    "metadata": {"name": "trips"},
    "spec": {
        "schema": {
            "fields": [
                {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
                {"name": "code", "type": "STRING"},
                {"name": "count", "type": "INT", "role": "metric"},
                {"name": "ratio", "type": "DOUBLE", "role": "metric"},
            ]
        },
        "timeColumn": "at",
        "indexing": {"sortedColumns": ["at"]},
    },
}
COLUMNS = ["at", "code", "count", "ratio"]
START_S = 1_356_998_400  # 2013-01-01 00:00:00 UTC
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
OPTIONS = JobOptions(parallelism=2)


def table_of(**spec: Any) -> Table:
    (table,) = manifest.load(json.dumps({**MANIFEST, "spec": {**MANIFEST["spec"], **spec}}))
    return table


def trips(num_rows: int = 3000) -> pa.Table:
    """Rows over three days, in no order of time, with nulls."""
    seconds = [START_S + (row * 7919) % (3 * 86_400) for row in range(num_rows)]
    return pa.table(
        {
            "at": pa.array([second * 1000 for second in seconds], pa.timestamp("ms", "UTC")),
            "code": [None if row % 50 == 0 else f"c{row % 17}" for row in range(num_rows)],
            "count": pa.array([None if row % 33 == 0 else row for row in range(num_rows)], pa.int32()),
            "ratio": [row / 8 for row in range(num_rows)],
        }
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "trips.parquet"
    pq.write_table(trips(), path)
    return path


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    return tmp_path / "deep"


def files_of(deep: Path) -> list[Path]:
    return sorted((deep / "trips_OFFLINE").glob("*"))


def published(controller: str) -> list[str]:
    statuses = ControllerClient(controller).get("/segments/trips/metadata")
    return sorted(f"{name}@{status['crc']}" for name, status in statuses.items())


def run(
    spark: SparkSession, source: Path, table: Table, deep: Path, controller: str | None, **ingestion: Any
) -> JobReport:
    batch = BatchIngestion.model_validate({"sourceUri": str(source), "format": "PARQUET", **ingestion})
    rows = sources.read(spark, batch, table)
    return build_segments(
        rows, table, deep_store=str(deep), controller_url=controller, ingestion=batch, options=OPTIONS
    )


def apply(controller: str, table: Table) -> None:
    ControllerClient(controller).apply(json.dumps(manifest.dump(table)))


@pytest.mark.parametrize("given", ["a file", "a file and expressions", "a DataFrame"])
def test_columns_of_any_name_come_from_files_and_from_a_dataframe(
    spark: SparkSession, tmp_path: Path, deep: Path, controller: str, rows_of: RowsOf, given: str
) -> None:
    names = ["event.at$ms", '`code`||"x"', "__count$", "größe,(m²)"]
    fields = [{**field, "name": name} for field, name in zip(MANIFEST["spec"]["schema"]["fields"], names, strict=True)]
    indexing = {"sortedColumns": names[:1], "inverted": names[1:2]}
    table = table_of(schema={"fields": fields}, timeColumn=names[0], indexing=indexing)
    apply(controller, table)
    rows = trips(500).rename_columns(names)
    path = tmp_path / "odd.parquet"
    pq.write_table(rows, path)
    if given == "a DataFrame":
        frame = spark.read.parquet(str(path))
        build_segments(frame, table, deep_store=str(deep), controller_url=controller, options=OPTIONS)
    else:
        derived = {names[3]: "`größe,(m²)` * 1.0D", names[1]: "concat(```code``||\"x\"`, '')"}
        more = {"derivedColumns": derived, "filter": "`__count$` >= 0 OR `event.at$ms` IS NOT NULL"}
        run(spark, path, table, deep, controller, **(more if given == "a file and expressions" else {}))
    found = rows_of(files_of(deep), names)
    keys = [(names[0], "ascending"), (names[2], "ascending")]
    expected = rows.sort_by(keys)
    for name in names[1:]:
        assert found.sort_by(keys).column(name).to_pylist() == expected.column(name).to_pylist()


def test_one_segment_per_day_holds_the_rows_that_duckdb_reads(
    spark: SparkSession, source: Path, deep: Path, controller: str, rows_of: RowsOf
) -> None:
    table = table_of()
    apply(controller, table)
    report = run(spark, source, table, deep, controller)
    assert (report.rows_in, report.rows_out, report.bad.count, report.published) == (3000, 3000, 0, 3)
    names = [path.name.partition("@")[0] for path in files_of(deep)]
    assert names == ["trips_2013-01-01", "trips_2013-01-02", "trips_2013-01-03"]
    assert published(controller) == list(report.segments)
    found = rows_of(files_of(deep), COLUMNS)
    query = f"SELECT epoch_ms(\"at\"), code, count, ratio FROM '{source}'"
    assert sorted(map(repr, zip(*found.to_pydict().values(), strict=True))) == sorted(
        map(repr, duckdb.sql(query).fetchall())
    )
    assert found.column("at").to_pylist() == sorted(found.column("at").to_pylist())


def test_days_that_are_small_share_a_segment_and_are_replaced_together(
    spark: SparkSession, source: Path, deep: Path, controller: str, tmp_path: Path
) -> None:
    table = table_of(ingestion={"daysPerSegment": 2})
    apply(controller, table)
    report = run(spark, source, table, deep, controller)
    assert [record["name"] for record in report.records] == ["trips_2013-01-01", "trips_2013-01-03"]
    assert sum(record["totalDocs"] for record in report.records) == 3000
    rows = pq.read_table(source)
    second_day = pa.scalar(START_S * 1000 + 86_400_000, pa.timestamp("ms")).cast(rows.schema.field("at").type)
    pq.write_table(rows.filter(pc.greater_equal(rows["at"], second_day)), tmp_path / "later.parquet")
    with pytest.raises(InvalidInputError, match="would replace rows that it may not hold segments=1: trips_2013-01-01"):
        run(spark, tmp_path / "later.parquet", table, deep, controller)
    assert published(controller) == list(report.segments)


def test_a_rerun_changes_nothing_whatever_the_order_of_the_source(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    before = {path.name: path.stat().st_mtime_ns for path in files_of(deep)}
    shuffled = spark.read.parquet(str(source)).orderBy("ratio", ascending=False).repartition(3)
    options = JobOptions(parallelism=5)
    second = build_segments(shuffled, table, deep_store=str(deep), controller_url=controller, options=options)
    assert second.segments == first.segments
    assert (second.published, second.unchanged, second.segments_uploaded) == (0, 3, 0)
    assert {path.name: path.stat().st_mtime_ns for path in files_of(deep)} == before


def rows_that_spark_takes_for_equal() -> pa.Table:
    """Both zeros, alone and in lists, NaNs of several payloads, nulls and infinities, in all combinations."""
    nans = np.array([0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0005, 0xFFF8_0000_0000_0001], np.uint64).view(np.float64)
    values = [0.0, -0.0, None, float("inf"), *nans]
    lists = [[0.0, -0.0], [-0.0, 0.0], [0.0, 0.0], [], None, [nans[1], -0.0]]
    rows = [(ratio, weight, list_) for ratio in values for weight in values for list_ in lists for _ in range(2)]
    return pa.table(
        {
            "at": pa.array([START_S * 1000] * len(rows), pa.timestamp("ms", "UTC")),
            "ratio": pa.array([row[0] for row in rows], pa.float64()),
            "weight": pa.array([row[1] for row in rows], pa.float64()).cast(pa.float32()),
            "list": pa.array([row[2] for row in rows], pa.list_(pa.float64())),
        }
    )


@pytest.mark.parametrize("indexing", [{}, {"noDictionary": ["ratio", "weight"]}, {"sortedColumns": ["ratio"]}])
def test_equal_rows_give_equal_files_in_whatever_order_they_come(
    spark: SparkSession, tmp_path: Path, deep: Path, indexing: dict[str, Any]
) -> None:
    floats = [
        {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
        {"name": "ratio", "type": "DOUBLE", "role": "metric"},
        {"name": "weight", "type": "FLOAT", "role": "metric"},
        {"name": "list", "type": "DOUBLE", "multiValue": True},
    ]
    table = table_of(schema={"fields": floats}, indexing=indexing)
    rows = rows_that_spark_takes_for_equal()
    found = set()
    for seed, parallelism in enumerate((2, 7, 2)):
        order = np.random.default_rng(seed).permutation(rows.num_rows)
        folder = tmp_path / f"source-{seed}"
        folder.mkdir()
        for number, part in enumerate(np.array_split(order, 1 + 2 * seed)):
            pq.write_table(rows.take(pa.array(part)), folder / f"{number}.parquet")
        df = spark.read.parquet(str(folder))
        options = JobOptions(parallelism=parallelism)
        found.add(build_segments(df, table, deep_store=str(deep), controller_url=None, options=options).segments)
    assert len(found) == 1


def test_a_file_that_is_deleted_while_a_job_relies_on_it_is_not_published(
    spark: SparkSession, source: Path, deep: Path, controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the controller does with the file of a removed segment, whose grace period ends meanwhile."""
    table = table_of()
    apply(controller, table)
    run(spark, source, table, deep, None)
    collect = build_job._run

    def lose_one(*arguments: Any) -> Any:
        built = collect(*arguments)
        files_of(deep)[1].unlink()
        return built

    with monkeypatch.context() as losing:
        losing.setattr(build_job, "_run", lose_one)
        with pytest.raises(UnavailableError, match="run it again"):
            run(spark, source, table, deep, controller)
    assert published(controller) == []
    assert run(spark, source, table, deep, controller).segments_uploaded == 1
    assert len(published(controller)) == 3


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_job_waits_until_files_of_the_same_names_are_deleted(
    spark: SparkSession,
    source: Path,
    deep: Path,
    controller: str,
    metastore: SqliteMetastore,
    monkeypatch: pytest.MonkeyPatch,
    is_kept: bool,
) -> None:
    """A table was deleted with its files, and comes again: what the cleaner takes of the new ones is not published."""
    table = table_of()
    apply(controller, table)
    report = run(spark, source, table, deep, None)
    condemn(metastore, table.name, [str(record["url"]) for record in report.records], by="cleaner", now_ms=0)
    monkeypatch.setattr(build_job, "PUBLISH_WAIT_S", 0.1)

    refused, publish = [], ControllerClient.publish

    def publish_and_end_the_cleaning(*arguments: Any, **options: Any) -> Any:
        try:
            return publish(*arguments, **options)
        except UnavailableError as error:
            refused.append(str(error))
            if not is_kept:
                files_of(deep)[1].unlink()
            pardon(metastore, table.name, by="cleaner", now_ms=0)
            raise

    monkeypatch.setattr(ControllerClient, "publish", publish_and_end_the_cleaning)
    if is_kept:
        assert run(spark, source, table, deep, controller).published == 3
    else:
        with pytest.raises(UnavailableError, match="run it again"):
            run(spark, source, table, deep, controller)
    assert len(refused) == 1
    assert "is being deleted" in refused[0]
    assert len(published(controller)) == (3 if is_kept else 0)


def test_a_job_waits_until_a_merge_of_what_it_removes_is_over(
    spark: SparkSession,
    source: Path,
    deep: Path,
    controller: str,
    metastore: SqliteMetastore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has built everything: to fail and to be run again costs more."""
    table = table_of()
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    names = [str(first.records[0]["name"])]
    entry = replacements.start_replacement(
        metastore, table.name, Replacement(segments_from=names, segments_to=["merged"])
    )
    monkeypatch.setattr(build_job, "PUBLISH_WAIT_S", 0.1)
    refused, publish = [], ControllerClient.publish

    def publish_and_end_the_merge(*arguments: Any, **options: Any) -> Any:
        try:
            return publish(*arguments, **options)
        except ConflictError as error:
            refused.append(str(error))
            replacements.revert_replacement(metastore, table.name, entry, force=True)
            raise

    monkeypatch.setattr(ControllerClient, "publish", publish_and_end_the_merge)
    window = {"start": "2013-01-01", "end": "2013-01-04"}
    later = run(spark, source, table, deep, controller, overwrite=window, filter="at >= timestamp '2013-01-02'")
    assert (later.removed, later.unchanged, len(refused)) == (1, 2, 1)
    assert "input of a replacement under way" in refused[0]


def test_new_rows_of_a_day_replace_that_day_alone(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    grown = run(spark, source, table, deep, controller, derivedColumns={"ratio": "IF(count = 4, -1, ratio)"})
    assert (grown.published, grown.replaced, grown.unchanged) == (1, 1, 2)
    day = first.records[0]["totalDocs"]
    assert f"1 segments published, 1 replaced ({day:,} -> {day:,} rows), 2 unchanged" in grown.to_text()
    assert published(controller) == sorted([grown.segments[0], *first.segments[1:]])


def test_the_afternoon_of_a_day_does_not_take_the_place_of_its_morning(
    spark: SparkSession, source: Path, deep: Path, controller: str, tmp_path: Path
) -> None:
    table = table_of()
    apply(controller, table)
    pq.write_table(morning := trips().filter(pc.field("at") < NOON), tmp_path / "am.parquet")
    pq.write_table(afternoon := trips().filter(pc.field("at") >= NOON), tmp_path / "pm.parquet")
    first = run(spark, tmp_path / "am.parquet", table, deep, controller)
    with pytest.raises(InvalidInputError, match=r"may not hold segments=1: trips_2013-01-01: .*am\.parquet -> .*pm\."):
        run(spark, tmp_path / "pm.parquet", table, deep, controller)
    assert published(controller) == list(first.segments)
    replaced = run(spark, tmp_path / "pm.parquet", table, deep, controller, replaceRows=True)
    report = replaced.to_json()
    counts = [report[name] for name in ("rowsBefore", "rowsReplaced", "rowsReplacing", "rowsRemoved", "rowsAfter")]
    assert counts == [morning.num_rows, morning.num_rows, report["rowsReplacing"], 0, afternoon.num_rows]
    assert f"rows of the table: {morning.num_rows:,} -> {afternoon.num_rows:,}" in replaced.to_text()


@pytest.mark.parametrize(
    ("spec", "ingestion"),
    [
        ({"pushType": "REFRESH"}, {"filter": "count < 0"}),
        ({"pushType": "REFRESH"}, {"derivedColumns": {"count": "'no number'"}, "maxBadRowShare": 1.0}),
        ({}, {"filter": "count < 0", "overwrite": {"start": "2013-01-01", "end": "2013-01-04"}}),
        ({}, {"filter": "at < timestamp '2013-01-02'", "overwrite": {"start": "2013-01-02", "end": "2013-01-04"}}),
    ],
    ids=["a filter that nothing passes", "bad rows alone", "an empty window", "rows beside the window"],
)
def test_a_batch_without_rows_empties_nothing_unless_it_is_told_to(
    spark: SparkSession,
    source: Path,
    deep: Path,
    controller: str,
    spec: dict[str, Any],
    ingestion: dict[str, Any],
) -> None:
    table = table_of(**spec)
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    with pytest.raises(InvalidInputError, match=r"would remove [23] segments .* --replace-rows"):
        run(spark, source, table, deep, controller, **ingestion)
    assert published(controller) == list(first.segments)
    emptied = run(spark, source, table, deep, controller, replaceRows=True, **ingestion)
    assert published(controller) == list(emptied.segments)
    assert f"{emptied.removed} removed ({3000 - emptied.rows_out:,} rows)" in emptied.to_text()


def test_a_window_that_cuts_a_day_is_not_published_in_its_place(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    window = (START_S * 1000, START_S * 1000 + 6 * 3_600_000)

    def publish_window(suffix: str) -> JobReport:
        options = JobOptions(parallelism=2, stretch=RowSelection(window=window, name_suffix=suffix))
        df = spark.read.parquet(str(source))
        return build_segments(df, table, deep_store=str(deep), controller_url=controller, options=options)

    with pytest.raises(InvalidInputError, match="cuts a UTC day"):
        publish_window("")
    assert published(controller) == list(first.segments)
    more = publish_window("_more")
    assert (more.published, more.replaced) == (1, 0)
    assert published(controller) == sorted([*first.segments, *more.segments])


def test_refresh_replaces_every_segment(spark: SparkSession, source: Path, deep: Path, controller: str) -> None:
    table = table_of(pushType="REFRESH")
    apply(controller, table)
    run(spark, source, table, deep, controller)
    later = run(spark, source, table, deep, controller, filter="at >= timestamp '2013-01-03'")
    assert later.removed == 2
    assert published(controller) == list(later.segments)


def test_a_batch_that_stands_for_a_window_removes_what_it_does_not_build_anew(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    window = {"start": "2013-01-02", "end": "2013-01-04T00:00:00Z"}
    later = run(spark, source, table, deep, controller, overwrite=window, filter="at >= timestamp '2013-01-03'")
    assert (later.removed, later.unchanged) == (1, 1)
    assert published(controller) == [first.segments[0], first.segments[2]]


def test_a_batch_does_not_overwrite_a_part_of_what_was_rounded_together(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    merged = {**first.records[0], "name": "merged", "customMap": {ROUNDED_TO: "1mo"}}
    ControllerClient(controller).publish(
        PublishOrder(table=table.raw_name, records=[merged], shape=shape_of(table.spec))
    )
    window = {"start": "2013-01-02", "end": "2013-01-04T00:00:00Z"}
    with pytest.raises(InvalidInputError, match=r"cannot be replaced alone .* smallest=2013-01-01\.\.2013-02-01"):
        run(spark, source, table, deep, controller, overwrite=window)
    whole = {"start": "2013-01-01", "end": "2013-02-01"}
    assert run(spark, source, table, deep, controller, overwrite=whole).removed == 1


def test_a_backfill_builds_the_rows_of_its_window_under_names_of_its_own(
    spark: SparkSession, source: Path, deep: Path, tmp_path: Path
) -> None:
    table = table_of()
    day_ms = 86_400_000
    window = (START_S * 1000 + day_ms, START_S * 1000 + 2 * day_ms)
    options = JobOptions(parallelism=1, stretch=RowSelection(window=window, name_suffix="_b1"))
    df = spark.read.parquet(str(source))
    report = build_segments(df, table, deep_store=str(deep), controller_url=None, options=options)
    assert (report.rows_in, report.rows_out + report.rows_outside) == (3000, 3000)
    assert [record["name"] for record in report.records] == ["trips_2013-01-02_b1"]
    assert 0 < report.rows_out < 3000
    assert all(window[0] <= record["startTimeMs"] <= record["endTimeMs"] < window[1] for record in report.records)


def test_days_are_split_by_partition_function(
    spark: SparkSession, source: Path, deep: Path, controller: str, rows_of: RowsOf
) -> None:
    function = {"functionName": "Murmur", "numPartitions": 3}
    table = table_of(partitioning={"columns": {"code": function}})
    apply(controller, table)
    report = run(spark, source, table, deep, controller)
    assert [key.partition("@")[0] for key in report.segments] == [
        f"trips_2013-01-0{day}_p{partition}" for day in (1, 2, 3) for partition in (0, 1, 2)
    ]
    for name, status in ControllerClient(controller).get("/segments/trips/metadata").items():
        assert status["partitions"]["code"]["partitions"] == [int(name.rpartition("_p")[2])]
    assert rows_of(files_of(deep), ["ratio"]).num_rows == 3000


def test_each_source_of_an_upsert_table_has_segments_of_its_own(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    """What corrects some rows of a day does not take the place of the day."""
    table = table_of(
        partitioning={"columns": {"code": {"functionName": "Murmur", "numPartitions": 2}}},
        schema={**MANIFEST["spec"]["schema"], "primaryKey": ["code", "at"]},
        upsert={"config": {"mode": "FULL", "comparisonColumns": ["count"]}},
    )
    apply(controller, table)
    first = run(spark, source, table, deep, controller)
    assert first.published == 6
    pq.write_table(trips(40), source)
    more = run(spark, source, table, deep, controller, name="corrections")
    again = run(spark, source, table, deep, controller, name="corrections")
    assert (more.published, more.replaced, again.unchanged) == (6, 0, 6)
    assert len(published(controller)) == 12
    assert sorted(key.partition("@")[0] for key in more.segments)[:2] == [
        "trips_2013-01-01_p0_corrections",
        "trips_2013-01-01_p1_corrections",
    ]


def test_segments_that_are_not_partitioned_as_asserted_are_published_without_partition_info_and_counted(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    partitioning = {"columns": {"code": {"functionName": "Murmur", "numPartitions": 3}}, "enforce": "assert"}
    table = table_of(partitioning=partitioning)
    apply(controller, table)
    report = run(spark, source, table, deep, controller)
    assert report.published == 3
    assert list(report.unpartitioned) == [f"trips_2013-01-0{day}" for day in (1, 2, 3)]
    assert report.to_json()["segmentsUnpartitioned"] == 3
    assert "warning: 3 segments are not partitioned as declared" in report.to_text()
    client = ControllerClient(controller)
    assert client.get("/tables/trips/metadata")["numSegmentsUnpartitioned"] == 3
    assert all(not status["partitions"] for status in client.get("/segments/trips/metadata").values())


def test_a_failing_executor_leaves_nothing_visible_and_the_next_run_completes(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    expected = run(spark, source, table, deep, None).segments
    for path in files_of(deep):
        path.unlink()
    obstacle = deep / "trips_OFFLINE" / f"{expected[1]}.mseg"
    (obstacle / "in the way").mkdir(parents=True)
    with pytest.raises(UnavailableError, match="deep store failed action=write"):
        run(spark, source, table, deep, controller)
    assert published(controller) == []
    (obstacle / "in the way").rmdir()
    obstacle.rmdir()
    report = run(spark, source, table, deep, controller)
    assert published(controller) == list(expected)
    assert report.published == 3
    assert not [path for path in files_of(deep) if path.suffix != ".mseg"]


def test_a_source_that_fails_half_way_publishes_nothing(
    spark: SparkSession, source: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    broken = spark.read.parquet(str(source)).selectExpr(
        "at", "code", "count", "IF(ratio > 300, raise_error('torn'), ratio) ratio"
    )
    with pytest.raises(UnavailableError, match="torn"):
        build_segments(broken, table, deep_store=str(deep), controller_url=controller, options=OPTIONS)
    assert published(controller) == []
    assert files_of(deep) == []


BAD_LINES = "at,code,count,ratio\n" + "".join(
    [
        "2013-01-01 00:00:00,a,1,0.5\n",
        "2013-01-01T01:00:00Z,b,x,0.5\n",
        "2013-01-01 02:00:00,c,99999999999,0.5\n",
        ",d,4,0.5\n",
        "2013-01-01 04:00:00,e\n",
        '2013-01-01 05:00:00,"f, ""g""",6,NaN\n',
    ]
)


def test_bad_rows_are_counted_sampled_and_left_out(
    spark: SparkSession, tmp_path: Path, deep: Path, controller: str, rows_of: RowsOf
) -> None:
    table = table_of()
    apply(controller, table)
    (tmp_path / "bad.csv").write_text(BAD_LINES)
    report = run(spark, tmp_path / "bad.csv", table, deep, controller, format="CSV", maxBadRowShare=0.7)
    assert report.bad.by_reason == {
        "at: no time": 1,
        "count: not a value of INT": 2,
        "the line is no record": 1,
    }
    assert (report.rows_in, report.rows_out) == (6, 2)
    samples = {dict(sample.values).get("code") for sample in report.bad.samples}
    assert samples >= {"b", "c", "d"}
    assert rows_of(files_of(deep), ["code"]).column("code").to_pylist() == ["a", 'f, "g"']
    assert "2 × count: not a value of INT" in report.to_text()


def test_too_many_bad_rows_fail_the_job_and_publish_nothing(
    spark: SparkSession, tmp_path: Path, deep: Path, controller: str
) -> None:
    table = table_of()
    apply(controller, table)
    (tmp_path / "bad.csv").write_text(BAD_LINES)
    with pytest.raises(BadRowsError, match="bad=4 rows=6") as caught:
        run(spark, tmp_path / "bad.csv", table, deep, controller, format="CSV", maxBadRowShare=0.6)
    assert caught.value.bad.count == 4
    assert published(controller) == []


def write_csv(rows: pa.Table, path: Path) -> None:
    pyarrow.csv.write_csv(rows.set_column(0, "at", rows.column("at").cast(pa.int64())), path)


def write_json(rows: pa.Table, path: Path) -> None:
    lines = []
    for row in rows.to_pylist():
        at: dt.datetime = row["at"]
        lines.append(json.dumps({**row, "at": at.isoformat()}))
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("file_format", "write"),
    [("CSV", write_csv), ("JSON", write_json), ("ORC", lambda rows, path: pyarrow.orc.write_table(rows, str(path)))],
)
def test_every_format_gives_the_same_segments(
    spark: SparkSession,
    source: Path,
    tmp_path: Path,
    deep: Path,
    file_format: str,
    write: Callable[[pa.Table, Path], None],
) -> None:
    table = table_of()
    expected = run(spark, source, table, deep, None).segments
    other = tmp_path / f"trips.{file_format.lower()}"
    write(trips(), other)
    assert run(spark, other, table, deep, None, format=file_format).segments == expected


def test_filter_and_derived_columns_are_spark_sql(
    spark: SparkSession, source: Path, deep: Path, rows_of: RowsOf
) -> None:
    report = run(
        spark,
        source,
        table_of(),
        deep,
        None,
        filter="ratio < 10",
        derivedColumns={"count": "CAST(ratio * 8 AS INT) + 1"},
    )
    assert report.rows_out == 80
    found = rows_of(files_of(deep), ["count", "ratio"]).to_pydict()
    assert found["count"] == [round(ratio * 8) + 1 for ratio in found["ratio"]]


def test_wrong_expressions_and_missing_sources_are_said_plainly(
    spark: SparkSession, source: Path, tmp_path: Path, deep: Path
) -> None:
    with pytest.raises(InvalidInputError, match=r"wrong filter or derived column.*nope"):
        run(spark, source, table_of(), deep, None, filter="nope > 1")
    with pytest.raises(NotFoundError, match="no source files"):
        run(spark, tmp_path / "absent", table_of(), deep, None)


def test_columns_that_the_source_lacks_are_null_and_reported(
    spark: SparkSession, source: Path, deep: Path, rows_of: RowsOf
) -> None:
    df = spark.read.parquet(str(source)).drop("ratio").withColumnRenamed("code", "CODE")
    report = build_segments(df, table_of(), deep_store=str(deep), controller_url=None, options=OPTIONS)
    assert report.absent_columns == ("ratio",)
    rows = rows_of(files_of(deep), ["code", "ratio"])
    assert rows.column("ratio").null_count == 3000
    assert rows.column("code").null_count == 60


def test_nested_values_of_a_dataframe_are_those_of_its_file_in_whatever_zone_it_is_read(
    spark: SparkSession, tmp_path: Path, deep: Path, rows_of: RowsOf
) -> None:
    moment = dt.datetime(2024, 7, 1, 12, 0, 0, 1, tzinfo=dt.UTC)
    nested = {"x": 1, "y": None, "t": moment, "d": Decimal("1.10"), "f": float("nan"), "b": b"\x00\xff"}
    kinds = pa.struct(
        {"x": pa.int64(), "y": pa.string(), "t": pa.timestamp("us", "UTC"), "d": pa.decimal128(9, 2)}
        | {"f": pa.float64(), "b": pa.binary()}
    )
    rows = {
        "at": pa.array([moment, moment], pa.timestamp("us", "UTC")),
        "code": pa.array([nested, None], kinds),
        "list": pa.array([[nested, None], []], pa.list_(kinds)),
        "map": pa.array([[("k", nested)], [("k", None)]], pa.map_(pa.string(), kinds)),
    }
    path = tmp_path / "nested.parquet"
    pq.write_table(pa.table(rows), path)
    fields = [MANIFEST["spec"]["schema"]["fields"][0], *({"name": name, "type": "JSON"} for name in list(rows)[1:])]
    table = table_of(schema={"fields": fields})
    expected = run(spark, path, table, deep, None).segments
    text = '{"x":1,"y":null,"t":"2024-07-01 12:00:00.000001","d":1.10,"f":"NaN","b":"AP8="}'
    assert set(rows_of(files_of(deep), ["code"]).column("code").to_pylist()) == {text, None}
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        df = spark.read.parquet(str(path))
        found = build_segments(df, table, deep_store=str(deep), controller_url=None, options=OPTIONS)
    assert found.segments == expected


def test_types_that_do_not_come_out_of_a_dataframe_are_refused_by_column(spark: SparkSession, deep: Path) -> None:
    for value, kind in (("INTERVAL '1' YEAR", "interval year"), ("struct(parse_json('1') AS v)", "variant")):
        df = spark.sql(f"SELECT timestamp '2013-01-01' AS at, {value} AS code")
        with pytest.raises(InvalidInputError, match=f"is not read column=code .* because of={kind}"):
            build_segments(df, table_of(), deep_store=str(deep), controller_url=None, options=OPTIONS)


def test_nested_values_become_json(spark: SparkSession, deep: Path, rows_of: RowsOf) -> None:
    df = spark.sql("SELECT timestamp '2013-01-01' AS at, struct(1 AS a, array('x') AS b) AS code")
    build_segments(df, table_of(), deep_store=str(deep), controller_url=None, options=OPTIONS)
    assert rows_of(files_of(deep), ["code"]).column("code").to_pylist() == ['{"a":1,"b":["x"]}']
    df = spark.sql("""SELECT timestamp '2013-01-02' AS at, parse_json('{"a":1,"b":["x",null]}') AS code""")
    build_segments(df, table_of(), deep_store=str(deep), controller_url=None, options=OPTIONS)
    assert rows_of(files_of(deep)[1:], ["code"]).column("code").to_pylist() == ['{"a":1,"b":["x",null]}']
