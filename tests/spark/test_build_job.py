"""What a job tells when it fails: in a termination message, for people."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from merlot.ingest.batch import NO_BOUND_MS
from merlot_spark import build_job
from merlot_spark.publish import ControllerClient

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields: [{name: at, type: TIMESTAMP, role: dateTime}, {name: size, type: INT, role: metric}]
  timeColumn: at
  ingestion:
    batch: [{sourceUri: trips.csv, format: CSV, filter: size > 0}]
"""


def test_a_zero_is_a_bound_as_any_other() -> None:
    def window(*arguments: str) -> tuple[int, int] | None:
        return build_job._stretch(build_job._parser().parse_args(["--table", "t.yaml", *arguments])).window

    assert window() is None
    assert window("--to-ms", "0") == (-NO_BOUND_MS, 0)
    assert window("--from-ms", "0") == (0, NO_BOUND_MS)


WRONG_VALUE = r"too many bad rows, nothing was published .*trips\.csv row 1: size = 'abc'\)"


@pytest.fixture
def job(controller: str, tmp_path: Path) -> list[str]:
    """Arguments of a job over a row whose value is wrong."""
    (tmp_path / "table.yaml").write_text(MANIFEST)
    ControllerClient(controller).apply(MANIFEST)
    (tmp_path / "trips.csv").write_text("at,size\n1,abc\n")
    return [
        *("--short", "--report", str(tmp_path / "report"), "--deep-store", str(tmp_path / "deep")),
        *("--table", str(tmp_path / "table.yaml"), "--source", str(tmp_path / "trips.csv"), "--controller", controller),
    ]


def check_wrong_input(code: int, errors: str, cause: str, controller: str, tmp_path: Path) -> None:
    """Exit code 2, and the cause in the first line and in the report; nothing is published."""
    assert code == build_job.EXIT_WRONG_INPUT, errors
    assert re.search(f"^error: {cause}", errors, re.MULTILINE), errors
    assert re.match(cause, json.loads((tmp_path / "report").read_text())["error"])
    assert ControllerClient(controller).get("/segments/trips/metadata") == {}


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        pytest.param(
            ["--from-ms", "6", "--to-ms", "9"],
            r"a window that cuts a UTC day .* table=trips",
            id="before Spark starts",
        ),
        pytest.param(
            [],
            WRONG_VALUE,
            id="on a value",
            marks=pytest.mark.slow("the next test runs the same job in the session that is there"),
        ),
    ],
)
def test_wrong_input_ends_the_process_with_exit_code_2_and_its_cause_in_the_first_line_and_in_the_report(
    job: list[str], controller: str, tmp_path: Path, arguments: list[str], cause: str
) -> None:
    command = [sys.executable, "-m", "merlot_spark.build_segments", *job, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    check_wrong_input(ended.returncode, ended.stderr, cause, controller, tmp_path)


def test_a_wrong_value_ends_the_job_with_exit_code_2_and_its_cause_in_the_first_line_and_in_the_report(
    spark: SparkSession,
    job: list[str],
    controller: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A job stops its session, which here is that of all tests.
    stops: list[str] = []
    monkeypatch.setattr(spark, "stop", lambda: stops.append("once"))
    code = build_job.main(job)
    check_wrong_input(code, capsys.readouterr().err, WRONG_VALUE, controller, tmp_path)
    assert stops == ["once"]


def test_neither_the_error_nor_the_report_shows_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = MANIFEST.replace("sourceUri: trips.csv", "sourceUri: 's3://b/x.csv?secret_key=hunter2'")
    (tmp_path / "table.yaml").write_text(table)
    report = tmp_path / "report"
    assert build_job.main(["--table", str(tmp_path / "table.yaml"), "--report", str(report)]) == 2
    build_job._write_report(report, {"error": "cannot read s3://b/x.csv?secret_key=hunter2"})
    assert "x.csv" in report.read_text()
    assert "hunter2" not in report.read_text() + capsys.readouterr().err


def test_a_report_fits_a_termination_message(tmp_path: Path) -> None:
    path = tmp_path / "report"
    samples = [{"reason": "not a number", "row": {"code": "x" * 900}} for _ in range(20)]
    build_job._write_report(path, {"error": "e" * 9000, "badRows": {"count": 20, "byReason": {}, "samples": samples}})
    assert len(path.read_bytes()) < 4096
    assert json.loads(path.read_text())["badRows"] == {"count": 20}
    build_job._write_report(path, {"rowsIn": 1, "badRows": {"count": 1, "byReason": {"r": 1}, "samples": samples}})
    assert json.loads(path.read_text()) == {"rowsIn": 1, "badRows": {"count": 1, "byReason": {"r": 1}}}
