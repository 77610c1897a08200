"""MergeRollupTasks: defaults, every problem at once, and what a table says against them."""

from pathlib import Path
from typing import Any

import pytest

from merlot.spec import manifest
from merlot.spec.manifest import ManifestError
from merlot.spec.manifest.rollup_checks import against_table
from merlot.spec.tasks import MergeRollupTask, MergeType, RollupFunction
from merlot.spec.upserting import TableUpsert

ROOT = Path(__file__).resolve().parents[3]
SEED = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: events}
spec:
  table: events
  levels:
    - {name: daily, bucketTimePeriod: 1d, bufferTimePeriod: 1d, mergeType: rollup}
    - {name: monthly, bucketTimePeriod: 1mo, bufferTimePeriod: 7d, mergeType: rollup}
"""
TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: events}
spec:
  timeColumn: at
  pushType: APPEND
  schema:
    primaryKey: [id]
    fields:
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: id, type: LONG}
      - {name: city, type: STRING}
      - {name: sketch, type: STRING}
      - {name: clicks, type: LONG, role: metric}
  partitioning: {columns: {city: {functionName: Murmur, numPartitions: 4}}}
"""


def load(text: str) -> MergeRollupTask:
    [task] = manifest.load(text)
    assert isinstance(task, MergeRollupTask)
    return task


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        manifest.load(text)
    return [str(problem) for problem in caught.value.problems]


def edited(*edits: tuple[str, str]) -> str:
    text = SEED
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def against(text: str, table: str = TABLE) -> list[str]:
    [declared] = manifest.load_tables(table)
    return [str(problem) for problem in against_table(load(text).spec, declared.spec)]


def test_daily_after_a_day_and_monthly_after_a_week_is_valid() -> None:
    task = load(SEED)
    daily, monthly = task.spec.levels
    assert (daily.bucket.nominal_ms, monthly.bucket.months) == (86_400_000, 1)
    assert against(SEED) == []


def test_defaults_are_those_of_pinot() -> None:
    task = load(edited((", mergeType: rollup}\n    - ", "}\n    - ")))
    level = task.spec.levels[0]
    assert level.merge_type is MergeType.CONCAT
    assert (level.max_num_records_per_segment, level.max_num_records_per_task) == (5_000_000, 50_000_000)
    assert (level.max_num_parallel_buckets, level.round_bucket_time_period) == (1, None)
    assert (task.spec.executor, task.spec.suspend, task.spec.schedule) == ("minion", False, "1m")


def test_an_aggregation_is_a_sum_unless_it_says_otherwise() -> None:
    task = load(edited(("  levels:", "  aggregations: {clicks: {}, cost: {aggregationType: min}}\n  levels:")))
    assert task.spec.aggregations["clicks"].aggregation_type is RollupFunction.SUM
    assert task.spec.aggregations["cost"].aggregation_type is RollupFunction.MIN


def test_every_problem_is_named_at_once_with_its_path() -> None:
    text = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: events}
spec:
  table: events_OFFLINE
  schedule: "0 0 3 * * ?"
  levels:
    - {name: daily, bucketTimePeriod: 7d, bufferTimePeriod: 10d, roundBucketTimePeriod: 2d, mergeTyp: rollup}
    - {name: Daily, bucketTimePeriod: 1mo, bufferTimePeriod: 7d, eraseDimensionValues: [a, a]}
    - {name: x, bucketTimePeriod: 0d, bufferTimePeriod: 1y}
  aggregations: {a: {aggregationType: median}, b: {aggregationType: min, parameters: {x: "1"}}}
"""
    assert sorted(problem.partition(": ")[0] for problem in problems(text)) == [
        "spec.aggregations",
        "spec.aggregations.a.aggregationType",
        "spec.aggregations.b.parameters",
        "spec.levels[0].mergeTyp",
        "spec.levels[0].roundBucketTimePeriod",
        "spec.levels[1].bucketTimePeriod",
        "spec.levels[1].bufferTimePeriod",
        "spec.levels[1].eraseDimensionValues",
        "spec.levels[1].eraseDimensionValues[1]",
        "spec.levels[1].name",
        "spec.levels[2].bucketTimePeriod",
        "spec.levels[2].bufferTimePeriod",
        "spec.schedule",
        "spec.table",
    ]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (
            ("bucketTimePeriod: 1mo", "bucketTimePeriod: 12h"),
            (
                "spec.levels[1].bucketTimePeriod: levels go from the finest to the coarsest: each bucketTimePeriod is "
                "a whole multiple of those before it"
            ),
        ),
        (
            ("bufferTimePeriod: 7d", "bufferTimePeriod: 7d, maxNumRecordsPerTask: 999"),
            "spec.levels[1].maxNumRecordsPerTask: must be at least 1000, got 999",
        ),
        (
            ("bufferTimePeriod: 7d", "bufferTimePeriod: 1h"),
            (
                "spec.levels[1].bufferTimePeriod: the bufferTimePeriod of a level is not less than those of the finer "
                "levels before it"
            ),
        ),
        (
            ("kind: MergeRollupTask", "kind: MergeRolupTask"),
            'kind: unknown kind "MergeRolupTask"; did you mean MergeRollupTask?',
        ),
        (
            ("bufferTimePeriod: 7d", "bufferTimePeriod: 1y"),
            'spec.levels[1].bufferTimePeriod: "1y" is not allowed; write a period such as 1h, 1d, 7d or 1mo',
        ),
        (("table: events", "tabel: events"), "spec.table: is missing"),
    ],
)
def test_a_problem_says_what_would_be_right(edit: tuple[str, str], problem: str) -> None:
    assert problem in problems(edited(edit))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (("timeColumn: at\n", "\n"), "spec.table: the table has no timeColumn, which tells the bucket of a row"),
        (("APPEND", "REFRESH"), "spec.table: the table is REFRESH: each batch replaces all segments"),
    ],
)
def test_some_tables_are_refused_with_the_reason(edit: tuple[str, str], problem: str) -> None:
    assert any(one.startswith(problem) for one in against(SEED, TABLE.replace(*edit)))


def test_upsert_tables_are_refused() -> None:
    [declared] = manifest.load_tables(TABLE)
    table = declared.spec.model_copy(update={"upsert": TableUpsert(config_ref="latest")})
    [found] = against_table(load(SEED).spec, table)
    assert str(found).startswith("spec.table: the table is an upsert table")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            "  aggregations: {click: {}}",
            'spec.aggregations.click: the table has no column "click"; did you mean clicks?',
        ),
        ("  aggregations: {city: {}}", 'spec.aggregations.city: "city" is a dimension of the table; only metrics'),
    ],
)
def test_columns_of_aggregations_are_metrics_of_the_table(more: str, problem: str) -> None:
    [found] = against(SEED + more)
    assert found.startswith(problem)


def test_erased_columns_are_dimensions_that_nothing_needs() -> None:
    names = "[cty, at, city, id, sketch]"
    text = edited(("mergeType: rollup", f"mergeType: rollup, eraseDimensionValues: {names}"))
    assert [one.partition(": ")[2].partition(";")[0] for one in against(text)] == [
        'the table has no column "cty"',
        '"at" is a dateTime of the table',
        'the table is partitioned by "city"',
        '"id" is part of the primary key',
    ]


def test_only_numbers_are_summed() -> None:
    table = TABLE.replace("{name: clicks, type: LONG, role: metric}", "{name: clicks, type: BYTES, role: metric}")
    assert 'spec.levels[0].mergeType: metric "clicks" is BYTES and cannot be summed' in against(SEED, table)[0]
    [found, *_] = against(SEED + "  aggregations: {clicks: {}}", table)
    assert found == 'spec.aggregations.clicks: "clicks" is BYTES, of which sum makes no sense; write min or max'
    assert against(SEED + "  aggregations: {clicks: {aggregationType: max}}", table) == []


def test_sums_that_queries_would_see_change_are_refused() -> None:
    def of(more: str, manifest_text: str = SEED) -> list[str]:
        return against(manifest_text, TABLE.replace("{name: clicks, type: LONG, role: metric}", more))

    floats, sevens = (
        "{name: clicks, type: FLOAT, role: metric}",
        "{name: clicks, type: LONG, role: metric, defaultNullValue: 7}",
    )
    [found] = of(floats)
    assert found == (
        'spec.levels[0].mergeType: metric "clicks" is FLOAT, in which a sum loses digits that queries keep; widen it '
        "to DOUBLE in the Table, or aggregate it by min or max"
    )
    [found] = of(floats, SEED + "  aggregations: {clicks: {aggregationType: count}}")
    assert found.startswith('spec.aggregations.clicks: metric "clicks" is FLOAT, in which a count loses digits')
    assert of(floats, SEED + "  aggregations: {clicks: {aggregationType: max}}") == []
    [found] = of(sevens)
    assert found == (
        'spec.levels[0].mergeType: queries count a null of metric "clicks" as 7, and sum counts none; name it in '
        "spec.aggregations, count, which takes each for its default"
    )
    assert of(sevens, SEED + "  aggregations: {clicks: {aggregationType: count}}") == []
    assert of(sevens, SEED.replace("mergeType: rollup", "mergeType: dedup")) == []


def test_sketches_need_bytes_and_say_their_parameters() -> None:
    table = TABLE.replace("{name: clicks, type: LONG, role: metric}", "{name: clicks, type: BYTES, role: metric}")
    digest = SEED + "  aggregations: {clicks: {aggregationType: percentileTDigest, parameters: {compressionFactor: X}}}"
    assert against(digest.replace("X", '"200"'), table) == []
    [found] = against(digest.replace("X", '"200"'))
    assert found == (
        'spec.aggregations.clicks: "clicks" is LONG; percentileTDigest merges serialized sketches, '
        "which a BYTES metric holds"
    )
    for wrong in ('"9"', '"10001"', '"1e2"', '"-50"'):
        [found] = problems(digest.replace("X", wrong))
        assert found.startswith("spec.aggregations.clicks.parameters.compressionFactor: ")
    [found] = problems(digest.replace("percentileTDigest", "avg").replace("X", '"10"'))
    assert found == "spec.aggregations.clicks.parameters: avg has no parameters; remove them"


def test_a_time_is_rounded_to_what_it_can_hold() -> None:
    text = edited(("mergeType: rollup", "mergeType: rollup, roundBucketTimePeriod: 1h"))
    zoned = "{name: at, type: LONG, role: dateTime, format: 'SIMPLE_DATE_FORMAT|yyyyMMddHHmm|Asia/Kolkata'}"
    assert against(text) == []
    [found] = against(text, TABLE.replace("{name: at, type: TIMESTAMP, role: dateTime}", zoned))
    assert found == (
        'spec.levels[0].roundBucketTimePeriod: "at" cannot be rounded to 1h: 1h in Asia/Kolkata may lie in two '
        "buckets, which are in UTC"
    )


@pytest.mark.parametrize("between", ["", "    - {name: between, bucketTimePeriod: 12d, bufferTimePeriod: 2d}\n"])
def test_what_was_rounded_is_not_rounded_across(between: str) -> None:
    text = edited(
        ("bucketTimePeriod: 1d", "bucketTimePeriod: 4d, roundBucketTimePeriod: 2d"),
        ("    - {name: monthly", f"{between}    - {{name: monthly"),
        ("bucketTimePeriod: 1mo", "bucketTimePeriod: 24d, roundBucketTimePeriod: 3d"),
    )
    [found] = problems(text)
    assert found.endswith(
        ".roundBucketTimePeriod: each roundBucketTimePeriod is a whole multiple of those of the finer levels before it"
    )
    multiple = load(text.replace("roundBucketTimePeriod: 3d", "roundBucketTimePeriod: 4d"))
    assert multiple.spec.levels[-1].round_bucket_time_period == "4d"


def test_a_rollup_needs_something_to_fold() -> None:
    table = TABLE.replace("      - {name: clicks, type: LONG, role: metric}\n", "")
    assert against(SEED, table)[0].startswith("spec.levels[0].mergeType: the table has no metric to roll up")


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/rollup*.yaml")), ids=lambda path: path.stem)
def test_examples_fit_their_tables(path: Path) -> None:
    task: Any = load(path.read_text())
    [table] = manifest.load_tables((path.parent / "table.yaml").read_text())
    assert against_table(task.spec, table.spec) == []


def test_what_was_stored_is_read_again_even_by_an_older_version() -> None:
    task = load(SEED)
    document = manifest.dump(task)
    assert manifest.from_stored(document, MergeRollupTask) == task
    document["spec"]["levels"][0]["ofTheFuture"] = 1
    assert manifest.from_stored(document, MergeRollupTask) == task
