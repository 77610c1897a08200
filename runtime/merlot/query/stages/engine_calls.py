"""Our functions and aggregates that the engine calls over Arrow, so that they mean the same above a join as in a leaf.

An aggregate is a function of a list: the engine lists the rows of each group, which works wherever it groups, in
correlated subqueries too, and the aggregate's state adds them as it adds the rows of a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.aggregates import registry
from merlot.aggregates.held import Holding
from merlot.functions.evaluate import evaluate
from merlot.query.accumulators import argument_values
from merlot.query.aggregation import aggregation
from merlot.query.slots import SlotSource
from merlot.tree.nodes import Aggregate, Call, Column
from merlot.tree.types import BIG_DECIMAL, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError
from merlot.vectors.vector import Vector, arrow_type, from_arrow

PIECE_ROWS: Final = 1 << 20
"""Rows that an aggregate adds between checks of whether it is to stop."""
MAX_DIGITS: Final = 38
"""Most digits of a DECIMAL of the engine."""
MAX_PLACES: Final = 18
"""Digits after the point of a BIG_DECIMAL that our function returns: the engine needs their number before it has a
row."""
_FITS: Final = rf"\A-?[0-9]{{1,{MAX_DIGITS - MAX_PLACES}}}(\.[0-9]{{1,{MAX_PLACES}}})?\z"
ENGINE_TYPES: Mapping[TypeName, str] = {
    TypeName.INT: "INTEGER",
    TypeName.LONG: "BIGINT",
    TypeName.FLOAT: "FLOAT",
    TypeName.DOUBLE: "DOUBLE",
    TypeName.BOOLEAN: "BOOLEAN",
    TypeName.TIMESTAMP: "BIGINT",
    TypeName.STRING: "VARCHAR",
    TypeName.JSON: "VARCHAR",
    TypeName.BYTES: "BLOB",
    TypeName.BIG_DECIMAL: "VARCHAR",
    TypeName.UNKNOWN: "INTEGER",
}
"""Engine types by which values are passed to our functions and returned."""


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """Function of ours: an expression over columns `x0`, `x1`, …, or an aggregate of lists of such rows."""

    name: str
    expr: Call | Aggregate
    arguments: tuple[SqlType, ...]

    @property
    def parameter_types(self) -> list[str]:
        """Parameter types in the engine's names."""
        types = [engine_type(type_) for type_ in self.arguments]
        if isinstance(self.expr, Call):
            return types
        if len(types) == 1:
            return [f"{types[0]}[]"]
        return [f"STRUCT({', '.join(f'{field_name(at)} {type_}' for at, type_ in enumerate(types))})[]"]

    @property
    def type(self) -> SqlType:
        """Type of the result."""
        if isinstance(self.expr, Aggregate) and registry.named(self.expr.function).gives_rows:
            return SqlType(self.expr.type.base, is_array=True)
        return self.expr.type

    def call(self, columns: Sequence[Any], check: Callable[[], None]) -> pa.Array:
        """Compute the result for the engine's columns. `check` raises if the query is to stop."""
        if isinstance(self.expr, Aggregate):
            return self._aggregated(self.expr, columns[0], check)
        vectors = self._vectors(columns)
        answer = evaluate(self.expr, SlotSource.of(vectors, len(columns[0]))).to_arrow(len(columns[0]))
        if self.expr.type == BIG_DECIMAL and pc.any(pc.invert(pc.match_substring_regex(answer, _FITS))).as_py():
            text = f"BIG_DECIMAL has too many digits for stages above leaves function={self.expr.function}"
            raise LimitExceededError(f"{text} limits={MAX_DIGITS - MAX_PLACES} before the point and {MAX_PLACES} after")
        return answer

    def _aggregated(self, aggregate: Aggregate, lists: Any, check: Callable[[], None]) -> pa.Array:
        """Return a value for each list. NULL is a list of no rows."""
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.combine_chunks()
        spending = account.current()
        mark = spending.held_bytes
        item, num_groups = aggregation(aggregate, nulls=True), len(lists)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        groups = np.repeat(np.arange(num_groups, dtype=np.uint32), lengths)
        rows = lists.flatten()
        state = item.function.start(item.call, num_groups)
        holding = Holding(item.function, state, num_groups)
        for start in range(0, len(rows), PIECE_ROWS):
            check()
            piece = rows.slice(start, PIECE_ROWS)
            source = SlotSource.of(self._vectors([piece] if len(self.arguments) == 1 else piece.flatten()), len(piece))
            owners = groups[start : start + PIECE_ROWS]
            values = argument_values(item, source, owners, takes_scaled=state.takes_scaled())
            holding.begin()
            state.add(*values)
            holding.add(len(piece))
        holding.begin()
        answers = item.function.finish(item.call, holding.columns(state.columns(np.arange(num_groups))))
        spending.release(mark)
        # Converted like a column that is read, so that a group without a value fails the query.
        return evaluate(Column("a0", answers.type), SlotSource.of({"a0": answers}, num_groups)).to_arrow(num_groups)

    def _vectors(self, columns: Sequence[Any]) -> dict[str, Vector]:
        return {
            field_name(at): from_arrow(type_, _of_type(column, type_))
            for at, (column, type_) in enumerate(zip(columns, self.arguments, strict=True))
        }


def field_name(number: int) -> str:
    """Return the name of an argument's field."""
    return f"x{number}"


def engine_type(type_: SqlType) -> str:
    """Return the engine's type for values of a type."""
    base = ENGINE_TYPES[type_.base]
    return f"{base}[]" if type_.is_array else base


def _of_type(column: Any, type_: SqlType) -> Any:
    wanted = arrow_type(type_)
    if pa.types.is_null(wanted):
        return pa.nulls(len(column))
    plain = column if column.type == wanted else column.cast(wanted)
    return plain if type_ != BIG_DECIMAL else without_end_zeros(plain)


def without_end_zeros(texts: Any) -> Any:
    """Return the engine's decimals as plain texts: the engine writes all digits that their type has."""
    trimmed = pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters=".")
    return pc.if_else(pc.match_substring(texts, "."), trimmed, texts)
