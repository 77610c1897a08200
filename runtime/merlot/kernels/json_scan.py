"""Kernels that find the values of JSON objects, a batch of messages at once, without Python objects.

They read what nearly all messages are: objects in UTF-8 with plain keys. Messages that they are unsure of, right or
wrong, are marked in `status` and left to the reader of single messages.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

ABSENT, NULL, STRING, ESCAPED, INTEGER, NUMBER, WORD, NESTED = range(8)
"""Kinds of values. ESCAPED: a string with backslashes. INTEGER: whole, of up to 18 digits, without exponent, not -0.
WORD: true or false."""

MAX_DEPTH = 60
MAX_DIGITS, MAX_EXPONENT_DIGITS = 200, 2
"""Most digits before the point, and of the exponent: doubles hold such numbers, and some readers accept no others."""
GUESSES = 256
QUOTE, BACKSLASH, COMMA, COLON = 34, 92, 44, 58
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
_MINUS, _PLUS, _POINT, _ZERO, _NINE = 45, 43, 46, 48, 57
_UNESCAPED = np.arange(256, dtype=np.uint8)
_UNESCAPED[np.frombuffer(b"bfnrt", np.uint8)] = np.frombuffer(b"\b\f\n\r\t", np.uint8)
_WORDS = np.frombuffer(b"truefalsenull", np.uint8)


@kernel
def after_blanks(data: Bytes, at: int, end: int) -> int:
    """Return the position of the first byte from `at` on that is not blank."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@kernel
def string_end(data: Bytes, at: int, end: int) -> tuple[int, bool]:
    """Return the closing quote of the string whose opening quote is before `at`, and whether it has backslashes; -1:
    unsure."""
    is_escaped = False
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            return at, is_escaped
        if byte < 32:
            return -1, False
        if byte == BACKSLASH:
            at += 1
            if at >= end:
                return -1, False
            byte = data[at]
            # \uXXXX may be no character (half of a surrogate pair): left to the other reader.
            if byte not in (34, 92, 47, 98, 102, 110, 114, 116):
                return -1, False
            is_escaped = True
        at += 1
    return -1, False


@kernel
def _digits(data: Bytes, at: int, end: int) -> int:
    """Return the position of the first byte from `at` on that is not a digit."""
    while at < end and _ZERO <= data[at] <= _NINE:
        at += 1
    return at


@kernel
def _number(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the end of the number at `at`, and its kind; end -1: unsure."""
    is_negative = at < end and data[at] == _MINUS
    if is_negative:
        at += 1
    first = at
    at = _digits(data, at, end)
    if at == first or (data[first] == _ZERO and at > first + 1) or at - first > MAX_DIGITS:
        return -1, NUMBER
    kind = INTEGER if at - first <= 18 and not (is_negative and data[first] == _ZERO) else NUMBER
    if at < end and data[at] == _POINT:
        fraction = at + 1
        at = _digits(data, fraction, end)
        kind = NUMBER
        if at == fraction:
            return -1, NUMBER
    if at < end and (data[at] == 101 or data[at] == 69):
        at += 1
        if at < end and (data[at] == _MINUS or data[at] == _PLUS):
            at += 1
        exponent = at
        at = _digits(data, exponent, end)
        kind = NUMBER
        if at == exponent or at - exponent > MAX_EXPONENT_DIGITS:
            return -1, NUMBER
    return at, kind


@kernel
def _word(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the end of true, false or null at `at`, and its kind; end -1: unsure."""
    begin, length, kind = 0, 4, WORD
    if data[at] == 102:
        begin, length = 4, 5
    elif data[at] == 110:
        begin, kind = 9, NULL
    if at + length > end:
        return -1, kind
    for place in range(length):
        if data[at + place] != _WORDS[begin + place]:
            return -1, kind
    return at + length, kind


@kernel
def plain_end(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the end of a value that is neither object nor list, and its kind; end -1: unsure."""
    if at >= end:
        return -1, NULL
    byte = data[at]
    if byte == QUOTE:
        close, is_escaped = string_end(data, at + 1, end)
        if close < 0:
            return -1, NULL
        return close + 1, (ESCAPED if is_escaped else STRING)
    if byte == _MINUS or _ZERO <= byte <= _NINE:
        return _number(data, at, end)
    if byte == 116 or byte == 102 or byte == 110:
        return _word(data, at, end)
    return -1, NULL


@kernel
def nested_end(data: Bytes, at: int, end: int) -> int:
    """Check the whole object or list at `at` and return its end; -1: unsure.

    `levels` has a bit for each open level: 1 for an object, 0 for a list."""
    levels = np.uint64(0)
    depth = 0
    wants_value = True
    while True:
        at = after_blanks(data, at, end)
        if at >= end:
            return -1
        if wants_value:
            byte = data[at]
            if byte in (OPEN, OPEN_LIST):
                if depth == MAX_DEPTH:
                    return -1
                depth += 1
                levels = (levels << np.uint64(1)) | np.uint64(1 if byte == OPEN else 0)
                at = after_blanks(data, at + 1, end)
                if at >= end:
                    return -1
                if data[at] == (CLOSE if byte == OPEN else CLOSE_LIST):
                    wants_value = False
                    continue
                if byte == OPEN:
                    at = after_key(data, at, end)
                    if at < 0:
                        return -1
                continue
            at, _ = plain_end(data, at, end)
            if at < 0:
                return -1
            wants_value = False
            continue
        is_object = (levels & np.uint64(1)) == np.uint64(1)
        if data[at] == (CLOSE if is_object else CLOSE_LIST):
            at += 1
            depth -= 1
            levels >>= np.uint64(1)
            if depth == 0:
                return at
            continue
        if data[at] != COMMA:
            return -1
        at = after_blanks(data, at + 1, end)
        if is_object:
            at = after_key(data, at, end)
            if at < 0:
                return -1
        wants_value = True


@kernel
def after_key(data: Bytes, at: int, end: int) -> int:
    """Return the position behind the colon of the key at `at`; -1: unsure."""
    if at >= end or data[at] != QUOTE:
        return -1
    close, _ = string_end(data, at + 1, end)
    if close < 0:
        return -1
    at = after_blanks(data, close + 1, end)
    if at >= end or data[at] != COLON:
        return -1
    return at + 1


@kernel
def _is_utf8(data: Bytes, at: int, end: int) -> bool:
    """Return True if the bytes are well-formed UTF-8 (Unicode 15, table 3-7)."""
    while at < end:
        byte = data[at]
        if byte < 0x80:
            at += 1
            continue
        low, high, more = 0x80, 0xBF, 0
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        if more == 0 or at + more >= end:
            return False
        if data[at + 1] < low or data[at + 1] > high:
            return False
        for place in range(2, more + 1):
            if data[at + place] < 0x80 or data[at + place] > 0xBF:
                return False
        at += more + 1
    return True


@kernel
def _find(data: Bytes, at: int, length: int, names: Bytes, name_starts: Longs) -> int:
    """Return the number of the name that a key equals; -1: none, -2: a name that differs only by case."""
    match = -1
    for name in range(len(name_starts) - 1):
        start = name_starts[name]
        if name_starts[name + 1] - start != length:
            continue
        is_same, is_alike = True, True
        for place in range(length):
            left, right = data[at + place], names[start + place]
            if left != right:
                is_same = False
                if 65 <= left <= 90:
                    left += np.uint8(32)
                if 65 <= right <= 90:
                    right += np.uint8(32)
                if left != right:
                    is_alike = False
                    break
        if is_same:
            return name
        if is_alike:
            match = -2
    return match


@kernel
def find_values(
    data: Bytes,
    starts: Longs,
    names: Bytes,
    name_starts: Longs,
    begins: NDArray[np.int64],
    lengths: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    status: NDArray[np.uint8],
) -> int:
    """Find the values of wanted keys in messages.

    data: the messages; message i is data[starts[i]:starts[i + 1]]. names, name_starts: wanted keys, in the same
    form. Out, of shape (keys, messages): begins and lengths of values (for strings, of the part between the quotes),
    kinds (ABSENT on entry). status: 1 for messages that are left to the other reader. Returns the number of these
    messages."""
    guesses = np.full(GUESSES, -1, np.int64)
    num_unsure = 0
    for row in range(len(starts) - 1):
        if not _record(data, row, starts, names, name_starts, guesses, begins, lengths, kinds):
            status[row] = 1
            num_unsure += 1
    return num_unsure


@kernel
def _record(
    data: Bytes,
    row: int,
    starts: Longs,
    names: Bytes,
    name_starts: Longs,
    guesses: Longs,
    begins: NDArray[np.int64],
    lengths: NDArray[np.int32],
    kinds: NDArray[np.uint8],
) -> bool:
    start, end = starts[row], starts[row + 1]
    at = after_blanks(data, start, end)
    if at >= end or data[at] != OPEN:
        return False
    at = after_blanks(data, at + 1, end)
    place = 0
    if at < end and data[at] == CLOSE:
        return bool(after_blanks(data, at + 1, end) == end)
    while True:
        if at >= end or data[at] != QUOTE:
            return False
        first = at + 1
        close = first
        while close < end and data[close] != QUOTE:
            if data[close] == BACKSLASH or data[close] < 32 or data[close] >= 0x80:
                return False
            close += 1
        at = after_blanks(data, close + 1, end)
        if at >= end or data[at] != COLON:
            return False
        at = after_blanks(data, at + 1, end)
        # Keys mostly come in the order of the message before.
        name = guesses[place] if place < GUESSES else -1
        if name < 0 or not _is_name(data, first, close - first, names, name_starts, name):
            name = _find(data, first, close - first, names, name_starts)
            if name == -2:
                return False
            if place < GUESSES:
                guesses[place] = name
        place += 1
        begin = at
        if at < end and (data[at] == OPEN or data[at] == OPEN_LIST):
            at, kind = nested_end(data, at, end), NESTED
        else:
            at, kind = plain_end(data, at, end)
        if at < 0:
            return False
        if name >= 0:
            is_text = kind in (STRING, ESCAPED)
            begins[name, row] = begin + 1 if is_text else begin
            lengths[name, row] = at - begin - 2 if is_text else at - begin
            kinds[name, row] = kind
        at = after_blanks(data, at, end)
        if at >= end:
            return False
        if data[at] == CLOSE:
            break
        if data[at] != COMMA:
            return False
        at = after_blanks(data, at + 1, end)
    if after_blanks(data, at + 1, end) != end:
        return False
    for byte in range(start, end):
        if data[byte] >= 0x80:
            return _is_utf8(data, byte, end)
    return True


@kernel
def _is_name(data: Bytes, at: int, length: int, names: Bytes, name_starts: Longs, name: int) -> bool:
    start = name_starts[name]
    if name_starts[name + 1] - start != length:
        return False
    for place in range(length):  # noqa: SIM110 - numba has no generators here
        if data[at + place] != names[start + place]:
            return False
    return True


@kernel
def copy_texts(
    data: Bytes,
    begins: Longs,
    lengths: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    out: Bytes,
) -> int:
    """Copy the texts of one key, one after the other, to `offsets` (rows + 1) and `out`, as Arrow has them.

    Escapes in strings are undone. `out` has room for all lengths. Returns the number of bytes."""
    used = 0
    for row in range(len(begins)):
        offsets[row] = used
        kind = kinds[row]
        if kind <= NULL:
            continue
        at, end = begins[row], begins[row] + lengths[row]
        if kind != ESCAPED:
            for byte in range(at, end):
                out[used] = data[byte]
                used += 1
            continue
        while at < end:
            byte = data[at]
            if byte == BACKSLASH:
                at += 1
                byte = _UNESCAPED[data[at]]
            out[used] = byte
            used += 1
            at += 1
    offsets[len(begins)] = used
    return used


@kernel
def read_integers(data: Bytes, begins: Longs, lengths: NDArray[np.int32], kinds: NDArray[np.uint8], out: Longs) -> int:
    """Read the integers of one key, 0 where there is none. Stop and return 1 at a value of another kind, else 0."""
    for row in range(len(begins)):
        kind = kinds[row]
        if kind <= NULL:
            out[row] = 0
            continue
        if kind != INTEGER:
            return 1
        at, end = begins[row], begins[row] + lengths[row]
        is_negative = data[at] == _MINUS
        if is_negative:
            at += 1
        value = np.int64(0)
        while at < end:
            value = value * 10 + np.int64(data[at] - _ZERO)
            at += 1
        out[row] = -value if is_negative else value
    return 0


_POWERS = np.array([10.0**power for power in range(23)])


@kernel
def read_doubles(
    data: Bytes, begins: Longs, lengths: NDArray[np.int32], kinds: NDArray[np.uint8], out: NDArray[np.float64]
) -> int:
    """Read the numbers of one key, 0 where there is none. Stop and return 1 at a value that takes more than one exact
    division to read (an exponent or more than 15 digits) or is of another kind, else 0."""
    for row in range(len(begins)):
        kind = kinds[row]
        if kind <= NULL:
            out[row] = 0.0
            continue
        if kind != INTEGER and kind != NUMBER:
            return 1
        at, end = begins[row], begins[row] + lengths[row]
        is_negative = data[at] == _MINUS
        if is_negative:
            at += 1
        value = np.int64(0)
        digits, after_point = 0, -1
        while at < end:
            byte = data[at]
            if byte == _POINT:
                after_point = 0
            elif _ZERO <= byte <= _NINE:
                value = value * 10 + np.int64(byte - _ZERO)
                digits += 1
                if after_point >= 0:
                    after_point += 1
            else:
                return 1
            if digits > 15:
                return 1
            at += 1
        number = float(value)
        if after_point > 0:
            number /= _POWERS[after_point]
        out[row] = -number if is_negative else number
    return 0
