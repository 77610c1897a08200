"""Aggregates of few rows without groups, in Python's own numbers, at a tenth of what Arrow arrays of one element cost.

States and answers equal those of `State`. An aggregate that has such a form names it as its `one_row`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from merlot.vectors.errors import QueryArithmeticError

SUM_ADVICE: Final = "SUM(CAST(x AS DOUBLE)) takes more, and enableNullHandling=true skips nulls"
"""A null of a LONG dimension is the least LONG without null handling: two are more than a LONG holds."""
SUM_OVERFLOW: Final = f"LONG overflow function=sumlong: {SUM_ADVICE}"

_LOW_MASK: Final = 0xFFFFFFFF
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
Columns = Sequence[Sequence[Any]]
"""State columns; their rows are of several tasks or nodes."""


@dataclass(slots=True)
class Tally:
    """What the values of one column come to; what nobody wants is left as it is."""

    num_rows: int = 0
    whole: int = 0
    """Sum of whole numbers."""
    floats: tuple[float, float] = (0.0, 0.0)
    """Sum of floats, and its error."""
    low: int | None = None
    high: int | None = None


class OneRow(ABC):
    """How an aggregate makes one row; one object per aggregate, immutable."""

    wants_values: bool = True
    """Whether a column is read at all."""
    wants_sum: bool = False
    wants_extremes: bool = False
    """Of whole numbers."""

    @abstractmethod
    def state(self, tally: Tally, *, is_whole: bool) -> list[Any]:
        """The value of each state column. `is_whole`: of whole numbers."""

    @abstractmethod
    def merged(self, columns: Columns) -> list[Any]:
        """One state of some, at least one, of whole numbers."""

    @abstractmethod
    def answer(self, columns: Columns, *, is_whole: bool) -> float:
        """The answer, an int if it is a LONG; of floats there is one state at most."""


class OneCount(OneRow):
    """COUNT(*)."""

    wants_values = False

    def state(self, tally: Tally, *, is_whole: bool) -> list[Any]:
        return [tally.num_rows]

    def merged(self, columns: Columns) -> list[Any]:
        return [sum(columns[0])]

    def answer(self, columns: Columns, *, is_whole: bool) -> float:
        return sum(columns[0])


class OneSum(OneRow):
    """A sum, rounded once."""

    wants_sum = True

    def state(self, tally: Tally, *, is_whole: bool) -> list[Any]:
        return [tally.whole >> 32, tally.whole & _LOW_MASK] if is_whole else list(tally.floats)

    def merged(self, columns: Columns) -> list[Any]:
        whole = _whole(columns)
        return [whole >> 32, whole & _LOW_MASK]

    def answer(self, columns: Columns, *, is_whole: bool) -> float:
        if is_whole:
            return float(_whole(columns))
        if not columns[0]:
            return 0.0
        total, error = columns[0][0], columns[1][0]
        return float(total + error if math.isfinite(total) else total)


class OneLongSum(OneSum):
    """A sum of whole numbers, every digit."""

    def answer(self, columns: Columns, *, is_whole: bool) -> float:
        whole = _whole(columns)
        if not _LONG_MIN <= whole <= _LONG_MAX:
            raise QueryArithmeticError(SUM_OVERFLOW)
        return whole


class OneAverage(OneSum):
    """A sum and a count."""

    def state(self, tally: Tally, *, is_whole: bool) -> list[Any]:
        return [*super().state(tally, is_whole=is_whole), tally.num_rows]

    def merged(self, columns: Columns) -> list[Any]:
        return [*super().merged(columns), sum(columns[2])]

    def answer(self, columns: Columns, *, is_whole: bool) -> float:
        count = sum(columns[2])
        return super().answer(columns, is_whole=is_whole) / count if count else -math.inf


class OneExtreme(OneRow):
    """The least or greatest whole number."""

    wants_extremes = True

    def __init__(self, *, is_min: bool, is_long: bool) -> None:
        self._is_min = is_min
        self._is_long = is_long

    def state(self, tally: Tally, *, is_whole: bool) -> list[Any]:
        return [tally.low if self._is_min else tally.high]

    def merged(self, columns: Columns) -> list[Any]:
        return [self._best(columns)]

    def answer(self, columns: Columns, *, is_whole: bool) -> float:
        best = self._best(columns)
        if best is not None:
            return best if self._is_long else float(best)
        if self._is_long:
            return _LONG_MAX if self._is_min else _LONG_MIN
        return math.inf if self._is_min else -math.inf

    def _best(self, columns: Columns) -> int | None:
        known = [value for value in columns[0] if value is not None]
        return (min(known) if self._is_min else max(known)) if known else None


def _whole(columns: Columns) -> int:
    return int((sum(columns[0]) << 32) + sum(columns[1]))
