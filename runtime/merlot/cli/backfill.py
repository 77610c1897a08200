"""`merlot backfill`: replace a time window of a table by rows of a source."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url
from merlot.cli.errors import CommandError, UsageError
from merlot.cli.output import plural
from merlot.extras import lacks
from merlot.spec.formats import BatchFormat

if TYPE_CHECKING:
    from types import ModuleType

    from merlot.cli.backfiller import BackfillResult
    from merlot.spec.ingestion import BatchIngestion
    from merlot.spec.table import Table


_SUFFIXES = {
    ".parquet": BatchFormat.PARQUET,
    ".orc": BatchFormat.ORC,
    ".csv": BatchFormat.CSV,
    ".json": BatchFormat.JSON,
    ".jsonl": BatchFormat.JSON,
}
_MILLIS = re.compile(r"-?[0-9]{5,18}")
"""Epoch milliseconds: fewer digits are a year, and more do not fit into 64 bits."""


def backfill(
    table: Annotated[str, typer.Argument(help="Table.", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="First instant of the window, UTC: 2013-07-04, 2013-07-04T12:00:00, or ms."
        ),
    ],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="First instant after the window.")],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="URI", help="File, folder or glob with the window's rows."),
    ] = None,
    source_format: Annotated[
        BatchFormat | None,
        typer.Option("--format", case_sensitive=False, help="Format of the source.", show_default="by the file's name"),
    ] = None,
    ingestion: Annotated[
        str | None,
        typer.Option(
            "--ingestion", help="A batch source of the table's manifest, with its filter, columns and format."
        ),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Build in this process, without Spark; for small data.")
    ] = False,
    master: Annotated[str, typer.Option("--master", help="Spark master.")] = "local[2]",
    widen: Annotated[
        bool,
        typer.Option(
            "--widen",
            help="Widen the window to whole periods that merges have rounded; the source must hold all of it.",
        ),
    ] = False,
    replace_rows: Annotated[
        bool, typer.Option("--replace-rows", help="Replace the window even if the source has no row in it.")
    ] = False,
    deep_store: Annotated[str | None, typer.Option(help="URI of the deep store, if it is not the node's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Replace a window of time by the rows of a source.

    All queries see the old rows until the new ones are loaded, and only the
    new ones from then on. Segments that reach beyond the window keep their
    other rows. Rows of the source beyond the window are left out. What was
    merged before is merged again. Where merges have rounded times, whole
    periods are replaced or nothing. A source without a row of the window is
    refused, unless --replace-rows. Ctrl-C leaves the table as it was.
    """
    from merlot.cli.replacement import TimeWindow, check_window

    window = TimeWindow(_millis("--from", start), _millis("--to", end))
    check_window(window)
    backfiller = _backfiller()
    client = NodeClient(url)
    stored = backfiller.read_table(client, table)
    backfiller.check_table(stored)
    order = backfiller.BackfillRequest(
        client=client,
        table=stored,
        window=window,
        source=_source(stored, source, source_format, ingestion),
        is_widened=widen,
        replaces_rows=replace_rows,
        deep_store=deep_store,
        master=None if local else master,
        say=_show_step,
    )
    try:
        outcome = backfiller.backfill(order)
    except KeyboardInterrupt:
        _show_step("")
        output.warn("stopped; the old rows answer, and nothing is left of the new ones")
        raise
    finally:
        _show_step("")
    if as_json:
        output.show_json(asdict(outcome))
    else:
        _show(outcome)


def _backfiller() -> ModuleType:
    try:
        from merlot.cli import backfiller
    except ModuleNotFoundError as error:
        raise CommandError(lacks("`merlot backfill`", "engine", error)) from None
    return backfiller


def _source(table: Table, uri: str | None, given: BatchFormat | None, name: str | None) -> BatchIngestion:
    """Return a source of the manifest, or a new one. --source and --format take precedence."""
    from merlot.spec.ingestion import BatchIngestion

    declared = [source for source in table.spec.ingestion.batch if name == source.name]
    if name is not None and not declared:
        names = ", ".join(source.name for source in table.spec.ingestion.batch) or "none"
        raise UsageError(f"no such batch source: {name}; the table declares {names}")
    if declared:
        update = {"source_uri": uri or declared[0].source_uri, "format": given or declared[0].format}
        return declared[0].model_copy(update=update)
    if uri is None:
        raise UsageError("say where the rows are: --source URI, or --ingestion NAME of the table's manifest")
    suffix = next((ending for ending in _SUFFIXES if uri.lower().endswith(ending)), None)
    if given is None and suffix is None:
        raise UsageError(f"say what {uri} is: --format parquet, orc, csv or json")
    return BatchIngestion(source_uri=uri, format=given or _SUFFIXES[str(suffix)])


def _millis(option: str, text: str) -> int:
    if _MILLIS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat("" if text.isdecimal() else text)  # it would read 19 digits as a date
    except ValueError:
        raise UsageError(f"{option} is no time: {text!r}; write one like 2013-07-04 or 2013-07-04T12:00:00") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _show(outcome: BackfillResult) -> None:
    new = plural(len(outcome.published), "segment")
    old = plural(len(outcome.replaced), "segment")
    output.say(
        f"{outcome.table}: {outcome.rows:,} rows in {new} replace {outcome.rows_replaced:,} rows of {old}, "
        f"in {outcome.seconds:.1f} s"
    )
    if outcome.rewritten:
        output.say(
            f"  {plural(len(outcome.rewritten), 'segment')} reached beyond the window: their other rows are kept"
        )
    if outcome.brokers_behind:
        output.warn(f"these brokers may answer the old rows for a while: {', '.join(outcome.brokers_behind)}")
    if outcome.rows_outside:
        output.say(f"  {outcome.rows_outside:,} rows of the source are beyond the window and were left out")


def _show_step(text: str) -> None:
    """Show progress on one line of a terminal; an empty text clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{f'  {output.printable(text)}' if text else ''}")
        sys.stderr.flush()
