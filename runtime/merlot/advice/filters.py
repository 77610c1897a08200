"""Tests of single columns in a filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeGuard

from merlot.advice.statistics import ColumnFacts
from merlot.query.plan.expressions import literal_values
from merlot.tree.nodes import Call, Column, Expr, Literal


class Asks(Enum):
    """Kinds of tests, by the indexes that answer them."""

    VALUES = "VALUES"
    RANGE = "RANGE"
    PATTERN = "PATTERN"
    WORDS = "WORDS"
    JSON = "JSON"


_ASKS: Final = {
    "equals": Asks.VALUES,
    "in": Asks.VALUES,
    "less_than": Asks.RANGE,
    "less_than_or_equal": Asks.RANGE,
    "greater_than": Asks.RANGE,
    "greater_than_or_equal": Asks.RANGE,
    "between": Asks.RANGE,
    "like": Asks.PATTERN,
    "regexplike": Asks.PATTERN,
    "textmatch": Asks.WORDS,
    "jsonmatch": Asks.JSON,
}
_GUESS: Final = 0.1
"""Share of matching rows that is assumed where statistics do not tell it."""


@dataclass(frozen=True, slots=True)
class Test:
    """A column compared with constants."""

    __test__ = False  # pytest must not collect it

    column: str
    function: str
    values: tuple[Any, ...]

    @property
    def asks(self) -> Asks:
        """Kind of the test."""
        return _ASKS[self.function]

    def share(self, facts: ColumnFacts) -> float:
        """Estimate the share of rows that match, as if all values were equally frequent."""
        if self.asks is Asks.VALUES:
            return min(1.0, len(self.values) / max(1, facts.cardinality))
        low, high = _ends(self.function, self.values) if self.asks is Asks.RANGE else (None, None)
        if not (_is_number(low) or _is_number(high)) or not _is_number(facts.min) or not _is_number(facts.max):
            return _GUESS
        first = facts.min if low is None else max(facts.min, low)
        last = facts.max if high is None else min(facts.max, high)
        return 0.0 if first > last else (last - first + 1) / (facts.max - facts.min + 1)


def tests_of(expr: Expr | None) -> Iterator[Test]:
    """Yield the tests that an index can answer; negated tests are left out."""
    if not isinstance(expr, Call):
        return
    if expr.function in ("and", "or"):
        for arg in expr.args:
            yield from tests_of(arg)
        return
    column, *others = expr.args
    if expr.function in _ASKS and isinstance(column, Column) and all(isinstance(arg, Literal) for arg in others):
        yield Test(column.name, expr.function, tuple(literal_values(tuple(others))))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ends(function: str, values: tuple[Any, ...]) -> tuple[Any, Any]:
    match function:
        case "less_than" | "less_than_or_equal":
            return None, values[0]
        case "greater_than" | "greater_than_or_equal":
            return values[0], None
    return values[0], values[1]
