"""CAST between types. A value that does not fit is an error, except DOUBLE to FLOAT, which rounds."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.query.context import QueryArithmeticError, UnsupportedQueryError
from merlot.query.vector import DTYPES, INTEGERS, TEXT, Vector
from merlot.spec.types import TypeName
from merlot.sql.types import SqlType


def cast(target: SqlType, vector: Vector) -> Vector:
    """The vector in another type; raises QueryArithmeticError for values that have no counterpart."""
    source = vector.type
    if source == target:
        return vector
    if source.is_array or target.is_array:
        raise UnsupportedQueryError(f"cannot cast type={source} to={target}")
    if source.base is TypeName.UNKNOWN:
        return _null(target, vector)
    if source.base in DTYPES and target.base in DTYPES:
        return Vector(target, np.asarray(_fixed(target.base, vector)), vector.nulls)
    if source.base in TEXT and target.base in TEXT and TypeName.BYTES not in (source.base, target.base):
        return Vector(target, vector.data, vector.nulls)
    if vector.is_constant:
        spread = cast(target, vector.spread(1))
        data = (
            spread.data[0].reshape(()) if isinstance(spread.data, np.ndarray) and spread.data.dtype != object else None
        )
        if data is None:
            data = _object(spread.data[0]) if isinstance(spread.data, np.ndarray) else spread.data[0]
        return Vector(target, np.asarray(data) if not isinstance(data, pa.Scalar) else data, vector.nulls)
    return Vector(target, _converted(target.base, vector), vector.nulls)


def _null(target: SqlType, vector: Vector) -> Vector:
    from merlot.query.vector import constant
    from merlot.sql.tree import Literal

    return Vector(target, constant(Literal(None, target)).data, np.asarray(True))


def _object(value: Any) -> Any:
    out = np.empty((), dtype=object)
    out[()] = value
    return out


def _fixed(target: TypeName, vector: Vector) -> Any:
    data = vector.data
    if target is TypeName.BOOLEAN:
        return data != 0
    if target in INTEGERS and data.dtype.kind == "f":
        with np.errstate(all="ignore"):
            data = np.trunc(data)
    if target in INTEGERS:
        _check_fits(target, vector, data)
    with np.errstate(all="ignore"):
        return data.astype(DTYPES[target])


def _check_fits(target: TypeName, vector: Vector, data: Any) -> None:
    bounds = np.iinfo(DTYPES[target])
    if data.dtype.kind == "f":
        fits = (data >= float(bounds.min)) & (data < float(bounds.max) + (1.0 if bounds.bits == 32 else 0.0))
    elif data.dtype.kind == "b" or data.dtype.itemsize <= DTYPES[target].itemsize:
        return
    else:
        fits = (data >= bounds.min) & (data <= bounds.max)
    if not np.all(fits if vector.nulls is None else fits | vector.nulls):
        raise QueryArithmeticError(f"value does not fit cast={vector.type} to={target}")


def _converted(target: TypeName, vector: Vector) -> Any:
    source = vector.type.base
    if target is TypeName.BIG_DECIMAL:
        return _to_decimals(vector)
    if source is TypeName.BIG_DECIMAL and target in DTYPES:
        number = float if target in (TypeName.FLOAT, TypeName.DOUBLE) else int
        try:
            return np.array([number(value) for value in vector.data], dtype=DTYPES[target])
        except (OverflowError, ValueError) as error:  # ValueError: NaN is no whole number
            raise QueryArithmeticError(f"value does not fit cast=BIG_DECIMAL to={target}") from error
    if target in (TypeName.STRING, TypeName.JSON):
        return _to_text(vector)
    if source in (TypeName.STRING, TypeName.JSON) and target in DTYPES:
        return _parse(target, vector)
    raise UnsupportedQueryError(f"cannot cast type={source} to={target}")


def _to_decimals(vector: Vector) -> Any:
    values = vector.data.to_pylist() if not isinstance(vector.data, np.ndarray) else vector.data.tolist()
    out = np.empty(len(values), dtype=object)
    try:
        out[:] = [Decimal(str(value)) for value in values]
    except InvalidOperation as error:
        raise QueryArithmeticError(f"value is not a number cast={vector.type} to=BIG_DECIMAL") from error
    return out


def _to_text(vector: Vector) -> pa.Array:
    base = vector.type.base
    if base is TypeName.BYTES:
        return pa.array([value.hex() for value in vector.data.to_pylist()], pa.string())
    if base is TypeName.BIG_DECIMAL:
        return pa.array([format(value, "f") for value in vector.data], pa.string())
    if base in (TypeName.FLOAT, TypeName.DOUBLE):
        return pa.array([str(value) for value in vector.data.astype(str).tolist()], pa.string())
    if base is TypeName.TIMESTAMP:
        from merlot.query.result import timestamp_texts

        return pa.array(timestamp_texts(vector.data), pa.string())
    return pc.cast(pa.array(vector.data), pa.string())


def _parse(target: TypeName, vector: Vector) -> Any:
    types: dict[TypeName, pa.DataType] = {
        TypeName.INT: pa.int32(),
        TypeName.LONG: pa.int64(),
        TypeName.FLOAT: pa.float32(),
        TypeName.DOUBLE: pa.float64(),
        TypeName.BOOLEAN: pa.bool_(),
        TypeName.TIMESTAMP: pa.timestamp("ms"),
    }
    texts = vector.data
    if vector.nulls is not None:
        texts = pc.if_else(pa.array(~vector.nulls), texts, pa.scalar(None, texts.type))
    try:
        parsed = pc.cast(pc.utf8_trim_whitespace(texts), types[target])
    except pa.ArrowInvalid as error:
        raise QueryArithmeticError(f"text is not a value of the type cast=STRING to={target}: {error}") from error
    if target is TypeName.TIMESTAMP:
        parsed = parsed.cast(pa.int64())
    filled = parsed.fill_null(False if target is TypeName.BOOLEAN else 0)
    return filled.to_numpy(zero_copy_only=False).astype(DTYPES[target], copy=False)
