"""SUMPRECISION: an exact sum with all digits, or with as many as requested."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

import pyarrow as pa

from merlot.aggregates.function import INTEGERS, AggregateCall, AggregateParameter, nothing
from merlot.aggregates.sums import Sum
from merlot.tree.nodes import Value
from merlot.tree.types import STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.decimals import EXACT, plain_text
from merlot.vectors.vector import Vector

MOST_DIGITS: Final = 10_000
_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG})


class SumPrecision(Sum):
    """SUMPRECISION(x [, precision [, scale]]): rounded half to even, first to `precision` digits, then to `scale`."""

    name = "sumprecision"
    parameters = (
        AggregateParameter(name="x", takes=INTEGERS | {TypeName.BIG_DECIMAL}),
        AggregateParameter(name="precision", takes=_WHOLE, is_constant=True, is_optional=True),
        AggregateParameter(name="scale", takes=_WHOLE, is_constant=True, is_optional=True),
    )
    is_light = False
    scalar_form = None

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        for name, least, number in zip(("precision", "scale"), (1, 0), constants, strict=False):
            if not isinstance(number, int) or not least <= number <= MOST_DIGITS:
                return f"{name} must be {least} to {MOST_DIGITS}, got {number!r}"
        return None

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        if call.types[0].base is TypeName.BIG_DECIMAL:
            sums = [Decimal(text) for text in columns[0].to_pylist()]
        else:
            halves = zip(columns[0].to_pylist(), columns[1].to_pylist(), strict=True)
            sums = [Decimal((high << 32) + low) for high, low in halves]
        empty = nothing(call, columns[-1].to_numpy()) if call.nulls else None
        return Vector(call.result, pa.array([_text(number, *call.constants) for number in sums], pa.string()), empty)


def _text(number: Decimal, precision: Value = None, scale: Value = None) -> str:
    if isinstance(precision, int):
        number = Context(prec=precision, rounding=ROUND_HALF_EVEN).plus(number)
    if not isinstance(scale, int):
        return plain_text(number)
    return format(number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_EVEN, context=EXACT), "f")
