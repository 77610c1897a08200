"""Functions that find strings in strings, or compare two strings. Positions count characters from 0; -1 means not
found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions.by_value import by_value
from merlot.functions.comparisons import to_mask
from merlot.functions.function import Family, text, whole
from merlot.functions.text import ints
from merlot.tree.types import BOOLEAN, INT, SqlType
from merlot.vectors import account
from merlot.vectors.vector import Vector

SEARCH: Final = Family("Searching strings")
CELLS_PER_CHECK: Final = 1 << 20
"""Pairs of letters compared, in about a millisecond, between two checks of a query's deadline."""


def _test(args: Sequence[Vector], by_arrow: Callable[..., Any], by_python: Callable[[str, str], bool]) -> Any:
    if args[1].is_constant:
        return to_mask(by_arrow(args[0].data, args[1].data.as_py()))
    return by_value(BOOLEAN, args, by_python)


@SEARCH.strict(
    "startswith",
    parameters=(text(), text("prefix")),
    result=BOOLEAN,
    examples={"STARTS_WITH('abc', 'ab')": True},
)
def _starts_with(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _test(args, pc.starts_with, str.startswith)


@SEARCH.strict(
    "endswith", parameters=(text(), text("suffix")), result=BOOLEAN, examples={"ENDS_WITH('abc', 'ab')": False}
)
def _ends_with(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _test(args, pc.ends_with, str.endswith)


@SEARCH.strict("contains", parameters=(text(), text("part")), result=BOOLEAN, examples={"CONTAINS('abc', 'b')": True})
def _contains(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _test(args, pc.match_substring, lambda value, part: part in value)


@SEARCH.strict(
    "strpos",
    parameters=(text(), text("find"), whole("occurrence", is_optional=True)),
    result=INT,
    examples={"STRPOS('banana', 'an')": 1, "STRPOS('banana', 'an', 2)": 3, "STRPOS('banana', 'x')": -1},
)
def _strpos(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the place of the first occurrence of `find`, or of the occurrence of the given number, counted from 1."""
    if len(args) == 2 and args[1].is_constant:
        return _first_place(args[0], args[1].data.as_py())
    return by_value(INT, args, _ordinal_place)


def _first_place(texts: Vector, find: str) -> Any:
    """Return the place of the first occurrence. Arrow counts bytes, so characters are counted again if any text has
    others than ASCII."""
    data = pa.array([texts.data.as_py()]) if texts.is_constant else texts.data
    places = ints(pc.find_substring(data, find))
    if find and pc.sum(pc.binary_length(data)).as_py() != pc.sum(pc.utf8_length(data)).as_py():
        before = pc.list_element(pc.split_pattern(data, find, max_splits=1), 0)
        places = np.where(places < 0, -1, ints(pc.utf8_length(before)))
    return places.reshape(()) if texts.is_constant else places


def _ordinal_place(value: str, find: str, occurrence: int = 1) -> int:
    """Find an occurrence as StringUtils.ordinalIndexOf does: occurrences may overlap, and each of an empty text is at
    0."""
    if not find:
        return 0 if occurrence > 0 else -1
    place = -1
    for _ in range(max(occurrence, 0)):
        place = value.find(find, place + 1)
        if place < 0:
            break
    return place


@SEARCH.strict(
    "strrpos",
    parameters=(text(), text("find"), whole("start", is_optional=True)),
    result=INT,
    examples={"STRRPOS('banana', 'an')": 3, "STRRPOS('banana', 'an', 2)": 1},
)
def _strrpos(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the place of the last occurrence of `find`, optionally of the last that begins at or before a position."""
    return by_value(INT, args, _last_place)


def _last_place(value: str, find: str, start: int | None = None) -> int:
    if start is None:
        return value.rfind(find)
    return -1 if start < 0 else value.rfind(find, 0, start + len(find))


@SEARCH.strict(
    "strcmp",
    parameters=(text("a"), text("b")),
    result=INT,
    examples={"STRCMP('a', 'b')": -1, "STRCMP('b', 'a')": 1, "STRCMP('a', 'a')": 0},
)
def _strcmp(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return -1, 0 or 1, by bytes, as strings are ordered everywhere."""
    left, right = args[0].data, args[1].data
    more, less = to_mask(pc.greater(left, right)), to_mask(pc.less(left, right))
    return more.astype(np.int32) - less.astype(np.int32)


@SEARCH.strict(
    "hammingdistance",
    parameters=(text("a"), text("b")),
    result=INT,
    examples={"HAMMINGDISTANCE('karolin', 'kathrin')": 3, "HAMMINGDISTANCE('a', 'ab')": -1},
)
def _hamming_distance(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return how many characters differ; -1 for texts of different lengths."""
    return by_value(INT, args, lambda left, right: sum(map(str.__ne__, left, right)) if len(left) == len(right) else -1)


@SEARCH.strict(
    "levenshteindistance",
    parameters=(text("a"), text("b")),
    result=INT,
    examples={"LEVENSHTEINDISTANCE('kitten', 'sitting')": 3},
)
def _levenshtein_distance(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the least number of characters to insert, remove or change to turn one text into the other."""
    return by_value(INT, args, _edits)


def _edits(left: str, right: str) -> int:
    """Count the edits between two texts, a column of the table of distances at a time (Myers 1999, Hyyrö 2003).

    Neighbours in a column differ by one at most: bit i of `more` or `less` is set where row i + 1 has one more or one
    less than row i. Two texts of 10,000 letters take a tenth of a second; cell by cell they would take a minute. The
    query's check is called about every `CELLS_PER_CHECK` cells."""
    if len(left) > len(right):
        left, right = right, left
    if not left:
        return len(right)
    places: dict[str, int] = {}
    for row, letter in enumerate(left):
        places[letter] = places.get(letter, 0) | 1 << row
    every, last = (1 << len(left)) - 1, 1 << len(left) - 1
    more, less, distance = every, 0, len(left)
    check, step = account.current().account.check, max(1, CELLS_PER_CHECK // len(left))
    for column, letter in enumerate(right):
        if check is not None and not column % step:
            check()
        same = places.get(letter, 0)
        down = same | less
        across = ((same & more) + more ^ more) | same
        rises, falls = less | every & ~(across | more), more & across
        distance += bool(rises & last) - bool(falls & last)
        rises = rises << 1 | 1
        more, less = (falls << 1 | ~(down | rises)) & every, rises & down & every
    return distance
