"""Functions of strings, mostly by Arrow. As in Pinot, positions count characters from 0, those of SUBSTRING from 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions import sizes
from merlot.functions.by_value import by_value
from merlot.functions.function import Family, anything, size, text, whole, word
from merlot.functions.time_words import one_of
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import INT, LONG, STRING, SqlType
from merlot.vectors.account import OBJECT_BYTES
from merlot.vectors.texts import is_ascii
from merlot.vectors.vector import Vector

TEXT: Final = Family("Strings")
MAX_LENGTH: Final = 10_000
"""Limit of the length of LPAD and RPAD, and of the times of REPEAT, which have to be constants."""
_FAR: Final = np.iinfo(np.int64).max
_WHITE: Final = " \t\n\v\f\r"
_UP_TO_BLANK: Final = "".join(map(chr, range(33)))
_FORMS: Final = ("NFC", "NFD", "NFKC", "NFKD")


def _short(function: str, place: int) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    """Return a function that raises SqlValidationError unless the length or times are a constant within the limit."""

    def check(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        length = args[place]
        if not (isinstance(length, Literal) and isinstance(length.value, int) and length.value <= MAX_LENGTH):
            raise SqlValidationError(f"{function} needs a length of up to {MAX_LENGTH}")
        return args

    return check


def _repeated(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to text, separator, times."""
    given = args if len(args) == 3 else (args[0], Literal("", STRING), args[1])
    if given[1].type != STRING:
        raise SqlValidationError(f"repeat needs a string as separator, not {given[1].type}")
    return _short("repeat", 2)(given)


def _most_with_separators(args: Sequence[Vector]) -> int:
    """Bound the bytes of all texts, and of a separator for each."""
    rows = sizes.num_rows(args) if args[0].is_constant else 1
    return sizes.together(args) + len(args) * rows * sizes.bytes_of(args[0])


def _most_padded(args: Sequence[Vector]) -> int:
    """Bound the bytes of the texts, and of the padding that the length asks for: it is made apart, then joined to
    them."""
    widest = max([len(letter.encode()) for letter in sizes.word(args[2])], default=1)
    return 2 * (sizes.bytes_of(args[0]) + sizes.num_rows(args) * max(0, sizes.whole(args[1])) * widest)


def _most_repeated(args: Sequence[Vector]) -> int:
    """Bound the bytes of all repetitions but one, and of their join with it."""
    return 2 * max(0, sizes.whole(args[2])) * sizes.spread_bytes(args[:2])


def _most_replaced(args: Sequence[Vector]) -> int:
    """Bound the bytes of the texts, and of the growth at each match."""
    texts, find, new = args
    if not (find.is_constant and new.is_constant):
        rows = [np.broadcast_to(sizes.lengths_of(arg), sizes.num_rows(args)).astype(np.float64) for arg in args]
        grown = rows[0] + rows[0] / np.maximum(rows[1], 1) * rows[2]
        return int(grown.sum()) + sizes.num_rows(args) * 3 * OBJECT_BYTES
    growth = max(0, sizes.bytes_of(new) - sizes.bytes_of(find))
    is_found = growth and sizes.word(find)
    return sizes.bytes_of(texts) + (growth * sizes.counted(texts, sizes.word(find)) if is_found else 0)


def _formed(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to text and form."""
    return args[0], Literal(one_of(args[1], "normalize: unknown form", _FORMS) if len(args) > 1 else "NFC", STRING)


@TEXT.strict("upper", parameters=(text(),), result=STRING, examples={"UPPER('aé')": "AÉ", "UPPER('straße')": "STRASSE"})
def _upper(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _in_case(args, pc.ascii_upper, str.upper)


@TEXT.strict("lower", parameters=(text(),), result=STRING, examples={"LOWER('Ab')": "ab", "LOWER('ΟΔΟΣ')": "οδος"})
def _lower(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _in_case(args, pc.ascii_lower, str.lower)


def _in_case(args: Sequence[Vector], of_ascii: Callable[[Any], Any], of_text: Callable[[str], str]) -> Any:
    """Convert case by Unicode's full mapping, as in Java: a letter may become several, and depend on those around it.
    Arrow has the simple mapping, letter for letter."""
    texts = args[0].data
    if isinstance(texts, pa.Array) and is_ascii(texts):
        return of_ascii(texts)
    return by_value(STRING, args, of_text)


@TEXT.strict("length", parameters=(text(),), result=INT, examples={"LENGTH('abc')": 3})
def _length(_type: SqlType, args: Sequence[Vector]) -> Any:
    texts = args[0].data
    # Checking for ASCII takes a tenth of the time of counting characters.
    is_plain = isinstance(texts, pa.Array) and is_ascii(texts)
    return ints(pc.binary_length(texts) if is_plain else pc.utf8_length(texts))


@TEXT.strict("reverse", parameters=(text(),), result=STRING, examples={"REVERSE('abc')": "cba"})
def _reverse(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_reverse(args[0].data)


@TEXT.strict(
    "concat",
    parameters=(text("a"), text("b"), text("separator", is_optional=True)),
    result=STRING,
    most_bytes=sizes.together,
    examples={"CONCAT('a', 'b')": "ab", "CONCAT('a', 'b', '-')": "a-b", "'a' || 'b'": "ab"},
)
def _concat(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Join texts with the separator between them."""
    separator = args[2].data if len(args) > 2 else pa.scalar("")
    return pc.binary_join_element_wise(args[0].data, args[1].data, separator)


@TEXT.strict(
    "concatws",
    parameters=(text("separator"), text("a"), text("b", is_optional=True, repeats=True)),
    result=STRING,
    most_bytes=_most_with_separators,
    examples={"CONCAT_WS('-', 'a', 'b', 'c')": "a-b-c"},
)
def _concat_ws(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.binary_join_element_wise(*(arg.data for arg in args[1:]), args[0].data)


@TEXT.strict(
    "substr",
    parameters=(text(), whole("begin"), whole("end", is_optional=True)),
    result=STRING,
    examples={
        "SUBSTR('abcdef', 2)": "cdef",
        "SUBSTR('abcdef', 2, 4)": "cd",
        "SUBSTR('abcdef', 2, -1)": "cdef",
        "SUBSTR('abcdef', -2)": "ef",
    },
)
def _substr(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return characters [begin, end). Negative positions count from the end of the text; -1 as `end` is the end
    itself."""
    if len(args) == 2:
        return _sliced(args[0], args[1].data, None)
    ends = np.asarray(args[2].data, np.int64)
    return _sliced(args[0], args[1].data, np.where(ends == -1, _FAR, ends))


@TEXT.strict(
    "substring",
    parameters=(text(), whole("begin"), whole("length", is_optional=True)),
    result=STRING,
    examples={
        "SUBSTRING('abcdef', 2)": "bcdef",
        "SUBSTRING('abcdef', 2, 3)": "bcd",
        "SUBSTRING('abcdef' FROM 2 FOR 3)": "bcd",
    },
)
def _substring(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return a number of characters, or all, from a position that counts from 1."""
    begins = np.asarray(args[1].data, np.int64) - 1
    return _sliced(args[0], begins, None if len(args) == 2 else begins + np.asarray(args[2].data, np.int64))


@TEXT.strict(
    "leftsubstr",
    aliases=("left",),
    parameters=(text(), whole("length")),
    result=STRING,
    examples={"LEFT('abc', 2)": "ab"},
)
def _left(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _sliced(args[0], np.array(0), np.maximum(args[1].data, 0))


@TEXT.strict(
    "rightsubstr",
    aliases=("right",),
    parameters=(text(), whole("length")),
    result=STRING,
    examples={"RIGHT('abc', 2)": "bc", "RIGHT('abc', 0)": ""},
)
def _right(_type: SqlType, args: Sequence[Vector]) -> Any:
    lengths = np.asarray(args[1].data, np.int64)
    return _sliced(args[0], np.where(lengths > 0, -lengths, _FAR), None)


def _sliced(texts: Vector, begins: Any, ends: Any) -> Any:
    """Return characters of positions [begin, end), negative ones from the end; by Arrow where they are the same for all
    rows."""
    begins, ends = np.asarray(begins, np.int64), np.asarray(_FAR if ends is None else ends, np.int64)
    if begins.ndim == 0 and ends.ndim == 0:
        stop = None if ends == _FAR else int(ends)
        return pc.utf8_slice_codeunits(texts.data, start=int(begins), stop=stop)
    positions = (Vector(LONG, begins), Vector(LONG, ends))
    return by_value(STRING, (texts, *positions), lambda value, begin, end: value[begin:end])


@TEXT.strict(
    "trim",
    parameters=(text(), word("characters", is_optional=True)),
    result=STRING,
    examples={"TRIM('  a b ')": "a b", "TRIM('xxaxbyx', 'xy')": "axb", "TRIM(BOTH 'x' FROM 'xax')": "a"},
)
def _trim(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Strip blanks and control characters from both ends, or the given characters."""
    return pc.utf8_trim(args[0].data, _characters(args, _UP_TO_BLANK))


@TEXT.strict(
    "ltrim",
    parameters=(text(), word("characters", is_optional=True)),
    result=STRING,
    examples={"LTRIM('  a ')": "a ", "TRIM(LEADING 'x' FROM 'xax')": "ax"},
)
def _ltrim(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_ltrim(args[0].data, _characters(args, _WHITE))


@TEXT.strict(
    "rtrim",
    parameters=(text(), word("characters", is_optional=True)),
    result=STRING,
    examples={"RTRIM(' a  ')": " a", "TRIM(TRAILING 'x' FROM 'xax')": "xa"},
)
def _rtrim(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_rtrim(args[0].data, _characters(args, _WHITE))


def _characters(args: Sequence[Vector], blanks: str) -> str:
    """Return the characters to strip from the ends: those of the second argument, else blanks."""
    return str(args[1].data.as_py()) if len(args) > 1 else blanks


@TEXT.strict(
    "lpad",
    parameters=(text(), size("length"), word("pad")),
    result=STRING,
    complete=_short("lpad", 1),
    most_bytes=_most_padded,
    examples={"LPAD('7', 3, '0')": "007", "LPAD('abc', 2, '0')": "abc"},
)
def _lpad(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Put the pad before the text as often as it takes; a longer text stays as it is."""
    return pc.binary_join_element_wise(_padding(args), args[0].data, "")


@TEXT.strict(
    "rpad",
    parameters=(text(), size("length"), word("pad")),
    result=STRING,
    complete=_short("rpad", 1),
    most_bytes=_most_padded,
    examples={"RPAD('a', 4, 'xy')": "axyx"},
)
def _rpad(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.binary_join_element_wise(args[0].data, _padding(args), "")


def _padding(args: Sequence[Vector]) -> Any:
    """Return the padding that each text lacks."""
    length, pad = int(args[1].data), args[2].data.as_py() or " "
    lacking = np.maximum(length - ints(pc.utf8_length(args[0].data)), 0)
    lengths, places = np.unique(lacking, return_inverse=True)
    pads = pa.array([(pad * missing)[:missing] for missing in lengths.tolist()], pa.string())
    return pads[0] if args[0].is_constant else pads.take(pa.array(places))


@TEXT.strict(
    "repeat",
    parameters=(text(), anything("separator"), size("times", is_optional=True)),
    result=STRING,
    complete=_repeated,
    most_bytes=_most_repeated,
    examples={"REPEAT('ab', 3)": "ababab", "REPEAT('ab', '-', 3)": "ab-ab-ab"},
)
def _repeat(_type: SqlType, args: Sequence[Vector]) -> Any:
    times = int(args[2].data)
    if times <= 0:
        return pc.utf8_slice_codeunits(args[0].data, start=0, stop=0)
    again = pc.binary_repeat(pc.binary_join_element_wise(args[1].data, args[0].data, ""), times - 1)
    return pc.binary_join_element_wise(args[0].data, again, "")


@TEXT.strict("initcap", parameters=(text(),), result=STRING, examples={"INITCAP('hello WORLD')": "Hello World"})
def _initcap(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_title(args[0].data)


@TEXT.strict(
    "replace",
    parameters=(text(), text("find"), text("substitute")),
    result=STRING,
    most_bytes=_most_replaced,
    examples={"REPLACE('banana', 'an', 'o')": "booa"},
)
def _replace(_type: SqlType, args: Sequence[Vector]) -> Any:
    if args[1].is_constant and args[2].is_constant:
        return _replaced(args[0].data, args[1].data.as_py(), args[2].data.as_py())
    return by_value(STRING, args, lambda value, find, new: value.replace(find, new) if find else value)


@TEXT.strict("remove", parameters=(text(), word("find")), result=STRING, examples={"REMOVE('banana', 'an')": "ba"})
def _remove(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _replaced(args[0].data, args[1].data.as_py(), "")


def _replaced(texts: Any, find: str, new: str) -> Any:
    return pc.replace_substring(texts, find, new) if find else texts


@TEXT.strict(
    "normalize",
    parameters=(text(), word("form", is_optional=True)),
    result=STRING,
    complete=_formed,
    most_bytes=sizes.growing(12),
    examples={"NORMALIZE('ﬁ', 'NFKC')": "fi"},
)
def _normalize(_type: SqlType, args: Sequence[Vector]) -> Any:
    return pc.utf8_normalize(args[0].data, args[1].data.as_py())


def ints(counted: pa.Array | pa.Scalar) -> Any:
    """Return Arrow's whole numbers as INT."""
    if isinstance(counted, pa.Scalar):
        return np.array(counted.as_py(), np.int32)
    return counted.to_numpy(zero_copy_only=False).astype(np.int32)
