"""Functions that Python computes, once for each distinct value instead of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import DTYPES, Attempt, Vector, arrow_type, failed, values_at

Compute = Callable[..., Any]
"""Function from the values of a row to its result; a row whose result is None fails."""


def by_value(type_: SqlType, args: Sequence[Vector], compute: Compute, failure: str = "") -> Attempt:
    """Return the results of `compute` for all rows. `type_` is text, bytes, a type of fixed width, or a list of these;
    `failure` is the reason of rows that fail."""
    varying = [arg for arg in args if not arg.is_constant]
    if not varying:
        values, lost = _results(type_, [tuple(_scalar(arg) for arg in args)], compute)
        data = values[0] if isinstance(values, pa.Array) else values.reshape(())
        return Attempt(data, failed(lost.reshape(()), failure))
    if len(varying) == 1 and not isinstance(varying[0].data, np.ndarray):
        encoded = pc.dictionary_encode(varying[0].data)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        distinct = encoded.dictionary.to_pylist()
        rows = [tuple(value if arg is varying[0] else _scalar(arg) for arg in args) for value in distinct]
    else:
        account.current().expect("rows of Python values", len(varying[0].data) * len(args) * account.OBJECT_BYTES)
        places: dict[Any, int] = {}
        columns = [_column(arg, len(varying[0].data)) for arg in args]
        codes = np.array([places.setdefault(row, len(places)) for row in zip(*columns, strict=True)], np.int64)
        rows = list(places)
    values, lost = _results(type_, rows, compute)
    data = values_at(values, codes) if isinstance(values, pa.Array) else values[codes]
    return Attempt(data, failed(lost[codes], failure))


def _results(type_: SqlType, rows: Sequence[tuple[Any, ...]], compute: Compute) -> tuple[Any, Any]:
    is_long = type_.is_array or type_.base not in DTYPES
    each = (compute(*row) for row in rows)
    results = account.gathered(each) if is_long else account.listed(each)
    lost = np.array([result is None for result in results], np.bool_)
    if is_long:
        nothing: Any = [] if type_.is_array else b"" if type_.base is TypeName.BYTES else ""
        return pa.array([nothing if result is None else result for result in results], arrow_type(type_)), lost
    return np.array([0 if result is None else result for result in results], DTYPES[type_.base]), lost


def _scalar(arg: Vector) -> Any:
    return arg.data.as_py() if isinstance(arg.data, pa.Scalar) else arg.data[()]


def _column(arg: Vector, num_rows: int) -> list[Any]:
    full = arg.spread(num_rows).data
    listed: list[Any] = full.tolist() if isinstance(full, np.ndarray) else full.to_pylist()
    return listed
