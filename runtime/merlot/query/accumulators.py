"""Accumulators that feed the state of one aggregate, chunk by chunk, in one task.

`groups` is u32, one group per row of the chunk, or None when there is a single group. Rows that the aggregate's FILTER
drops do not reach the state. With null handling, neither do rows where an argument is null, unless the function takes
nulls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import Chosen, Dictionary, Groups, all_in_one
from merlot.aggregates.held import Holding
from merlot.functions.evaluate import evaluate, matches
from merlot.functions.source import ColumnSource
from merlot.query.aggregation import Aggregation
from merlot.query.bounds import bounds_of
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns, StatesOf, has_both_zeros
from merlot.segment.index.dictionary import OrderedDictionary
from merlot.tree.nodes import Column, Expr
from merlot.tree.types import SqlType
from merlot.vectors.vector import Vector, either_null, from_arrow


class Argument:
    """Facts about an expression in one segment (`aggregates.function.Input`)."""

    def __init__(self, expr: Expr, columns: Columns) -> None:
        self._expr = expr
        self._columns = columns

    def __str__(self) -> str:
        return str(self._expr)

    def bounds(self) -> tuple[int, int] | None:
        return bounds_of(self._expr, self._columns)

    def dictionary(self) -> Dictionary | None:
        if not isinstance(self._expr, Column):
            return None
        dictionary = self._columns.reader(self._expr.name).dictionary
        return None if dictionary is None or has_both_zeros(dictionary) else dictionary

    def ranked(self) -> Dictionary | None:
        dictionary = self.dictionary()
        return dictionary if isinstance(dictionary, OrderedDictionary) else None


class Accumulator:
    """State of an aggregate over some rows of a segment. It starts with `num_groups` groups and grows."""

    def __init__(self, aggregation: Aggregation, num_groups: int, columns: Columns) -> None:
        self._aggregation = aggregation
        self._arguments = aggregation.arguments
        self._filter = aggregation.filter
        inputs = [Argument(expr, columns) for expr in aggregation.arguments]
        self._state = aggregation.function.start(aggregation.call, num_groups, inputs)
        self._holding = Holding(aggregation.function, self._state, num_groups)
        self._takes_scaled = self._state.takes_scaled()

    def grow(self, num_groups: int) -> None:
        """Make room for `num_groups` groups."""
        self._holding.begin()
        self._state.grow(num_groups)

    @property
    def rows_by_group(self) -> NDArray[np.int64] | None:
        """Number of rows of each group, if the aggregate counts all rows; else None."""
        return None if self._arguments or self._filter is not None else self._state.rows_by_group()

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        """Add the rows of a chunk."""
        if self._filter is not None:
            rows = np.flatnonzero(matches(self._filter, chunk))
            if not len(rows):
                return
            chunk, groups = chunk.at(rows), None if groups is None else groups[rows]
        if self._state.wants_ids(is_grouped=groups is not None):
            ids = self._ids(chunk, groups)
            self._holding.begin()
            self._state.add_ids(*ids)
        else:
            values = argument_values(self._aggregation, chunk, groups, takes_scaled=self._takes_scaled)
            self._holding.begin()
            self._state.add(*values)
        self._holding.add(chunk.num_rows)

    def states(self, groups: Chosen) -> list[pa.Array]:
        """Return the state columns of the chosen groups."""
        self._holding.begin()
        return self._holding.columns(self._state.columns(groups))

    def _ids(self, chunk: Chunk, groups: Groups | None) -> tuple[NDArray[Any], Groups | None]:
        """Return the dict ids of the only argument's values that are not null, and the groups of those values."""
        argument = self._arguments[0]
        assert isinstance(argument, Column)
        nulls = chunk.visible_nulls(argument.name)
        if nulls is not None:
            rows = np.flatnonzero(~nulls)
            chunk, groups = chunk.at(rows), None if groups is None else groups[rows]
        reader = chunk.columns.reader(argument.name)
        if not self._aggregation.function.flattens:
            return chunk.dict_ids(reader), groups
        offsets, positions = chunk.multi_values(reader)
        return reader.dict_ids()[positions], None if groups is None else np.repeat(groups, np.diff(offsets))


def argument_values(
    aggregation: Aggregation, rows: ColumnSource, groups: Groups | None, *, takes_scaled: bool = False
) -> tuple[list[Any], Groups | None, int]:
    """Return the values of each argument in the rows where none is null, their groups, and their number. A function
    that takes nulls gets all rows, as Arrow arrays.

    `takes_scaled` allows `vectors.scaled.Scaled` for BIG_DECIMAL."""
    vectors = [evaluate(expr, rows).spread(rows.num_rows) for expr in aggregation.arguments]
    if not takes_scaled:
        vectors = [vector.with_objects() for vector in vectors]
    num_rows = rows.num_rows
    if aggregation.function.takes_nulls:
        return [vector.to_arrow(num_rows) for vector in vectors], groups, num_rows
    nulls = None
    for vector in vectors:
        nulls = either_null(nulls, vector.nulls)
    if nulls is not None:
        present = np.flatnonzero(~nulls)
        vectors, num_rows = [vector.take(present) for vector in vectors], len(present)
        groups = None if groups is None else groups[present]
    if aggregation.function.flattens:
        return _flattened(vectors, groups)
    return [vector.data for vector in vectors], groups, num_rows


class StateAccumulator:
    """Accumulator over docs that stand for rows which were aggregated before."""

    def __init__(self, aggregation: Aggregation, num_groups: int, states_of: StatesOf) -> None:
        self._filter = aggregation.filter
        self._counts_rows = not aggregation.arguments and aggregation.filter is None
        self._states_of = states_of
        self._state = aggregation.function.start(aggregation.call, num_groups)
        self._holding = Holding(aggregation.function, self._state, num_groups)

    def grow(self, num_groups: int) -> None:
        """Make room for `num_groups` groups."""
        self._holding.begin()
        self._state.grow(num_groups)

    @property
    def rows_by_group(self) -> NDArray[np.int64] | None:
        return self._state.rows_by_group() if self._counts_rows else None

    def add(self, chunk: Chunk, groups: Groups | None) -> None:
        if self._filter is not None:
            rows = np.flatnonzero(matches(self._filter, chunk))
            chunk, groups = chunk.at(rows), None if groups is None else groups[rows]
        if chunk.num_rows:
            self._holding.begin()
            self._state.merge(self._states_of(chunk.doc_ids()), all_in_one(groups, chunk.num_rows))
            self._holding.add(chunk.num_rows)

    def states(self, groups: Chosen) -> list[pa.Array]:
        self._holding.begin()
        return self._holding.columns(self._state.columns(groups))


def _flattened(vectors: Sequence[Vector], groups: Groups | None) -> tuple[list[Any], Groups | None, int]:
    """Return every value of the first argument, a list, as a row of its own."""
    first, *others = vectors
    lengths = np.diff(first.data.offsets.to_numpy())
    values = from_arrow(SqlType(first.type.base), first.data.flatten())
    rows = np.repeat(np.arange(len(lengths)), lengths)
    repeated = [vector.take(rows).data for vector in others]
    return [values.data, *repeated], None if groups is None else groups[rows], len(rows)
