"""Interface of an aggregate: its signature, its states, its answers.

A query calls an aggregate with some types and constants (`AggregateCall`). A `State` accumulates values, chunk by
chunk, and states of other tasks. Its result travels as Arrow columns (`StateField`). A fresh `State` is the state of no
rows: merging it into another state changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.scalar_forms import ScalarAggregate
from merlot.tree.nodes import Expr, Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Vector

Groups = NDArray[np.uint32]
"""Group of each row."""
Chosen = NDArray[np.int64]
"""Distinct numbers of groups, ascending."""

ANYTHING: Final = frozenset(TypeName)
INTEGERS: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.BOOLEAN, TypeName.TIMESTAMP})
NUMBERS: Final = INTEGERS | {TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateParameter:
    """Parameter of an aggregate. A constant one is the same for all rows, and known when the query is bound."""

    name: str
    takes: frozenset[TypeName] = NUMBERS
    is_constant: bool = False
    is_optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """Types and constants with which an aggregate is called."""

    types: tuple[SqlType, ...]
    """Types of the arguments that have a value per row."""
    constants: tuple[Value, ...] = ()
    result: SqlType
    nulls: bool = False
    """True if null handling is on. Then rows with a null argument are left out (unless the function `takes_nulls`), and
    the answer of most aggregates is NULL if there are no values."""


@dataclass(frozen=True, slots=True)
class StateField:
    """Column of a state; for slot `a0` it is called `a0.<suffix>`."""

    suffix: str
    type: pa.DataType


class Dictionary(Protocol):
    """Distinct values of a column; the id of a value is its index."""

    def __len__(self) -> int: ...
    @property
    def numeric(self) -> NDArray[Any] | None:
        """Values as an array if they are of fixed width, else None."""
        ...

    def arrow(self) -> pa.Array:
        """Return the values."""
        ...


class Input(Protocol):
    """Facts about an argument's values that are known before they come."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the smallest and largest whole number that may occur; None if unknown."""
        ...

    def dictionary(self) -> Dictionary | None:
        """Return the dictionary by whose ids the values may come, if equal values have one id. Ids need not be
        ordered."""
        ...

    def ranked(self) -> Dictionary | None:
        """Return the dictionary if its ids are ranks: comparing ids compares values."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """Input of which only the bounds are known, or nothing."""

    limits: tuple[int, int] | None = None

    def bounds(self) -> tuple[int, int] | None:
        return self.limits

    def dictionary(self) -> Dictionary | None:
        return None

    def ranked(self) -> Dictionary | None:
        return None


UNKNOWN: Final = Known()


class State(ABC):
    """State of an aggregate by group, while it accumulates values. One thread.

    `groups` is None if all rows are of group 0; otherwise all groups are below the number of groups that `start` got,
    or `grow` last."""

    @abstractmethod
    def grow(self, num_groups: int) -> None:
        """Make room for this many groups; new groups have no rows."""

    @abstractmethod
    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        """Add rows. values: per argument its values in the form of `vectors.vector`, without nulls. If the function
        `takes_nulls`, they are Arrow arrays that may have nulls."""

    @abstractmethod
    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        """Merge other states, one per row."""

    @abstractmethod
    def columns(self, groups: Chosen) -> list[pa.Array]:
        """Return the states of chosen groups, a column per `StateField`."""

    def foreign_bytes(self) -> int:
        """Return the bytes of objects of other libraries that the state holds, which only the state can estimate."""
        return 0

    def wants_ids(self, *, is_grouped: bool) -> bool:
        """Return True if rows of its only argument shall come as dict ids: to `add_ids` instead of `add`."""
        return False

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        """Add rows as `add` does, given as ids of the input's dictionary."""
        raise NotImplementedError(type(self).__name__)

    def takes_scaled(self) -> bool:
        """Return True if BIG_DECIMAL values may come to `add` as `vectors.scaled.Scaled`."""
        return False

    def rows_by_group(self) -> NDArray[np.int64] | None:
        """Return the number of rows of each group, if the state consists of that alone."""
        return None


class AggregationFunction(ABC):
    """Aggregate under one name. Its methods depend on the call alone."""

    name: str
    aliases: tuple[str, ...] = ()
    parameters: tuple[AggregateParameter, ...]
    is_light: bool = False
    """True if a row costs a few nanoseconds, whatever its values."""
    scalar_form: ScalarAggregate | None = None
    """Fast path that computes a single row of plain numbers without null handling, if there is one."""
    has_bytes: bool = False
    """True if states have a form in bytes, and a BYTES argument holds such states instead of values."""
    counts_rows: bool = False
    """True if only the presence of values matters. Without null handling every row has one."""
    flattens: bool = False
    """True if its first argument is a multi-value column, of which every value is added by itself."""

    takes_nulls: bool = False
    """True if rows that lack an argument come too, even with null handling; then every argument is an Arrow array."""
    gives_rows: bool = False
    """True if it finishes with lists of which every value is a row of the query's answer. A call is then a whole item
    of SELECT, and never part of an expression."""
    written: str = ""
    """Arguments as a query writes them, if these are not `parameters`; for the documentation."""

    @property
    def arity(self) -> tuple[int, int]:
        """Least and greatest number of arguments in a query."""
        return sum(not parameter.is_optional for parameter in self.parameters), len(self.parameters)

    def complete(self, args: Sequence[Expr]) -> Sequence[Expr]:
        """Return the arguments for its parameters, given those of a query."""
        return args

    @abstractmethod
    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        """Return the type of the answer."""

    @abstractmethod
    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        """Return the columns of a state."""

    @abstractmethod
    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        """Return the state of this many groups without rows. inputs: facts about the arguments; they may be missing."""

    @abstractmethod
    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        """Return answers of type `call.result`, one per state; lists of that type if it `gives_rows`."""

    def variant(self, types: Sequence[SqlType]) -> str:
        """Return the name of the aggregate that computes it for arguments of these types."""
        return self.name

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        """Return what is wrong with arguments of the right types, as the text after the aggregate's name; None if
        nothing is."""
        return None

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        """Return states in the form that Pinot stores in BYTES columns, if `has_bytes`; empty bytes without values."""
        raise NotImplementedError(self.name)

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        """Return the state columns of stored states, if `has_bytes`. No stored state is empty. Raise SketchError."""
        raise NotImplementedError(self.name)

    def merge(
        self, call: AggregateCall, columns: Sequence[pa.Array], groups: Groups, num_groups: int
    ) -> list[pa.Array]:
        """Merge the states of rows into states of this many groups."""
        spending = account.current()
        spending.function = self.name.upper()
        state = self.start(call, num_groups)
        # The state takes about as many bytes as these columns, and the merged columns as many again.
        spending.expect("", 2 * sum([column.nbytes for column in columns]))
        state.merge(columns, groups)
        return state.columns(np.arange(num_groups))

    def identity(self, call: AggregateCall) -> list[pa.Array]:
        """Return the state of no rows, as one row."""
        return self.start(call, 1).columns(np.zeros(1, np.int64))


def grown(array: NDArray[Any], num_groups: int, fill: Any = 0) -> NDArray[Any]:
    """Return the array with room for this many groups, new elements filled with `fill`."""
    if len(array) >= num_groups:
        return array
    number = max(num_groups, 2 * len(array))
    account.current().expect("", number * array.dtype.itemsize)
    larger = np.full(number, fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def chosen(values: NDArray[Any], groups: Chosen) -> NDArray[Any]:
    """Return the elements of chosen groups; they are not copied if the groups are the first ones."""
    number = len(groups)
    return values[:number] if number == 0 or groups[-1] == number - 1 else values[groups]


def all_in_one(groups: Groups | None, num_rows: int) -> Groups:
    """Return the group of each row as an array; all are 0 if `groups` is None."""
    return np.zeros(num_rows, np.uint32) if groups is None else groups


class Several(State):
    """Several states whose columns follow one another, fed with the same rows."""

    def __init__(self, parts: Sequence[tuple[State, int]]) -> None:
        """Combine the states. parts: each state with its number of columns."""
        self._parts = parts

    def grow(self, num_groups: int) -> None:
        for part, _ in self._parts:
            part.grow(num_groups)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        for part, _ in self._parts:
            part.add(values, groups, num_rows)

    def takes_scaled(self) -> bool:
        return all(part.takes_scaled() for part, _ in self._parts)

    def wants_ids(self, *, is_grouped: bool) -> bool:
        return all(part.wants_ids(is_grouped=is_grouped) for part, _ in self._parts)

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        for part, _ in self._parts:
            part.add_ids(ids, groups)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        start = 0
        for part, width in self._parts:
            part.merge(columns[start : start + width], groups)
            start += width

    def columns(self, groups: Chosen) -> list[pa.Array]:
        return [column for part, _ in self._parts for column in part.columns(groups)]


def nothing(call: AggregateCall, counts: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return a mask of the answers that are NULL because there were no values. None if no answer is, or without null
    handling."""
    if not call.nulls:
        return None
    empty: NDArray[np.bool_] = counts == 0
    return empty if empty.any() else None
