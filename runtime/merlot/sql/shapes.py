"""Bind queries that differ only in the constants of WHERE once: parsing costs ten times as much as all the rest.

A *shape* is a query's text without the numbers and strings of its WHERE clause, which one regular expression finds. A
*template* is the bound query of a shape with placeholders for these constants. To find where each constant goes, the
shape is bound with marker constants that no query has. Each marker must end up once, as an operand that a column is
compared with.

Filling in calls the same functions as binding (`predicates`, `boolean_logic`), so out-of-range numbers, timestamps in
texts and lists fold as usual. A query that does not fit has no template and is bound from its text. So is a query whose
constants fail to fit, so that it gets the usual error. A template is checked against the query that it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from merlot.errors import InvalidInputError
from merlot.sql import predicates
from merlot.sql.boolean_logic import conjunction, disjunction, without_null_verdict
from merlot.sql.direct import DirectFilter, direct_filter
from merlot.tree import literals
from merlot.tree.nodes import TRUE, BoundQuery, Call, Column, Expr, Literal, Value
from merlot.tree.types import STRING

MAX_CONSTANTS: Final = 200
MAX_CHARS: Final = 4096

_WHERE: Final = re.compile(r"\bWHERE\b", re.IGNORECASE)
_PIECE: Final = re.compile(
    r"""(?P<text>'[^'\\]*'(?!'))
    |(?<![\w.$"`])(?P<number>[0-9]+(?P<fraction>\.[0-9]+)?)(?![\w.$"`])
    |"[^"]*"
    |(?P<end>\b(?:GROUP|ORDER|HAVING|LIMIT|OFFSET|OPTION|UNION|ESCAPE)\b|;)
    |(?P<unclear>--|/\*|['"`\\\0])""",
    re.IGNORECASE | re.VERBOSE,
)
_OPERATOR: Final = re.compile(r"(?:[=<>]|\b(?:AND|BETWEEN|LIKE))\s*-?\s*$", re.IGNORECASE)
_LIST_STARTS: Final = re.compile(r"\bIN\s*\(\s*-?\s*$", re.IGNORECASE)
_LIST_GOES_ON: Final = re.compile(r"\s*,\s*-?\s*")
_OPERAND_ENDS: Final = re.compile(r"\s*(?:$|[),;]|(?:AND|OR|GROUP|ORDER|HAVING|LIMIT|OFFSET|OPTION)\b)", re.IGNORECASE)
_COMPARISONS: Final = frozenset(
    {"equals", "not_equals", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"}
)
Bind = Callable[[str], BoundQuery]
Rebuild = Callable[[Sequence[Literal]], Expr]


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A text without its constants. Queries of one shape have the same `key`; `pieces` surround the constants."""

    key: str
    pieces: tuple[str, ...]
    constants: tuple[Literal, ...]


class _UnfitError(Exception):
    """Raised if the shape has no template."""


def shape_of(sql: str) -> QueryShape | None:
    """Return the shape of a query; None for queries that are bound from their texts."""
    where = _WHERE.search(sql) if len(sql) <= MAX_CHARS else None
    if where is None or "\0" in sql:
        return None
    pieces: list[str] = []
    constants: list[Literal] = []
    kinds: list[str] = []
    start = 0
    for match in _PIECE.finditer(sql, where.end()):
        kind = match.lastgroup
        if kind == "unclear":
            return None
        if kind == "end":
            break
        if kind == "text":
            constants.append(Literal(match["text"][1:-1], STRING))
            kinds.append("\0s")
        elif kind is not None:
            constants.append(literals.number(match["number"]))
            kinds.append("\0d" if match["fraction"] else "\0i")
        else:
            continue
        pieces.append(sql[start : match.start()])
        start = match.end()
    if not constants or len(constants) > MAX_CONSTANTS:
        return None
    pieces.append(sql[start:])
    return QueryShape("".join(map("".join, zip(pieces, [*kinds, ""], strict=True))), tuple(pieces), tuple(constants))


@dataclass(frozen=True, slots=True)
class Template:
    """A bound query whose WHERE is built again from constants."""

    query: BoundQuery
    rebuild: Rebuild
    direct: DirectFilter | None = None
    """A faster way, for constants that it accepts."""

    def fill(self, constants: Sequence[Literal]) -> BoundQuery:
        """Return the bound query with these constants. Raise InvalidInputError if they do not fit their columns."""
        where = without_null_verdict(self.rebuild(constants))
        return replace(self.query, where=None if where == TRUE else where)


def make_template(shape: QueryShape, bound: BoundQuery, bind: Bind) -> Template | None:
    """Make the template of a shape; None if it has none. `bound` is the shape's query with its own constants; `bind`
    binds a text."""
    if bound.explain or not _stand_alone(shape.pieces):
        return None
    for is_time in (False, True):
        markers = [_marker(constant, number, is_time=is_time) for number, constant in enumerate(shape.constants)]
        try:
            marked = bind(_join(shape.pieces, markers))
            if marked.where is None or replace(marked, where=bound.where) != bound:
                continue
            rebuilder = _Rebuilder(markers, nulls=bound.null_handling)
            direct = direct_filter(marked.where, rebuilder.constant_of)
            template = Template(bound, rebuilder.rebuild_all(marked.where), direct)
            if template.fill(shape.constants) == bound:
                return template
        except (InvalidInputError, _UnfitError):
            continue
    return None


def _stand_alone(pieces: Sequence[str]) -> bool:
    """Return True if every constant is an operand by itself; `x = lower('A')` and `x = 5::INT` compute with theirs."""
    is_in_list = False
    for before, after in pairwise(pieces):
        if _LIST_STARTS.search(before):
            is_in_list = True
        elif not (is_in_list and _LIST_GOES_ON.fullmatch(before)):
            is_in_list = False
            if not _OPERATOR.search(before):
                return False
        if not _OPERAND_ENDS.match(after):
            return False
    return True


def _marker(constant: Literal, number: int, *, is_time: bool) -> Literal:
    """Return the marker of a constant: a value that no query has. Markers ascend and are exact in every numeric
    type."""
    if constant.type == STRING:
        text = f"2001-02-03 04:{number // 60:02}:{number % 60:02}.123" if is_time else f" ~Marker {number:04}~ "
        return Literal(text, STRING)
    digits = str(1_000_003 + 7_919 * number)
    return literals.number(digits if isinstance(constant.value, int) else f"{digits}.5")


def _join(pieces: Sequence[str], markers: Sequence[Literal]) -> str:
    texts = [f"'{mark.value}'" if isinstance(mark.value, str) else literals.to_text(mark) for mark in markers]
    return "".join(map("".join, zip(pieces, [*texts, ""], strict=True)))


class _Rebuilder:
    """Finds the markers in a bound filter."""

    def __init__(self, markers: Sequence[Literal], *, nulls: bool) -> None:
        self._nulls = nulls
        self._number_of: dict[Value, tuple[int, bool]] = {}
        self._markers = markers
        self._used_constants: set[int] = set()
        for number, marker in enumerate(markers):
            for value, is_negative in _spellings(marker):
                self._number_of[value] = number, is_negative

    def constant_of(self, value: Value) -> tuple[int, bool] | None:
        """Return the number of the constant whose marker has this value, and whether a minus sign stood before it."""
        return self._number_of.get(value)

    def rebuild_all(self, where: Expr) -> Rebuild:
        """Return a function that builds the filter from constants. Raise _UnfitError unless every marker is found
        once."""
        rebuild = self._rebuild(where)
        if len(self._used_constants) != len(self._markers):
            raise _UnfitError
        return rebuild

    def _rebuild(self, expr: Expr) -> Rebuild:
        if not isinstance(expr, Call):
            return lambda _constants: expr
        if expr.function in ("and", "or", "not"):
            parts = [self._rebuild(arg) for arg in expr.args]
            if expr.function == "not":
                return lambda constants: predicates.invert(parts[0](constants))
            combine = conjunction if expr.function == "and" else disjunction
            return lambda constants: combine([part(constants) for part in parts])
        column, arguments = expr.args[0], expr.args[1:]
        if not isinstance(column, Column) or not any(map(self._is_marker, arguments)):
            return lambda _constants: expr
        return _predicate(expr.function, column, [self._operand(argument) for argument in arguments], nulls=self._nulls)

    def _is_marker(self, expr: Expr) -> bool:
        return isinstance(expr, Literal) and expr.value in self._number_of

    def _operand(self, expr: Expr) -> Callable[[Sequence[Literal]], Literal]:
        if not isinstance(expr, Literal):
            raise _UnfitError
        entry = self._number_of.get(expr.value)
        if entry is None:
            return lambda _constants: expr
        number, is_negative = entry
        if number in self._used_constants:
            raise _UnfitError
        self._used_constants.add(number)
        if is_negative:
            return lambda constants: _negative(constants[number])
        return lambda constants: constants[number]


def _predicate(
    function: str, column: Column, operands: Sequence[Callable[[Sequence[Literal]], Literal]], *, nulls: bool
) -> Rebuild:
    if function in _COMPARISONS:
        (operand,) = operands
        return lambda constants: predicates.compare(function, column, operand(constants), nulls=nulls)
    if function == "between":
        low, high = operands
        return lambda constants: predicates.between(column, low(constants), high(constants), nulls=nulls)
    if function == "like":
        (operand,) = operands
        return lambda constants: predicates.like(column, operand(constants), None, nulls=nulls)
    if function in ("in", "not_in"):
        negated = function == "not_in"
        return lambda constants: predicates.member(
            column, [operand(constants) for operand in operands], negated=negated, nulls=nulls
        )
    raise _UnfitError


def _spellings(marker: Literal) -> list[tuple[Value, bool]]:
    """Return the values that a marker may become when it is bound, each with whether a minus sign stood before it."""
    value = marker.value
    if isinstance(value, str):
        # The marker of a time fits TIMESTAMP columns only; STRING columns have the other marker.
        return [(literals.timestamp_millis(value), False)] if value.startswith("2001") else [(value, False)]
    assert isinstance(value, int | float)
    return [(value, False), (-value, True)]


def _negative(literal: Literal) -> Literal:
    return literals.number(f"-{literals.to_text(literal)}")
