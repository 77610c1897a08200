"""CAST between types. A value that does not fit fails. FLOAT and DOUBLE take the nearest value, or an infinity; whole
numbers drop the fraction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions.function import Bounds, Evaluate, Family
from merlot.functions.source import ColumnSource
from merlot.tree import literals
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.errors import UnsupportedQueryError
from merlot.vectors.exact import at_scale
from merlot.vectors.scaled import Scaled, bounded, scaled_of
from merlot.vectors.texts import float_texts
from merlot.vectors.timestamps import timestamp_texts
from merlot.vectors.vector import (
    DTYPES,
    INTEGERS,
    TEXT,
    Attempt,
    Failure,
    Rows,
    Vector,
    constant,
    either_failed,
    failed,
    outside,
)

_CHARACTERS = (TypeName.STRING, TypeName.JSON)
_FLOATS = (TypeName.FLOAT, TypeName.DOUBLE)
_WIDER: Final = frozenset(
    {
        (TypeName.INT, TypeName.LONG),
        (TypeName.INT, TypeName.DOUBLE),
        (TypeName.LONG, TypeName.DOUBLE),
        (TypeName.LONG, TypeName.TIMESTAMP),
        (TypeName.TIMESTAMP, TypeName.LONG),
    }
)
CASTS: Final = Family("Casts")


def _rising(call: Call) -> Expr | None:
    (arg,) = call.args
    return arg if (arg.type.base, call.type.base) in _WIDER else None


def _same_bounds(args: Sequence[Bounds]) -> Bounds:
    return args[0]


@CASTS.lazy(
    "cast",
    takes_scaled=True,
    syntax="CAST(x AS type)",
    rising=_rising,
    bounds=_same_bounds,
    examples={
        "CAST('12' AS LONG)": 12,
        "CAST(1.9 AS INT)": 1,
        "CAST(0 AS TIMESTAMP)": "1970-01-01 00:00:00.0",
        "CAST(1e7 AS STRING)": "1.0E7",
    },
)
def _cast(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    return cast(call.type, evaluate(call.args[0], source))


def cast(target: SqlType, vector: Vector) -> Vector:
    """Return the vector in another type; values without a counterpart in it fail."""
    source = vector.type
    if source == target:
        return vector
    if source.is_array or target.is_array:
        raise UnsupportedQueryError(f"cannot cast type={source} to={target}")
    if source.base is TypeName.UNKNOWN:
        return Vector(target, constant(Literal(None, target)).data, np.asarray(True))
    if source.base in TEXT and target.base in TEXT and TypeName.BYTES not in (source.base, target.base):
        return Vector(target, vector.data, vector.nulls, vector.failure)
    if vector.is_constant:
        return _first(cast(target, vector.spread(1)))
    attempt = _converted(target.base, vector)
    failure = either_failed(vector.failure, outside(attempt.failure, vector.nulls))
    return Vector(target, attempt.data, vector.nulls, failure)


def _first(vector: Vector) -> Vector:
    """Return the constant that a vector of one row holds."""
    if isinstance(vector.data, Scaled):
        data: Any = vector.data.with_values(vector.data.values.reshape(()))
    else:
        data = vector.data.reshape(()) if isinstance(vector.data, np.ndarray) else vector.data[0]
    nulls = None if vector.nulls is None else vector.nulls.reshape(())
    return Vector(
        vector.type, data, nulls, vector.failure and Failure(vector.failure.rows.reshape(()), vector.failure.reason)
    )


def _converted(target: TypeName, vector: Vector) -> Attempt:
    source = vector.type.base
    if target in _CHARACTERS:
        return Attempt(_to_text(vector), None)
    if source in _CHARACTERS:
        return _parsed(target, vector)
    if source in DTYPES and target in DTYPES:
        return _fixed(target, vector)
    if TypeName.BIG_DECIMAL in (source, target) and TypeName.BYTES not in (source, target):
        return _to_decimals(vector) if target is TypeName.BIG_DECIMAL else _of_decimals(target, vector)
    raise UnsupportedQueryError(f"cannot cast type={source} to={target}")


def _fixed(target: TypeName, vector: Vector) -> Attempt:
    data = vector.data
    if target is TypeName.BOOLEAN:
        return Attempt(data != 0, None)
    with np.errstate(all="ignore"):
        if target in INTEGERS and data.dtype.kind == "f":
            data = np.trunc(data)
        unfit = _unfit(target, data) if target in INTEGERS else False
        return Attempt(data.astype(DTYPES[target]), failed(unfit, _reason(vector, target)))


def _unfit(target: TypeName, data: Any) -> Rows | bool:
    bounds = np.iinfo(DTYPES[target])
    if data.dtype.kind == "f":
        fits = (data >= float(bounds.min)) & (data < float(bounds.max) + (1.0 if bounds.bits == 32 else 0.0))
        return np.asarray(~fits)
    if data.dtype.kind == "b" or data.dtype.itemsize <= DTYPES[target].itemsize:
        return False
    return np.asarray((data < bounds.min) | (data > bounds.max))


def _reason(vector: Vector, target: TypeName) -> str:
    return f"value does not fit cast={vector.type} to={target}"


def _each(values: Any, convert: Callable[[Any], Any], worthless: Any) -> tuple[list[Any], Rows]:
    """Convert each value. Return the results, with `worthless` for values that convert to None, and a mask of those."""
    converted = [convert(value) for value in values]
    return [worthless if value is None else value for value in converted], np.array(
        [value is None for value in converted], bool
    )


def _of_decimals(target: TypeName, vector: Vector) -> Attempt:
    if isinstance(vector.data, Scaled):
        return _of_scaled(target, vector, vector.data)
    if target is TypeName.BOOLEAN:
        return Attempt(np.array([value != 0 for value in vector.data], np.bool_), None)
    if target in _FLOATS:
        with np.errstate(over="ignore"):
            return Attempt(np.array([float(value) for value in vector.data], np.float64).astype(DTYPES[target]), None)
    bounds = np.iinfo(DTYPES[target])

    def whole(value: Decimal) -> int | None:
        return int(value) if bounds.min - 1 < value < bounds.max + 1 else None

    values, unfit = _each(vector.data, whole, 0)
    return Attempt(np.array(values, DTYPES[target]), failed(unfit, _reason(vector, target)))


def _of_scaled(target: TypeName, vector: Vector, numbers: Scaled) -> Attempt:
    if target is TypeName.BOOLEAN:
        return Attempt(numbers.values != 0, None)
    if target in _FLOATS:
        with np.errstate(over="ignore"):
            return Attempt(numbers.doubles().astype(DTYPES[target]), None)
    cut = at_scale(numbers, 0, ROUND_DOWN)
    assert cut is not None
    whole = cut.values
    unfit = _unfit(target, whole)
    return Attempt(whole.astype(DTYPES[target]), failed(unfit, _reason(vector, target)))


def _to_decimals(vector: Vector) -> Attempt:
    """Return whole numbers exactly, and others as the shortest decimals that are read as the same DOUBLE; NaN and the
    infinities fail."""
    if vector.data.dtype.kind in "ib":
        return Attempt(bounded(vector.data.astype(np.int64), 0), None)
    written = scaled_of(pa.array(vector.data.astype(np.float64)).cast(pa.string()))
    if written is not None:
        return Attempt(written, None)

    def exact(value: Any) -> Decimal | None:
        number = Decimal(str(value))
        return number if number.is_finite() else None

    values, unfit = _each(vector.data.tolist(), exact, Decimal(0))
    advice = "NaN and infinities are none, CAST the BIG_DECIMAL beside AS DOUBLE"
    reason = f"{_reason(vector, TypeName.BIG_DECIMAL)}: {advice}"
    return Attempt(_objects(values), failed(unfit, reason))


def _objects(values: list[Any]) -> Any:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _to_text(vector: Vector) -> pa.Array:
    base = vector.type.base
    if base is TypeName.BYTES:
        return pa.array([value.hex() for value in vector.data.to_pylist()], pa.string())
    if base is TypeName.BIG_DECIMAL:
        return Vector(vector.type, vector.data).to_arrow(len(vector.data))
    if base in _FLOATS:
        return float_texts(vector.data)
    if base is TypeName.TIMESTAMP:
        return pa.array(timestamp_texts(vector.data), pa.string())
    return pc.cast(pa.array(vector.data), pa.string())


# Texts

_PLAIN: dict[TypeName, tuple[str, pa.DataType]] = {
    TypeName.INT: (r"\A-?[0-9]{1,9}\z", pa.int32()),
    TypeName.LONG: (r"\A-?[0-9]{1,18}\z", pa.int64()),
    TypeName.FLOAT: (r"\A-?[0-9]+(\.[0-9]+)?\z", pa.float64()),
    TypeName.DOUBLE: (r"\A-?[0-9]+(\.[0-9]+)?\z", pa.float64()),
    TypeName.TIMESTAMP: (
        r"\A[1-9][0-9]{3}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?\z",
        pa.timestamp("ms"),
    ),
}
"""Patterns of texts that Arrow reads just as constants are read, and the Arrow type to read them by."""


def _parsed(target: TypeName, vector: Vector) -> Attempt:
    texts = vector.data
    if target is TypeName.BIG_DECIMAL and (scaled := scaled_of(texts)) is not None:
        return Attempt(scaled, None)
    if target in _PLAIN:
        pattern, type_ = _PLAIN[target]
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            try:
                return Attempt(_numbers(pc.cast(texts, type_), target), None)
            except pa.ArrowInvalid:
                pass  # There is no such day, or no such time: the texts are read one by one.
    return _text_by_text(target, texts, f"text is not a value of the type cast=STRING to={target}")


def _numbers(values: pa.Array, target: TypeName) -> Any:
    if target is TypeName.TIMESTAMP:
        values = values.cast(pa.int64())
    with np.errstate(over="ignore"):
        return values.to_numpy(zero_copy_only=False).astype(DTYPES[target], copy=False)


def _text_by_text(target: TypeName, texts: pa.Array, reason: str) -> Attempt:
    """Read every distinct text as a constant is read."""
    wanted = SqlType(target)

    def read(text: str) -> Any:
        try:
            return literals.convert(Literal(text, STRING), wanted).value
        except SqlValidationError:
            return None

    encoded = pc.dictionary_encode(texts)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    worthless: Any = b"" if target is TypeName.BYTES else Decimal(0) if target is TypeName.BIG_DECIMAL else 0
    values, unfit = _each(encoded.dictionary.to_pylist(), read, worthless)
    if target is TypeName.BYTES:
        return Attempt(pa.array(values, pa.binary()).take(pa.array(codes)), failed(unfit[codes], reason))
    distinct = _objects(values) if target is TypeName.BIG_DECIMAL else np.array(values, DTYPES[target])
    return Attempt(distinct[codes], failed(unfit[codes], reason))
