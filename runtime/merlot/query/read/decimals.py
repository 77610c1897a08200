"""BIG_DECIMAL expressions as whole numbers of a scale, where bounds rule overflow out: sums need no object per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.functions.casts import cast
from merlot.query.bounds import bounds_of
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.segment.reader import ScaledReader
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.types import BIG_DECIMAL
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled, scaled_of
from merlot.vectors.vector import constant

MOST_SCALE: Final = 18
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG})
_NUMBERS: Final = _WHOLE | {TypeName.DOUBLE, TypeName.BIG_DECIMAL}


@dataclass(frozen=True, slots=True)
class Shape:
    """Units of 10**-scale, and between which two numbers of them values lie."""

    scale: int
    low: int
    high: int

    def at(self, scale: int) -> Shape:
        """The same in smaller units."""
        factor = 10 ** (scale - self.scale)
        return Shape(scale, self.low * factor, self.high * factor)


class Decimals:
    """Expressions over the chunks of one segment, by one thread; of the last chunk everything is remembered."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._known: dict[str, Scaled | None] = {}
        self._shapes: dict[Expr, Shape | None] = {}
        self._chunk: Chunk | None = None
        self._values: dict[Expr, Any] = {}

    def shape(self, expr: Expr) -> Shape | None:
        """None if the expression, or a part of it, may need more than 64 bits, or is not made of such numbers."""
        if expr not in self._shapes:
            shape = self._shape(expr)
            self._shapes[expr] = shape if shape is not None and _fits(shape) else None
        return self._shapes[expr]

    def scaled(self, expr: Expr, chunk: Chunk) -> Scaled:
        """Values of an expression that has a shape; where it is null they mean nothing."""
        shape = self.shape(expr)
        assert shape is not None
        if chunk is not self._chunk:
            self._chunk, self._values = chunk, {}
        found = self._of(expr, chunk)
        values = np.full(chunk.num_rows, found, np.int64) if isinstance(found, int) else found
        return Scaled(values, shape.scale, shape.low, shape.high)

    def _shape(self, expr: Expr) -> Shape | None:
        match expr:
            case Literal():
                return _constant(expr)
            case Column():
                return self._of_column(expr)
            case Call(function="negate") if expr.type == BIG_DECIMAL:
                inner = self.shape(expr.args[0])
                return None if inner is None else Shape(inner.scale, -inner.high, -inner.low)
            case Call(function="plus" | "minus" | "times") if expr.type == BIG_DECIMAL:
                left, right = (self.shape(arg) for arg in expr.args)
                return None if left is None or right is None else _combined(expr.function, left, right)
        return None

    def _of_column(self, column: Column) -> Shape | None:
        if column.type.is_array:
            return None
        if column.type.base in _WHOLE:
            return Shape(0, *bounds_of(column, self._columns))
        if column.type != BIG_DECIMAL:
            return None
        numbers = self._numbers(column.name)
        return None if numbers is None else Shape(numbers.scale, numbers.low, numbers.high)

    def _numbers(self, name: str) -> Scaled | None:
        """Of a column: by dict id, or by doc where it has no dictionary."""
        if name not in self._known:
            reader = self._columns.reader(name)
            if isinstance(reader, ScaledReader):
                self._known[name] = reader.scaled()
            else:
                texts = reader.strings() if reader.dictionary is None else reader.dictionary.arrow()
                self._known[name] = scaled_of(texts)
        return self._known[name]

    def _of(self, expr: Expr, chunk: Chunk) -> NDArray[np.int64] | int:
        found = self._values.get(expr)
        if found is None:
            found = self._values[expr] = self._computed(expr, chunk)
        return found

    def _computed(self, expr: Expr, chunk: Chunk) -> NDArray[np.int64] | int:
        shape = self.shape(expr)
        assert shape is not None
        if isinstance(expr, Literal):
            return shape.low
        if isinstance(expr, Column):
            if expr.type.base in _WHOLE:
                return np.asarray(chunk.column(expr.name, expr.type).data, np.int64)
            numbers = self._numbers(expr.name)
            assert numbers is not None
            return chunk.gathered(self._columns.reader(expr.name), numbers.values)
        assert isinstance(expr, Call)
        operands = [self._of(arg, chunk) for arg in expr.args]
        if expr.function == "negate":
            return -operands[0]
        if expr.function == "times":
            return operands[0] * operands[1]
        left, right = (self._raised(arg, one, shape.scale) for arg, one in zip(expr.args, operands, strict=True))
        return left + right if expr.function == "plus" else left - right

    def _raised(self, expr: Expr, values: NDArray[np.int64] | int, scale: int) -> NDArray[np.int64] | int:
        shape = self.shape(expr)
        assert shape is not None
        return values if shape.scale == scale else values * 10 ** (scale - shape.scale)


def _constant(literal: Literal) -> Shape | None:
    if literal.value is None or literal.type.base not in _NUMBERS:
        return None
    exact = cast(BIG_DECIMAL, constant(literal))
    if exact.failure is not None:
        return None
    sign, digits, exponent = exact.data[()].as_tuple()
    if abs(exponent) > MOST_SCALE or len(digits) > MOST_SCALE:
        return None
    number = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(0, exponent)
    return Shape(max(0, -exponent), number, number)


def _combined(function: str, left: Shape, right: Shape) -> Shape | None:
    if function == "times":
        products = [one * other for one in (left.low, left.high) for other in (right.low, right.high)]
        return Shape(left.scale + right.scale, min(products), max(products))
    scale = max(left.scale, right.scale)
    left, right = left.at(scale), right.at(scale)
    if not (_fits(left) and _fits(right)):
        return None
    if function == "plus":
        return Shape(scale, left.low + right.low, left.high + right.high)
    return Shape(scale, left.low - right.high, left.high - right.low)


def _fits(shape: Shape) -> bool:
    return shape.scale <= MOST_SCALE and shape.low > _LOWEST and shape.high <= _HIGHEST
