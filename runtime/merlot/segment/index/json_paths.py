"""JSON index: the docs that hold a scalar at a path, for JSON_MATCH. FORMAT.md §5.12.

A term is a path and a scalar's text. Positions in lists are not stored, so a predicate on one position, or on several
paths of the same element, only finds candidates.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from merlot.functions import json_filter
from merlot.functions.json_filter import Among, Condition, Exists, JsonAnd, JsonOr, Steps
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

_KEY, _ELEMENT, _VALUE = "\1", "\2", "\0"
"""Characters of a term: before a key of an object, for any element of a list, and before the scalar's text."""
_ESCAPED: Final = str.maketrans({"\0": "\3a", "\1": "\3b", "\2": "\3c", "\3": "\3d"})

# Write


def terms_of_value(text: str) -> set[bytes]:
    """Return a term for every scalar except null in a JSON text; no term if the text is not JSON."""
    terms: set[bytes] = set()
    pending = [(json_filter.loaded(text), "")]
    while pending:
        value, path = pending.pop()
        if isinstance(value, dict):
            pending.extend((inner, f"{path}{_KEY}{key.translate(_ESCAPED)}") for key, inner in value.items())
        elif isinstance(value, list):
            pending.extend((inner, path + _ELEMENT) for inner in value)
        elif value is not None:
            terms.add(f"{path}{_VALUE}{json_filter.scalar_text(value)}".encode())
    return terms


# Read


def _wanted(condition: Condition) -> tuple[Wanted, bool, bool]:
    """Return the terms to search for, whether their docs are exactly those that meet the condition, and whether its
    path leads through a list."""
    if isinstance(condition, JsonAnd | JsonOr):
        parts = [_wanted(part) for part in condition.parts]
        wanted, are_exact, of_lists = zip(*parts, strict=True)
        # Two paths into lists may have to match in the same element.
        is_exact = all(are_exact) and (isinstance(condition, JsonOr) or sum(of_lists) <= 1)
        return (AllOf if isinstance(condition, JsonAnd) else AnyOf)(wanted), is_exact, any(of_lists)
    is_exact = not any(isinstance(step, int) for step in condition.path)
    crosses_list = any(not isinstance(step, str) for step in condition.path)
    if isinstance(condition, Among) and not condition.is_other:
        path = _path(condition.path) + _VALUE
        return AnyOf(tuple(exactly(f"{path}{text}".encode()) for text in condition.texts)), is_exact, crosses_list
    return _range(condition), is_exact, crosses_list


def _range(condition: Among | json_filter.Within | Exists) -> TermRange:
    path = _path(condition.path)
    first, stop = f"{path}{_VALUE}".encode(), f"{path}{_KEY}".encode()
    if isinstance(condition, Exists):
        return TermRange(first, stop)
    if isinstance(condition, Among):
        others = frozenset(first + text.encode() for text in condition.texts)
        return TermRange(first, stop, lambda term: term not in others)
    if json_filter.is_of_numbers(condition):
        # Terms are ordered as texts, not as numbers.
        return TermRange(first, stop, lambda term: json_filter.is_within(condition, term[len(first) :].decode()))
    if condition.low is not None:
        first += str(condition.low).encode() + (b"" if condition.with_low else b"\0")
    if condition.high is not None:
        stop = f"{path}{_VALUE}{condition.high}".encode() + (b"\0" if condition.with_high else b"")
    return TermRange(first, stop)


def _path(steps: Steps) -> str:
    return "".join(_KEY + step.translate(_ESCAPED) if isinstance(step, str) else _ELEMENT for step in steps)


class _JsonPaths(TermIndex):
    name = "json_paths"
    buffers = buffers_of("json_paths")
    searches = frozenset({"jsonmatch"})

    def terms_of(self, values: pa.Array) -> tuple[pa.Array, Offsets]:
        return flat(terms_of_value(text) for text in values.to_pylist())

    def search(self, call: Call) -> Search | None:
        text = call.args[1]
        assert isinstance(text, Literal)
        assert isinstance(text.value, str)
        parsed = json_filter.parse(text.value)
        terms, is_exact, _ = _wanted(parsed.condition)
        return Search(terms, is_exact, parsed.negate)


INDEX = _JsonPaths()
