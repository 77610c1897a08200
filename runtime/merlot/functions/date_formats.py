"""Instants as texts of a pattern, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.errors import InvalidInputError
from merlot.functions.function import Family, text, whole, word
from merlot.functions.time_words import constant_text, zone_name
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import LONG, SqlType
from merlot.values.datetime_pattern import DateTimePattern
from merlot.vectors.vector import Attempt, Vector, failed

DATE_FORMATS: Final = Family("Instants as texts")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@lru_cache(maxsize=256)
def _pattern(text: str) -> DateTimePattern:
    return DateTimePattern.compile(text)


def _zone(args: Sequence[Vector]) -> tzinfo:
    return ZoneInfo(args[2].data.as_py()) if len(args) > 2 else UTC


def _checked(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Refuse patterns and zones that do not exist, and a constant that does not follow its pattern."""
    zone = ZoneInfo(zone_name("fromdatetime", args[2])) if len(args) > 2 else UTC
    try:
        pattern = _pattern(constant_text(args[1]))
        if isinstance(args[0], Literal) and args[0].value is not None and len(args) < 4:
            pattern.parse(constant_text(args[0]), zone)
    except InvalidInputError as error:
        raise SqlValidationError(f"fromdatetime: {error}") from error
    return args


@DATE_FORMATS.strict(
    "fromdatetime",
    parameters=(
        text(),
        word("pattern"),
        word("time zone", is_optional=True),
        whole("default", is_optional=True),
    ),
    result=LONG,
    complete=_checked,
    examples={
        "FROMDATETIME('2024-02-29', 'yyyy-MM-dd')": 1709164800000,
        "FROMDATETIME('29/02/2024 12', 'dd/MM/yyyy HH', 'Asia/Kolkata')": 1709188200000,
        "FROMDATETIME('soon', 'yyyy-MM-dd', 'UTC', 0)": 0,
    },
)
def _from_date_time(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Milliseconds of each distinct text; one that does not follow the pattern fails, unless there is a default."""
    pattern, zone = _pattern(args[1].data.as_py()), _zone(args)
    texts = pa.array([args[0].data.as_py()]) if args[0].is_constant else args[0].data
    encoded = pc.dictionary_encode(texts)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    values = [_millis(text, pattern, zone) for text in encoded.dictionary.to_pylist()]
    unread = np.array([value is None for value in values], bool)[codes]
    millis = np.array([0 if value is None else value for value in values], np.int64)[codes]
    if args[0].is_constant:
        unread, millis = unread.reshape(()), millis.reshape(())
    if len(args) > 3:
        return np.where(unread, args[3].data, millis)
    return Attempt(
        millis, failed(unread, f"text does not follow its pattern function=fromdatetime pattern={pattern.text}")
    )


def _millis(text: str, pattern: DateTimePattern, zone: tzinfo) -> int | None:
    try:
        return (pattern.parse(text, zone) - _EPOCH) // _MILLISECOND
    except InvalidInputError:
        return None
