"""Filters of JSON_MATCH: Pinot's filter texts, parsed and matched with JSON values.

    "$.name" = 'adam' AND ("$.address[*].country" = 'us' OR "$.age" BETWEEN 20 AND 29)

A path leads to scalars: `.key` into objects, `[2]` and `[*]` into lists; a path without `$` begins at the root. Scalars
are compared as text, numbers as JSON writes them; a range with a number as its bound compares numbers. JSON null is no
value.

A predicate applies to one element of each list: `"$.a[*].x" = 1 AND "$.a[*].y" = 2` wants both in the same element, and
`"$.a[*].x" <> 1` an element whose x is another scalar. IS NULL and NOT BETWEEN apply to the whole value, so they stand
alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from merlot.tree.errors import SqlValidationError
from merlot.vectors.errors import LimitExceededError

Steps = tuple[str | int | None, ...]
"""Keys, positions, and None for any position."""
Element = dict[Steps, int]
"""Position of an element in each list, by the path of the list."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?")
MAX_STEPS: Final = 64
MAX_PREDICATES: Final = 64
MAX_COMBINATIONS: Final = 1_000_000
"""Limit of combinations of list elements within one value."""


@dataclass(frozen=True, slots=True)
class Among:
    """Condition that a scalar at the path has one of these texts; `is_other`: that it has none of them."""

    path: Steps
    texts: tuple[str, ...]
    is_other: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    """Condition that a scalar at the path lies between the bounds. One of them may be None. `with_low` and `with_high`
    include the bound itself."""

    path: Steps
    low: str | Decimal | None
    high: str | Decimal | None
    with_low: bool = True
    with_high: bool = True


@dataclass(frozen=True, slots=True)
class Exists:
    """Condition that there is a scalar at the path."""

    path: Steps


@dataclass(frozen=True, slots=True)
class JsonAnd:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class JsonOr:
    parts: tuple[Condition, ...]


Condition = Among | Within | Exists | JsonAnd | JsonOr


class JsonFilter(NamedTuple):
    """Condition, or (`negate`) that it does not hold."""

    condition: Condition
    negate: bool


# Values


def loaded(text: str) -> Any:
    """Return the value of a JSON text; None, as for null, if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def scalar_text(scalar: Any) -> str:
    """Return the text by which a scalar is compared."""
    return scalar if isinstance(scalar, str) else orjson.dumps(scalar).decode()


def holds(wanted: JsonFilter, text: str) -> bool:
    """Return True if a JSON text matches a filter."""
    value = loaded(text)
    return any(True for _ in _elements(wanted.condition, value)) != wanted.negate


def _elements(condition: Condition, value: Any) -> Iterator[Element]:
    """Yield the list elements for which a condition holds; an empty Element if the path goes through no list."""
    match condition:
        case JsonAnd(parts):
            combinations: list[Element] = [{}]
            for part in parts:
                more = list(_elements(part, value))
                if len(combinations) * len(more) > MAX_COMBINATIONS:
                    raise LimitExceededError(f"json_match combines too many elements limit={MAX_COMBINATIONS}")
                combinations = [{**left, **other} for left in combinations for other in more if _agree(left, other)]
            yield from combinations
        case JsonOr(parts):
            for part in parts:
                yield from _elements(part, value)
        case _:
            for scalar, element in _scalars(value, condition.path):
                if fits(condition, scalar):
                    yield element


def _agree(left: Element, other: Element) -> bool:
    return all(other.get(path, position) == position for path, position in left.items())


def _scalars(root: Any, path: Steps) -> Iterator[tuple[Any, Element]]:
    """Yield the scalars to which a path leads, each with the list elements on its way."""
    nodes: list[tuple[Any, Element, Steps]] = [(root, {}, ())]
    for step in path:
        nodes = [after for before in nodes for after in _step(step, *before)]
    for value, element, _ in nodes:
        if value is not None and not isinstance(value, dict | list):
            yield value, element


def _step(step: str | int | None, value: Any, element: Element, at: Steps) -> Iterator[tuple[Any, Element, Steps]]:
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield value[step], element, (*at, step)
    elif isinstance(value, list):
        for position in range(len(value)) if step is None else (step,):
            if position < len(value):
                yield value[position], {**element, at: position}, (*at, position)


def fits(condition: Among | Within | Exists, scalar: Any) -> bool:
    """Return True if a scalar of a JSON value, not null, meets a condition on its path."""
    match condition:
        case Exists():
            return True
        case Among(texts=texts, is_other=is_other):
            return (scalar_text(scalar) in texts) != is_other
    return is_within(condition, scalar_text(scalar))


def is_of_numbers(condition: Within) -> bool:
    """Return True if scalars are compared as numbers; scalars that are no numbers do not match."""
    return any(isinstance(bound, Decimal) for bound in (condition.low, condition.high))


def is_within(condition: Within, text: str) -> bool:
    """Return True if a scalar's text lies within bounds."""
    value = number_of(text) if is_of_numbers(condition) else text
    low, high = condition.low, condition.high
    if value is None:
        return False
    above = low is None or value > low or (condition.with_low and value == low)  # type: ignore[operator]
    return above and (high is None or value < high or (condition.with_high and value == high))  # type: ignore[operator]


def number_of(text: str) -> Decimal | None:
    """Return the number that a text writes as JSON does; None if it is no number."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


# Texts

_TOKEN: Final = re.compile(
    r"""\s*(?: "(?P<path>(?:[^"]|"")*)" | '(?P<text>(?:[^']|'')*)' | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
        | (?P<sign><>|!=|<=|>=|=|<|>|\(|\)|,) | (?P<word>[$A-Za-z_][\w.$\[\]*]*) )""",
    re.VERBOSE,
)
_STEP: Final = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<position>\d{1,9}|\*)\]")
_WORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "TRUE", "FALSE"})
_BOUNDS: Final = {"<": (False, False), "<=": (False, True), ">": (True, False), ">=": (True, True)}
"""For each comparison: True if it is a lower bound, and True if the bound itself is included."""


@lru_cache(maxsize=1024)
def parse(text: str) -> JsonFilter:
    """Parse a filter; raise SqlValidationError."""
    return _FilterParser(text).parse()


class _Token(NamedTuple):
    kind: str
    text: str


class _FilterParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._read())
        self._at = 0
        self._num_predicates = 0
        self._negated = 0

    def parse(self) -> JsonFilter:
        condition = self._any(0)
        if self._at < len(self._tokens):
            raise self._error(f"nothing more is expected at {self._tokens[self._at].text!r}")
        if self._negated and self._num_predicates > 1:
            raise self._error("IS NULL and NOT BETWEEN are of a whole value, and stand alone; write NOT JSON_MATCH(…)")
        return JsonFilter(condition, bool(self._negated))

    def _read(self) -> Iterator[_Token]:
        place, end = 0, len(self._text.rstrip())
        while place < end:
            match = _TOKEN.match(self._text, place)
            if match is None:
                raise self._error(f"cannot read {self._text[place : place + 20]!r}")
            kind = str(match.lastgroup)
            text = match.group(kind)
            if kind == "word" and text.upper() in _WORDS:
                kind, text = "sign", text.upper()
            yield _Token("path" if kind == "word" else kind, text.replace("''", "'") if kind == "text" else text)
            place = match.end()

    def _any(self, depth: int) -> Condition:
        parts = [self._every(depth)]
        while self._took("OR"):
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else JsonOr(tuple(parts))

    def _every(self, depth: int) -> Condition:
        parts = [self._one(depth)]
        while self._took("AND"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else JsonAnd(tuple(parts))

    def _one(self, depth: int) -> Condition:
        if self._took("("):
            if depth >= MAX_STEPS:
                raise self._error("parentheses are too deep")
            inner = self._any(depth + 1)
            self._need(")")
            return inner
        self._num_predicates += 1
        if self._num_predicates > MAX_PREDICATES:
            raise self._error(f"more than {MAX_PREDICATES} predicates")
        return self._predicate(self._path())

    def _predicate(self, path: Steps) -> Condition:
        if self._took("IS"):
            self._negated += not self._took("NOT")
            self._need("NULL")
            return Exists(path)
        if self._took("NOT"):
            inner = self._set_or_range(path)
            if isinstance(inner, Among):
                return replace(inner, is_other=True)
            self._negated += 1
            return inner
        sign = self._next().text
        if sign in ("=", "<>", "!="):
            return Among(path, (self._literal().text,), is_other=sign != "=")
        if sign in _BOUNDS:
            is_low, with_bound = _BOUNDS[sign]
            bound = self._bound()
            return Within(path, bound, None, with_bound) if is_low else Within(path, None, bound, True, with_bound)
        self._at -= 1
        return self._set_or_range(path)

    def _set_or_range(self, path: Steps) -> Among | Within:
        if self._took("BETWEEN"):
            low = self._bound()
            self._need("AND")
            high = self._bound()
            if isinstance(low, Decimal) != isinstance(high, Decimal):
                raise self._error("BETWEEN needs two numbers or two strings")
            return Within(path, low, high)
        self._need("IN")
        self._need("(")
        texts = [self._literal().text]
        while self._took(","):
            texts.append(self._literal().text)
        self._need(")")
        return Among(path, tuple(dict.fromkeys(texts)))

    def _path(self) -> Steps:
        token = self._next()
        if token.kind != "path":
            raise self._error(f'a path in double quotes is expected, such as "$.name", at {token.text!r}')
        text = token.text.replace('""', '"')
        rest = text[1:] if text.startswith("$") else f".{text}"
        steps: list[str | int | None] = []
        place = 0
        while place < len(rest):
            match = _STEP.match(rest, place)
            if match is None or len(steps) >= MAX_STEPS:
                raise self._error(f"no path: {text!r}")
            key, position = match.group("key"), match.group("position")
            steps.append(key if key is not None else None if position == "*" else int(position))
            place = match.end()
        return tuple(steps)

    def _literal(self) -> _Token:
        token = self._next()
        if token.kind in ("text", "number"):
            return token
        if token.text in ("TRUE", "FALSE"):
            return _Token("text", token.text.lower())
        raise self._error(f"a string in quotes or a number is expected at {token.text!r}")

    def _bound(self) -> str | Decimal:
        token = self._literal()
        return Decimal(token.text) if token.kind == "number" else token.text

    def _took(self, sign: str) -> bool:
        is_next = self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign)
        self._at += is_next
        return is_next

    def _need(self, sign: str) -> None:
        if not self._took(sign):
            after = self._tokens[self._at].text if self._at < len(self._tokens) else "the end"
            raise self._error(f"{sign} is expected at {after!r}")

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise self._error("it ends too soon")
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, what: str) -> SqlValidationError:
        return SqlValidationError(f"json_match: {what} filter={self._text[:200]!r}")
