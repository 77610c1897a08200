"""`merlot segment`: show the contents of a segment file, and verify it. Only `annotate` needs a node."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from merlot.cli import annotate, output
from merlot.cli.errors import CommandError
from merlot.cli.output import plural
from merlot.extras import lacks

if TYPE_CHECKING:
    from types import ModuleType

    from merlot.segment.inspect import SegmentReport

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]

app = typer.Typer(no_args_is_help=True, help="Inspect or verify segment files (.mseg), or annotate published segments.")
app.command("annotate")(annotate.annotate)


@app.command("inspect")
def inspect(
    file: Annotated[Path, typer.Argument(help="Segment file.", show_default=False)],
    as_json: Json = False,
    star_tree: Annotated[bool, typer.Option("--star-tree", help="Draw its star-trees.")] = False,
    nodes: Annotated[int, typer.Option(help="Nodes to draw of a star-tree.", min=1)] = 200,
) -> None:
    """Show a segment's columns: type, encoding, values, sizes by index."""
    if star_tree:
        for line in _engine().draw_star_trees(_existing(file), nodes):
            output.say(line)
        return
    report: SegmentReport = _engine().describe(_existing(file))
    if as_json:
        output.show_json(report.to_json())
        return
    _show_head(report)
    output.say()
    _show_columns(report)
    output.say()
    _show_sizes(report)


@app.command("verify")
def verify(
    files: Annotated[list[Path], typer.Argument(help="Segment files.", show_default=False)], as_json: Json = False
) -> None:
    """Read every byte and value of segment files, compare checksums and footers; exit with 1 if a file is damaged."""
    check = _engine().verify
    problems_of = {str(file): list(check(_existing(file))) for file in files}
    if as_json:
        output.show_json([{"path": path, "problems": problems} for path, problems in problems_of.items()])
    else:
        for path, problems in problems_of.items():
            output.say(f"{path}: {'ok' if not problems else plural(len(problems), 'problem')}")
            for problem in problems:
                output.say(f"  {problem}")
    damaged = sum(1 for problems in problems_of.values() if problems)
    if damaged:
        raise CommandError(f"{plural(damaged, 'file')} damaged: delete and fetch again, or rebuild")


def _engine() -> "ModuleType":
    try:
        from merlot.segment import inspect as engine
    except ModuleNotFoundError as error:
        raise CommandError(lacks("`merlot segment`", "engine", error)) from None
    return engine


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise CommandError(f"no such file: {file}")
    return file


def _show_head(report: "SegmentReport") -> None:
    facts = {
        "segment": f"{report.name}@{report.crc}",
        "table": report.table,
        "docs": f"{report.num_docs:,}",
        "size": f"{output.size(report.size_bytes)} ({report.size_bytes / max(report.num_docs, 1):.1f} bytes per doc)",
        "format": f"version {report.format_version}",
    }
    if report.time_column:
        start, end = output.instant(report.start_time_ms), output.instant(report.end_time_ms)
        facts["time"] = f"{report.time_column} from {start} to {end} UTC"
    if report.sort_order:
        facts["sorted by"] = ", ".join(report.sort_order)
    for column, partition in report.partitions.items():
        held = ", ".join(map(str, partition["partitions"]))
        facts["partitions"] = f"{held} of {partition['num_partitions']} by {partition['function_name']}({column})"
    for number, tree in enumerate(report.star_trees):
        size = output.size(tree.size_bytes)
        facts[f"star-tree {number}"] = f"{', '.join(tree.dimensions)}: {tree.num_docs:,} documents, {size}"
    width = max(map(len, facts))
    for name, value in facts.items():
        output.say(f"{name.ljust(width)}  {value}")


def _show_columns(report: "SegmentReport") -> None:
    rows = []
    for column in sorted(report.columns, key=lambda entry: -entry.size_bytes):
        bits = f" {column.bits} bits" if column.bits else ""
        compression = "" if column.compression in ("", "NONE") else f" {column.compression}"
        rows.append(
            [
                column.name,
                column.type + ("[]" if column.multi_value else ""),
                f"{column.encoding}{bits}{compression}{', sorted' if column.is_sorted else ''}",
                f"{column.cardinality:,}" if column.cardinality is not None else "",
                f"{column.num_nulls:,}" if column.num_nulls else "",
                _shown(column.min, column.type),
                _shown(column.max, column.type),
                output.size(column.size_bytes),
                ", ".join(f"{name} {output.size(size)}" for name, size in column.bytes_by_index.items() if size),
            ]
        )
    headers = ["column", "type", "encoding", "values", "nulls", "min", "max", "size", "by index"]
    output.show_table(headers, rows, right=(3, 4, 7))


def _show_sizes(report: "SegmentReport") -> None:
    total = max(report.size_bytes, 1)
    rows = sorted(report.bytes_by_index.items(), key=lambda item: -item[1])
    output.show_table(
        ["index", "size", "share"],
        [[name, output.size(size), f"{100 * size / total:.1f} %"] for name, size in rows if size],
        right=(1, 2),
    )


def _shown(value: object, type_name: str) -> str:
    is_instant = type_name == "TIMESTAMP" and isinstance(value, int) and value >= 0
    text = output.instant(value) if is_instant else output.printable(value)  # type: ignore[arg-type]
    return text if len(text) <= 24 else f"{text[:23]}…"
