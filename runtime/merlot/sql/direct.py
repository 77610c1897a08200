"""Build filters straight from constants, as tree and as JSON, for the shapes of most point queries.

Such a filter is a conjunction of comparisons and lists over whole-number and text columns; two bounds of a column
become one `between`. Binding checks and folds constants. Here nothing can fold: `fill` refuses constants at or beyond
the ends of a column's type, reversed ranges, and lists with equal values. Filling one comparison takes 4 us instead of
30, filling seven 20 instead of 90.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from merlot.tree import literals, tree_json
from merlot.tree.nodes import Call, Column, Expr, Literal, Value
from merlot.tree.types import BOOLEAN, STRING, SqlType
from merlot.values.types import TypeName

_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP})
_LOWER: Final = {"greater_than_or_equal": 0, "greater_than": 1}
"""Comparisons that bound from below, and the amount that makes their constant inclusive."""
_UPPER: Final = {"less_than_or_equal": 0, "less_than": -1}
_LISTS: Final = frozenset({"in", "not_in"})
_OF_NUMBERS: Final = frozenset({"equals", "not_equals", "between", *_LOWER, *_UPPER, *_LISTS})
_OF_TEXTS: Final = _OF_NUMBERS | {"like"}
_INCLUSIVE: Final = frozenset({"greater_than_or_equal", "less_than_or_equal"})
"""Inclusive bounds: two of these on a text column form a range."""

FindConstant = Callable[[Value], tuple[int, bool] | None]
"""Maps a marker's value to the number of its constant, and whether that is negated."""


@dataclass(frozen=True, slots=True)
class _Placeholder:
    """Placeholder of a constant: its number, its change, and the exclusive bounds of its value."""

    number: int
    is_negative: bool
    type: SqlType
    low: int
    high: int
    delta: int = 0

    def value(self, constants: Sequence[Literal]) -> int | str | None:
        value = constants[self.number].value
        if self.type == STRING:
            return value if type(value) is str else None
        if type(value) is not int:
            return None
        value = (-value if self.is_negative else value) + self.delta
        return value if self.low < value < self.high else None


@dataclass(frozen=True, slots=True)
class _Conjunct:
    function: str
    column: Column
    slots: tuple[_Placeholder, ...]


@dataclass(frozen=True, slots=True)
class DirectFilter:
    """Conjuncts of a filter, and the pieces of their JSON around the values."""

    conjuncts: tuple[_Conjunct, ...]
    pieces: tuple[bytes, ...]

    def fill(self, constants: Sequence[Literal]) -> tuple[Expr, bytes] | None:
        """Return the filter with these constants, and its JSON (`tree_json.where_to_json`); None if binding must
        decide."""
        exprs: list[Expr] = []
        text = [self.pieces[0]]
        for conjunct in self.conjuncts:
            values = []
            for slot in conjunct.slots:
                value = slot.value(constants)
                if value is None:
                    return None
                values.append(Literal(value, slot.type))
                text.append(b"%d" % value if isinstance(value, int) else orjson.dumps(value))
                text.append(self.pieces[len(text) >> 1])
            if conjunct.function == "between" and values[0].value > values[1].value:  # type: ignore[operator]
                return None
            if conjunct.function in _LISTS and len(set(values)) < len(values):
                return None
            exprs.append(Call(conjunct.function, (conjunct.column, *values), BOOLEAN))
        return exprs[0] if len(exprs) == 1 else Call("and", tuple(exprs), BOOLEAN), b"".join(text)


def direct_filter(where: Expr, find_constant: FindConstant) -> DirectFilter | None:
    """Make the direct filter of a bound filter whose constants are markers; None if the filter has another form."""
    parts = where.args if isinstance(where, Call) and where.function == "and" else (where,)
    conjuncts = [_conjunct(part, find_constant) for part in parts]
    fitting = [conjunct for conjunct in conjuncts if conjunct is not None]
    if len(fitting) < len(conjuncts):
        return None
    merged = tuple(_merge_bounds(fitting))
    pieces = _pieces(merged)
    return None if pieces is None else DirectFilter(merged, pieces)


def _conjunct(expr: Expr, find_constant: FindConstant) -> _Conjunct | None:
    if not isinstance(expr, Call) or not isinstance(expr.args[0], Column) or expr.args[0].type.is_array:
        return None
    column, is_text = expr.args[0], expr.args[0].type == STRING
    if expr.function not in (_OF_TEXTS if is_text else _OF_NUMBERS) or not (is_text or column.type.base in _WHOLE):
        return None
    slots = []
    for argument in expr.args[1:]:
        constant = find_constant(argument.value) if isinstance(argument, Literal) else None
        if constant is None:
            return None
        low, high = (0, 0) if is_text else literals.INTEGER_RANGES[column.type.base]
        slots.append(_Placeholder(*constant, column.type, low, high))
    return _Conjunct(expr.function, column, tuple(slots))


def _merge_bounds(conjuncts: Sequence[_Conjunct]) -> list[_Conjunct]:
    """Combine a column's only lower and only upper bound to one BETWEEN, where the first of them stood."""
    merged: list[_Conjunct] = []
    for conjunct in conjuncts:
        alike = [other for other in conjuncts if other.column == conjunct.column]
        bounds = [bound for bound in alike if bound.column.type != STRING or bound.function in _INCLUSIVE]
        lower = [bound for bound in bounds if bound.function in _LOWER]
        upper = [bound for bound in bounds if bound.function in _UPPER]
        if len(alike) != 2 or len(lower) != 1 or len(upper) != 1:
            merged.append(conjunct)
        elif conjunct is alike[0]:
            slots = (_moved(lower[0], _LOWER), _moved(upper[0], _UPPER))
            merged.append(_Conjunct("between", conjunct.column, slots))
    return merged


def _moved(conjunct: _Conjunct, deltas: Mapping[str, int]) -> _Placeholder:
    (slot,) = conjunct.slots
    return _Placeholder(slot.number, slot.is_negative, slot.type, slot.low, slot.high, deltas[conjunct.function])


def _pieces(conjuncts: Sequence[_Conjunct]) -> tuple[bytes, ...] | None:
    """Return the filter's JSON around its values, found by encoding marks instead; None if a column's name contains a
    mark."""
    exprs: list[Expr] = []
    marks: list[bytes] = []
    for conjunct in conjuncts:
        values = []
        for slot in conjunct.slots:
            mark = 7_654_321_000 + len(marks)
            values.append(Literal(f"{mark}" if slot.type == STRING else mark, slot.type))
            marks.append(b'"%d"' % mark if slot.type == STRING else b"%d" % mark)
        exprs.append(Call(conjunct.function, (conjunct.column, *values), BOOLEAN))
    rest = tree_json.where_to_json(exprs[0] if len(exprs) == 1 else Call("and", tuple(exprs), BOOLEAN))
    pieces = []
    for text in marks:
        if rest.count(text) != 1:
            return None
        before, _, rest = rest.partition(text)
        pieces.append(before)
    return (*pieces, rest)
