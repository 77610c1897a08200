"""Texts cut into their beginnings, ends and parts of given lengths; each distinct text is cut once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from merlot.functions.by_value import by_value
from merlot.functions.function import Family, VectorFunction, size, text, word
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Vector

PIECES: Final = Family("Pieces of strings")
MAX_LENGTH: Final = 1_000
MAX_LENGTHS: Final = 100
_STRINGS: Final = SqlType(TypeName.STRING, is_array=True)


def _cut(compute: Callable[..., Iterable[str]]) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        return by_value(_STRINGS, args, lambda *row: account.gathered(compute(*row)))

    return apply


def _bounded(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Raise SqlValidationError for lengths by which a text might have too many or too long pieces."""
    lengths = [arg.value for arg in args[1:] if isinstance(arg, Literal) and isinstance(arg.value, int)]
    if max(lengths) > MAX_LENGTH or (len(lengths) > 1 and lengths[1] - max(lengths[0], 1) >= MAX_LENGTHS):
        raise SqlValidationError(f"pieces have up to {MAX_LENGTH} characters, and {MAX_LENGTHS} different lengths")
    return args


def _beginnings(value: str, most: int) -> Iterator[str]:
    return (value[:end] for end in range(1, min(most, len(value)) + 1))


def _ends(value: str, most: int) -> Iterator[str]:
    return (value[len(value) - length :] for length in range(1, min(most, len(value)) + 1))


def _distinct_parts(value: str, length: int) -> Iterator[str]:
    seen: set[str] = set()
    for start in range(len(value) - length + 1) if length > 0 else ():
        part = value[start : start + length]
        if part not in seen:
            seen.add(part)
            yield part


def _grams(value: str, least: int, most: int | None = None) -> Iterator[str]:
    if most is None:
        return _distinct_parts(value, least)
    lengths = range(max(least, 1), min(most, len(value)) + 1)
    return itertools.chain.from_iterable(_distinct_parts(value, length) for length in lengths)


for _name, _compute, _example in (
    ("prefixes", _beginnings, ["a", "ab"]),
    ("suffixes", _ends, ["c", "bc"]),
):
    PIECES.strict(
        _name,
        parameters=(text(), size("length")),
        result=_STRINGS,
        complete=_bounded,
        examples={f"{_name.upper()}('abc', 2)": _example},
    )(_cut(_compute))

PIECES.strict(
    "uniquengrams",
    aliases=("generateuniquengrams",),
    parameters=(text(), size("length"), size("greatest length", is_optional=True)),
    result=_STRINGS,
    complete=_bounded,
    examples={"UNIQUENGRAMS('abc', 2)": ["ab", "bc"], "UNIQUE_NGRAMS('aba', 1, 2)": ["a", "b", "ab", "ba"]},
)(_cut(_grams))
PIECES.strict(
    "prefixeswithprefix",
    parameters=(text(), size("length"), word("prefix")),
    result=_STRINGS,
    complete=_bounded,
    examples={"PREFIXESWITHPREFIX('abc', 2, '^')": ["^a", "^ab"]},
)(_cut(lambda value, most, prefix: (prefix + part for part in _beginnings(value, most))))
PIECES.strict(
    "suffixeswithsuffix",
    parameters=(text(), size("length"), word("suffix")),
    result=_STRINGS,
    complete=_bounded,
    examples={"SUFFIXESWITHSUFFIX('abc', 2, '$')": ["c$", "bc$"]},
)(_cut(lambda value, most, suffix: (part + suffix for part in _ends(value, most))))
