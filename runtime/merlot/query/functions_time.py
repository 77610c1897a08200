"""Functions of time. Instants are whole numbers of a unit since the epoch; days have 86,400 seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.query.vector import Vector
from merlot.sql.types import SqlType

_NANOS = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 1_000,
    "MILLISECONDS": 1_000_000,
    "SECONDS": 1_000_000_000,
    "MINUTES": 60_000_000_000,
    "HOURS": 3_600_000_000_000,
    "DAYS": 86_400_000_000_000,
}
_FIXED_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
_WEEK_MS = 7 * 86_400_000
_MONDAY_MS = 4 * 86_400_000
"""1970-01-05 was a Monday."""


def _datetrunc(_type: SqlType, args: Sequence[Vector]) -> Any:
    """datetrunc(unit, value, input unit, time zone, output unit), completed by binding."""
    unit, input_unit, zone, output_unit = (str(args[place].data.as_py()) for place in (0, 2, 3, 4))
    millis = convert_unit(np.asarray(args[1].data, np.int64), input_unit, "MILLISECONDS")
    truncated = truncate(millis, unit) if zone == "UTC" else _truncate_in_zone(millis, unit, zone)
    return convert_unit(truncated, "MILLISECONDS", output_unit)


def convert_unit(values: NDArray[np.int64], source: str, target: str) -> NDArray[np.int64]:
    """Whole units, rounded towards the past."""
    have, want = _NANOS[source], _NANOS[target]
    return values * (have // want) if have >= want else values // (want // have)


def truncate(millis: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Start of the unit that holds each instant, in UTC; weeks begin on Monday."""
    if unit in _FIXED_MS:
        return millis - millis % _FIXED_MS[unit]
    if unit == "WEEK":
        return millis - (millis - _MONDAY_MS) % _WEEK_MS
    months = millis.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
    step = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
    months -= months % step
    starts: NDArray[np.int64] = months.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
    return starts


def _truncate_in_zone(millis: NDArray[np.int64], unit: str, zone: str) -> NDArray[np.int64]:
    """By the zone's wall clock; a start that a clock change skips or repeats is the later or the earlier instant."""
    instants = pa.array(np.atleast_1d(millis)).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms", zone))
    local = pc.local_timestamp(instants).cast(pa.int64()).to_numpy()
    starts = pa.array(truncate(local, unit)).cast(pa.timestamp("ms"))
    back = pc.assume_timezone(starts, zone, ambiguous="earliest", nonexistent="latest")
    result: NDArray[np.int64] = back.cast(pa.int64()).to_numpy().reshape(np.shape(millis))
    return result


FUNCTIONS: dict[str, Callable[[SqlType, Sequence[Vector]], Any]] = {"datetrunc": _datetrunc}
