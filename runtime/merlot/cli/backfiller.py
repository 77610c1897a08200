"""Work of `merlot backfill`: build new segments for a time window, and keep the rows that replaced segments have beyond
it. Loads the engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from merlot.catalog.transfer import check_room, fetch_segments, upload_segments
from merlot.cli.client import NodeClient, path_of
from merlot.cli.errors import CommandError
from merlot.cli.replacement import Replacer, TimeWindow
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.rounding import instant_text, with_true_times
from merlot.errors import MerlotError
from merlot.ingest.batch import RowSelection, build_from_files
from merlot.merge import task as merge_task
from merlot.merge.plan import MergePlan
from merlot.programs import run_group
from merlot.segment.metadata import CreationFacts
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.shape import shape_of
from merlot.spec.table import PushType, Table
from merlot.spec.tasks import BACKFILLED
from merlot.store.deepstore import DeepStore
from merlot.uris import canonical

BUILDER = "merlot_backfill"
SUFFIX_BYTES = 6
MAX_REST_NAME_BYTES = 120
"""Most bytes of a replaced segment's name in the name of the segments that keep its other rows. The run's suffix, two
times and a number follow; a segment's name may have 200."""
_EARLIER = re.compile(rf"_b[0-9a-f]{{{2 * SUFFIX_BYTES}}}(?=_|$)")
_LEAST, _GREATEST = -(1 << 62), 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """Options of a run of `merlot backfill`."""

    client: NodeClient
    table: Table
    window: TimeWindow
    source: BatchIngestion
    is_widened: bool = False
    """True widens the window to all rows that were rounded together with those in it."""
    replaces_rows: bool = False
    """True removes the window's rows even if the source has none to replace them."""
    deep_store: str | None = None
    master: str | None = None
    """Spark master; None runs without Spark."""
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegments:
    """New segments in the deep store."""

    records: Sequence[SegmentRecord]
    rows_in: int
    outside: int
    """Rows of the source outside the window, which were left out."""


@dataclass(kw_only=True)
class BackfillResult:
    """Result of a backfill."""

    table: str
    entry: str
    replaced: list[str] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    """Replaced segments that reach beyond the window: their other rows are kept."""
    published: list[str] = field(default_factory=list)
    rows: int = 0
    rows_replaced: int = 0
    """Rows of the window that were removed."""
    rows_outside: int = 0
    brokers_behind: list[str] = field(default_factory=list)
    """Brokers that may still answer the old rows for a while: they cannot be asked, or do not follow."""
    seconds: float = 0.0


def read_table(client: NodeClient, name: str) -> Table:
    """Return the applied manifest of a table."""
    return manifest.from_stored(client.get(path_of("tables", name, "manifest"))["manifest"])


def check_table(table: Table) -> None:
    """Raise CommandError if a window of the table cannot be replaced."""
    if table.spec.time_column is None:
        raise CommandError(f"{table.raw_name} has no time column, so there is no window of it to replace")
    if table.spec.push_type is PushType.REFRESH:
        raise CommandError(f"{table.raw_name} is of push type REFRESH: publish it anew instead")


def backfill(order: BackfillRequest) -> BackfillResult:
    """Replace the window's rows by the source's, for all queries at once. An interruption leaves the old rows, or the
    new ones if the replacement was already complete."""
    started = time.monotonic()
    replacer = Replacer(order.client, order.table.raw_name)
    order, inputs = _inputs(order, replacer)
    family, suffix = _names(order, inputs)
    entry = f"{family}{suffix}"
    outcome = BackfillResult(table=order.table.raw_name, entry=entry, replaced=[record.name for record in inputs])
    spilling = [record for record in inputs if not order.window.covers(record)]
    outcome.rewritten = [record.name for record in spilling]
    store = DeepStore(_store_uri(order, inputs))
    is_started = False
    outputs: list[SegmentRecord] = []
    try:
        with tempfile.TemporaryDirectory(prefix="merlot-backfill-") as folder:
            order.say(f"building segments from {order.source.source_uri}")
            built = _build(order, store, suffix, Path(folder))
            _check_emptied(order, built, inputs)
            outputs += [_marked(record, {}) for record in built.records]
            rests = _rewrite(order, store, spilling, suffix, Path(folder))
            outputs += rests
        order.say("publishing")
        is_started = True
        replacer.start(entry, family, inputs, outputs)
        replacer.put(entry, outputs, shape_of(order.table.spec))
        replacer.end(entry, lambda _: order.say("waiting until servers have loaded the new segments"))
    except BaseException:
        is_done = is_started and _taken_back(replacer, entry)
        if not is_done:
            _delete_unpublished(store, order.table, suffix, replacer)
            raise
    outcome.brokers_behind = replacer.wait_routed(entry, lambda brokers: order.say(f"waiting until {brokers} follows"))
    outcome.published = [record.name for record in outputs]
    outcome.rows, outcome.rows_outside = _num_docs(built.records), built.outside
    outcome.rows_replaced = _num_docs(inputs) - _num_docs(rests)
    outcome.seconds = time.monotonic() - started
    return outcome


def _check_emptied(order: BackfillRequest, built: BuiltSegments, inputs: Sequence[SegmentRecord]) -> None:
    """Raise CommandError if the source has no rows to replace the segments with, unless that is allowed."""
    if built.records or not inputs or order.replaces_rows:
        return
    raise CommandError(
        f"the source has no row of the window, and {len(inputs)} segments of {order.table.raw_name} may lose theirs: "
        "see that --from, --to and the source are right; --replace-rows empties the window"
    )


def _num_docs(records: Sequence[SegmentRecord]) -> int:
    return sum(record.total_docs for record in records)


def _inputs(order: BackfillRequest, replacer: Replacer) -> tuple[BackfillRequest, list[SegmentRecord]]:
    """Return the order with its final window, and the segments to replace. Segments are selected before the window is
    checked for rounding, so that none can be merged in between."""
    while True:
        inputs = replacer.select(order.window)
        window = _allowed(order, replacer)
        if window == order.window:
            return order, inputs
        order = replace(order, window=window)


def _allowed(order: BackfillRequest, replacer: Replacer) -> TimeWindow:
    """Return the window, widened to what merges have rounded together. Raise CommandError if it has to be widened and
    that is not allowed."""
    wanted = order.window
    allowed = replacer.smallest(wanted)
    if allowed == wanted:
        return wanted
    options = f"--from {instant_text(allowed.start_ms)} --to {instant_text(allowed.end_ms)}"
    if not order.is_widened:
        raise CommandError(
            "rows of the window were rounded together with others when they were merged, so it cannot be replaced "
            f"alone; the smallest that can is {options}: ask for that, or add --widen, with a source that holds all of "
            "its rows"
        )
    order.say(f"the window is {options}")
    return allowed


def _names(order: BackfillRequest, inputs: Sequence[SegmentRecord]) -> tuple[str, str]:
    """Return a prefix of entry ids and a suffix of segment names.

    Entries of runs with the same task share the prefix, so that a later run finds one that was broken off. The suffix
    belongs to this run alone, so that a frozen run that wakes up can only take back its own segments."""
    keys = "\n".join(sorted(record.key_text for record in inputs))
    text = f"{order.table.raw_name}\n{order.window.start_ms}\n{order.window.end_ms}\n{keys}"
    return f"backfill-{hashlib.sha256(text.encode()).hexdigest()[:12]}", f"_b{secrets.token_hex(SUFFIX_BYTES)}"


def _rest_name(record: SegmentRecord, number: int, suffix: str) -> str:
    """Return the name prefix of the segments with the rows that a replaced segment keeps. So that names do not grow,
    suffixes of earlier backfills are removed, and a long name is cut."""
    name = _EARLIER.split(record.name, maxsplit=1)[0]
    return f"{name.encode()[:MAX_REST_NAME_BYTES].decode(errors='ignore')}{suffix}_{number}"


def _store_uri(order: BackfillRequest, inputs: Sequence[SegmentRecord]) -> str:
    declared = order.table.spec.deep_store_uri
    uri = order.deep_store or declared or next((record.url.rsplit("/", 2)[0] for record in inputs), None)
    if uri is None:
        statuses: Mapping[str, Any] = order.client.get(path_of("segments", order.table.raw_name, "metadata"))
        uri = next((str(status["url"]).rsplit("/", 2)[0] for status in statuses.values()), None)
    if uri is None:
        answer: Mapping[str, Any] = order.client.get(path_of("tables", order.table.raw_name, "manifest"))
        uri = answer.get("deepStore")
    if uri is None:
        raise CommandError("no deep store is known: pass --deep-store, or set spec.deepStore of the table")
    return uri


def _build(order: BackfillRequest, store: DeepStore, suffix: str, folder: Path) -> BuiltSegments:
    if order.master is not None:
        return _build_by_spark(order, store, suffix, folder)
    stretch = RowSelection(window=(order.window.start_ms, order.window.end_ms), name_suffix=suffix)
    (folder / "new").mkdir()
    result = build_from_files(order.table, order.source, folder / "new", _creation(), stretch=stretch)
    order.say(f"uploading {len(result.segments)} segments")
    records = upload_segments(store, result.segments, order.table.name)
    return BuiltSegments(records=records, rows_in=result.rows_in, outside=result.outside)


def _build_by_spark(order: BackfillRequest, store: DeepStore, suffix: str, folder: Path) -> BuiltSegments:
    """Build and upload the segments by a Spark job, which publishes nothing."""
    table_file, report_file, records_file = folder / "table.json", folder / "report.json", folder / "records.json"
    document = manifest.dump(order.table)
    document["spec"]["ingestion"] = {"batch": [order.source.model_dump(mode="json", by_alias=True)]}
    table_file.write_text(json.dumps(document))
    command = [
        *(sys.executable, "-m", "merlot_spark.build_segments", "--table", str(table_file), "--json", "--short"),
        *("--deep-store", store.uri, "--master", str(order.master), "--report", str(report_file)),
        *("--records", str(records_file), "--name-suffix", suffix),
        *("--from-ms", str(order.window.start_ms), "--to-ms", str(order.window.end_ms)),
    ]
    code = run_group(command)
    report = json.loads(report_file.read_text()) if report_file.exists() else {}
    if code != 0:
        raise CommandError(report.get("error") or f"the Spark job failed, exit code {code}; its own error is above")
    records = [SegmentRecord.model_validate(record) for record in json.loads(records_file.read_text())]
    return BuiltSegments(records=records, rows_in=report["rowsIn"], outside=report["rowsOutside"])


def _rewrite(
    order: BackfillRequest, store: DeepStore, spilling: Sequence[SegmentRecord], suffix: str, folder: Path
) -> list[SegmentRecord]:
    """Write and upload the rows that the segments have before and after the window."""
    rewritten = []
    for number, record in enumerate(spilling):
        order.say(f"keeping the other rows of {record.name}")
        place = folder / f"spill-{number}"
        check_room(place, 3 * record.size_bytes)
        paths = fetch_segments(store, [record], place / "in")
        (place / "out").mkdir()
        plan = _rest_plan(order, _rest_name(record, number, suffix))
        built = merge_task.run(plan, paths, place / "out", lambda *_: None, lambda: False, 1 << 30)
        rests = upload_segments(store, built, order.table.name)
        windows = [window for window in plan.windows if window[0] < window[1]]
        rewritten += [with_true_times(_marked(rest, record.custom_map), [record], windows) for rest in rests]
    return rewritten


def _rest_plan(order: BackfillRequest, prefix: str) -> MergePlan:
    spec = order.table.spec
    return MergePlan(
        table=order.table.raw_name,
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=spec.time_column,
        partitioning=spec.partitioning,
        windows=((_LEAST, order.window.start_ms), (order.window.end_ms, _GREATEST)),
        segment_name_prefix=prefix,
        drops_outside=True,
        creation=_creation(),
    )


def _creation() -> CreationFacts:
    return CreationFacts(host=socket.gethostname(), time_ms=time.time_ns() // 1_000_000, builder=BUILDER)


def _marked(record: SegmentRecord, custom_map: Mapping[str, str]) -> SegmentRecord:
    """Return the record with the mark that makes merges process its bucket again, however old it is."""
    return record.model_copy(update={"custom_map": {**custom_map, BACKFILLED: "true"}})


def _taken_back(replacer: Replacer, entry: str) -> bool:
    """Revert the entry unless it is complete. Return True if the new segments answer, False if the old ones do."""
    try:
        return replacer.revert_if_under_way(entry)
    except CommandError as error:
        raise CommandError(
            f"the node cannot be asked whether the backfill is done: {error}; old rows or new ones answer, never both; "
            "run the same command again"
        ) from error


def _delete_unpublished(store: DeepStore, table: Table, suffix: str, replacer: Replacer) -> None:
    """Delete files of this run's segments that no record names. Files that cannot be deleted now are deleted as orphans
    a day later."""
    with contextlib.suppress(MerlotError):
        statuses = replacer.client.get(path_of("segments", table.raw_name, "metadata"))
        named = {canonical(status["url"]) for status in statuses.values()}
        for url in store.list(table.name):
            if suffix in url.rpartition("/")[2] and canonical(url) not in named:
                store.delete(url)
