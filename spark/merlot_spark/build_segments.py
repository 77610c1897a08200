"""Build the segments of a table from files or any Spark DataFrame and publish them, all at once or not at all.

Rows are conformed to the schema, grouped by UTC day and partition, and sorted by all their columns, so that equal rows
give equal files whatever the source's order and Spark's parallelism. Executors build and upload the segments. Only then
does the driver publish them, in one call. A run that fails leaves files that nothing refers to; the next run reuses
them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.coverage import FLAG
from merlot.cluster.segments.rounding import instant_text, smallest_window
from merlot.errors import ConflictError, InvalidInputError, MerlotError, UnavailableError
from merlot.ingest.batch import EVERYTHING, RowSelection, beside, check_bad_rows, check_stretch, source_text
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.shape import Shape, shape_of
from merlot.spec.table import PushType, Table
from merlot.store.deepstore import DeepStore
from merlot_spark import executor, failures, frames, parcels, serving
from merlot_spark.expressions import without_hoisting
from merlot_spark.frames import Prepared
from merlot_spark.interrupts import PublishInterrupt
from merlot_spark.preparing import PrepareTask, TaskCounts
from merlot_spark.progress import JobProgress
from merlot_spark.publish import ControllerClient, PublishOrder
from merlot_spark.report import JobReport, Plan
from merlot_spark.serving import Served
from merlot_spark.sources import FileSource

_LOG = logging.getLogger(__name__)

TASKS_PER_CORE = 4
"""Tasks per core: enough to balance days of unequal size; more tasks cost more than they balance."""
PUBLISH_WAIT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Settings of a job's run; the table decides what it builds."""

    parallelism: int | None = None
    """Number of build tasks; TASKS_PER_CORE per core of the session if None."""
    custom_map: Mapping[str, str] | None = None
    """Custom map for every record, e.g. where the rows came from."""
    show_progress: bool = False
    stretch: RowSelection = EVERYTHING
    """Window of the rows to take, and suffix of the segments' names."""
    publish_patience_s: float = 180.0
    """Seconds for which a controller may be away or busy deleting files of the same names (three of its looks at them),
    or a merge of the same segments may be under way."""
    replace_rows: bool = False
    """Same as `BatchIngestion.replace_rows`."""
    wait_s: float = 0.0
    """Seconds to wait, after publishing, until servers have loaded the segments; 0: do not wait."""
    is_dry_run: bool = False
    """True: build, ask the controller what would happen to the segments, and write nothing."""


@dataclass(frozen=True, kw_only=True)
class _Built:
    """Results of the executors, in an order that does not depend on theirs."""

    records: list[dict[str, Any]]
    uploaded: tuple[str, ...]
    counts: TaskCounts
    unpartitioned: Mapping[str, Mapping[str, str]]


def build_segments(
    rows: DataFrame | FileSource,
    table: Table,
    *,
    deep_store: str,
    controller_url: str | None,
    ingestion: BatchIngestion | None = None,
    options: JobOptions | None = None,
) -> JobReport:
    """Build and publish segments; without a controller only build and upload them. With a controller, the segments are
    built by its table, and `table` must have the same shape.

    `rows` are a batch source's (`sources.read`) or any DataFrame's; in a DataFrame, a text column `_corrupt_record`
    marks lines that are no record. `ingestion` gives the filter, derived columns and the share of bad rows that is
    allowed (none without it).

    Raise BadRowsError past that share. Raise InvalidInputError for a table that differs from the controller's, for
    expressions that Spark refuses, and for a batch that would remove rows of the table without saying so. Raise
    NotFoundError if the controller has no such table, UnavailableError if executors, deep store or controller fail,
    ConflictError if a merge of the same segments outlasts `publish_patience_s`, PublishInterrupt for a Ctrl-C after
    which the segments may be published."""
    options = options or JobOptions()
    if options.is_dry_run and controller_url is None:
        raise InvalidInputError("a dry run asks the controller what would change; give --controller")
    shape = None
    if controller_url is not None:
        applied = ControllerClient(controller_url).table(table.raw_name)
        applied.check(table, deep_store)
        table = applied.table
        shape = None if applied.shape is None else shape_of(table.spec)
        check_stretch(options.stretch, table)
    options = dataclasses.replace(options, stretch=beside(options.stretch, table, ingestion))
    spark = rows.spark if isinstance(rows, FileSource) else rows.sparkSession
    num_tasks = options.parallelism or TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=num_tasks, window=options.stretch.window)
    if isinstance(rows, FileSource):
        prepared = rows.prepare(table, task)
    else:
        prepared = frames.prepare(rows, table, ingestion, task)
    if controller_url is not None and ingestion is not None:
        # Segments that cannot be published need not be built. Before publishing the controller is asked again.
        _overwritten(ControllerClient(controller_url), table, ingestion)
    started = time.monotonic()
    built = _run(prepared.rows, task, table, deep_store, options)
    built_at = time.monotonic()
    counts = built.counts
    _check_columns(prepared, counts, table)
    # If there are too many bad rows, uploaded files stay: another job may have published the same files meanwhile. The
    # controller removes files that nobody publishes.
    check_bad_rows(counts.bad, counts.rows_in, 0.0 if ingestion is None else ingestion.max_bad_row_share, table)
    report = JobReport(
        table=table.raw_name,
        rows_in=counts.rows_in,
        rows_out=sum(record["totalDocs"] for record in built.records),
        bad=counts.bad,
        cut=counts.cut,
        absent_columns=_in_order(prepared.lacking - prepared.needed - counts.seen, table),
        rows_outside=counts.outside,
        rows_filtered=counts.filtered,
        num_files=prepared.num_files,
        empty_files=prepared.empty_files,
        records=tuple(built.records),
        segments=tuple(f"{record['name']}@{record['crc']}" for record in built.records),
        segments_uploaded=len(built.uploaded),
        unpartitioned=built.unpartitioned,
        bytes=sum(record["sizeBytes"] for record in built.records),
        seconds={"build": built_at - started},
    )
    if controller_url is None:
        return report
    overwritten = () if ingestion is None else _overwritten(ControllerClient(controller_url), table, ingestion)
    order = _publish_order(built.records, table, ingestion, options, overwritten, shape)
    if options.is_dry_run:
        return _publish(report, order, ControllerClient(controller_url))
    publish = partial(_publish, report, order, ControllerClient(controller_url, waits_s=()))
    try:
        report = _repeatedly(publish, partial(_check_files, built, table, deep_store), options.publish_patience_s)
    except KeyboardInterrupt as error:
        raise PublishInterrupt from error
    return _waited(report, ControllerClient(controller_url), options)


def _overwritten(client: ControllerClient, table: Table, ingestion: BatchIngestion) -> Collection[str]:
    """Return the segments of the overwrite window: replaced, or removed if the batch does not build them anew."""
    if ingestion.overwrite is None:
        return ()
    first, end = map(_millis, (ingestion.overwrite.start, ingestion.overwrite.end))
    path = f"/segments/{table.raw_name}/select?startTimestamp={first}&endTimestamp={end}&excludeOverlapping=true"
    names = {name for group in client.get(path) for names in group.values() for name in names}
    _check_rounding(client, table, (first, end))
    return names


def _check_rounding(client: ControllerClient, table: Table, window: tuple[int, int]) -> None:
    """Raise InvalidInputError if merges have rounded rows of the window together with others, which would be removed
    too."""
    statuses: Mapping[str, Any] = client.get(f"/segments/{table.raw_name}/metadata")
    visible = [SegmentRecord.model_validate(status) for status in statuses.values() if status.get("visible", True)]
    least = smallest_window(visible, window)
    if least != window:
        raise InvalidInputError(
            "rows of the overwrite window were rounded together with others when they were merged, so it cannot be "
            f"replaced alone table={table.raw_name} smallest={instant_text(least[0])}..{instant_text(least[1])}"
        )


def _millis(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _publish_order(
    built: Sequence[Mapping[str, Any]],
    table: Table,
    ingestion: BatchIngestion | None,
    options: JobOptions,
    overwritten: Collection[str],
    shape: Shape | None,
) -> PublishOrder:
    """Return the request to publish. Raise InvalidInputError if the batch has an overwrite window that holds segments,
    and no row of the window."""
    replaces_rows = options.replace_rows or (ingestion is not None and ingestion.replace_rows)
    if overwritten and ingestion is not None and not replaces_rows and not _has_rows_of_window(built, ingestion):
        raise InvalidInputError(
            f"the batch has no row of its overwrite window, and would remove {len(overwritten)} segments "
            f"table={table.raw_name} segments={sorted(overwritten)[:3]}; nothing was published; if they shall go, say "
            f"so: {FLAG} allows it"
        )
    more: dict[str, Any] = {"customMap": dict(options.custom_map or {})}
    if ingestion is not None:
        more["source"] = source_text(ingestion)
    return PublishOrder(
        table=table.raw_name,
        records=[{**record, **more} for record in built],
        replace_all=table.spec.push_type is PushType.REFRESH,
        replace=sorted(overwritten),
        replace_rows=replaces_rows,
        is_dry_run=options.is_dry_run,
        shape=shape,
    )


def _has_rows_of_window(records: Sequence[Mapping[str, Any]], ingestion: BatchIngestion) -> bool:
    assert ingestion.overwrite is not None, "asked of batches that stand for a window"
    first, end = map(_millis, (ingestion.overwrite.start, ingestion.overwrite.end))
    times = [(record.get("startTimeMs"), record.get("endTimeMs")) for record in records]
    return any(start is None or last is None or (start < end and last >= first) for start, last in times)


def _publish(report: JobReport, order: PublishOrder, client: ControllerClient) -> JobReport:
    started = time.monotonic()
    publication = client.publish(order)
    return dataclasses.replace(
        report,
        published=len(publication.published),
        unchanged=len(publication.unchanged),
        removed=len(publication.removed),
        replaced=len(publication.replaced),
        rows=publication.rows,
        plan=Plan.of(publication) if order.is_dry_run else None,
        seconds={**report.seconds, "publish": time.monotonic() - started},
    )


def _waited(report: JobReport, client: ControllerClient, options: JobOptions) -> JobReport:
    """Wait until servers answer for the published segments. If none can be asked, or Ctrl-C ends the wait, the segments
    stay published."""
    if not options.wait_s:
        return report
    started = time.monotonic()
    try:
        served = serving.wait(client, report.table, report.segments, options.wait_s)
    except (MerlotError, KeyboardInterrupt) as error:
        reason = "the wait was stopped" if isinstance(error, KeyboardInterrupt) else str(error)
        served = Served(tuple(key.rpartition("@")[0] for key in report.segments), reason)
    return dataclasses.replace(report, served=served, seconds={**report.seconds, "serve": time.monotonic() - started})


def _repeatedly(publish: Callable[[], JobReport], check: Callable[[], None], patience_s: float) -> JobReport:
    """Publish, again and again while the controller is away or a merge of the replaced segments is under way, for at
    most `patience_s`. A file of a removed segment that is built again cannot be published until the removal is done
    with it, and may be deleted until then, so each attempt checks the files first."""
    deadline = time.monotonic() + patience_s
    while True:
        check()
        try:
            return publish()
        except (UnavailableError, ConflictError) as error:
            if time.monotonic() > deadline:
                raise
            _LOG.warning("not published yet, will try again cause=%s", error)
            time.sleep(PUBLISH_WAIT_S)


def _check_columns(prepared: Prepared, counts: TaskCounts, table: Table) -> None:
    """Raise InvalidInputError if rows lack a column that the job needs. JSON lines show their columns only when they
    are read."""
    if not counts.rows_in:
        return
    if unknown := sorted(prepared.needed - counts.seen):
        raise InvalidInputError(f"wrong filter or derived column: the source has no column columns={unknown}")
    if not counts.seen & set(table.spec.table_schema.names) and counts.bad.count < counts.rows_in:
        raise InvalidInputError(f"source has no column of the table table={table.raw_name}")


def _in_order(names: Collection[str], table: Table) -> tuple[str, ...]:
    return tuple(name for name in table.spec.table_schema.names if name in names)


def shuffled(prepared: DataFrame, order: PrepareTask) -> DataFrame:
    """Move each parcel to the task that builds from it, sorted by lot."""
    return prepared.repartitionById(order.num_tasks, parcels.TASK).sortWithinPartitions(parcels.LOT)


def _run(prepared: DataFrame, order: PrepareTask, table: Table, deep_store: str, options: JobOptions) -> _Built:
    spark = prepared.sparkSession
    context = spark.sparkContext
    segments = context.accumulator(0)
    present = frozenset(DeepStore(deep_store).list(table.name))
    task = executor.BuildTask(
        manifest_text=order.manifest_text,
        deep_store=deep_store,
        present=present,
        on_built=segments.add,
        name_suffix=options.stretch.name_suffix,
        is_dry_run=options.is_dry_run,
    )
    results = shuffled(prepared, order).mapInArrow(executor.build(task), from_arrow_schema(executor.RESULT_SCHEMA))
    group = f"merlot-{uuid.uuid4()}"
    context.setJobGroup(group, f"build segments of {table.raw_name}", interruptOnCancel=True)
    try:
        with failures.translated(), without_hoisting(spark):
            if not options.show_progress:
                return _collect(results.collect())
            with JobProgress(context, group, lambda: segments.value):
                return _collect(results.collect())
    finally:
        context.setLocalProperty("spark.jobGroup.id", "")


def _collect(rows: Iterable[Any]) -> _Built:
    records, uploaded = [], []
    counts = TaskCounts()
    unpartitioned: dict[str, Mapping[str, str]] = {}
    for row in rows:
        value = json.loads(row.value)
        if row.kind == "segment":
            records.append(value["record"])
            if value["uploaded"]:
                uploaded.append(value["record"]["url"])
            if value["unpartitioned"]:
                unpartitioned[value["record"]["name"]] = value["unpartitioned"]
        else:
            counts += TaskCounts.from_json(value)
    records.sort(key=lambda record: str(record["name"]))
    for name, reasons in sorted(unpartitioned.items()):
        _LOG.warning("segment is not partitioned segment=%s causes=%s", name, dict(reasons))
    return _Built(
        records=records,
        uploaded=tuple(sorted(uploaded)),
        counts=counts,
        unpartitioned=dict(sorted(unpartitioned.items())),
    )


def _check_files(built: _Built, table: Table, deep_store: str) -> None:
    """Raise UnavailableError if a file of the segments is gone. It may have belonged to a segment that was removed some
    time ago: it existed when the job began, or was written in the moment of its deletion."""
    gone = sorted({str(record["url"]) for record in built.records} - set(DeepStore(deep_store).list(table.name)))
    if gone:
        raise UnavailableError(f"files of segments were deleted while the job ran, run it again files={gone[:3]}")


if __name__ == "__main__":
    # The command line is a module of its own: what Spark ships to executors must not live in `__main__`.
    from merlot_spark import interrupts
    from merlot_spark.build_job import main

    interrupts.keep_quiet()
    raise SystemExit(main())
