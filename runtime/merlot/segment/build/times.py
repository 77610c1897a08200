"""Compute the range of instants that a segment covers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from merlot.errors import InvalidInputError
from merlot.segment.buffers import Array
from merlot.segment.json_values import from_json
from merlot.segment.metadata import ColumnMetadata, JsonValue
from merlot.spec.schema import FieldSpec
from merlot.values.datetime_format import DateTimeFormat, PatternFormat
from merlot.values.types import TypeName

MAX_MS = 1 << 63


def time_range(field: FieldSpec, column: ColumnMetadata, distinct: Array | pa.Array | None) -> dict[str, Any]:
    """Return the footer fields `start_time`, `end_time` (values of the time column) and their `_ms`; an
    empty dict if the bounds or the time format of the column are not known.

    Milliseconds are left out if any value is not an instant that 64 bits hold, or if the order of the values is not
    that of time and the distinct values were not counted. Such a segment is never pruned by time, which is slow but
    correct."""
    date_format = field.time_format
    if column.min is None or column.max is None or date_format is None:
        return {}
    # Text is ordered by its characters: "1000" is before "2".
    is_ordered = not isinstance(date_format, PatternFormat) and field.type is not TypeName.STRING
    bounds: Iterable[JsonValue] = (column.min, column.max) if is_ordered else _values(distinct)
    fields: dict[str, Any] = {"start_time": column.min, "end_time": column.max}
    millis = _millis(date_format, field, bounds)
    if millis:
        fields |= {"start_time_ms": min(millis), "end_time_ms": max(millis)}
        if not is_ordered:
            by_time = sorted(zip(millis, bounds, strict=True))
            fields |= {"start_time": by_time[0][1], "end_time": by_time[-1][1]}
    return fields


def _values(distinct: Array | pa.Array | None) -> list[JsonValue]:
    """Return all distinct values, because a pattern such as MMddyyyy does not order values as time; none if they were
    not counted."""
    if distinct is None:
        return []
    values = distinct.tolist() if isinstance(distinct, np.ndarray) else distinct.to_pylist()
    return list(values)


def _millis(date_format: DateTimeFormat, field: FieldSpec, values: Iterable[JsonValue]) -> list[int]:
    instants = []
    for value in values:
        stored = from_json(field.type, value)
        try:
            millis = date_format.to_millis(stored)
        except InvalidInputError:
            return []
        if not -MAX_MS <= millis < MAX_MS:
            return []
        instants.append(millis)
    return instants
