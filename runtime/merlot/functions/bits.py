"""Bits of whole numbers, in two's complement: INT for INT arguments, else LONG, as in Java.

A shift has the type of the number that is shifted, and its distance is taken modulo the width of that type. For
BITEXTRACT and BITMASK a number has 64 bits: any other bit is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from merlot.functions.function import Family, VectorFunction, whole
from merlot.tree.nodes import Expr
from merlot.tree.types import INT, LONG, SqlType
from merlot.vectors.vector import DTYPES, Vector

BITS: Final = Family("Bits")


def _widest(args: Sequence[Expr]) -> SqlType:
    return INT if all(arg.type == INT for arg in args) else LONG


def _first(args: Sequence[Expr]) -> SqlType:
    return args[0].type


def _of_two(operation: Callable[[Any, Any], Any]) -> VectorFunction:
    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        dtype = DTYPES[type_.base]
        return operation(np.asarray(args[0].data, dtype), np.asarray(args[1].data, dtype))

    return apply


for _name, _operation, _example in (
    ("bitand", np.bitwise_and, {"BIT_AND(12, 10)": 8}),
    ("bitor", np.bitwise_or, {"BITOR(12, 10)": 14}),
    ("bitxor", np.bitwise_xor, {"BITXOR(12, 10)": 6}),
):
    BITS.strict(_name, parameters=(whole("a"), whole("b")), result=_widest, examples=_example)(_of_two(_operation))


@BITS.strict("bitnot", parameters=(whole(),), result=_first, examples={"BITNOT(0)": -1})
def _not(type_: SqlType, args: Sequence[Vector]) -> Any:
    return np.invert(np.asarray(args[0].data, DTYPES[type_.base]))


def _by(type_: SqlType, amount: Vector) -> Any:
    """Return how far to shift: Java looks at the lowest five bits for INT, six for LONG."""
    dtype = DTYPES[type_.base]
    return (np.asarray(amount.data, np.int64) & (8 * dtype.itemsize - 1)).astype(dtype)


_SHIFT: Final = (whole("x"), whole("by"))


@BITS.strict("bitshiftleft", parameters=_SHIFT, result=_first, examples={"BITSHIFTLEFT(1, 4)": 16})
def _left(type_: SqlType, args: Sequence[Vector]) -> Any:
    return np.left_shift(np.asarray(args[0].data, DTYPES[type_.base]), _by(type_, args[1]))


@BITS.strict("bitshiftright", parameters=_SHIFT, result=_first, examples={"BITSHIFTRIGHT(-16, 2)": -4})
def _right(type_: SqlType, args: Sequence[Vector]) -> Any:
    return np.right_shift(np.asarray(args[0].data, DTYPES[type_.base]), _by(type_, args[1]))


@BITS.strict(
    "bitshiftrightunsigned",
    aliases=("bitshiftrightlogical",),
    parameters=_SHIFT,
    result=_first,
    examples={"BITSHIFTRIGHTUNSIGNED(-1, 28)": 15},
)
def _right_unsigned(type_: SqlType, args: Sequence[Vector]) -> Any:
    dtype = DTYPES[type_.base]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = np.right_shift(_unsigned(args[0], dtype, unsigned), _by(type_, args[1]).astype(unsigned))
    return bits.astype(dtype)


def _unsigned(vector: Vector, dtype: Any, unsigned: Any) -> Any:
    return np.asarray(vector.data, dtype).astype(unsigned)


@BITS.strict(
    "bitextract",
    aliases=("extractbit",),
    parameters=(whole("x"), whole("bit")),
    result=INT,
    examples={"BITEXTRACT(5, 2)": 1, "BITEXTRACT(5, 1)": 0},
)
def _extract(_type: SqlType, args: Sequence[Vector]) -> Any:
    bits = np.right_shift(np.asarray(args[0].data, np.int64), _by(LONG, args[1])) & 1
    return (bits * _is_bit(args[1])).astype(np.int32)


@BITS.strict("bitmask", parameters=(whole("bit"),), result=LONG, examples={"BITMASK(4)": 16})
def _mask(_type: SqlType, args: Sequence[Vector]) -> Any:
    return np.left_shift(np.int64(1), _by(LONG, args[0])) * _is_bit(args[0])


def _is_bit(place: Vector) -> Any:
    """Return 1 for positions of bits that a LONG has, else 0."""
    places = np.asarray(place.data, np.int64)
    return ((places >= 0) & (places < 64)).astype(np.int64)


@BITS.strict("byteswapint", parameters=(whole(),), result=INT, examples={"BYTESWAPINT(1)": 16777216})
def _swap_int(_type: SqlType, args: Sequence[Vector]) -> Any:
    return np.asarray(args[0].data).astype(np.int32).byteswap()


@BITS.strict("byteswaplong", parameters=(whole(),), result=LONG, examples={"BYTESWAPLONG(1)": 72057594037927936})
def _swap_long(_type: SqlType, args: Sequence[Vector]) -> Any:
    return np.asarray(args[0].data).astype(np.int64).byteswap()
