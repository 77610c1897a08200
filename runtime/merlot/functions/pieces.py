"""Texts cut into their beginnings, ends and parts of one length; once for each distinct text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from merlot.functions.by_value import by_value
from merlot.functions.function import Apply, Family, size, text
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector

PIECES: Final = Family("Pieces of strings")
_STRINGS: Final = SqlType(TypeName.STRING, is_array=True)


def _cut(compute: Callable[[str, int], list[str]]) -> Apply:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        return by_value(_STRINGS, args, compute)

    return apply


def _beginnings(value: str, most: int) -> list[str]:
    return [value[:end] for end in range(1, min(most, len(value)) + 1)]


def _ends(value: str, most: int) -> list[str]:
    return [value[len(value) - length :] for length in range(1, min(most, len(value)) + 1)]


def _distinct_parts(value: str, length: int) -> list[str]:
    parts = (value[start : start + length] for start in range(len(value) - length + 1)) if length else ()
    return list(dict.fromkeys(parts))


for _name, _compute, _example in (
    ("prefixes", _beginnings, ["a", "ab"]),
    ("suffixes", _ends, ["c", "bc"]),
    ("uniquengrams", _distinct_parts, ["ab", "bc"]),
):
    PIECES.strict(
        _name,
        parameters=(text(), size("length")),
        result=_STRINGS,
        examples={f"{_name.upper()}('abc', 2)": _example},
    )(_cut(_compute))
