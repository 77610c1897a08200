"""Output of commands: tables for people, CSV and JSON for programs, names for shells."""

import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from merlot.cli.errors import CommandError

UNLIMITED_WIDTH = 10_000
_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?( ([KMGT]i)?B)?")


class ListFormat(StrEnum):
    """Output of `get`."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"


class RowFormat(StrEnum):
    """Output of `query`."""

    TABLE = "table"
    VERTICAL = "vertical"
    CSV = "csv"
    JSON = "json"


def say(text: str = "") -> None:
    """Print a line on standard output."""
    sys.stdout.write(f"{text}\n")


def warn(text: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"{text}\n")


def show_error(error: CommandError) -> None:
    """Print an error and its details on standard error."""
    warn(f"error: {error}")
    for detail in error.details:
        warn(f"  {detail}")


def show_json(value: Any) -> None:
    """Print a value as indented JSON."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def show_table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Iterable[int] = ()) -> None:
    """Print rows under headers. right: indexes of right-aligned columns. Nothing is cut off if the output is piped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    numbers = set(right)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for position, header in enumerate(headers):
        table.add_column(Text(header), justify="right" if position in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(value)) for value in row))
    if sys.stdout.isatty():
        Console().print(table)
        return
    buffer = io.StringIO()
    Console(file=buffer, width=UNLIMITED_WIDTH, no_color=True).print(table)
    for line in buffer.getvalue().splitlines():
        say(line.rstrip())


def is_too_wide(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return True if a terminal would have to break the lines of this table."""
    if not sys.stdout.isatty():
        return False
    widths = (max(len(printable(value)) for value in column) for column in zip(headers, *rows, strict=True))
    return sum(widths) + 3 * (len(headers) - 1) > shutil.get_terminal_size().columns


def show_vertical(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a line for each value, with a separator between rows."""
    width = max(map(len, headers), default=0)
    for number, row in enumerate(rows, 1):
        say(f"── {number} {'─' * max(width - 2, 1)}")
        for header, value in zip(headers, row, strict=True):
            say(f"{header.ljust(width)}  {printable(value)}")


def printable(value: Any) -> str:
    """Return `cell(value)` with line breaks and control characters escaped: data must not control the terminal."""
    text = cell(value)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def cell(value: Any) -> str:
    """Return a value as text."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def show_csv(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as CSV with a header line; lists are JSON, null is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows([cell(value) for value in row] for row in rows)
    sys.stdout.write(buffer.getvalue())


def show_objects(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows as a JSON array of objects, one row per line; a repeated label gets its position."""
    labels = [label if label not in headers[:place] else f"{label}_{place}" for place, label in enumerate(headers)]
    lines = [json.dumps(dict(zip(labels, row, strict=True)), ensure_ascii=False) for row in rows]
    say("[" + ",\n ".join(lines) + "]")


def show_list(
    objects: Sequence[Mapping[str, Any]], columns: Mapping[str, str], wide: Mapping[str, str], how: ListFormat
) -> None:
    """Print objects in the format of `get`. columns: key by header; the first one names the object."""
    match how:
        case ListFormat.JSON:
            show_json(list(objects))
        case ListFormat.NAME:
            key = next(iter(columns.values()))
            for item in objects:
                say(str(item[key]))
        case _:
            shown = {**columns, **wide} if how is ListFormat.WIDE else columns
            rows = [[counted(item.get(key)) for key in shown.values()] for item in objects]
            numbers = [place for place in range(len(shown)) if rows and all(is_number(row[place]) for row in rows)]
            show_table(list(shown), rows, right=numbers)


def counted(value: Any) -> Any:
    """Return a whole number with thousands separators; any other value as it is."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


def is_number(text: Any) -> bool:
    """Return True for text like `12,345` or `12.5 MiB`, which is right-aligned."""
    return isinstance(text, str) and _NUMBER.fullmatch(text) is not None


def size(num_bytes: int | None) -> str:
    """Return bytes as text: `812 B`, `1.5 MiB`."""
    if num_bytes is None or num_bytes < 0:
        return ""
    amount = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def instant(millis: int | None) -> str:
    """Return an instant in UTC, to the second; empty if it is unknown."""
    if millis is None or millis < 0:
        return ""
    try:
        return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(millis)


def plural(count: int, noun: str) -> str:
    """Return `1 row`, `12,000 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
