"""One row of counts, sums, averages and extremes of plain columns, in Python's own numbers from segments to answer.

Such queries read few rows and are asked often; Arrow arrays of one element, built, merged, sent and taken apart again,
cost ten times what reading the rows does. Every answer equals that of the general way (`grouping`, `combine`,
`reduce`), which also takes over whatever does not fit: other expressions, HAVING, null handling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.aggregates.sums import exact_sum
from merlot.kernels import aggregate as kernels
from merlot.query.chunk import Chunk
from merlot.query.columns import Columns
from merlot.query.context import CancelToken
from merlot.query.docset import CHUNK_DOCS, DocSet
from merlot.query.partial import Partial, PlainRows
from merlot.query.result import special_text
from merlot.spec.types import TypeName
from merlot.tree.nodes import Aggregate, Column
from merlot.vectors.errors import QueryArithmeticError

if TYPE_CHECKING:
    from merlot.query.logical import LogicalPlan

MAX_PIECES: Final = 8
"""Pieces of a doc set that are read one by one; of more, the small ones are listed together."""
_LOW_MASK: Final = 0xFFFFFFFF
_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP})
_FLOATS: Final = frozenset({TypeName.FLOAT, TypeName.DOUBLE})
_FUNCTIONS: Final = frozenset({"count", "sum", "sumlong", "avg", "min", "minlong", "max", "maxlong"})
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Term:
    """One aggregate. Its state has `width` columns, from `start` on."""

    function: str
    column: Column | None
    is_whole: bool
    is_long: bool
    """Whether the answer is a LONG; else it is a DOUBLE."""
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class PlainAggregation:
    """What such a plan computes; made once per plan."""

    terms: tuple[Term, ...]
    columns: tuple[Column, ...]
    """Distinct, those whose values are read."""
    outputs: tuple[int, ...] | None
    """Numbers of the terms that the answer shows; None if it takes more than that to make it."""
    names: tuple[str, ...]
    types: tuple[str, ...]


def plain_aggregation(plan: LogicalPlan) -> PlainAggregation | None:
    """The plan as one of these; None if it is none. `plan.kind` must be AGGREGATION."""
    if plan.null_handling:
        return None
    terms: list[Term] = []
    start = 0
    for aggregate, aggregation in zip(plan.aggregates, plan.aggregations, strict=True):
        width = len(aggregation.fields)
        term = _term(aggregate, start, width)
        if term is None:
            return None
        terms.append(term)
        start += width
    columns = tuple(dict.fromkeys(term.column for term in terms if term.column is not None))
    return PlainAggregation(
        terms=tuple(terms),
        columns=columns,
        outputs=_outputs(plan),
        names=tuple(output.label for output in plan.outputs),
        types=tuple(str(output.expr.type) for output in plan.outputs),
    )


def _term(aggregate: Aggregate, start: int, width: int) -> Term | None:
    function = aggregate.function
    if aggregate.filter is not None or function not in _FUNCTIONS:
        return None
    if aggregate.type.is_array or aggregate.type.base not in (TypeName.LONG, TypeName.DOUBLE):
        return None
    is_long = aggregate.type.base is TypeName.LONG
    if function == "count":
        return Term(function, None, True, is_long, start, width)
    argument = aggregate.args[0]
    if not isinstance(argument, Column) or argument.type.is_array or argument.name.startswith("$"):
        return None
    is_whole = argument.type.base in _WHOLE
    if not is_whole and (argument.type.base not in _FLOATS or function not in ("sum", "avg")):
        return None
    return Term(function, argument, is_whole, is_long, start, width)


def _outputs(plan: LogicalPlan) -> tuple[int, ...] | None:
    slots = {f"a{number}": (number, aggregate.type) for number, aggregate in enumerate(plan.aggregates)}
    numbers = []
    for output in plan.outputs:
        number, type_ = slots.get(output.expr.name, (0, None)) if isinstance(output.expr, Column) else (0, None)
        if type_ != output.expr.type:
            return None
        numbers.append(number)
    is_whole_row = plan.having is None and plan.offset == 0 and plan.rows_needed > 0
    return tuple(numbers) if is_whole_row and not plan.is_distinct_after else None


# On a server


class Tally:
    """Running states over segments, on one thread."""

    def __init__(self, plain: PlainAggregation) -> None:
        self._plain = plain
        self._columns = {column: _Values(column, plain) for column in plain.columns}
        self.num_docs = 0

    def add(self, columns: Columns, docs: DocSet, cancel: CancelToken) -> None:
        """Take in docs of a segment."""
        self.num_docs += docs.count
        if not self._columns:
            return
        for chunk in _chunks(columns, docs):
            cancel.check()
            for column, values in self._columns.items():
                values.add(chunk.column(column.name, column.type).data)

    def states(self) -> tuple[list[Any], ...]:
        """State columns, each of one value; of none if no doc was taken in."""
        if not self.num_docs:
            return tuple([[] for term in self._plain.terms for _ in range(term.width)])
        found: list[list[Any]] = []
        for term in self._plain.terms:
            if term.column is None:
                found.append([self.num_docs])
                continue
            values = self._columns[term.column]
            if term.function.startswith("min"):
                found.append([values.low])
            elif term.function.startswith("max"):
                found.append([values.high])
            else:
                found += values.sum_state(is_whole=term.is_whole)
                if term.function == "avg":
                    found.append([self.num_docs])
        return tuple(found)


class _Values:
    """What the values of one column come to."""

    def __init__(self, column: Column, plain: PlainAggregation) -> None:
        functions = {term.function for term in plain.terms if term.column == column}
        self._is_whole = column.type.base in _WHOLE
        self._wants_sum = bool(functions & {"sum", "sumlong", "avg"})
        self._wants_extremes = bool(functions - {"sum", "sumlong", "avg"})
        self._total = 0
        self._floats: NDArray[np.float64] | None = None if self._is_whole else np.zeros(2)
        self.low: int | None = None
        self.high: int | None = None

    def add(self, values: NDArray[Any]) -> None:
        if self._floats is not None:
            kernels.sum_float(values.astype(np.float64, copy=False), self._floats)
            return
        if self._wants_sum:
            self._total += exact_sum(values)
        if self._wants_extremes:
            low, high = int(values.min()), int(values.max())
            self.low = low if self.low is None else min(low, self.low)
            self.high = high if self.high is None else max(high, self.high)

    def sum_state(self, *, is_whole: bool) -> list[list[Any]]:
        if is_whole:
            return [[self._total >> 32], [self._total & _LOW_MASK]]
        assert self._floats is not None
        return [[value] for value in self._floats.tolist()]


def _chunks(columns: Columns, docs: DocSet) -> Iterator[Chunk]:
    if len(docs.pieces) > MAX_PIECES or docs.count > CHUNK_DOCS:
        yield from docs.chunks(columns, null_handling=False)
        return
    for piece in docs.pieces:
        yield Chunk(columns, piece.start, piece.stop, piece.docs())


# On a broker


def plain_answer(plan: LogicalPlan, partials: Sequence[Partial]) -> list[Any] | None:
    """The one row of the answer, JSON-ready; None if these partial answers must be reduced in the general way."""
    plain = plan.plain
    if plain is None or plain.outputs is None:
        return None
    rows: list[PlainRows] = []
    for partial in partials:
        content = partial.content
        if not isinstance(content, PlainRows) or not content.schema.equals(plan.partial_schema):
            return None
        if content.num_rows > 1:
            return None
        if content.num_rows:
            rows.append(content)
    if len(rows) > 1 and not all(term.is_whole for term in plain.terms):
        return None
    answers = [_finish(term, rows) for term in plain.terms]
    return [answers[number] for number in plain.outputs]


def _finish(term: Term, rows: Sequence[PlainRows]) -> Any:
    values = [[row.columns[place][0] for row in rows] for place in range(term.start, term.start + term.width)]
    if term.function == "count":
        return sum(values[0])
    if term.function.startswith(("min", "max")):
        return _extreme(term, values[0])
    if not term.is_whole:
        total = _float_total(*(column[0] for column in values[:2])) if rows else 0.0
    else:
        whole = (sum(values[0]) << 32) + sum(values[1])
        if term.function == "sumlong":
            return _long(whole)
        total = float(whole)
    if term.function == "sum":
        return _double(total)
    count = sum(values[2])
    return _double(total / count if count else -math.inf)


def _extreme(term: Term, values: Sequence[int | None]) -> Any:
    is_min = term.function.startswith("min")
    known = [value for value in values if value is not None]
    if not known:
        if term.is_long:
            return _LONG_MAX if is_min else _LONG_MIN
        return _double(math.inf if is_min else -math.inf)
    best = min(known) if is_min else max(known)
    return best if term.is_long else float(best)


def _float_total(total: float, error: float) -> float:
    return total + error if math.isfinite(total) else total


def _long(value: int) -> int:
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise QueryArithmeticError("LONG overflow function=sumlong")
    return value


def _double(value: float) -> float | str:
    return value if math.isfinite(value) else special_text(value)
