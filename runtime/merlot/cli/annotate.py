"""`merlot segment annotate`: add pruning information to segments that were published without it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url
from merlot.cli.errors import CommandError
from merlot.cli.output import plural
from merlot.extras import lacks

if TYPE_CHECKING:
    from types import ModuleType

    from merlot.cli.annotator import AnnotationResult


def annotate(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE [SEGMENT]",
            help="Table, and some of its segments; all if none are named.",
            show_default=False,
        ),
    ] = None,
    table_file: Annotated[
        Path | None,
        typer.Option("--table", help="Manifest of the table, instead of the applied one; then all names are segments."),
    ] = None,
    deep_store: Annotated[
        str | None, typer.Option(help="URI of the deep store, if the segments' URLs are not enough.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Add pruning information to segments that were published without it.

    Reads the files of segments whose records lack the partition, or the
    range of the time column or a sorted column, and completes the records.
    Files stay as they are, and so does what is there already.
    """
    annotator = _annotator()
    client = NodeClient(url)
    table, wanted = annotator.target(client, names or [], table_file)
    records = annotator.read_records(client, table.raw_name, wanted)
    outcome = annotator.annotate(
        annotator.AnnotationTarget(client, table, deep_store), records, _show_progress, dry_run=dry_run
    )
    if as_json:
        output.show_json(asdict(outcome))
    else:
        _show(table.raw_name, outcome, dry_run=dry_run)
    if outcome.failed:
        raise CommandError(
            f"{plural(len(outcome.failed), 'segment')} could not be read: fix the cause and run this again"
        )


def _annotator() -> ModuleType:
    try:
        from merlot.cli import annotator
    except ModuleNotFoundError as error:
        raise CommandError(lacks("`merlot segment`", "engine", error)) from None
    return annotator


def _show(table: str, outcome: AnnotationResult, *, dry_run: bool) -> None:
    would = " (dry run)" if dry_run else ""
    output.say(f"{table}: {plural(len(outcome.annotated), 'segment')} annotated{would}")
    counts = {
        "had all there is to tell": len(outcome.complete),
        "lack what their files do not tell": len(outcome.unchanged),
        "replaced or deleted meanwhile": len(outcome.replaced),
    }
    for text, count in counts.items():
        if count:
            output.say(f"  {count} {text}")
    if outcome.unpartitioned:
        output.warn(f"warning: {plural(len(outcome.unpartitioned), 'segment')} not partitioned as declared")
    for name, causes in outcome.unpartitioned.items():
        for column, why in causes.items():
            output.warn(f"  {name} {column}: {why}")
    for name, why in outcome.failed.items():
        output.warn(f"failed: {name}: {why}")


def _show_progress(number: int, total: int, name: str) -> None:
    """Show progress on one line of a terminal; it is cleared at the end."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{f'  {number}/{total} {output.printable(name)}' if total else ''}")
        sys.stderr.flush()
