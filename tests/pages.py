"""Wrap pages at 120 columns: `python -m tests.pages` refills paragraphs that have a longer line, and no others."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
GENERATED = {"functions.md"}
MAX_COLUMNS = 120
_START = re.compile(r"(?P<indent> *)(?P<bullet>(?:[-*]|\d+\.) +)?")
_MARKUP = re.compile(r" *(?:[-*+>|#]|\d+[.)]) ?")
"""Beginnings that make a line something else than the paragraph's next one."""
_WHOLE = re.compile(r"`[^`]{1,60}`|\[[^\]]{1,60}\]\([^)]+\)")
"""Code and links, which stay on one line."""
_GLUE = "\0"
_UNBREAKABLE = ("|", "![", "<", "#")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Return the numbered lines that could be broken: neither code nor tables, images, headings and HTML."""
    is_code = False
    for number, line in enumerate(text.splitlines()):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("    ") and not line.startswith(_UNBREAKABLE):
            yield number, line


def too_long(text: str) -> list[int]:
    """Return the numbers of lines that have to be broken, from 1."""
    return [number + 1 for number, line in prose(text) if len(line) > MAX_COLUMNS]


def wrapped(text: str) -> str:
    """Return the text with every paragraph or list item refilled that has a line too long."""
    lines = text.splitlines()
    paragraphs: list[list[int]] = []
    for number, line in prose(text):
        if not line.strip():
            continue
        if paragraphs and paragraphs[-1][-1] == number - 1 and not _has_bullet(line):
            paragraphs[-1].append(number)
        else:
            paragraphs.append([number])
    for numbers in reversed(paragraphs):
        if any(len(lines[number]) > MAX_COLUMNS for number in numbers):
            lines[numbers[0] : numbers[-1] + 1] = _filled([lines[number] for number in numbers])
    return "\n".join(lines) + "\n"


def _has_bullet(line: str) -> bool:
    start = _START.match(line)
    return start is not None and start["bullet"] is not None


def _filled(lines: list[str]) -> list[str]:
    start = _START.match(lines[0])
    assert start is not None
    first = start[0]
    words = " ".join([lines[0][len(first) :], *(line.strip() for line in lines[1:])])
    words = _WHOLE.sub(lambda whole: whole[0].replace(" ", _GLUE), words)
    for width in range(MAX_COLUMNS, MAX_COLUMNS - 20, -1):
        filled = textwrap.wrap(
            words,
            width,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if not any(_MARKUP.match(line) for line in filled[1:]):
            break
    return [line.replace(_GLUE, " ") for line in filled]


def main() -> None:
    for page in PAGES:
        text = page.read_text()
        if page.name not in GENERATED and too_long(text):
            page.write_text(wrapped(text))


if __name__ == "__main__":
    main()
