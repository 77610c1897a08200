"""Patterns that begin with plain text. In an ordered dictionary they match within a range of ids, found by two
searches.
"""

from __future__ import annotations

from typing import Final

from merlot.functions.comparisons import beginning_of_like
from merlot.functions.regular import beginning_of
from merlot.segment.index.dictionary import OrderedDictionary, ValueDictionary
from merlot.tree.nodes import Call, Column, Literal
from merlot.values.types import TypeName

_TEXTS: Final = frozenset({TypeName.STRING, TypeName.JSON})
_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


def ids_to_look_at(call: Call, type_: TypeName, dictionary: ValueDictionary) -> range | None:
    """Return the ids of all values that begin as a pattern does; None if its beginning does not narrow them."""
    if (
        call.function not in ("like", "regexplike")
        or type_ not in _TEXTS
        or not isinstance(dictionary, OrderedDictionary)
    ):
        return None
    pattern = call.args[1]
    is_plain = len(call.args) == 2 and isinstance(call.args[0], Column)
    if not is_plain or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        return None
    text = beginning_of_like(pattern.value) if call.function == "like" else beginning_of(pattern.value)
    return range(*dictionary.range_of(text, _after(text), True, False)) if text else None


def takes_all(call: Call) -> bool:
    """Return whether a LIKE pattern is a plain prefix and nothing else."""
    pattern = call.args[1]
    assert isinstance(pattern, Literal)
    text = str(pattern.value)
    return call.function == "like" and text.find("%") == len(text) - 1 and not set(text) & {"_", "\\"}


def _after(text: str) -> str | None:
    """Return the first text, by code points, after all texts that begin with this one; None if there is none."""
    for position in range(len(text) - 1, -1, -1):
        number = ord(text[position]) + 1
        if number in _SURROGATES:
            number = _SURROGATES.stop
        if number <= _LAST:
            return text[:position] + chr(number)
    return None
