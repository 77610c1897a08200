"""`python -m merlot_spark.build_segments`: run a build job from the command line or in a container.

Exit codes: 0 success, 1 something outside failed (try again), 2 the input is wrong (trying again is of no use). With
`--report FILE` the report is written as JSON, whether the job succeeds or not: in a pod, it is the termination message.

On Kubernetes the driver runs in client mode in the pod of a Job, with `--master k8s://https://kubernetes.default.svc`
and all other settings by `--conf`. `spark.driver.host` and `spark.driver.bindAddress` must both be the pod's
address.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merlot.errors import InvalidInputError, MerlotError, first_line
from merlot.ingest.batch import NO_BOUND_MS, BadRowsError, RowSelection, check_stretch
from merlot.spec import manifest
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot.uris import redact
from merlot_spark import failures, interrupts, sources
from merlot_spark.build_segments import JobOptions, build_segments
from merlot_spark.progress import StatusLine
from merlot_spark.publish import AppliedTable, ControllerClient
from merlot_spark.report import JobReport
from merlot_spark.session import create_session

EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2
MAX_REPORT_BYTES = 4_000
"""Largest report in bytes: Kubernetes cuts a termination message at 4,096."""
LONGEST_ERROR = 700


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job that the arguments describe; return the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        report = _run(chosen)
    except BadRowsError as error:
        _write_report(chosen.report, {"error": first_line(error), "badRows": error.bad.to_json()})
        return _fail(error, EXIT_WRONG_INPUT)
    except MerlotError as error:
        _write_report(chosen.report, {"error": str(error)})
        return _fail(error, EXIT_WRONG_INPUT if isinstance(error, InvalidInputError) else EXIT_FAILED)
    except interrupts.PublishInterrupt:
        sys.stderr.write(
            "stopped while publishing: the segments may be published or not, all of them or none; run the job again to "
            "be sure\n"
        )
        return EXIT_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("stopped; nothing was published\n")
        return EXIT_FAILED
    except Exception as error:
        # A bug: its traceback goes to the log, its last line to the reader of the report.
        _write_report(chosen.report, {"error": f"{type(error).__name__}: {error}"})
        raise
    _write_report(chosen.report, report.to_json())
    sys.stdout.write((json.dumps(report.to_json()) if chosen.json else report.to_text()) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m merlot_spark.build_segments",
        description="Build a table's segments with Spark and publish them.",
    )
    parser.add_argument(
        "--table",
        type=Path,
        help="manifest of the table; the controller's if left out. With --controller it must say the same of the "
        "table's rows as the applied one",
    )
    parser.add_argument("--name", help="which table, if there is no manifest, or one of several")
    parser.add_argument("--source", help="file, folder or glob; the manifest's batch source if left out")
    parser.add_argument("--format", type=str.lower, choices=[name.lower() for name in BatchFormat])
    parser.add_argument("--ingestion", help="which of the manifest's batch sources, if it has several")
    parser.add_argument("--controller", help="URL of the controller or node; without it nothing is published")
    parser.add_argument("--deep-store", help="URI of the deep store; the table's if left out")
    parser.add_argument("--master", default="local[2]", help="Spark master (%(default)s)")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the Spark session; the last one counts",
    )
    parser.add_argument("--parallelism", type=int, help="build tasks; several per core if left out")
    parser.add_argument("--short", action="store_true", help="a local job of less than a minute: start fast")
    parser.add_argument(
        "--custom", action="append", default=[], metavar="KEY=VALUE", help="kept in the custom map of every segment"
    )
    parser.add_argument(
        "--from-ms",
        type=_epoch_ms,
        help="leave out rows whose time is before this; epoch milliseconds, of a UTC midnight if segments are "
        "published without --name-suffix",
    )
    parser.add_argument("--to-ms", type=_epoch_ms, help="leave out rows whose time is not before this; as --from-ms")
    parser.add_argument(
        "--name-suffix",
        default="",
        help="what the names of the segments end with: rows are added to those of the same days, and replace none",
    )
    parser.add_argument(
        "--replace-rows",
        action="store_true",
        help="let rows of the table go that the batch may not hold: a new segment of a day replaces one that has more "
        "rows, reaches further or is of another source, and a batch without rows empties what it stands for; else "
        "both are refused",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="build, and show which segments the job would add, replace, remove and leave as they are, or why it would "
        "be refused; write nothing",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait after publishing until servers have loaded the segments; 0: not at all (%(default)s)",
    )
    parser.add_argument("--records", type=Path, help="file to write the segments' records to, as JSON")
    parser.add_argument("--report", type=Path, help="file to write the report to, as JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _epoch_ms(text: str) -> int:
    millis = int(text)
    if not -(2**63) <= millis < 2**63:
        raise argparse.ArgumentTypeError(f"no time in epoch milliseconds: {text}")
    return millis


def _run(chosen: argparse.Namespace) -> JobReport:
    declared, applied = _tables(chosen)
    table = declared if applied is None else applied.table
    ingestion = _ingestion(declared, chosen)
    deep_store = _deep_store(table, applied, chosen.deep_store)
    if applied is not None:
        applied.check(declared, deep_store)
        check_stretch(_stretch(chosen), table)
    with failures.translated():
        return _build(table, ingestion, deep_store, chosen)


def _build(table: Table, ingestion: BatchIngestion, deep_store: str, chosen: argparse.Namespace) -> JobReport:
    started = time.monotonic()
    line = StatusLine()
    line.show("  starting Spark")
    spark = None
    try:
        with interrupts.postponed_interrupt():
            spark = create_session(chosen.master, is_short=chosen.short, settings=_pairs(chosen.conf))
        line.clear()
        session_seconds = time.monotonic() - started
        report = build_segments(
            sources.read(spark, ingestion, table),
            table,
            deep_store=deep_store,
            controller_url=chosen.controller,
            ingestion=ingestion,
            options=JobOptions(
                parallelism=chosen.parallelism,
                custom_map=_pairs(chosen.custom),
                show_progress=True,
                stretch=_stretch(chosen),
                replace_rows=chosen.replace_rows,
                wait_s=chosen.wait,
                is_dry_run=chosen.dry_run,
            ),
        )
        if chosen.records is not None:
            chosen.records.write_text(json.dumps(report.records))
        return dataclasses.replace(report, seconds={"session": session_seconds, **report.seconds})
    finally:
        if spark is not None:
            interrupts.stop(spark)


def _stretch(chosen: argparse.Namespace) -> RowSelection:
    if chosen.from_ms is None and chosen.to_ms is None:
        return RowSelection(name_suffix=chosen.name_suffix)
    start_ms = -NO_BOUND_MS if chosen.from_ms is None else chosen.from_ms
    end_ms = NO_BOUND_MS if chosen.to_ms is None else chosen.to_ms
    return RowSelection(window=(start_ms, end_ms), name_suffix=chosen.name_suffix)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` texts. The last value of a key counts; a value may be left out."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def _tables(chosen: argparse.Namespace) -> tuple[Table, AppliedTable | None]:
    """Read the user's manifest, if there is one, and the controller's, which the job builds by."""
    client = None if chosen.controller is None else ControllerClient(chosen.controller)
    if chosen.table is not None:
        declared = _table(chosen.table, chosen.name)
        return declared, None if client is None else client.table(declared.raw_name)
    if client is None or chosen.name is None:
        raise InvalidInputError("no table; give its manifest with --table, or --controller and its --name")
    applied = client.table(chosen.name)
    return applied.table, applied


def _deep_store(table: Table, applied: AppliedTable | None, chosen: str | None) -> str:
    declared = table.spec.deep_store_uri
    uri = chosen or declared or (None if applied is None else applied.deep_store)
    if uri is None:
        raise InvalidInputError("no deep store; give --deep-store, or spec.deepStore in the manifest")
    return uri


def _table(path: Path, name: str | None) -> Table:
    try:
        tables = [body for body in manifest.load(path.read_text()) if isinstance(body, Table)]
    except OSError as error:
        raise InvalidInputError(f"cannot read the manifest path={path} reason={error.strerror}") from error
    chosen = [table for table in tables if name in (None, table.raw_name)]
    if len(chosen) != 1:
        raise InvalidInputError(f"choose one table with --name tables={[table.raw_name for table in tables]}")
    return chosen[0]


def _ingestion(table: Table, chosen: argparse.Namespace) -> BatchIngestion:
    """Return the manifest's batch source, or one made of --source and --format."""
    declared = [source for source in table.spec.ingestion.batch if chosen.ingestion in (None, source.name)]
    if len(declared) > 1 or (chosen.ingestion is not None and not declared):
        names = [source.name for source in table.spec.ingestion.batch]
        raise InvalidInputError(f"choose one batch source with --ingestion sources={names}")
    updates: dict[str, Any] = {}
    if chosen.source is not None:
        updates["source_uri"] = chosen.source
    if chosen.format is not None:
        updates["format"] = BatchFormat(chosen.format.upper())
    if declared:
        return declared[0].model_copy(update=updates)
    if len(updates) < 2:
        raise InvalidInputError("no batch source; give --source and --format, or spec.ingestion.batch in the manifest")
    return BatchIngestion(**updates)


def _write_report(path: Path | None, report: dict[str, Any]) -> None:
    """Write the report as JSON that fits into a termination message. Samples are dropped first, then lists, then the
    reasons of bad rows and the end of the error. The plan of a dry run is never shortened."""
    if path is None:
        return
    report = {**report, "error": redact(report["error"])} if "error" in report else report
    bad = {key: value for key, value in report.get("badRows", {}).items() if key != "samples"}
    short = {**report, "badRows": bad} if "badRows" in report else report
    shorter = {key: value for key, value in short.items() if key not in ("unpartitioned", "absentColumns", "cutTexts")}
    shortest = {**shorter, "badRows": {"count": bad.get("count", 0)}} if bad else shorter
    if "error" in report:
        shortest = {**shortest, "error": report["error"][:LONGEST_ERROR]}
    texts = [json.dumps(version, ensure_ascii=False) for version in (report, short, shorter, shortest)]
    path.write_text(next((text for text in texts if len(text.encode()) < MAX_REPORT_BYTES), texts[-1]) + "\n")


def _fail(error: MerlotError, code: int) -> int:
    sys.stderr.write(f"error: {redact(str(error))}\n")
    return code
