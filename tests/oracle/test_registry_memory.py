"""No call of a function or an aggregate takes a process its life, and none makes more than it said that it would.

`MERLOT_EXTREMES` sets how many of the cases are asked (0: all), `MERLOT_EXTREME_ROWS` over how many rows; `MERLOT_SEED`
repeats.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests import budget
from tests.oracle import registry_extremes
from tests.oracle.registry_expressions import Expressions
from tests.oracle.registry_recipes import RECIPES
from tests.oracle.wild_table import SCHEMA, wild

from merlot.errors import MerlotError
from merlot.functions.evaluate import evaluate
from merlot.functions.instants import Moment
from merlot.functions.registry import BY_NAME, FUNCTIONS
from merlot.functions.source import ColumnSource
from merlot.query.plan.binding import bind
from merlot.query.slots import SlotSource
from merlot.sql.parse import parse
from merlot.tree.types import SqlType
from merlot.vectors import account
from merlot.vectors.vector import arrow_type, from_arrow

_COUNT = budget.count("MERLOT_EXTREMES", quick=25, every=250, fuzz=0)
_ROWS = budget.count("MERLOT_EXTREME_ROWS", quick=100_000, every=100_000, fuzz=1_000_000)
_PATIENCE_S = 20_000 if budget.IS_FUZZ else 1_500


@pytest.mark.timeout(0)
def test_the_longest_arguments_are_answered_or_refused_within_a_gigabyte(tmp_path: Path) -> None:
    command = [sys.executable, "-m", registry_extremes.__name__, tmp_path, budget.seed(), _COUNT, _ROWS]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=_PATIENCE_S, check=False, env=paths
    )
    outcomes = re.findall(r"^(case .*)\n(.*)$", child.stdout, re.MULTILINE)
    last = child.stdout[-500:]
    assert child.returncode == 0, f"ended with {child.returncode} after {last}\n{child.stderr[-2000:]}"
    failures = [f"{outcome}\n    {case}" for case, outcome in outcomes if outcome.startswith("failed")]
    assert not failures, f"{len(failures)} of {len(outcomes)} failed\n" + "\n".join(failures[:10])
    counts = Counter(outcome for _, outcome in outcomes)
    # Whatever is refused for its memory says nothing if nothing is answered, or nothing asks for too much.
    assert counts["answered"] > len(outcomes) // 10, counts
    assert counts["refused 245"] > 0, counts


class _Comparing(account.Spending):
    """Compares what functions make with what they said before."""

    __slots__ = ("expected", "problems")

    def __init__(self) -> None:
        super().__init__(account.Account(1 << 40))
        self.expected = 0
        self.problems: list[str] = []

    def expect(self, what: str, num_bytes: int) -> None:
        self.expected = max(self.expected, num_bytes)

    def settle(self, what: str, mark: int, num_bytes: int) -> None:
        # Lazy functions make what their arguments and constants in every row say.
        if BY_NAME[what].apply is not None and 0 < self.expected < num_bytes:
            self.problems.append(f"{what} made {num_bytes} bytes and said {self.expected}")
        self.expected = 0


def _compared(sql: str, source: ColumnSource, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    comparing = _Comparing()
    bound = bind(parse(sql), SCHEMA, moment=Moment(0))
    monkeypatch.setattr(account, "current", lambda: comparing)
    try:
        for output in bound.select:
            evaluate(output.expr, source)
    except MerlotError:
        return []  # a row has no value: nothing was made
    finally:
        monkeypatch.undo()
    return [f"{problem}\n    {sql}" for problem in comparing.problems]


def _source(num_rows: int) -> SlotSource:
    rows = wild(random.Random(budget.seed()), num_rows).defaulted()
    types = {field.name: SqlType(field.type, is_array=field.multi_value) for field in SCHEMA.fields}
    vectors = {
        name: from_arrow(type_, rows.column(name).combine_chunks().cast(arrow_type(type_)))
        for name, type_ in types.items()
    }
    return SlotSource.of(vectors, num_rows)


def test_functions_make_no_more_than_they_said(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source(300)
    expressions = Expressions(random.Random(budget.seed()), lambda: ("b", "b"))
    problems: list[str] = []
    for name, recipes in RECIPES.items():
        for recipe in recipes:
            for _ in range(budget.count("MERLOT_SIZES", quick=3, every=10, fuzz=200)):
                call, _theirs = expressions.call(name, recipe)
                problems += _compared(f"SELECT {call} FROM wild", source, monkeypatch)
    for function in FUNCTIONS:
        for example in function.examples:
            problems += _compared(f"SELECT {example} FROM wild", source, monkeypatch)
    assert not problems, f"{len(problems)} calls\n" + "\n".join(problems[:20])
