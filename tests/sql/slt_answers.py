"""Answers of any source in one form, and whether two of them agree: exact but for floating point (1e-9 relative)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from merlot.tree.literals import timestamp_millis

TOLERANCE = 1e-9
Row = tuple[Any, ...]


class Answer(NamedTuple):
    """Labels, Pinot type names and rows; cells may be Python values or those of Pinot's JSON."""

    columns: list[str]
    types: list[str]
    rows: list[Sequence[Any]]


def normalize(rows: Iterable[Sequence[Any]], types: Sequence[str]) -> list[Row]:
    """Rows with one Python type for each column type: TIMESTAMP is int milliseconds, BYTES bytes."""
    return [tuple(_cell(value, type_) for value, type_ in zip(row, types, strict=True)) for row in rows]


def _cell(value: Any, type_: str) -> Any:
    if value is None:
        return None
    if type_.endswith("_ARRAY"):
        return tuple(_cell(element, type_.removesuffix("_ARRAY")) for element in value)
    if type_ in ("INT", "LONG"):
        return _whole(value)
    if type_ in ("FLOAT", "DOUBLE"):
        # Answers write a FLOAT in as few digits as tell it from others.
        return float(value) if type_ == "DOUBLE" else float(np.float32(value))
    if type_ == "BIG_DECIMAL":
        return Decimal(str(value)).normalize()
    if type_ == "TIMESTAMP":
        return _millis(value)
    if type_ == "BYTES":
        return bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    if type_ == "BOOLEAN":
        return {"true": True, "false": False}[value.lower()] if isinstance(value, str) else bool(value)
    return str(value)


def _whole(value: Any) -> int:
    if isinstance(value, date):  # of DuckDB, where DATETRUNC gives milliseconds
        return _millis(value)
    if isinstance(value, float | Decimal) and value != int(value):
        raise AssertionError(f"a whole number was expected, not {value}")
    return int(value)


def _millis(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return timestamp_millis(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    delta = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """A deterministic order in which nearly equal floats stay together."""
    return sorted(rows, key=lambda row: ([_sort_key(cell) for cell in row], _floats(row)))


def _floats(row: Row) -> list[Any]:
    return [
        (math.isnan(cell), 0.0 if math.isnan(cell) else float(f"{cell:.7g}")) for cell in row if isinstance(cell, float)
    ]


def _sort_key(cell: Any) -> Any:
    if isinstance(cell, float):
        return (True, "", 0)
    return (cell is not None, type(cell).__name__, 0 if cell is None else cell)


def first_difference(got: Sequence[Row], wanted: Sequence[Row]) -> str | None:
    """What is different, in words; None if the answers agree."""
    for number, (left, right) in enumerate(zip(got, wanted, strict=False)):
        if not _same_row(left, right):
            return f"row {number}: got {left}, wanted {right}"
    if len(got) != len(wanted):
        extra = got[len(wanted) :] or wanted[len(got) :]
        return f"got {len(got)} rows, wanted {len(wanted)}; first without partner: {extra[0]}"
    return None


def _same_row(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(_same_cell(*cells) for cells in zip(left, right, strict=True))


def _same_cell(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return _same_row(left, right)
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=1e-9)
    return bool(left == right)
