"""Numbers of distinct values of a segment's columns, a character each: `SegmentRecord.distincts`. Pure.

A character is n in base 36 for a column of up to 2 ** n distinct values, or a dot if they were not counted. Characters
are in the order of `SegmentRecord.columns`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from merlot.cluster.column_types import names_in

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
UNKNOWN = "."


def format_distincts(cardinalities: Mapping[str, int | None]) -> str:
    """Return the characters of columns, given their numbers of distinct values; None: not counted."""
    return "".join(_character(cardinality) for _, cardinality in sorted(cardinalities.items()))


@functools.lru_cache(maxsize=256)
def positions(columns: str) -> Mapping[str, int]:
    """Return the place of each column's character, for a text of `SegmentRecord.columns`."""
    return {name: position for position, name in enumerate(names_in(columns))}


def _character(cardinality: int | None) -> str:
    return UNKNOWN if cardinality is None else DIGITS[max(cardinality - 1, 0).bit_length()]
