"""Questions of the quickstart: asked through pinotdb, as any of Pinot's clients would, and printed with their times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pinotdb
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from merlot.cli import statements
from merlot.errors import UnavailableError

REPEATS = 5


@dataclass(frozen=True, kw_only=True)
class QuickstartAnswer:
    """A result with its times: of the first call, and of the fastest of REPEATS more."""

    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    first_ms: float
    again_ms: float


@dataclass(frozen=True, kw_only=True)
class QuickstartQuestion:
    """A statement and the comment above it."""

    title: str
    sql: str


def read_questions(path: Path) -> list[QuickstartQuestion]:
    """Return the statements of a file; the comment before each statement is its title."""
    texts, _ = statements.split(path.read_text())
    return [_question(statement) for statement in texts]


def _question(statement: str) -> QuickstartQuestion:
    lines = statement.strip().splitlines()
    comments = [line.removeprefix("--").strip() for line in lines if line.startswith("--")]
    return QuickstartQuestion(
        title=" ".join(comments), sql="\n".join(line for line in lines if not line.startswith("--"))
    )


def ask(host: str, port: int, sql: str, repeats: int = REPEATS) -> QuickstartAnswer:
    """Run a query. Raise UnavailableError with the broker's message if it fails."""
    connection = pinotdb.connect(host=host, port=port, path="/query/sql", scheme="http")
    try:
        cursor = connection.cursor()
        first_ms, rows = _timed(cursor, sql)
        again_ms = min((_timed(cursor, sql)[0] for _ in range(repeats)), default=first_ms)
        return QuickstartAnswer(
            names=tuple(column[0] for column in cursor.description), rows=rows, first_ms=first_ms, again_ms=again_ms
        )
    except pinotdb.exceptions.Error as error:
        raise UnavailableError(f"query failed sql={sql!r} reason={error}") from error
    finally:
        connection.close()


def _timed(cursor: Any, sql: str) -> tuple[float, list[Any]]:
    started = time.perf_counter()
    cursor.execute(sql)
    rows = list(cursor)
    return (time.perf_counter() - started) * 1000, rows


def show(console: Console, question: QuickstartQuestion, answer: QuickstartAnswer) -> None:
    """Print a question, its SQL, its answer and its times."""
    console.print()
    console.print(Text(question.title, style="bold"))
    console.print(Text(question.sql, style="dim"), soft_wrap=True)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, name in enumerate(answer.names):
        is_number = any(isinstance(row[position], int | float) for row in answer.rows)
        grid.add_column(name, justify="right" if is_number else "left")
    for row in answer.rows:
        grid.add_row(*(_shown(value) for value in row))
    console.print(grid)
    console.print(Text(f"{answer.first_ms:.1f} ms; asked again, {answer.again_ms:.1f} ms", style="green"))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)
