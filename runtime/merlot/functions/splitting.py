"""Strings taken apart at a separator, as Pinot does: adjacent separators count as one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions import sizes
from merlot.functions.by_value import by_value
from merlot.functions.function import Family, size, text, whole, word
from merlot.functions.lists import ListValues, beside, element_at
from merlot.tree.types import STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector

_BLANKS: Final = "[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]+"
"""Java's white space (Character.isWhitespace), which has no blank that keeps words together, such as U+00A0."""
_AT_BLANKS: Final = re.compile(_BLANKS)
SPLITTING: Final = Family("Splitting strings")
_STRINGS: Final = SqlType(TypeName.STRING, is_array=True)


def _most_split(args: Sequence[Vector]) -> int:
    """Bound the bytes of all parts, empty ones included."""
    separator = sizes.word(args[1])
    # Without a separator, texts are split at blanks.
    parts = sizes.counted(args[0], separator) if separator else sizes.bytes_of(args[0]) + sizes.num_rows(args)
    return sizes.usual(args) + parts * (2 * sizes.VALUE_BYTES)


@SPLITTING.strict(
    "split",
    parameters=(
        text(),
        word("separator"),
        size("limit", is_optional=True),
    ),
    result=_STRINGS,
    most_bytes=_most_split,
    examples={"SPLIT('a,b,,c', ',')": ["a", "b", "c"], "SPLIT('a,b,c', ',', 2)": ["a", "b,c"]},
)
def _split(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _parts(args[0], args[1].data.as_py(), int(args[2].data) if len(args) > 2 else 0)


def _parts(texts: Vector, separator: str, limit: int = 0) -> Any:
    """Split as StringUtils.splitByWholeSeparator: adjacent separators count as one, a separator at the end is followed
    by an empty part, and an empty text has no parts. Without a separator, split at blanks, with no empty part."""
    if limit > 0:
        return by_value(_STRINGS, [texts], lambda value: _limited(value, separator, limit))
    data = pa.array([texts.data.as_py()]) if texts.is_constant else texts.data
    split = pc.split_pattern(data, separator) if separator else pc.split_pattern_regex(data, _BLANKS)
    values = replace(ListValues.of(Vector(_STRINGS, split)), is_constant=texts.is_constant)
    is_kept = pc.binary_length(values.flat).to_numpy() > 0
    if separator:
        lengths = values.lengths[values.rows]
        is_kept |= (values.places == lengths - 1) & (lengths > 1)
    return values.chosen(np.flatnonzero(is_kept))


def _limited(value: str, separator: str, limit: int) -> list[str]:
    if not separator:
        words = _AT_BLANKS.sub("", value, count=1) if _AT_BLANKS.match(value) else value
        return [part for part in (_AT_BLANKS.split(words, limit - 1) if limit > 1 else [words]) if part]
    parts: list[str] = []
    begin = 0
    while value:
        end = value.find(separator, begin)
        if end < 0 or (end > begin and len(parts) == limit - 1):
            return [*parts, value[begin:]]
        if end > begin:
            parts.append(value[begin:end])
        begin = end + len(separator)
    return parts


def _limited_part(separator: str, value: str, limit: int, place: int) -> str:
    parts = _limited(value, separator, int(limit) if limit > 0 else len(value) + 1)
    return parts[place] if -len(parts) <= place < len(parts) else "null"


@SPLITTING.strict(
    "splitpart",
    parameters=(text(), word("separator"), whole("limit"), whole("place", is_optional=True)),
    result=STRING,
    most_bytes=_most_split,
    examples={
        "SPLIT_PART('a,b,c', ',', 1)": "b",
        "SPLITPART('a,b', ',', 5)": "null",
        "SPLITPART('a,b,c', ',', -1)": "c",
        "SPLITPART('a,b,c', ',', 2, 1)": "b,c",
    },
)
def _split_part(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Return the part at a place, counted from 0, or from the end if negative; 'null' where there is none."""
    separator = args[1].data.as_py()
    if len(args) > 3:
        return by_value(STRING, [args[0], *args[2:]], lambda *given: _limited_part(separator, *given))
    values = ListValues.of(beside(Vector(_STRINGS, _parts(args[0], separator)), args[2:]))
    places = np.asarray(args[2].data, np.int64)
    places = np.where(places < 0, places + values.lengths, places)
    elements = element_at(type_, values, places)
    is_none = values.answer((places < 0) | (places >= values.lengths))
    return pc.if_else(pa.scalar(bool(is_none)) if values.is_constant else pa.array(is_none), "null", elements)
