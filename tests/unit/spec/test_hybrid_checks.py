"""What a Table must be for batches and a stream to be parted by time."""

import pytest

from merlot.spec.manifest import ManifestError, load, load_tables
from merlot.spec.manifest.rollup_checks import against_table
from merlot.spec.tasks import MergeRollupSpec

TABLE = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: events}}
spec:
  {time}
  schema:
    fields:
      - {{name: at, role: dateTime, {column}}}
      - {{name: n, type: LONG, role: metric}}
  ingestion:
    {stream}
    timeBoundary: {{unit: {unit}}}
"""


def text_of(
    *, time: str = "timeColumn: at", column: str = "type: TIMESTAMP", unit: str = "1d", stream: bool = True
) -> str:
    declared = "stream: {type: files, topic: /tmp/topic}" if stream else "batch: []"
    return TABLE.format(time=time, column=column, unit=unit, stream=declared)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"stream": False}, "add ingestion.stream"),
        ({"time": "replication: 1"}, "timeBoundary needs timeColumn"),
        ({"column": 'type: STRING, format: "SIMPLE_DATE_FORMAT|yyyyMMdd"'}, "holds texts"),
        ({"column": 'type: LONG, format: "EPOCH|DAYS"', "unit": "1h"}, "is no whole multiple of DAYS"),
    ],
)
def test_a_boundary_that_cannot_part_rows_is_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        load(text_of(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "column", ["type: TIMESTAMP", 'type: LONG, format: "EPOCH|SECONDS"', 'type: INT, format: "EPOCH|DAYS"']
)
def test_times_that_are_numbers_part_rows(column: str) -> None:
    (table,) = load_tables(text_of(column=column))
    assert table.spec.ingestion.time_boundary is not None
    assert table.spec.ingestion.time_boundary.unit_ms == 86_400_000


@pytest.mark.parametrize(("rounding", "is_refused"), [("1h", False), ("1d", False), ("2d", True), ("1mo", True)])
def test_merges_round_no_time_over_the_boundary(rounding: str, is_refused: bool) -> None:
    (table,) = load_tables(text_of())
    level = {
        "name": "coarse",
        "bucketTimePeriod": rounding,
        "roundBucketTimePeriod": rounding,
        "bufferTimePeriod": "0d",
    }
    spec = MergeRollupSpec.model_validate({"table": "events", "levels": [level]})
    told = [problem.message for problem in against_table(spec, table.spec)]
    assert any("time boundary" in one for one in told) is is_refused
