"""LIKE and REGEXP_LIKE with a pattern per row: each distinct pattern is compiled once, and matched with all its
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions.comparisons import matches_like, to_mask, with_backslashes
from merlot.functions.function import Family, text, word
from merlot.functions.regular import check_flag, check_pattern, flagged
from merlot.functions.time_words import constant_text
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr
from merlot.tree.types import BOOLEAN, SqlType
from merlot.vectors.vector import Attempt, Vector, failed

ROW_PATTERNS: Final = Family("Patterns of the row")

Match = Callable[[Any, str], Any]
"""Function that returns which texts, an array or a scalar, match a pattern; raises SqlValidationError if the pattern
is invalid."""


def _by_pattern(texts: Vector, patterns: Vector, match: Match) -> Attempt:
    """Match each text with the pattern of its row. Rows whose pattern is invalid fail."""
    varying = [vector.data for vector in (texts, patterns) if not vector.is_constant]
    shape = (len(varying[0]),) if varying else ()
    matched, lost, reason = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_), ""
    groups = [(patterns.data.as_py(), ...)] if patterns.is_constant else _rows_by_value(patterns.data)
    for pattern, rows in groups:
        try:
            matched[rows] = match(_taken(texts.data, rows), pattern)
        except SqlValidationError as error:
            lost[rows], reason = True, str(error)
    return Attempt(matched, failed(lost, reason))


def _rows_by_value(values: pa.Array) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each distinct value with the rows that have it."""
    if not len(values):
        return
    encoded = values.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
    yield from zip(encoded.dictionary.to_pylist(), np.split(order, ends[:-1]), strict=True)


def _taken(texts: Any, rows: Any) -> Any:
    return texts if isinstance(texts, pa.Scalar) or rows is ... else texts.take(pa.array(rows))


def _escape(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    if len(args) > 2 and len(constant_text(args[2])) != 1:
        raise SqlValidationError("ESCAPE needs one character")
    return args


def _flag(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    check_flag("regexplikevar", constant_text(args[2]) if len(args) > 2 else "c")
    return args


@ROW_PATTERNS.strict(
    "likevar",
    parameters=(text(), text("pattern"), word("escape", is_optional=True)),
    result=BOOLEAN,
    complete=_escape,
    is_predicate=True,
    examples={"LIKE_VAR('abc', CONCAT('a', '%'))": True, "LIKE_VAR('a%c', 'a!%_', '!')": True},
)
def _like_var(_type: SqlType, args: Sequence[Vector]) -> Attempt:
    """Match `text LIKE pattern`, where each row may have its own pattern."""
    escape = args[2].data.as_py() if len(args) > 2 else "\\"
    return _by_pattern(args[0], args[1], lambda texts, pattern: matches_like(texts, with_backslashes(pattern, escape)))


@ROW_PATTERNS.strict(
    "regexplikevar",
    parameters=(text(), text("pattern"), word("flag", is_optional=True)),
    result=BOOLEAN,
    complete=_flag,
    is_predicate=True,
    examples={"REGEXP_LIKE_VAR('banana', CONCAT('n', '.n'))": True, "REGEXP_LIKE_VAR('banana', '^B', 'i')": True},
)
def _regexp_like_var(_type: SqlType, args: Sequence[Vector]) -> Attempt:
    """Match as REGEXP_LIKE does, where each row may have its own pattern."""
    flag = args[2].data.as_py() if len(args) > 2 else "c"

    def match(texts: Any, pattern: str) -> Any:
        regex = flagged(pattern, flag)
        check_pattern(regex)
        return to_mask(pc.match_substring_regex(texts, regex))

    return _by_pattern(args[0], args[1], match)
