"""What an aggregate is: its signature, its states, its answers.

A query calls an aggregate with some types and constants (`AggregateCall`). A `State` takes in values, chunk by chunk,
and states of others; what it has come to travels as Arrow columns (`StateField`). The state of no rows is what a fresh
`State` gives: merged with any other it leaves that as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.one_row import OneRow
from merlot.tree.nodes import Expr, Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Vector

Groups = NDArray[np.uint32]
"""The group of each row."""
Chosen = NDArray[np.int64]
"""Numbers of groups, ascending."""

ANYTHING: Final = frozenset(TypeName)
INTEGERS: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.BOOLEAN, TypeName.TIMESTAMP})
NUMBERS: Final = INTEGERS | {TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument. A constant one is the same for all rows and known when the query is bound."""

    name: str
    takes: frozenset[TypeName] = NUMBERS
    is_constant: bool = False
    is_optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """How an aggregate is called."""

    types: tuple[SqlType, ...]
    """Of the arguments that have a value per row."""
    constants: tuple[Value, ...] = ()
    result: SqlType
    nulls: bool = False
    """Whether null handling is on: then rows without all arguments do not come, and nothing answers NULL."""


@dataclass(frozen=True, slots=True)
class StateField:
    """One column of a state; that of slot `a0` is called `a0.<suffix>`."""

    suffix: str
    type: pa.DataType


class Dictionary(Protocol):
    """Distinct values of a column: a value's id is its place."""

    def __len__(self) -> int: ...
    @property
    def numeric(self) -> NDArray[Any] | None:
        """The values, if they are of fixed width."""
        ...

    def arrow(self) -> pa.Array:
        """The values."""
        ...


class Input(Protocol):
    """What is known of an argument's values before they come."""

    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest whole number there may be."""
        ...

    def dictionary(self) -> Dictionary | None:
        """By whose ids the values may come, if equal values have one id. Ids tell nothing of order."""
        ...

    def ranked(self) -> Dictionary | None:
        """The dictionary, if its ids are ranks: comparing them compares values."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """Just the bounds, or nothing."""

    limits: tuple[int, int] | None = None

    def bounds(self) -> tuple[int, int] | None:
        return self.limits

    def dictionary(self) -> Dictionary | None:
        return None

    def ranked(self) -> Dictionary | None:
        return None


UNKNOWN: Final = Known()


class State(ABC):
    """What an aggregate has come to, by group, while values are taken in. One thread.

    `groups` is None where all rows are of group 0; else the groups are below what `grow` was last told of."""

    @abstractmethod
    def grow(self, num_groups: int) -> None:
        """Have room for so many groups; new ones have seen nothing."""

    @abstractmethod
    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        """Take in rows: per argument their values, none null, as `vectors.vector` has them."""

    @abstractmethod
    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        """Take in states of others, a row each."""

    @abstractmethod
    def columns(self, groups: Chosen) -> list[pa.Array]:
        """The states of chosen groups, a column per `StateField`."""

    def foreign_bytes(self) -> int:
        """Bytes that objects of other libraries take, which a state holds; nobody else can tell."""
        return 0

    def wants_ids(self, *, is_grouped: bool) -> bool:
        """Whether rows of its one argument are to come by dict ids: to `add_ids` instead of `add`."""
        return False

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        """As add, for dict ids of the input's dictionary."""
        raise NotImplementedError(type(self).__name__)

    def takes_scaled(self) -> bool:
        """Whether BIG_DECIMAL values may come to `add` as `vectors.scaled.Scaled`."""
        return False

    def rows_by_group(self) -> NDArray[np.int64] | None:
        """How many rows each group has, where the state is just that."""
        return None


class AggregationFunction(ABC):
    """An aggregate under one name. What it is asked depends on the call alone."""

    name: str
    aliases: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...]
    is_light: bool = False
    """Whether a row costs a few nanoseconds, whatever it holds."""
    one_row: OneRow | None = None
    """How it makes a single row of plain numbers without null handling, if it can."""
    has_bytes: bool = False
    """Whether states have a form in bytes, and a BYTES argument holds such states instead of values."""
    counts_rows: bool = False
    """Whether values do not matter, only that there are any: without null handling all rows have."""
    flattens: bool = False
    """Whether its first argument is a multi-value column, of which every value is taken in by itself."""

    takes_nulls: bool = False
    """Whether rows without all arguments come too, even with null handling; then every argument is an Arrow array."""
    gives_rows: bool = False
    """Whether it finishes with lists, of which every value is a row of the query's: it stands by itself in SELECT."""
    written: str = ""
    """Its arguments as a query has them, where `complete` adds to them."""

    @property
    def arity(self) -> tuple[int, int]:
        """Least and greatest number of arguments in a query."""
        return sum(not parameter.is_optional for parameter in self.parameters), len(self.parameters)

    def complete(self, args: Sequence[Expr]) -> Sequence[Expr]:
        """Arguments as its parameters are, of those in a query; raises SqlValidationError."""
        return args

    @abstractmethod
    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        """Type of the answer."""

    @abstractmethod
    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        """Columns of a state."""

    @abstractmethod
    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        """The state of so many groups of no rows. `inputs` may be missing, as may be what they know."""

    @abstractmethod
    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        """Answers of the type `call.result`, one per state."""

    def variant(self, types: Sequence[SqlType]) -> str:
        """Name of the aggregate that computes it for arguments of these types."""
        return self.name

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        """What is wrong with arguments of the right types, after the aggregate's name; None if nothing is."""
        return None

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        """States in the form that Pinot stores in BYTES columns, if `has_bytes`; empty of nothing."""
        raise NotImplementedError(self.name)

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        """State columns of stored states, none empty, as they are where the argument is BYTES; raises SketchError."""
        raise NotImplementedError(self.name)

    def merge(
        self, call: AggregateCall, columns: Sequence[pa.Array], groups: Groups, num_groups: int
    ) -> list[pa.Array]:
        """States of so many groups from states of rows."""
        spending = account.current()
        spending.function = self.name.upper()
        state = self.start(call, num_groups)
        # As much again as the states have, and for the merged ones once more.
        spending.expect("", 2 * sum([column.nbytes for column in columns]))
        state.merge(columns, groups)
        return state.columns(np.arange(num_groups))

    def identity(self, call: AggregateCall) -> list[pa.Array]:
        """The state of no rows, one row."""
        return self.start(call, 1).columns(np.zeros(1, np.int64))


def grown(array: NDArray[Any], num_groups: int, fill: Any = 0) -> NDArray[Any]:
    """The array with room for so many groups, new elements filled."""
    if len(array) >= num_groups:
        return array
    number = max(num_groups, 2 * len(array))
    account.current().expect("", number * array.dtype.itemsize)
    larger = np.full(number, fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def chosen(values: NDArray[Any], groups: Chosen) -> NDArray[Any]:
    """Elements of chosen groups; those of the first so many are not copied."""
    number = len(groups)
    return values[:number] if number == 0 or groups[-1] == number - 1 else values[groups]


def all_in_one(groups: Groups | None, num_rows: int) -> Groups:
    """The groups, spelled out."""
    return np.zeros(num_rows, np.uint32) if groups is None else groups


class Several(State):
    """States whose columns follow one another, fed with the same rows."""

    def __init__(self, parts: Sequence[tuple[State, int]]) -> None:
        """Each with how many columns it has."""
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
    """Which answers are NULL, by the number of values: none without null handling."""
    if not call.nulls:
        return None
    empty: NDArray[np.bool_] = counts == 0
    return empty if empty.any() else None
