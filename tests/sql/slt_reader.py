"""Reads `.slt` files: SQL cases in the manner of sqllogictest.

    query ITR            one letter for each column's type, then optionally `anyrows`
    SELECT …             the query, over one or more lines
    -- duckdb: SELECT …  the same question in DuckDB's words, where the dialects differ; may go on in `--   …` lines
    ----                 optionally: the rows expected, cells separated by ` | `; `(empty)` for none
    error 700 near text  the query is refused with this code and a message that contains the text

    queries L            each line is a query of these types, in one case of its own
    SELECT …             `-- duckdb:` lines belong to the query before them
    SELECT … => 1 | a    the one row expected of it
    errors 700           each line is refused with this code
    SELECT … => text     and a message that contains the text

    pin star-tree        the cases from here on are asked of this layout too when a quick run deals layouts out to
                         cases (`slt_dealing`), until a `pin` of others or of none

Blank lines end a case, `#` starts a comment. Without expected rows DuckDB's answer to the same text is expected; with
`anyrows` (a LIMIT without ORDER BY) any rows of DuckDB's answer, as many as there should be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TYPE_LETTERS = {
    "I": "INT",
    "L": "LONG",
    "F": "FLOAT",
    "R": "DOUBLE",
    "N": "BIG_DECIMAL",
    "B": "BOOLEAN",
    "S": "TIMESTAMP",
    "T": "STRING",
    "J": "JSON",
    "X": "BYTES",
    "U": "UNKNOWN",
}
_DUCKDB = "-- duckdb:"
_FAMILIES = ("queries", "errors")
_PIN = "pin"
_ROW = " => "


@dataclass(frozen=True, kw_only=True)
class Case:
    """One query and what is known of its answer."""

    file: str
    line: int
    sql: str
    duckdb_sql: str
    types: tuple[str, ...] = ()
    any_rows: bool = False
    expected: tuple[tuple[str, ...], ...] | None = None
    error: tuple[int, str] | None = None
    pinned: tuple[str, ...] = ()

    @property
    def null_handling(self) -> bool:
        """Whether the query asks for nulls instead of default values."""
        return re.search(r"enableNullHandling\s*=\s*'?true", self.sql) is not None

    @property
    def is_ordered(self) -> bool:
        """Whether rows must come in one order."""
        return re.search(r"\border\s+by\b", self.sql, re.IGNORECASE) is not None

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return f"{self.file}:{self.line}"


def read_file(path: Path) -> list[Case]:
    """The cases of one file, in order."""
    cases: list[Case] = []
    pinned: tuple[str, ...] = ()
    for line, block in _blocks(path.read_text().splitlines()):
        word, *names = block[0].split()
        if word == _PIN:
            pinned = tuple(names)
        else:
            cases += [_read_case(path.name, *case, pinned) for case in _split_family(line, block)]
    return cases


def _split_family(line: int, block: list[str]) -> Iterator[tuple[int, list[str]]]:
    """A block as it is, or one for each query of a family, in the form of a case by itself."""
    word, _, rest = block[0].partition(" ")
    if word not in _FAMILIES:
        yield line, block
        return
    starts = [place for place, text in enumerate(block) if place and not text.startswith("--")]
    for start, end in itertools.pairwise([*starts, len(block)]):
        sql, arrow, row = block[start].partition(_ROW)
        theirs = block[start + 1 : end]
        if word == "errors":
            yield line + start, [f"error {rest} {row}", sql]
        else:
            yield line + start, [f"query {rest}", sql, *theirs, *(["----", row] if arrow else [])]


def _blocks(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    start = 0
    for number, line in enumerate([*lines, ""], start=1):
        if line.startswith("#"):
            continue
        if line.strip():
            start = start if block else number
            block.append(line)
        elif block:
            yield start, block
            block = []


def _read_case(file: str, line: int, block: list[str], pinned: tuple[str, ...]) -> Case:
    head, *rest = block[0].split(maxsplit=2)
    body, expected = _split_expected(block[1:])
    sql, duckdb_sql = _split_dialects(body)
    if head == "error":
        code, text = rest
        return Case(file=file, line=line, sql=sql, duckdb_sql="", error=(int(code), text), pinned=pinned)
    if head != "query" or not rest:
        raise ValueError(f"{file}:{line}: a case starts with `query TYPES` or `error CODE TEXT`, not {block[0]!r}")
    return Case(
        file=file,
        line=line,
        sql=sql,
        duckdb_sql=duckdb_sql,
        types=tuple(_type_names(rest[0])),
        any_rows="anyrows" in rest[1:],
        expected=expected,
        pinned=pinned,
    )


def _type_names(letters: str) -> Iterator[str]:
    """`I` is INT, `i` INT_ARRAY."""
    for letter in letters:
        yield TYPE_LETTERS[letter.upper()] + ("_ARRAY" if letter.islower() else "")


def _split_expected(lines: list[str]) -> tuple[list[str], tuple[tuple[str, ...], ...] | None]:
    if "----" not in lines:
        return lines, None
    at = lines.index("----")
    cells = [tuple(cell.strip() for cell in line.split(" | ")) for line in lines[at + 1 :] if line != "(empty)"]
    return lines[:at], tuple(cells)


def _split_dialects(lines: list[str]) -> tuple[str, str]:
    ours: list[str] = []
    theirs: list[str] = []
    for line in lines:
        if line.startswith(_DUCKDB):
            theirs.append(line.removeprefix(_DUCKDB).strip())
        elif theirs and line.startswith("--"):
            theirs.append(line.removeprefix("--").strip())
        else:
            ours.append(line)
    sql = "\n".join(ours)
    return sql, " ".join(theirs) or _as_duckdb(sql)


def _as_duckdb(sql: str) -> str:
    """Without options, and with standard quotes."""
    text = re.sub(r"(?i)\bset\s+\w+\s*=\s*[^;]*;", "", sql)
    return re.sub(r"(?i)\boption\s*\([^)]*\)", "", text).replace("`", '"').strip().rstrip(";")
