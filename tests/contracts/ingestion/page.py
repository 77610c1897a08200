"""Write docs/ingestion.md, a head and the matrix: `python -m tests.contracts.ingestion.page [--check] docs`."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from tests.contracts.ingestion.grid import BAD, REFUSED, Section, Source
from tests.contracts.ingestion.matrix import SECTIONS

NAME = "ingestion.md"
MARK = "<!-- Generated from tests/contracts/ingestion/matrix.py by `make docs`; do not edit below. -->\n"
FORMATS = {"PARQUET": "Parquet", "ORC": "ORC", "CSV": "CSV", "JSON": "JSON lines"}


def render() -> str:
    """All that follows the mark."""
    return "\n".join(line for section in SECTIONS for line in _section(section))


def page(text: str) -> str:
    """The page with its generated part renewed; ValueError without the mark."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{NAME} has lost its mark: {MARK.strip()}")
    return f"{head}{MARK}\n{render()}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --check say whether it differs; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.contracts.ingestion.page")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if the page is not what the tests say"
    )
    options = parser.parse_args(arguments)
    path = options.directory / NAME
    text = path.read_text()
    if options.check:
        if page(text) != text:
            sys.stderr.write(f"{path} differs from the matrix: run `make docs`\n")
            return 1
        return 0
    path.write_text(page(text))
    return 0


def _section(section: Section) -> list[str]:
    lines = [f"## {section.title}", ""]
    for file_format, sources in itertools.groupby(section.sources, key=lambda source: source.format):
        lines += [f"### {FORMATS[file_format]}", "", *_table(section, list(sources)), ""]
    return lines


def _table(section: Section, sources: list[Source]) -> list[str]:
    heads = ["type", "value", *section.declared]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for source in sources:
        for value, cells in zip(source.rows, source.cells(), strict=True):
            lines.append("| " + " | ".join([source.name, _code(value), *map(_cell, cells)]) + " |")
    return lines


def _cell(text: str) -> str:
    return {BAD: "bad", REFUSED: "refused", "null": "null"}.get(text) or _code(text)


def _code(text: str) -> str:
    return f"`{text}`" if text.strip() else "(empty)"


if __name__ == "__main__":
    sys.exit(main())
