"""The made-up stream's rows: which messages are rows is up to the settings, as with a filter."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence

Row = tuple[int, str]
"""Offset, and the settings by which it was read."""


def pinned_of(filter_: int, max_rows: int) -> str:
    return f"{filter_}/{max_rows}"


def max_rows_of(settings: str) -> int:
    return int(settings.partition("/")[2] or 0)


@functools.lru_cache(maxsize=100_000)
def is_row(settings: str, offset: int) -> bool:
    """Most messages are; a few are filtered out."""
    return (offset * 2_654_435_761 + int(settings.partition("/")[0]) * 40_503) % 7 != 0


def content_crc(rows: Sequence[Row]) -> int:
    """Of a file with these rows. The settings' filter is part of what they hold."""
    return zlib.crc32(repr(rows).encode()) or 1
