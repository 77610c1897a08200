"""`merlot advise`: find the indexes, sort order and star-trees that pay, measured on a sample of the table's own
segments.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url
from merlot.cli.errors import CommandError, UsageError
from merlot.cli.output import plural
from merlot.cli.sizes import parse_size
from merlot.extras import lacks

if TYPE_CHECKING:
    from types import ModuleType

    from merlot.cli.advisor import Advice, Answered

_SHOWN_CHARS = 100


class AdviceFormat(StrEnum):
    """Output of `advise`."""

    TABLE = "table"
    JSON = "json"


def advise(
    table: Annotated[str, typer.Argument(help="Table.", show_default=False)],
    queries: Annotated[
        Path | None,
        typer.Option(
            "--queries", metavar="FILE", help="Queries to advise on, each ended by `;`, instead of the brokers' log."
        ),
    ] = None,
    brokers: Annotated[
        list[str] | None,
        typer.Option(
            "--broker", metavar="URL", help="Broker whose log to read, if those of the cluster cannot be reached."
        ),
    ] = None,
    segments: Annotated[int, typer.Option("--segments", help="Segments in the sample, newest first.", min=1)] = 8,
    rows: Annotated[
        int, typer.Option("--rows", help="Approximate rows in the sample; at least one segment.", min=1)
    ] = 2_000_000,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", metavar="FILE", help="Segment file (.mseg) for the sample, instead of the deep store's."
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--bytes",
            parser=parse_size,
            metavar="SIZE",
            help="Limit of what all changes may take in the whole table, such as 4g.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", metavar="FILE", help="The table's manifest, to show the change as a diff."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the change into --manifest; comments and order are kept.")
    ] = False,
    how: Annotated[AdviceFormat, typer.Option("--output", "-o", help="Format of the advice.")] = AdviceFormat.TABLE,
    deep_store: Annotated[
        str | None, typer.Option(help="URI of the deep store, if the segments' URLs are not enough.")
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Show which indexes, sort order and star-trees would make a table's queries faster.

    Reads the recent queries of brokers, fetches some of the table's segments,
    builds each index and tree that might help in a temporary folder, and runs
    the queries with and without it. Shows the measured CPU time of servers and
    the bytes for the whole table, also for changes that do not pay. It only
    reads from the cluster. Ctrl-C shows what is known by then.

    [bold]Examples[/bold]

      merlot advise flights

      merlot advise flights --bytes 2g --manifest table.yaml --apply

      merlot advise flights --queries dashboard.sql --segments 2
    """
    if apply and manifest is None:
        raise UsageError("--apply writes into the file that --manifest names")
    advisor = _advisor()
    order = advisor.AdviceRequest(
        client=NodeClient(url),
        table=table,
        queries=queries,
        brokers=tuple(brokers or ()),
        max_segments=segments,
        max_rows=rows,
        files=tuple(files or ()),
        max_bytes=max_bytes,
        deep_store=deep_store,
        say=_show_step,
        warn=_warn,
    )
    try:
        advice = advisor.advise(order)
    finally:
        _show_step("")
    if how is AdviceFormat.JSON:
        output.show_json(advice.to_json())
    else:
        _show(advice)
    if advice.chosen:
        _change(advice, manifest, apply=apply, is_quiet=how is AdviceFormat.JSON)
    if advice.is_interrupted:
        raise KeyboardInterrupt


def _advisor() -> ModuleType:
    try:
        from merlot.cli import advisor
    except ModuleNotFoundError as error:
        raise CommandError(lacks("`merlot advise`", "engine", error)) from None
    return advisor


def _show(advice: Advice) -> None:
    sample = f"{plural(advice.sample_segments, 'segment')} of {advice.num_segments:,}, {advice.sample_docs:,} rows"
    output.say(f"{advice.table}: {_queries(len(advice.questions))} on a sample of {sample}")
    output.say()
    if advice.chosen:
        rows = [
            (
                change.label,
                f"{change.gain:.0%}",
                _numbers(change.helps),
                _size(change.num_bytes),
                f"{change.build_s:.2f} s",
            )
            for change in advice.chosen
        ]
        output.show_table(("CHANGE", "SAVES", "QUERIES", "BYTES", "BUILT IN"), rows, right=(1, 3, 4))
        output.say()
        output.say(f"together they save {advice.saves:.0%} of the time that servers take for these queries")
    else:
        output.say("no change pays: the queries are about as fast as they can be by indexes, orders and star-trees")
    output.say()
    shown = [
        (
            str(number),
            f"{query.count:,.0f}",
            _ms(query.before_ms),
            _ms(query.after_ms),
            _speedup(query),
            _short(query.sql),
        )
        for number, query in enumerate(advice.questions, 1)
    ]
    output.show_table(("QUERY", "ASKED", "NOW", "THEN", "FASTER", "SQL"), shown, right=(0, 1, 2, 3, 4))
    if advice.rejected:
        output.say()
        output.show_table(("TRIED, NOT WORTH IT", "WHY"), [(change.label, change.why) for change in advice.rejected])


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count:,} queries"


def _change(advice: Advice, manifest: Path | None, *, apply: bool, is_quiet: bool) -> None:
    """Show the changes; write them to the manifest if `apply` is set."""
    if manifest is None:
        if not is_quiet:
            output.say("\nspec.indexing:")
            for line in advice.indexing_yaml.splitlines():
                output.say(f"  {line}")
        return
    before = _text(manifest)
    after = advice.edited(before)
    if not is_quiet:
        output.say()
        for line in advice.diff(before, after, str(manifest)):
            output.say(line)
    if apply:
        _write(manifest, after)
        output.warn(
            f"{manifest} is written; `merlot apply -f {manifest}` or `kubectl apply -f {manifest}` puts it into force"
        )


def _text(manifest: Path) -> str:
    try:
        return manifest.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {manifest}: {error}") from None


def _write(manifest: Path, text: str) -> None:
    """Write the manifest as a whole, or leave it as it is."""
    written = manifest.with_name(f".{manifest.name}.new")
    try:
        written.write_text(text)
        written.replace(manifest)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise CommandError(f"cannot write {manifest}: {error.strerror}") from None


def _size(num_bytes: int) -> str:
    """Return the size as text. It is negative if rows in another order take less space."""
    return f"-{output.size(-num_bytes)}" if num_bytes < 0 else output.size(num_bytes)


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number + 1) for number in numbers)


def _ms(time_ms: float | None) -> str:
    return "" if time_ms is None else f"{time_ms:.2f} ms"


def _speedup(query: Answered) -> str:
    """Return the speed-up of a query; empty if the difference may be chance."""
    is_certain = abs(query.before_ms - query.after_ms) >= max(0.02, 0.1 * query.before_ms)
    return f"{query.before_ms / query.after_ms:.1f}x" if query.after_ms and is_certain else ""


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def _warn(text: str) -> None:
    _show_step("")
    output.warn(text)


def _show_step(text: str) -> None:
    """Show progress on one line of a terminal; an empty text clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{f'  {output.printable(text)}' if text else ''}")
        sys.stderr.flush()
