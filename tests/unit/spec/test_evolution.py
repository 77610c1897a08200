"""What a live table may become, and what is refused with the reason."""

import pytest

from merlot.spec import evolution, manifest
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

BASE = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields:
      - {name: city, type: STRING}
      - {name: rides, type: INT, role: metric}
      - {name: share, type: FLOAT}
      - {name: day, type: INT, role: dateTime, format: EPOCH|DAYS}
    primaryKey: [city]
  timeColumn: day
"""


def edited(*edits: tuple[str, str]) -> TableSpec:
    text = BASE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    [table] = manifest.load(text)
    return table.spec


@pytest.mark.parametrize(
    "edit",
    [
        ("      - {name: rides", "      - {name: extra, type: JSON}\n      - {name: rides"),
        ("rides, type: INT", "rides, type: LONG"),
        ("rides, type: INT", "rides, type: DOUBLE"),
        ("share, type: FLOAT", "share, type: DOUBLE"),
        ("share, type: FLOAT", "share, type: FLOAT, defaultNullValue: -.inf"),
        ("day, type: INT", "day, type: LONG, defaultNullValue: -2147483648"),
        ("type: STRING}", "type: STRING, description: where, maxLength: 9}"),
        ("timeColumn: day", "timeColumn: day\n  replication: 3"),
        ("timeColumn: day", "timeColumn: day\n  retention: 3d"),
        ("timeColumn: day", "timeColumn: day\n  indexing: {inverted: [city], sortedColumns: [city]}"),
        ("timeColumn: day", "timeColumn: day\n  suspend: true"),
    ],
)
def test_hot_change_is_accepted(edit: tuple[str, str]) -> None:
    assert evolution.compare(edited(), edited(edit)) == ()


@pytest.mark.parametrize(
    ("edit", "path", "message"),
    [
        (("      - {name: share, type: FLOAT}\n", ""), "spec.schema.fields", "column 'share' is gone"),
        (("rides, type: INT", "rides, type: FLOAT"), "spec.schema.fields[1].type",
         ("column 'rides' is INT and cannot become FLOAT; keep INT or widen it to BIG_DECIMAL, DOUBLE, LONG, "
         "or add a column")),
        (("city, type: STRING", "city, type: JSON"), "spec.schema.fields[0].type", "keep STRING, or add a column"),
        (("share, type: FLOAT", "share, type: FLOAT, multiValue: true"), "spec.schema.fields[2].multiValue",
         "single-valued and stays so"),
        (("share, type: FLOAT", "share, type: FLOAT, role: metric"), "spec.schema.fields[2].role", "is a dimension"),
        (("share, type: FLOAT", "share, type: FLOAT, defaultNullValue: 0"), "spec.schema.fields[2].defaultNullValue",
         "keep it as it was (left out, or defaultNullValue: -inf)"),
        (("day, type: INT", "day, type: LONG"), "spec.schema.fields[3].defaultNullValue",
         "segments already store the default of column 'day'; keep it as it was (defaultNullValue: -2147483648)"),
        (("EPOCH|DAYS", "EPOCH|HOURS"), "spec.schema.fields[3].format", "cannot be read as EPOCH|HOURS"),
        (("    primaryKey: [city]\n", ""), "spec.schema.primaryKey", "cannot change (it is: city)"),
        (("  timeColumn: day\n", ""), "spec.timeColumn", "cannot change from day to none"),
        (("timeColumn: day", "timeColumn: day\n  pushType: REFRESH"), "spec.pushType", "from APPEND to REFRESH"),
        (("timeColumn: day", "timeColumn: day\n  ingestion: {daysPerSegment: 7}"), "spec.ingestion.daysPerSegment",
         "cannot change from 1 to 7"),
        (("  timeColumn: day", "  timeColumn: day\n  deepStore: {uri: 's3://b/m?region=eu'}"), "spec.deepStore.uri",
         "cannot change from the cluster's own to s3://b/m"),
    ],
)  # fmt: skip
def test_other_change_is_refused_with_the_reason(edit: tuple[str, str], path: str, message: str) -> None:
    [problem] = evolution.compare(edited(), edited(edit))
    assert problem.path == path
    assert message in problem.message


def test_all_refusals_are_named_at_once() -> None:
    new = edited(("rides, type: INT", "rides, type: LONG"), ("EPOCH|DAYS", "EPOCH|HOURS"), ("  timeColumn: day\n", ""))
    assert len(evolution.compare(edited(), new)) == 2


def test_widening_loses_nothing() -> None:
    assert evolution.can_widen(TypeName.LONG, TypeName.BIG_DECIMAL)
    assert not evolution.can_widen(TypeName.LONG, TypeName.DOUBLE)
    assert not evolution.can_widen(TypeName.INT, TypeName.FLOAT)
    assert not evolution.can_widen(TypeName.INT, TypeName.STRING)


UPSERT = (
    "timeColumn: day",
    (
        "timeColumn: day\n  partitioning: {columns: {city: {functionName: Murmur, numPartitions: 2}}}\n"
        "  upsert: {config: {mode: FULL, comparisonColumns: [name]}}"
    ),
)
NAME = (
    "      - {name: rides",
    "      - {name: name, type: STRING}\n      - {name: note, type: STRING}\n      - {name: rides",
)


@pytest.mark.parametrize(("column", "decides"), [("city", True), ("name", True), ("note", False)])
def test_texts_that_decide_which_row_is_the_newest_keep_their_longest_length(column: str, *, decides: bool) -> None:
    """Keys that are cut would meet rows of other keys, and not those of their own that are stored whole."""
    declared = f"{{name: {column}, type: STRING"
    before = edited(NAME, UPSERT)
    assert evolution.compare(before, edited(NAME, UPSERT, (declared, f"{declared}, maxLength: 512"))) == ()
    problems = evolution.compare(before, edited(NAME, UPSERT, (declared, f"{declared}, maxLength: 9")))
    assert [one.path for one in problems] == ["spec.schema.fields"] * decides
    assert all(f"column '{column}' decides" in one.message and "maxLength 512" in one.message for one in problems)
