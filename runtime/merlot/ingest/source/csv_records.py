"""Split CSV text into records, exactly: find the bytes of each record, and those that are no record.

Numpy looks at whole blocks: where quotes come in pairs that begin and end values, a line break ends a record if an even
number of quotes is before it. From the first wrong quote of a block on, records are read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from merlot.ingest.source.blocks import is_utf8

NEWLINE, RETURN, QUOTE = 10, 13, 34
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a block. Numbers give the place of each among all records of the block."""

    good: bytes = b""
    """Well-formed records with the right number of values, each ended by a line break. Blank lines are left out, unless
    they are records of one value."""
    good_numbers: Positions = field(default_factory=lambda: np.zeros(0, np.int64))
    corrupt: Sequence[str] = ()
    corrupt_numbers: Positions = field(default_factory=lambda: np.zeros(0, np.int64))
    corrupt_widths: Sequence[int] = ()
    """Number of values of each of `corrupt`; 0 for a record that is broken by its quotes or as text."""
    used: int = 0
    """Bytes of the block that these records take. The bytes after them begin another record."""

    @property
    def count(self) -> int:
        """Number of all records, corrupt ones included."""
        return len(self.good_numbers) + len(self.corrupt)


def split(data: bytes, delimiter: str, width: int, *, is_last: bool) -> Records:
    """Split a block that begins where a record does. is_last: True if it also ends where the file does."""
    text = data + b"\n" if is_last and data and not data.endswith(b"\n") else data
    sign = ord(delimiter)
    ends, inside_until = _well_formed(np.frombuffer(text, np.uint8), sign)
    fast = _counted(text, ends, sign, width)
    if inside_until is None and not is_last:
        return fast
    start = int(ends[-1]) + 1 if len(ends) else 0
    slow = _one_by_one(text, start, delimiter, width, is_last=is_last)
    return _joined(fast, slow, min(slow.used, len(data)))


def first_record(data: bytes, delimiter: str, *, is_last: bool) -> tuple[list[str] | None, int]:
    """Return the values of the first record that is not blank, and the number of bytes up to its end.

    For a broken record the values are None; for one that is not complete yet the number is 0, too. Raises
    UnicodeDecodeError for bytes that are not UTF-8."""
    at = len(data) - len(data.lstrip(b"\r\n"))
    values, end = _values(data, at, delimiter, is_last=is_last)
    if values is None:
        return None, 0 if end == at else end
    return [_unquoted(value).decode() for value in values], end


def _well_formed(text: NDArray[np.uint8], sign: int) -> tuple[Positions, int | None]:
    """Return the ends of records (their line breaks) before the first fault, and the position of that fault if there is
    one."""
    newlines = np.flatnonzero(text == NEWLINE)
    quotes = np.flatnonzero(text == QUOTE)
    returns = np.flatnonzero(text == RETURN)
    # A lone carriage return is a character, which Arrow would take for the end of a line.
    alone = returns[np.append(text, NEWLINE)[returns + 1] != NEWLINE] if len(returns) else returns
    if len(quotes):
        newlines = newlines[_outside(quotes, newlines)]
        alone = alone[_outside(quotes, alone)]
    problems = [int(positions[0]) for positions in (alone, _stray(text, quotes, sign)) if len(positions)]
    if not problems:
        return newlines, None
    return newlines[newlines < min(problems)], min(problems)


def _outside(quotes: Positions, positions: Positions) -> NDArray[np.bool_]:
    is_outside: NDArray[np.bool_] = np.searchsorted(quotes, positions) % 2 == 0
    return is_outside


def _stray(text: NDArray[np.uint8], quotes: Positions, sign: int) -> Positions:
    """Return the quotes that neither begin nor end a value, nor stand for a quote within one."""
    opening, closing = quotes[0::2], quotes[1::2]
    before = np.concatenate([[NEWLINE], text])[opening]
    begins = (before == sign) | (before == NEWLINE)
    begins[1:] |= opening[1:] == closing[: len(opening) - 1] + 1
    # Anything may follow the end of the text.
    after = np.concatenate([text, [sign, NEWLINE]])
    ends = (after[closing + 1] == sign) | (after[closing + 1] == NEWLINE) | (after[closing + 1] == QUOTE)
    ends |= (after[closing + 1] == RETURN) & ((after[closing + 2] == NEWLINE) | (closing + 2 >= len(text)))
    return np.sort(np.concatenate([opening[~begins], closing[~ends]]))


def _counted(text: bytes, ends: Positions, sign: int, width: int) -> Records:
    """Return well-formed records. Those with another number of values, or that are not UTF-8, are corrupt."""
    if not len(ends):
        return Records()
    used = int(ends[-1]) + 1
    block = np.frombuffer(text, np.uint8, used)
    starts = np.concatenate([[0], ends[:-1] + 1])
    delimiters = np.flatnonzero(block == sign)
    if len(quotes := np.flatnonzero(block == QUOTE)):
        delimiters = delimiters[_outside(quotes, delimiters)]
    values = np.diff(np.searchsorted(delimiters, ends), prepend=0) + 1
    lengths = ends - starts
    # An empty line of one column is a record whose value is null.
    is_blank = ((lengths == 0) | ((lengths == 1) & (block[starts] == RETURN))) & (width > 1)
    is_good = (values == width) & ~is_blank
    widths = values
    if not is_utf8(text[:used]):
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        is_text = np.array([is_utf8(text[start:end]) for start, end in pairs])
        is_good, widths = is_good & is_text, widths * is_text
    numbers = np.cumsum(~is_blank) - 1
    is_corrupt = ~is_good & ~is_blank
    return Records(
        good=text[:used] if is_good.all() else block[np.repeat(is_good, lengths + 1)].tobytes(),
        good_numbers=numbers[is_good],
        corrupt=[_shown(text[starts[record] : ends[record]]) for record in np.flatnonzero(is_corrupt)],
        corrupt_numbers=numbers[is_corrupt],
        corrupt_widths=widths[is_corrupt].tolist(),
        used=used,
    )


def _one_by_one(text: bytes, at: int, delimiter: str, width: int, *, is_last: bool) -> Records:
    good: list[bytes] = []
    good_numbers: list[int] = []
    corrupt: list[str] = []
    corrupt_numbers: list[int] = []
    widths: list[int] = []
    while at < len(text):
        values, end = _values(text, at, delimiter, is_last=is_last)
        if values is None and end <= at:
            break
        record = text[at:end]
        at = end
        number = len(good) + len(corrupt)
        if values is None:
            lines = [line for line in record.split(b"\n") if line.strip(b"\r")]
            corrupt += map(_shown, lines)
            corrupt_numbers += range(number, number + len(lines))
            widths += [0] * len(lines)
        elif record.strip(b"\r\n") or width == 1:
            if len(values) == width and is_utf8(record):
                good.append(_as_arrow_reads(values, delimiter))
                good_numbers.append(number)
            else:
                corrupt.append(_shown(record))
                corrupt_numbers.append(number)
                widths.append(len(values) if is_utf8(record) else 0)
    return Records(
        good=b"".join(good),
        good_numbers=np.array(good_numbers, np.int64),
        corrupt=corrupt,
        corrupt_numbers=np.array(corrupt_numbers, np.int64),
        corrupt_widths=widths,
        used=at,
    )


def _values(text: bytes, at: int, delimiter: str, *, is_last: bool) -> tuple[list[bytes] | None, int]:
    """Return the values of the record at `at`, with their quotes, and where the next record begins.

    The values of a broken record are None; it ends with the line where the fault shows. The values of a record that is
    not complete yet are None, too; it ends where it begins."""
    value, sign = _value_pattern(delimiter), delimiter.encode()
    start = at
    values: list[bytes] = []
    while matched := value.match(text, at):
        written, ending = matched.groups()
        is_end = ending != sign
        if is_end and not ending.endswith(b"\n") and not is_last:
            return None, start
        values.append(written.removesuffix(b"\r") if is_end else written)
        at = matched.end()
        if is_end:
            return values, at
    closed = _QUOTED.match(text, at)
    line_end = -1 if closed is None else text.find(b"\n", closed.end())
    if line_end < 0:
        return None, len(text) if is_last else start
    return None, line_end + 1


_QUOTED = re.compile(rb'"(?:[^"]++|"")*+"')


@lru_cache(maxsize=8)
def _value_pattern(delimiter: str) -> re.Pattern[bytes]:
    sign = re.escape(delimiter.encode())
    plain = rb'(?!")[^' + sign + rb"\n]*+"
    return re.compile(rb"(" + _QUOTED.pattern + rb"|" + plain + rb")(" + sign + rb"|\r?\n|\r?\Z)")


def _unquoted(value: bytes) -> bytes:
    return value[1:-1].replace(b'""', b'"') if value.startswith(b'"') else value


def _as_arrow_reads(values: Sequence[bytes], delimiter: str) -> bytes:
    """Return the record with quotes around a carriage return, which would end it otherwise."""
    safe = [
        b'"' + value.replace(b'"', b'""') + b'"' if b"\r" in value and not value.startswith(b'"') else value
        for value in values
    ]
    return delimiter.encode().join(safe) + b"\n"


def _shown(record: bytes) -> str:
    return record.rstrip(b"\r\n").decode(errors="replace")


def _joined(first: Records, second: Records, used: int) -> Records:
    return Records(
        good=first.good + second.good,
        good_numbers=np.concatenate([first.good_numbers, second.good_numbers + first.count]),
        corrupt=[*first.corrupt, *second.corrupt],
        corrupt_numbers=np.concatenate([first.corrupt_numbers, second.corrupt_numbers + first.count]),
        corrupt_widths=[*first.corrupt_widths, *second.corrupt_widths],
        used=used,
    )
