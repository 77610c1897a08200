"""Text index: the docs that hold a word, for TEXT_MATCH. FORMAT.md §5.13.

Positions of words are not stored, so a phrase of several words only finds candidates; their texts are then read.
"""

from __future__ import annotations

import pyarrow as pa

from merlot.functions import text_filter
from merlot.functions.text_filter import Begins, Condition, Phrase, TextOr
from merlot.segment.index.terms import (
    AllOf,
    AnyOf,
    Offsets,
    Search,
    TermIndex,
    TermRange,
    Wanted,
    buffers_of,
    exactly,
    flat,
)
from merlot.tree.nodes import Call, Literal


def _wanted(condition: Condition) -> tuple[Wanted, bool]:
    """Return the terms to search for, and whether they decide the condition. If not, the texts of the docs that have
    them are read."""
    match condition:
        case Phrase(words):
            terms = tuple(exactly(word.encode()) for word in words)
            return (terms[0], True) if len(terms) == 1 else (AllOf(terms), False)
        case Begins(prefix):
            # UTF-8 has no byte FF, so the bound is above every word with the prefix.
            return TermRange(prefix.encode(), prefix.encode() + b"\xff"), True
        case TextOr(parts):
            wanted, are_exact = zip(*map(_wanted, parts), strict=True)
            return AnyOf(wanted), all(are_exact)
    wanted, are_exact = zip(*map(_wanted, condition.parts), strict=True)
    return AllOf(wanted), all(are_exact) and not condition.without


class _TextIndex(TermIndex):
    name = "text"
    buffers = buffers_of("text")
    searches = frozenset({"textmatch"})

    def terms_of(self, values: pa.Array) -> tuple[pa.Array, Offsets]:
        return flat([word.encode() for word in set(text_filter.words_of(text))] for text in values.to_pylist())

    def search(self, call: Call) -> Search | None:
        text = call.args[1]
        assert isinstance(text, Literal)
        assert isinstance(text.value, str)
        return Search(*_wanted(text_filter.parse(text.value)))


INDEX = _TextIndex()
