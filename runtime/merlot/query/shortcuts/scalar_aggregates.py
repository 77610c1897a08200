"""Fast path for scalar aggregates: one row of counts, sums, averages and extremes of plain columns, in Python numbers.

Such queries read few rows and are frequent. Arrow arrays of one element, which are built, merged, sent and taken apart
again, cost ten times as much as reading the rows. Every answer equals the answer of the general code (`operators`,
`answer`). `tally` and `answer` return None for queries that do not fit and leave them to that code: other expressions,
HAVING, null handling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.aggregates.scalar_forms import ScalarAggregate, ValueStatistics
from merlot.aggregates.sums import exact_sum
from merlot.kernels import aggregate as kernels
from merlot.query.aggregation import Aggregation
from merlot.query.answer.partial import Partial, PlainRows
from merlot.query.answer.result import special_text
from merlot.query.constant_sums import family_of
from merlot.query.context import CancelToken, ExecutionContext
from merlot.query.filter.docset import CHUNK_DOCS, DocSet
from merlot.query.plan.nodes import Finish, Leaf, LeafKind, LeafWork, Reduce
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns, StatesOf
from merlot.query.targets import LeafTarget, Task, TaskResult, matched, select
from merlot.tree.nodes import Column
from merlot.values.types import TypeName

MAX_PIECES: Final = 8
"""Most pieces of a doc set that are read one by one. If there are more, the small ones are listed together."""
SUMMED_DOCS: Final = 1 << 22
"""Docs summed by one call, between checks of the deadline: some milliseconds."""
FEW_STATES: Final = 16
"""Most states that are merged faster in Python than by calling a kernel."""
_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP})
_SMALLEST: Final = np.iinfo(np.int64).min
_LARGEST: Final = np.iinfo(np.int64).max
_FLOATS: Final = frozenset({TypeName.FLOAT, TypeName.DOUBLE})


@dataclass(frozen=True, slots=True)
class Term:
    """One aggregate of the row. Its state has `width` columns, from `start` on."""

    form: ScalarAggregate
    column: Column | None
    is_whole: bool
    is_long: bool
    """True if the answer is a LONG, false if it is a DOUBLE."""
    start: int
    width: int
    constant: int = 0
    """Constant that is added to each value of the column."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Aggregates of a leaf that fits, made once per plan."""

    terms: tuple[Term, ...]
    columns: tuple[Column, ...]
    """Distinct columns whose values are read."""
    wanted: tuple[tuple[bool, bool], ...]
    """For each column, whether its sum and whether its extremes are needed."""

    @property
    def is_whole(self) -> bool:
        """True if all states are whole numbers, so that they may be merged in any order."""
        return all(term.is_whole for term in self.terms)


@dataclass(frozen=True, slots=True)
class _Shown:
    """Columns of the broker's answer."""

    outputs: tuple[int, ...]
    """Positions of the terms."""
    names: tuple[str, ...]
    types: tuple[str, ...]


def takes(work: LeafWork, *, of_states: bool = False) -> bool:
    """Return whether a leaf's aggregates fit. `of_states` is true for docs that are aggregates of rows."""
    row = work.memo.cached(_row_of, work)
    return row is not None and (row.is_whole or not of_states)


def tally(leaf: Leaf, tasks: Sequence[Task], context: ExecutionContext) -> tuple[PlainRows, list[TaskResult]] | None:
    """Compute the leaf's one row on this thread; None if the leaf does not fit."""
    row = leaf.work.memo.cached(_row_of, leaf.work)
    if row is None or not all(_fits(row, leaf, task.target) for task in tasks):
        return None
    tallies = Tallies(row)
    results: list[TaskResult] = []
    for task in tasks:
        context.cancel.check()
        docs, num_entries = select(leaf, task, context)
        columns = task.target.columns
        if docs.pieces and columns.stored_states is None:
            tallies.add(columns, docs, context.cancel)
        elif docs.pieces:
            tallies.add_states(columns, columns.stored_states or (), docs, context.cancel)
        results.append(TaskResult(None, docs.count, num_entries, matched(task, docs)))
    return PlainRows(leaf.work.partial_schema, tallies.states()), results


def _fits(row: _Row, leaf: Leaf, target: LeafTarget) -> bool:
    """Return whether the row can be computed over a target: over rows as the leaf reads them, or over stored states of
    whole numbers."""
    if target.columns.stored_states is None:
        return target.source.leaf is None
    return row.is_whole and target.source.leaf is leaf


def _row_of(work: LeafWork) -> _Row | None:
    """Return the row of the work; None if the work does not fit."""
    if work.kind is not LeafKind.AGGREGATION or work.null_handling:
        return None
    terms: list[Term] = []
    start = 0
    for aggregation in work.aggregations:
        term = _term(aggregation, start)
        if term is None:
            return None
        terms.append(term)
        start += term.width
    columns = tuple(dict.fromkeys(term.column for term in terms if term.column is not None))
    return _Row(tuple(terms), columns, tuple(_wanted(column, terms) for column in columns))


def _term(aggregation: Aggregation, start: int) -> Term | None:
    form = aggregation.function.scalar_form
    if form is None or aggregation.filter is not None:
        return None
    is_long = aggregation.call.result.base is TypeName.LONG
    width = len(aggregation.fields)
    if not form.wants_values:
        return Term(form, None, True, is_long, start, width)
    family, constant = family_of(aggregation) or (None, 0)
    argument = aggregation.arguments[0] if family is None else family.argument
    if not isinstance(argument, Column) or argument.type.is_array or argument.name.startswith("$"):
        return None
    is_whole = argument.type.base in _WHOLE
    if not is_whole and (argument.type.base not in _FLOATS or form.wants_extremes):
        return None
    return Term(form, argument, is_whole, is_long, start, width, constant)


def _wanted(column: Column, terms: Sequence[Term]) -> tuple[bool, bool]:
    forms = [term.form for term in terms if term.column == column]
    return any(form.wants_sum for form in forms), any(form.wants_extremes for form in forms)


def _shown(work: LeafWork, finish: Finish) -> _Shown | None:
    """Return the columns of the answer; None if it needs more than a choice among the terms."""
    if finish.having is not None or finish.offset or not finish.rows_needed or finish.is_distinct:
        return None
    slots = {f"a{number}": (number, aggregate.type) for number, aggregate in enumerate(work.aggregates)}
    numbers = []
    for output in finish.outputs:
        number, type_ = slots.get(output.expr.name, (0, None)) if isinstance(output.expr, Column) else (0, None)
        if type_ != output.expr.type:
            return None
        numbers.append(number)
    names = tuple(output.label for output in finish.outputs)
    return _Shown(tuple(numbers), names, tuple(str(output.expr.type) for output in finish.outputs))


# On a server


class Tallies:
    """Running states over segments, on one thread."""

    def __init__(self, row: _Row) -> None:
        self._row = row
        self._columns = {
            column: _Values(column, *wanted) for column, wanted in zip(row.columns, row.wanted, strict=True)
        }
        self._has_only_extremes = all(wanted == (False, True) for wanted in row.wanted)
        self._states: list[list[Any]] = [[] for term in row.terms for _ in range(term.width)]
        """State columns of docs that are aggregates of rows."""
        self.num_docs = 0

    def add(self, columns: Columns, docs: DocSet, cancel: CancelToken) -> None:
        """Add docs of a segment."""
        self.num_docs += docs.count
        if not self._columns:
            return
        if self._has_only_extremes:
            docs = self._add_extremes(columns, docs, cancel)
        is_whole = all(piece.is_span for piece in docs.pieces)
        remaining = [
            (column, values)
            for column, values in self._columns.items()
            if not (is_whole and _add_sums(column, values, columns, docs, cancel))
        ]
        if not remaining:
            return
        for chunk in _chunks(columns, docs):
            cancel.check()
            for column, values in remaining:
                values.add(chunk.column(column.name, column.type).data)

    def add_states(self, columns: Columns, stored: Sequence[StatesOf], docs: DocSet, cancel: CancelToken) -> None:
        """Add docs that stand for rows which were aggregated before."""
        for chunk in _chunks(columns, docs):
            cancel.check()
            doc_ids = chunk.doc_ids()
            for term, states_of in zip(self._row.terms, stored, strict=True):
                for position, state in enumerate(states_of(doc_ids), term.start):
                    self._states[position] += _folded(state, term.form)

    def _add_extremes(self, columns: Columns, docs: DocSet, cancel: CancelToken) -> DocSet:
        """Add the pieces that contain at least half of the docs of their range, without listing those docs. Return the
        other pieces."""
        others = []
        for piece in docs.pieces:
            words = piece.words
            if words is None or 2 * piece.count < piece.stop - piece.start:
                others.append(piece)
                continue
            for start in range(piece.start, piece.stop, CHUNK_DOCS):
                cancel.check()
                chunk = Chunk(columns, start, min(start + CHUNK_DOCS, piece.stop))
                first = start - piece.start >> 6
                for column, values in self._columns.items():
                    data = chunk.column(column.name, column.type).data
                    values.add_where(data, words[first : first + (CHUNK_DOCS >> 6)])
        return DocSet(tuple(others))

    def states(self) -> tuple[list[Any], ...]:
        """Return the state columns, each of one value, or of none if no doc was added."""
        states = self._states
        if self.num_docs:
            states = [stored + plain for stored, plain in zip(states, self._of_rows(), strict=True)]
        if not states[0] or len(states[0]) == 1:
            return tuple(states)
        merged = (
            value
            for term in self._row.terms
            for value in term.form.merged(states[term.start : term.start + term.width])
        )
        return tuple([value] for value in merged)

    def _of_rows(self) -> list[list[Any]]:
        """Return the state columns of all plain rows, each of one value."""
        tallies = {column: values.tally(self.num_docs) for column, values in self._columns.items()}
        rows = ValueStatistics(self.num_docs)
        columns: list[list[Any]] = []
        for term in self._row.terms:
            tally = rows if term.column is None else tallies[term.column]
            if term.constant:
                tally = ValueStatistics(self.num_docs, tally.whole + term.constant * self.num_docs)
            columns += [[value] for value in term.form.state(tally, is_whole=term.is_whole)]
        return columns


def _folded(state: pa.Array, form: ScalarAggregate) -> list[Any]:
    """Return a few values that merge into the same state as all values of the column."""
    if len(state) <= FEW_STATES:
        return list(state.to_pylist())
    if form.wants_extremes:
        return list(pc.min_max(state).as_py().values())
    return [exact_sum(state.to_numpy())]


class _Values:
    """Running sum and extremes of one column's values."""

    def __init__(self, column: Column, wants_sum: bool, wants_extremes: bool) -> None:
        self._wants_sum = wants_sum
        self._wants_extremes = wants_extremes
        self._floats: NDArray[np.float64] | None = None if column.type.base in _WHOLE else np.zeros(2)
        self._tally = ValueStatistics()

    def add(self, values: NDArray[Any]) -> None:
        if self._floats is not None:
            kernels.sum_float(values.astype(np.float64, copy=False), self._floats)
            return
        if self._wants_sum:
            self._tally.whole += exact_sum(values)
        if self._wants_extremes:
            self._note_extremes(int(values.min()), int(values.max()))

    @property
    def wants_whole_sum_only(self) -> bool:
        """True if only the sum of whole numbers is needed."""
        return self._floats is None and not self._wants_extremes

    def add_sum(self, dict_ids: NDArray[Any], numbers: NDArray[Any]) -> None:
        """Add the sum of docs, given by their dict ids."""
        halves = np.zeros(2, np.int64)
        kernels.sum_looked_up(dict_ids, numbers, halves)
        high, low = halves.tolist()
        self._tally.whole += (high << 32) + low

    def add_where(self, values: NDArray[Any], words: NDArray[np.uint64]) -> None:
        """Add the extremes of the values whose bits are set."""
        extremes = np.array([_LARGEST, _SMALLEST])
        kernels.extremes_where(values, words, extremes)
        low, high = extremes.tolist()
        if low <= high:
            self._note_extremes(low, high)

    def _note_extremes(self, low: int, high: int) -> None:
        tally = self._tally
        tally.low = low if tally.low is None else min(low, tally.low)
        tally.high = high if tally.high is None else max(high, tally.high)

    def tally(self, num_rows: int) -> ValueStatistics:
        """Return the tally of all values that were added, as of `num_rows` rows."""
        self._tally.num_rows = num_rows
        if self._floats is not None:
            total, error = self._floats.tolist()
            self._tally.floats = (total, error)
        return self._tally


def _add_sums(column: Column, values: _Values, columns: Columns, docs: DocSet, cancel: CancelToken) -> bool:
    """Sum spans of docs through the column's dictionary. Return False, with nothing done, if more than a whole sum is
    needed or the column has no dictionary of whole numbers."""
    reader = columns.reader(column.name)
    numbers = None if reader.dictionary is None else reader.dictionary.numeric
    if not values.wants_whole_sum_only or numbers is None or numbers.dtype.kind != "i":
        return False
    dict_ids = reader.dict_ids()
    for piece in docs.pieces:
        for start in range(piece.start, piece.stop, SUMMED_DOCS):
            cancel.check()
            values.add_sum(dict_ids[start : min(start + SUMMED_DOCS, piece.stop)], numbers)
    return True


def _chunks(columns: Columns, docs: DocSet) -> Iterator[Chunk]:
    if len(docs.pieces) > MAX_PIECES or docs.count > CHUNK_DOCS:
        yield from docs.chunks(columns, null_handling=False)
        return
    for piece in docs.pieces:
        yield Chunk(columns, piece.start, piece.stop, piece.docs())


# On a broker


def answer(plan: Reduce, partials: Sequence[Partial]) -> tuple[Sequence[str], Sequence[str], list[Any]] | None:
    """Return column names, types and the one row, JSON-ready; None if these partial answers need the general reduce."""
    work = plan.leaf.work
    row = work.memo.cached(_row_of, work)
    shown = None if row is None else plan.finish.memo.cached(_shown, work, plan.finish)
    if row is None or shown is None:
        return None
    rows: list[PlainRows] = []
    for partial in partials:
        content = partial.content
        if not isinstance(content, PlainRows) or not content.schema.equals(work.partial_schema):
            return None
        if content.num_rows > 1:
            return None
        if content.num_rows:
            rows.append(content)
    if len(rows) > 1 and not all(term.is_whole for term in row.terms):
        return None
    answers = [_finish(term, rows) for term in row.terms]
    return shown.names, shown.types, [answers[number] for number in shown.outputs]


def _finish(term: Term, rows: Sequence[PlainRows]) -> Any:
    span = range(term.start, term.start + term.width)
    columns = [[row.columns[position][0] for row in rows] for position in span]
    answer = term.form.answer(columns, is_whole=term.is_whole)
    return answer if term.is_long or math.isfinite(answer) else special_text(answer)
