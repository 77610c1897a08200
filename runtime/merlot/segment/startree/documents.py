"""Documents of a star-tree that is being built: dict ids of its dimensions, and states of its functions.

A document aggregates rows that agree in some dimensions. In the other dimensions its dict id is 0, which nobody reads:
the node that holds the document tells which dimensions it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import AggregateCall, AggregationFunction, Dictionary
from merlot.aggregates.registry import named
from merlot.errors import InvalidInputError
from merlot.segment.build.coding import DictionaryEncoded
from merlot.spec.star_tree import StoredFunction
from merlot.tree.nodes import Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.groups import Groups, KeyWords, group
from merlot.vectors.vector import decimals

Ids = NDArray[np.uint32]
Rows = NDArray[np.int64]
_PERCENT: Final = 50
"""Arbitrary percentile: states do not depend on the percentile that a query asks for."""


class TooManyDocumentsError(InvalidInputError):
    """Raised if a tree would have more documents than its table allows."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of the rows that a tree is made of."""

    type: TypeName
    coded: DictionaryEncoded | None
    """None for a raw column."""
    values: Any
    """Values of a raw column, as stored; None for a column with a dictionary."""


@dataclass(frozen=True, slots=True)
class Function:
    """A stored function, and the aggregate that makes and merges its states."""

    stored: StoredFunction
    function: AggregationFunction
    call: AggregateCall

    @classmethod
    def of(cls, stored: StoredFunction, type_: TypeName | None) -> Function:
        """Return a stored function with its aggregate. `type_` is the type of its column; None for the count."""
        function = named(stored.function)
        types = () if type_ is None else (SqlType(type_),)
        constants: tuple[Value, ...] = (_PERCENT,) if stored.function.startswith("percentile") else ()
        call = AggregateCall(types=types, constants=constants, result=function.result(types, constants))
        return cls(stored, function, call)

    @property
    def state_types(self) -> list[pa.DataType]:
        """Types of the columns of its states."""
        return [field.type for field in self.function.fields(self.call)]

    def states(self, column: SourceColumn | None, groups: NDArray[np.uint32], num_groups: int) -> list[pa.Array]:
        """Return the states of the rows of each group."""
        if column is None:
            state = self.function.start(self.call, num_groups)
            state.add([], groups, len(groups))
        else:
            state = self.function.start(self.call, num_groups, [_ColumnInput(column)])
            try:
                if column.coded is not None and state.wants_ids(is_grouped=True):
                    state.add_ids(column.coded.ids, groups)
                else:
                    state.add([_values(column)], groups, len(groups))
            except QueryArithmeticError as error:
                pair = f"{self.stored.function.upper()}__{self.stored.column}"
                raise QueryArithmeticError(f"star-tree has no state for some row pair={pair}: {error}") from error
        return _in_order(state.columns(np.arange(num_groups)))

    def merged(self, columns: Sequence[pa.Array], groups: NDArray[np.uint32], num_groups: int) -> list[pa.Array]:
        """Merge states into one state for each group."""
        return _in_order(self.function.merge(self.call, columns, groups, num_groups))


def _in_order(states: list[pa.Array]) -> list[pa.Array]:
    """Sort each set of numbers, so that equal rows make equal trees, from ids and from values alike."""
    if len(states) != 1 or not pa.types.is_list(states[0].type):
        return states
    [lists] = states
    values, offsets = lists.flatten().to_numpy(), lists.offsets
    owners = np.repeat(np.arange(len(lists)), np.diff(offsets.to_numpy()))
    return [pa.ListArray.from_arrays(_from_zero(offsets), pa.array(values[np.lexsort((values, owners))]))]


def _from_zero(offsets: pa.Array) -> pa.Array:
    numbers = offsets.to_numpy()
    return pa.array(numbers - numbers[0])


@dataclass(frozen=True, slots=True)
class _ColumnInput:
    """Facts about a column's values before they are aggregated (`aggregates.function.Input`)."""

    column: SourceColumn

    def bounds(self) -> tuple[int, int] | None:
        coded, values = self.column.coded, self.column.values
        numbers = values if coded is None else coded.values
        if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "i" or not len(numbers):
            return None
        return (int(numbers.min()), int(numbers.max())) if coded is None else (int(numbers[0]), int(numbers[-1]))

    def dictionary(self) -> Dictionary | None:
        return None if self.column.coded is None else _Distinct(self.column.coded)

    def ranked(self) -> Dictionary | None:
        return None


@dataclass(frozen=True, slots=True)
class _Distinct:
    """Distinct values of a column (`aggregates.function.Dictionary`)."""

    coded: DictionaryEncoded

    def __len__(self) -> int:
        return self.coded.cardinality

    @property
    def numeric(self) -> NDArray[Any] | None:
        values = self.coded.values
        return values if isinstance(values, np.ndarray) else None

    def arrow(self) -> pa.Array:
        values = self.coded.values
        return pa.array(values) if isinstance(values, np.ndarray) else values


def _values(column: SourceColumn) -> Any:
    """Return the values as states take them: BIG_DECIMAL as numbers, with each distinct value of a dictionary converted
    once."""
    if column.coded is None:
        return decimals(column.values) if column.type is TypeName.BIG_DECIMAL else column.values
    distinct, ids = column.coded.values, column.coded.ids
    if isinstance(distinct, np.ndarray):
        return distinct[ids]
    return decimals(distinct)[ids] if column.type is TypeName.BIG_DECIMAL else distinct.take(pa.array(ids))


class Documents:
    """Documents made so far; used by one thread."""

    def __init__(self, cardinalities: Sequence[int], functions: Sequence[Function], limit: int) -> None:
        self.cardinalities = cardinalities
        self.functions = functions
        self._limit = limit
        self.ids: list[Ids] = [np.zeros(0, np.uint32) for _ in cardinalities]
        self.states: list[list[pa.Array]] = [[] for _ in functions]
        self.count = 0

    def add_rows(self, dimensions: Sequence[NDArray[Any]], columns: Sequence[SourceColumn | None], rows: int) -> None:
        """Aggregate rows that agree in every dimension into documents, sorted by the dimensions in their order."""
        groups = _sorted_groups(list(zip(dimensions, self.cardinalities, strict=True)), rows)
        self._check(len(groups))
        ids = [codes[groups.first_rows].astype(np.uint32) for codes in dimensions]
        states = [
            function.states(column, groups.of_rows, len(groups))
            for function, column in zip(self.functions, columns, strict=True)
        ]
        self._append(ids, states, len(groups))

    def add_documents(self, ids: Sequence[Ids], states: Sequence[list[pa.Array]]) -> None:
        """Add documents that were made elsewhere and have all dimensions; those that agree in every dimension are
        merged."""
        groups = _sorted_groups(list(zip(ids, self.cardinalities, strict=True)), len(ids[0]))
        self._check(len(groups))
        merged = [
            function.merged(columns, groups.of_rows, len(groups))
            for function, columns in zip(self.functions, states, strict=True)
        ]
        self._append([codes[groups.first_rows] for codes in ids], merged, len(groups))

    def fold(self, rows: Rows, owners: NDArray[np.int64], num_owners: int, depth: int, *, keeps: Iterable[int]) -> Rows:
        """Aggregate documents of the same owner that agree in the dimensions of `keeps`, sorted by owner and then by
        these dimensions.

        Dimensions before `depth` are the same in all documents of an owner, and stay. The other dimensions are set to
        0. Returns the owner of each new document."""
        kept_dimensions = list(keeps)
        codes = [(owners.astype(np.uint32), num_owners)]
        codes += [(self.ids[dimension][rows], self.cardinalities[dimension]) for dimension in kept_dimensions]
        groups = _sorted_groups(codes, len(rows))
        self._check(self.count + len(groups))
        first = rows[groups.first_rows]
        ids = [
            column[first] if dimension < depth or dimension in kept_dimensions else np.zeros(len(first), np.uint32)
            for dimension, column in enumerate(self.ids)
        ]
        positions = pa.array(rows)
        states = [
            function.merged([column.take(positions) for column in columns], groups.of_rows, len(groups))
            for function, columns in zip(self.functions, self.states, strict=True)
        ]
        self._append(ids, states, len(groups))
        return owners[groups.first_rows]

    def _append(self, ids: list[Ids], states: list[list[pa.Array]], number: int) -> None:
        self.ids = [np.concatenate([before, after]) for before, after in zip(self.ids, ids, strict=True)]
        if self.count:
            pairs = zip(self.states, states, strict=True)
            states = [
                [pa.concat_arrays([old, new]) for old, new in zip(before, after, strict=True)]
                for before, after in pairs
            ]
        self.states = states
        self.count += number

    def _check(self, number: int) -> None:
        if number > self._limit:
            raise TooManyDocumentsError(
                f"star-tree has too many documents limit={self._limit} got={number} or more; raise maxLeafRecords, "
                "name dimensions in skipStarNodeCreationForDimensions, take some out, or raise maxDocuments"
            )


def _sorted_groups(codes: Sequence[tuple[NDArray[Any], int]], num_rows: int) -> Groups:
    """Group rows with equal codes, groups in the order of their codes; `first_rows` are not sorted."""
    keys = KeyWords(num_rows)
    for dimension_codes, cardinality in codes:
        keys.add(dimension_codes, cardinality)
    groups = group(keys)
    if not keys.words:
        return groups
    distinct = keys.take(groups.first_rows).words
    order = np.argsort(distinct[0]) if len(distinct) == 1 else np.lexsort(distinct[::-1])
    ranks = np.empty(len(order), np.uint32)
    ranks[order] = np.arange(len(order), dtype=np.uint32)
    return Groups(ranks[groups.of_rows], groups.first_rows[order])
