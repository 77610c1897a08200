"""DATETIMECONVERTWINDOWHOP: the windows that a time lies in, each by its beginning, the latest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.functions import calendar, sizes
from merlot.functions.date_formats import checked_conversion, counted, format_of, granularity_of, millis_of, target_of
from merlot.functions.date_texts import written
from merlot.functions.epochs import towards_zero
from merlot.functions.function import Family, anything, word
from merlot.functions.time_words import constant_text
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr
from merlot.tree.types import SqlType
from merlot.values.datetime_format import PatternFormat, TimestampFormat
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Attempt, Vector

HOP_WINDOWS: Final = Family("Windows of instants")
MOST: Final = 10_000
"""Limit of the whole hops in a window."""
Longs = NDArray[np.int64]


def _checked(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    checked = checked_conversion(args[:4])
    if isinstance(target_of(constant_text(args[2])), TimestampFormat):
        raise SqlValidationError("datetimeconvertwindowhop: windows are not of TIMESTAMP")
    hop, window = (granularity_of(constant_text(arg)) for arg in args[3:5])
    if not 1 <= window // hop <= MOST:
        raise SqlValidationError(f"datetimeconvertwindowhop: a window has 1 to {MOST} hops")
    return (*checked, args[4])


def _result(args: Sequence[Expr]) -> SqlType:
    is_text = isinstance(target_of(constant_text(args[2])), PatternFormat)
    return SqlType(TypeName.STRING if is_text else TypeName.LONG, is_array=True)


@HOP_WINDOWS.strict(
    "datetimeconvertwindowhop",
    parameters=(
        anything("time"),
        word("format"),
        word("new format"),
        word("granularity of hops"),
        word("size of windows"),
    ),
    result=_result,
    complete=_checked,
    examples={
        "DATETIMECONVERTWINDOWHOP(43800000, '1:MILLISECONDS:EPOCH', '1:MINUTES:EPOCH', '15:MINUTES', '1:HOURS')": [
            720,
            705,
            690,
            675,
        ],
        "DATETIMECONVERTWINDOWHOP(0, 'EPOCH', 'SIMPLE_DATE_FORMAT|yyyy-MM-dd', '1:DAYS', '2:DAYS')": [
            "1970-01-01",
            "1969-12-31",
        ],
    },
)
def _windows(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the beginnings of each time's windows. A window begins at a multiple of the hop, and ends after the time.
    The latest begins at the time rounded towards zero: before 1970 this may be after the time."""
    source, target = format_of(args[1].data.as_py()), target_of(args[2].data.as_py())
    hop, window = (granularity_of(arg.data.as_py()) for arg in args[3:])
    read = millis_of(args[0], source)
    times = np.atleast_1d(read.data)
    last = towards_zero(times, hop) * hop
    counts = np.maximum(-((times - last - window) // hop), 0)
    # A time so early that windows would begin below LONG, as a default value may be, lies in no window.
    counts[times < np.iinfo(np.int64).min + window + hop] = 0
    account.current().expect("", int(counts.sum()) * sizes.VALUE_BYTES)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    begins = np.repeat(last, counts) - places * hop
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), _as_format(begins, target))
    return Attempt(lists if read.data.ndim else lists[0], read.failure)


def _as_format(millis: Longs, target: Any) -> pa.Array:
    if isinstance(target, PatternFormat):
        zone = str(target.zone)
        return written(target.pattern, millis, calendar.local_times(millis, zone), zone)
    return pa.array(counted(millis, target), pa.int64())
