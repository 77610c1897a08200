"""The moment of publishing: a job that dies around it, and two jobs that come to it together."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from pyspark.sql import SparkSession
from tests.support.apps import serve_app

from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.errors import InvalidInputError, UnavailableError
from merlot.http.guard import MAX_LARGE_BODIES
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot.testing.patience import wait_until
from merlot_spark import sources
from merlot_spark.build_job import EXIT_FAILED
from merlot_spark.build_segments import JobOptions, build_segments
from merlot_spark.publish import ControllerClient
from merlot_spark.report import JobReport

INTERRUPTED = (
    "stopped while publishing: the segments may be published or not, all of them or none; run the job again to be sure"
)
START_S = 180.0
"""Spark starts slowly where much else does."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: hours}
spec:
  schema:
    fields: [{name: at, type: TIMESTAMP, role: dateTime}, {name: n, type: INT, role: metric}]
  timeColumn: at
"""


@pytest.fixture
def table(controller: str) -> Table:
    ControllerClient(controller).apply(MANIFEST)
    (table,) = manifest.load_tables(MANIFEST)
    return table


def write_hours(path: Path, *hours: int) -> Path:
    rows = {"at": pa.array([hour * HOUR_MS for hour in hours], pa.timestamp("ms", "UTC")), "n": list(hours)}
    pq.write_table(pa.table(rows), path)
    return path


def published(controller: str) -> dict[str, int]:
    """Rows by segment."""
    statuses = ControllerClient(controller).get("/segments/hours/metadata")
    return {name: status["totalDocs"] for name, status in statuses.items()}


class Gate:
    """Where requests to publish wait, before the controller does what they ask or before it answers."""

    def __init__(self, *, is_before: bool) -> None:
        self._is_before = is_before
        self._opened = threading.Event()
        self._is_dropping = False
        self.num_waiting = 0

    def open(self) -> None:
        """Let everybody through."""
        self._opened.set()

    def drop(self) -> None:
        """As a controller that never got the requests."""
        self._is_dropping = True
        self._opened.set()

    def middleware(self) -> Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]:
        @web.middleware
        async def wait(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not request.path.endswith("/publish"):
                return await handler(request)
            answer = None if self._is_before else await handler(request)
            self.num_waiting += 1
            await asyncio.to_thread(self._opened.wait, START_S)
            if self._is_dropping:
                raise web.HTTPServiceUnavailable
            return answer or await handler(request)

        return wait


@contextmanager
def gated(metastore: SqliteMetastore, gate: Gate) -> Iterator[str]:
    """Another controller of the same cluster, with the gate."""
    app = make_app(ControllerService(metastore))
    app.middlewares.append(gate.middleware())
    with serve_app(app) as url:
        try:
            yield url
        finally:
            gate.open()


@pytest.mark.parametrize("is_before", [True, False], ids=["after the upload", "before the answer"])
def test_a_job_that_loses_the_controller_around_its_publishing_has_published_all_or_nothing_and_is_run_again(
    spark: SparkSession, table: Table, controller: str, metastore: SqliteMetastore, tmp_path: Path, is_before: bool
) -> None:
    source = write_hours(tmp_path / "hours.parquet", *range(60))
    gate = Gate(is_before=is_before)
    gate.drop()
    with gated(metastore, gate) as url, pytest.raises(UnavailableError):
        run(spark, source, table, tmp_path / "deep", url, publish_patience_s=0.0)
    assert gate.num_waiting == 1, "it came so far"
    assert published(controller) == ({} if is_before else DAYS)
    check_run_again(spark, source, table, tmp_path / "deep", controller)


@pytest.mark.parametrize(
    "is_before",
    [
        pytest.param(
            True,
            id="after the upload",
            marks=pytest.mark.slow("a job that loses the controller then leaves the same; one is killed at the answer"),
        ),
        pytest.param(False, id="before the answer"),
    ],
)
def test_a_job_that_is_killed_around_its_publishing_has_published_all_or_nothing_and_is_run_again(
    spark: SparkSession, table: Table, controller: str, metastore: SqliteMetastore, tmp_path: Path, is_before: bool
) -> None:
    source = write_hours(tmp_path / "hours.parquet", *range(60))
    gate = Gate(is_before=is_before)
    with gated(metastore, gate) as url, publishing_job(tmp_path, source, url, gate) as job:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        gate.drop()
        assert published(controller) == ({} if is_before else DAYS)
    check_run_again(spark, source, table, tmp_path / "deep", controller)


def test_a_job_that_is_interrupted_as_it_publishes_does_not_say_that_nothing_was_published(
    spark: SparkSession, table: Table, controller: str, metastore: SqliteMetastore, tmp_path: Path
) -> None:
    source = write_hours(tmp_path / "hours.parquet", *range(60))
    gate = Gate(is_before=False)
    with gated(metastore, gate) as url, publishing_job(tmp_path, source, url, gate) as job:
        os.killpg(job.pid, signal.SIGINT)
        _, errors = job.communicate(timeout=START_S)
        lines = [line for line in errors.splitlines() if " segments built, " not in line]
        assert (job.returncode, lines) == (EXIT_FAILED, [INTERRUPTED])
        assert published(controller) == DAYS
    check_run_again(spark, source, table, tmp_path / "deep", controller)


@contextmanager
def publishing_job(folder: Path, source: Path, url: str, gate: Gate) -> Iterator[subprocess.Popen[str]]:
    """A job in a process group of its own, whose request to publish waits at the gate."""
    (folder / "table.yaml").write_text(MANIFEST)
    command = [
        *(sys.executable, "-m", "merlot_spark.build_segments", "--short", "--parallelism", "2"),
        *("--table", str(folder / "table.yaml"), "--source", str(source), "--format", "parquet"),
        *("--deep-store", str(folder / "deep"), "--controller", url, "--report", str(folder / "report.json")),
    ]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as job:
        try:
            wait_until(lambda: gate.num_waiting or job.poll() is not None, START_S)
            assert gate.num_waiting == 1, job.communicate()[1]
            yield job
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


DAYS = {"hours_1970-01-01": 24, "hours_1970-01-02": 24, "hours_1970-01-03": 12}


def check_run_again(spark: SparkSession, source: Path, table: Table, deep: Path, controller: str) -> None:
    """The next run takes the files that are there, and publishes what is not published."""
    is_published = bool(published(controller))
    files = sorted((deep / "hours_OFFLINE").glob("*"))
    assert len(files) == len(DAYS)
    again = run(spark, source, table, deep, controller)
    assert (again.published, again.unchanged, again.segments_uploaded) == ((0, 3, 0) if is_published else (3, 0, 0))
    assert published(controller) == DAYS
    assert sorted((deep / "hours_OFFLINE").glob("*")) == files


def run(spark: SparkSession, source: Path, table: Table, deep: Path, url: str, **options: Any) -> JobReport:
    batch = BatchIngestion(source_uri=str(source), format=BatchFormat.PARQUET)
    rows = sources.read(spark, batch, table)
    chosen = JobOptions(parallelism=1, **options)
    return build_segments(rows, table, deep_store=str(deep), controller_url=url, ingestion=batch, options=chosen)


def run_together(
    spark: SparkSession, table: Table, metastore: SqliteMetastore, tmp_path: Path, *files: Path
) -> list[JobReport | InvalidInputError]:
    """Jobs of which as many as a controller takes at once have built before any of them publishes: in the order of the
    files, reports or refusals."""
    gate = Gate(is_before=True)
    num_waiting = min(len(files), MAX_LARGE_BODIES)

    def run_one(source: Path) -> JobReport | InvalidInputError:
        try:
            return run(spark, source, table, tmp_path / "deep", url)
        except InvalidInputError as error:
            return error

    with gated(metastore, gate) as url, ThreadPoolExecutor(len(files)) as threads:
        jobs = [threads.submit(run_one, source) for source in files]
        wait_until(lambda: gate.num_waiting == num_waiting or any(job.done() for job in jobs), START_S)
        assert gate.num_waiting == num_waiting
        gate.open()
        return [job.result() for job in jobs]


def test_of_two_jobs_that_publish_one_day_at_once_one_is_refused_and_no_row_of_the_other_is_lost(
    spark: SparkSession, table: Table, controller: str, metastore: SqliteMetastore, tmp_path: Path
) -> None:
    morning = write_hours(tmp_path / "am.parquet", *range(12), 30)
    afternoon = write_hours(tmp_path / "pm.parquet", *range(12, 24), 60)
    outcomes = run_together(spark, table, metastore, tmp_path, morning, afternoon)
    (won,) = [one for one in outcomes if isinstance(one, JobReport)]
    (refused,) = [one for one in outcomes if isinstance(one, InvalidInputError)]
    assert "may not hold segments=1: hours_1970-01-01: 12 rows" in str(refused)
    assert published(controller) == {str(one["name"]): one["totalDocs"] for one in won.records}, "nothing of the other"


def test_two_jobs_of_different_days_or_of_the_same_rows_are_both_taken(
    spark: SparkSession, table: Table, controller: str, metastore: SqliteMetastore, tmp_path: Path
) -> None:
    first = write_hours(tmp_path / "1.parquet", *range(24))
    second = write_hours(tmp_path / "2.parquet", *range(24, 48))
    outcomes = run_together(spark, table, metastore, tmp_path, first, second, first)
    counts = [(one.published, one.unchanged) for one in outcomes if isinstance(one, JobReport)]
    assert sorted(counts) == [(0, 1), (1, 0), (1, 0)]
    assert published(controller) == {"hours_1970-01-01": 24, "hours_1970-01-02": 24}


def test_a_dry_run_says_what_a_job_would_do_and_writes_nothing(
    spark: SparkSession, table: Table, controller: str, tmp_path: Path
) -> None:
    source, deep = write_hours(tmp_path / "hours.parquet", *range(30)), tmp_path / "deep"
    run(spark, source, table, deep, controller)
    before, files = published(controller), sorted(deep.rglob("*"))
    write_hours(source, *range(60))
    planned = run(spark, source, table, deep, controller, is_dry_run=True)
    assert planned.plan is not None
    assert planned.to_json()["plan"] == {
        "add": ["hours_1970-01-03"],
        "replace": ["hours_1970-01-02"],
        "remove": [],
        "leave": ["hours_1970-01-01"],
    }
    assert planned.to_text().splitlines()[2:] == [
        "dry run: nothing was written",
        "would add 1 segments: hours_1970-01-03",
        "would replace 1 segments: hours_1970-01-02",
        "would leave 1 segments: hours_1970-01-01",
        "rows of the table: 30 -> 60",
    ]
    write_hours(source, 24, 25)
    with pytest.raises(InvalidInputError, match="would replace rows that it may not hold segments=1: hours_1970-01-02"):
        run(spark, source, table, deep, controller, is_dry_run=True)
    assert (published(controller), sorted(deep.rglob("*"))) == (before, files)
    write_hours(source, *range(60))
    done = run(spark, source, table, deep, controller)
    assert (done.published, done.replaced, done.unchanged, done.rows) == (2, 1, 1, planned.rows)


def test_a_dry_run_needs_a_controller(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    source = write_hours(tmp_path / "hours.parquet", 1)
    batch = BatchIngestion(source_uri=str(source), format=BatchFormat.PARQUET)
    rows = sources.read(spark, batch, table)
    with pytest.raises(InvalidInputError, match="give --controller"):
        build_segments(rows, table, deep_store=str(tmp_path), controller_url=None, options=JobOptions(is_dry_run=True))
