"""Rows that expressions are evaluated over, and the rows in which a predicate is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Failure, Rows, Vector, from_arrow


class ColumnSource(Protocol):
    """Rows that expressions are evaluated over.

    A source with `remembered`, a dict by expression, keeps the values of expressions that are needed more than once; a
    value is None until it is first needed. Such a source is for one thread."""

    @property
    def num_rows(self) -> int: ...

    def column(self, name: str, type_: SqlType) -> Vector:
        """Return the values of a column; its nulls only with null handling."""
        ...

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        """Return which rows are null, whether or not null handling is on; None if no row is."""
        ...


@dataclass(frozen=True, slots=True)
class Coded:
    """Values of a column as positions among its distinct values, and which rows are null as `column` says."""

    distinct: Vector
    ids: NDArray[Any]
    nulls: Rows | None


@runtime_checkable
class CodedSource(Protocol):
    """Source that knows the distinct values of some of its columns."""

    def coded(self, name: str) -> Coded | None:
        """Return the column; None if its distinct values are not known, or are more than half as many as the rows."""
        ...


class Distinct:
    """Distinct values of one column as rows, none null."""

    def __init__(self, values: Vector) -> None:
        self._vector = values
        self.num_rows = len(values.data)

    def column(self, name: str, type_: SqlType) -> Vector:
        return self._vector

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        return None


class ValueSource(Distinct):
    """Values of one column as rows, from an Arrow array without nulls. Values may be repeated."""

    def __init__(self, type_: TypeName, values: Any) -> None:
        super().__init__(from_arrow(SqlType(type_), values))


class RowsOf:
    """Chosen rows of a source."""

    def __init__(self, source: ColumnSource, rows: NDArray[np.int64]) -> None:
        self._source = source
        self._rows = rows
        self.num_rows = len(rows)

    def column(self, name: str, type_: SqlType) -> Vector:
        return self._source.column(name, type_).take(self._rows)

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        nulls = self._source.nulls(name)
        return None if nulls is None else nulls[self._rows]


def hits(verdict: Vector, num_rows: int) -> Rows:
    """Return the rows where a predicate is TRUE: neither FALSE nor NULL."""
    full = verdict.spread(num_rows)
    data: Rows = np.asarray(full.data, dtype=np.bool_)
    return data if full.nulls is None else data & ~full.nulls


def decided(verdict: Vector, num_rows: int) -> tuple[Rows, Failure | None]:
    """Return the rows that are hits, as `hits` does, and apart from them the failure of rows without a verdict."""
    full = verdict.spread(num_rows)
    is_hit = hits(full, num_rows)
    return (is_hit, None) if full.failure is None else (is_hit & ~full.failure.rows, full.failure)
