"""Kernels that find the values of definite paths in JSON texts, a column at once, without Python objects.

Like `kernels.json_scan`, they leave texts that they are unsure of to a reader of single texts.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel
from merlot.kernels.json_scan import (
    ABSENT,
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    NESTED,
    OPEN,
    OPEN_LIST,
    QUOTE,
    Bytes,
    Longs,
    after_blanks,
    nested_end,
    plain_end,
    string_end,
)

NAME = -1
"""Step by name, in place of an element's position."""
_UNSURE = -1


@kernel
def find_at(
    data: Bytes,
    offsets: NDArray[np.int32],
    names: Bytes,
    name_starts: Longs,
    places: Longs,
    begins: Longs,
    lengths: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    status: NDArray[np.uint8],
) -> int:
    """Find the value at a path in each text.

    data, offsets: UTF-8, text i is data[offsets[i]:offsets[i + 1]]. Step s goes to the element places[s], counted from
    0. If places[s] is NAME, it goes to the key names[name_starts[s]:name_starts[s + 1]], the last one if a key is
    repeated. Out, for each text: begins and lengths of values (for strings, of the part between the quotes), and kinds
    as of `json_scan`. status: 1 for texts that are left to the other reader. A text that is not JSON has kind ABSENT or
    status 1. Returns the number of texts with status 1."""
    num_unsure = 0
    for row in range(len(offsets) - 1):
        begin, end, kind = _walk(data, int(offsets[row]), int(offsets[row + 1]), names, name_starts, places)
        if begin == _UNSURE:
            status[row] = 1
            num_unsure += 1
            continue
        kinds[row] = kind
        is_quoted = kind != ABSENT and data[begin] == QUOTE
        begins[row] = begin + 1 if is_quoted else begin
        lengths[row] = end - begin - 2 if is_quoted else end - begin
    return num_unsure


@kernel
def _walk(data: Bytes, start: int, end: int, names: Bytes, name_starts: Longs, places: Longs) -> tuple[int, int, int]:
    """Return begin, end and kind of the value at the path; begin is -1 if unsure."""
    begin = after_blanks(data, start, end)
    stop, kind = _value_end(data, begin, end) if len(places) == 0 else (end, NESTED)
    if stop < 0 or (len(places) == 0 and after_blanks(data, stop, end) != end):
        return _UNSURE, 0, ABSENT
    for step in range(len(places)):
        is_name = places[step] == NAME
        if begin >= stop or data[begin] != (OPEN if is_name else OPEN_LIST):
            # The steps before have checked the text around the value. A text that is not JSON has no value here too.
            return begin, begin, ABSENT
        if is_name:
            begin, stop, kind, after = _member(data, begin, stop, names, name_starts[step], name_starts[step + 1])
        else:
            begin, stop, kind, after = _element(data, begin, stop, places[step])
        if after < 0 or (step == 0 and after_blanks(data, after, end) != end):
            return _UNSURE, 0, ABSENT
        if kind == ABSENT:
            return begin, begin, ABSENT
    return begin, stop, kind


@kernel
def _value_end(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Check the whole value at `at`; return its end and its kind. End -1: unsure."""
    if at < end and (data[at] == OPEN or data[at] == OPEN_LIST):
        return nested_end(data, at, end), NESTED
    return plain_end(data, at, end)


@kernel
def _member(data: Bytes, at: int, end: int, names: Bytes, first: int, last: int) -> tuple[int, int, int, int]:
    """Check the whole object at `at`; return begin, end and kind of a key's value, and the object's end. Object's end
    -1: unsure."""
    begin, stop, match_kind = at, at, ABSENT
    at = after_blanks(data, at + 1, end)
    if at < end and data[at] == CLOSE:
        return begin, stop, match_kind, at + 1
    while at < end and data[at] == QUOTE:
        key = at + 1
        close, is_escaped = string_end(data, key, end)
        if close < 0 or is_escaped:
            break
        at = after_blanks(data, close + 1, end)
        if at >= end or data[at] != COLON:
            break
        at = after_blanks(data, at + 1, end)
        value = at
        at, kind = _value_end(data, value, end)
        if at < 0:
            break
        if _is_same(data, key, close, names, first, last):
            begin, stop, match_kind = value, at, kind
        at = after_blanks(data, at, end)
        if at < end and data[at] == CLOSE:
            return begin, stop, match_kind, at + 1
        if at >= end or data[at] != COMMA:
            break
        at = after_blanks(data, at + 1, end)
    return begin, stop, ABSENT, _UNSURE


@kernel
def _element(data: Bytes, at: int, end: int, place: int) -> tuple[int, int, int, int]:
    """Return what `_member` does, for an element of the list at `at`."""
    begin, stop, match_kind = at, at, ABSENT
    at = after_blanks(data, at + 1, end)
    if at < end and data[at] == CLOSE_LIST:
        return begin, stop, match_kind, at + 1
    number = 0
    while True:
        value = at
        at, kind = _value_end(data, value, end)
        if at < 0:
            break
        if number == place:
            begin, stop, match_kind = value, at, kind
        number += 1
        at = after_blanks(data, at, end)
        if at < end and data[at] == CLOSE_LIST:
            return begin, stop, match_kind, at + 1
        if at >= end or data[at] != COMMA:
            break
        at = after_blanks(data, at + 1, end)
    return begin, stop, ABSENT, _UNSURE


@kernel
def _is_same(data: Bytes, at: int, end: int, names: Bytes, first: int, last: int) -> bool:
    if end - at != last - first:
        return False
    for place in range(end - at):  # noqa: SIM110 - numba has no generators here
        if data[at + place] != names[first + place]:
            return False
    return True
