"""Functions of strings, by Arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.tree.types import SqlType
from merlot.vectors.vector import Vector


def _upper(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_upper(args[0].data)


def _lower(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_lower(args[0].data)


def _length(_type: SqlType, args: Sequence[Vector]) -> Any:
    lengths = pc.utf8_length(args[0].data)
    if isinstance(lengths, pa.Scalar):
        return np.array(lengths.as_py(), np.int32)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int32)


def _concat(_type: SqlType, args: Sequence[Vector]) -> Any:
    """concat(a, b[, separator]): the separator stands between."""
    first, second = args[0].data, args[1].data
    separator = args[2].data if len(args) > 2 else pa.scalar("")
    return pc.binary_join_element_wise(first, second, separator)


def _substr(_type: SqlType, args: Sequence[Vector]) -> Any:
    """substr(text, begin[, end]): from position begin (0 is the first) up to before end, as in Pinot."""
    begin, end = (int(arg.data[()]) if arg.is_constant else None for arg in (*args[1:3], args[-1])[:2])
    if begin is None or (len(args) > 2 and end is None):
        return _substr_by_row(args)
    stop = end if len(args) > 2 and end is not None and end >= 0 else None
    return pc.utf8_slice_codeunits(args[0].data, start=max(begin, 0), stop=stop)


def _substr_by_row(args: Sequence[Vector]) -> Any:
    num_rows = max(len(arg.data) for arg in args if not arg.is_constant)
    texts = args[0].spread(num_rows).data.to_pylist()
    begins = args[1].spread(num_rows).data.tolist()
    ends = args[2].spread(num_rows).data.tolist() if len(args) > 2 else [-1] * num_rows
    cut = [
        text[max(begin, 0) : end if end >= 0 else None] for text, begin, end in zip(texts, begins, ends, strict=True)
    ]
    return pa.array(cut, pa.string())


FUNCTIONS: dict[str, Callable[[SqlType, Sequence[Vector]], Any]] = {
    "upper": _upper,
    "lower": _lower,
    "length": _length,
    "concat": _concat,
    "substr": _substr,
}
