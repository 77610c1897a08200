"""Functions of strings, by Arrow. Positions count characters from 0, as in Pinot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions.function import Family, text, whole
from merlot.tree.types import INT, STRING, SqlType
from merlot.vectors.vector import Vector

TEXT: Final = Family("Strings")


@TEXT.strict("upper", parameters=(text(),), result=STRING, examples={"UPPER('aé')": "AÉ"})
def _upper(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_upper(args[0].data)


@TEXT.strict("lower", parameters=(text(),), result=STRING, examples={"LOWER('Ab')": "ab"})
def _lower(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_lower(args[0].data)


@TEXT.strict("length", parameters=(text(),), result=INT, examples={"LENGTH('abc')": 3})
def _length(_type: SqlType, args: Sequence[Vector]) -> Any:
    return ints(pc.utf8_length(args[0].data))


@TEXT.strict("reverse", parameters=(text(),), result=STRING, examples={"REVERSE('abc')": "cba"})
def _reverse(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_reverse(args[0].data)


@TEXT.strict(
    "concat",
    parameters=(text("a"), text("b"), text("separator", is_optional=True)),
    result=STRING,
    examples={"CONCAT('a', 'b')": "ab", "CONCAT('a', 'b', '-')": "a-b", "'a' || 'b'": "ab"},
)
def _concat(_type: SqlType, args: Sequence[Vector]) -> Any:
    """The separator stands between."""
    separator = args[2].data if len(args) > 2 else pa.scalar("")
    return pc.binary_join_element_wise(args[0].data, args[1].data, separator)


@TEXT.strict(
    "substr",
    parameters=(text(), whole("begin"), whole("end", is_optional=True)),
    result=STRING,
    examples={"SUBSTR('abcdef', 2)": "cdef", "SUBSTR('abcdef', 2, 4)": "cd", "SUBSTR('abcdef', 2, -1)": "cdef"},
)
def _substr(_type: SqlType, args: Sequence[Vector]) -> Any:
    """From position begin up to before end; a negative end is that of the text."""
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


def ints(counted: pa.Array | pa.Scalar) -> Any:
    """Arrow's whole numbers as an INT's."""
    if isinstance(counted, pa.Scalar):
        return np.array(counted.as_py(), np.int32)
    return counted.to_numpy(zero_copy_only=False).astype(np.int32)
