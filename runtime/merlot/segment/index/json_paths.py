"""JSON index: the docs that hold a scalar at a path, for JSON_MATCH. FORMAT.md §5.12.

A term is a path and a scalar's text. Positions in lists are not stored, so predicates on one position, or on one
element by several paths, only find candidates.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from merlot.functions import json_filter
from merlot.functions.json_filter import Among, Condition, Either, Every, Exists, Steps
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
_ESCAPED: Final = str.maketrans({"\0": "\3a", "\1": "\3b", "\2": "\3c", "\3": "\3d"})

# Write


def terms_of_value(text: str) -> set[bytes]:
    """Return every scalar in a JSON text with its path."""
    terms: set[bytes] = set()
    left = [(json_filter.loaded(text), "")]
    while left:
        value, path = left.pop()
        if isinstance(value, dict):
            left.extend((inner, f"{path}{_KEY}{key.translate(_ESCAPED)}") for key, inner in value.items())
        elif isinstance(value, list):
            left.extend((inner, path + _ELEMENT) for inner in value)
        elif value is not None:
            terms.add(f"{path}{_VALUE}{json_filter.scalar_text(value)}".encode())
    return terms


# Read


def _wanted(condition: Condition) -> tuple[Wanted, bool, bool]:
    """Return the terms that a condition wants, whether they decide, and whether the condition is on elements of
    lists."""
    if isinstance(condition, Every | Either):
        parts = [_wanted(part) for part in condition.parts]
        wanted, are_exact, of_lists = zip(*parts, strict=True)
        # Two paths into lists may have to match in the same element.
        is_exact = all(are_exact) and (isinstance(condition, Either) or sum(of_lists) <= 1)
        return (AllOf if isinstance(condition, Every) else AnyOf)(wanted), is_exact, any(of_lists)
    is_exact = not any(isinstance(step, int) for step in condition.path)
    of_lists_too = any(not isinstance(step, str) for step in condition.path)
    if isinstance(condition, Among) and not condition.is_other:
        path = _path(condition.path) + _VALUE
        return AnyOf(tuple(exactly(f"{path}{text}".encode()) for text in condition.texts)), is_exact, of_lists_too
    return _range(condition), is_exact, of_lists_too


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
        return TermRange(first, stop, lambda term: json_filter.lies_within(condition, term[len(first) :].decode()))
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
        wanted = json_filter.parse(text.value)
        terms, is_exact, _ = _wanted(wanted.condition)
        return Search(terms, is_exact, wanted.negate)


INDEX = _JsonPaths()
