"""Random messages with fields that no column declares, and random predicates of them, with the verdict of each.

Predicates are SQL that a stream and Spark read alike. Verdicts are worked out here, with SQL's three values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
Verdict = bool | None

AVRO: Mapping[str, Any] = {
    "type": "record",
    "name": "Message",
    "fields": [
        {"name": "id", "type": "long"},
        *({"name": name, "type": ["null", kind], "default": None} for name, kind in (
            ("count", "long"), ("share", "double"), ("word", "string"), ("is_on", "boolean"))),
    ],
}  # fmt: skip
"""Schema of the same messages in Avro."""
COUNTS = (-9_007_199_254_740_993, -100, -7, 0, 5, 18, 20, 100, 9_007_199_254_740_992, 9_007_199_254_740_993)
SHARES = (-0.25, 0.5, 5.5, 18.25, 100.75)
WORDS = ("", "5", "18", "abc", "ABD", "true", "é")


@dataclass(frozen=True)
class Predicate:
    """A predicate, and what it says of a message."""

    sql: str
    verdict: Callable[[Message], Verdict]


def message(draw: random.Random, number: int) -> Message:
    """A message in which each field may be null or absent."""
    values = {
        "count": draw.choice(COUNTS),
        "share": draw.choice(SHARES),
        "word": draw.choice(WORDS),
        "is_on": draw.random() < 0.5,
    }
    kept = {name: None if draw.random() < 0.1 else value for name, value in values.items() if draw.random() < 0.85}
    return {"id": number, **kept}


def predicate(draw: random.Random, depth: int = 3) -> Predicate:
    """A random predicate."""
    if depth == 0 or draw.random() < 0.3:
        return draw.choice((_compared, _member, _between, _is_null, _truth))(draw)
    left, right = predicate(draw, depth - 1), predicate(draw, depth - 1)
    match draw.choice(("and", "or", "not", "is true")):
        case "and":
            return Predicate(f"({left.sql}) AND ({right.sql})", lambda row: _and(left.verdict(row), right.verdict(row)))
        case "or":
            return Predicate(f"({left.sql}) OR ({right.sql})", lambda row: _or(left.verdict(row), right.verdict(row)))
        case "not":
            return Predicate(f"NOT ({left.sql})", lambda row: _not(left.verdict(row)))
        case _:
            return Predicate(f"(({left.sql}) IS NOT TRUE)", lambda row: left.verdict(row) is not True)


def _field(draw: random.Random) -> tuple[str, Sequence[Any]]:
    return draw.choice((("count", COUNTS), ("share", SHARES), ("word", WORDS)))


def _sql(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
}


def _compared(draw: random.Random) -> Predicate:
    (name, values), operator = _field(draw), draw.choice(list(_OPERATORS))
    limit = draw.choice(values)
    holds = _OPERATORS[operator]
    return Predicate(f"{name} {operator} {_sql(limit)}", _unless_null(name, lambda value: holds(value, limit)))


def _member(draw: random.Random) -> Predicate:
    name, values = _field(draw)
    some = draw.sample(values, 2)
    listed = ", ".join(map(_sql, some))
    if draw.random() < 0.5:
        return Predicate(f"{name} IN ({listed})", _unless_null(name, lambda value: value in some))
    return Predicate(f"{name} NOT IN ({listed})", _unless_null(name, lambda value: value not in some))


def _between(draw: random.Random) -> Predicate:
    name, values = _field(draw)
    low, high = draw.choice(values), draw.choice(values)
    within = _unless_null(name, lambda value: low <= value <= high)
    return Predicate(f"{name} BETWEEN {_sql(low)} AND {_sql(high)}", within)


def _is_null(draw: random.Random) -> Predicate:
    name = draw.choice(("count", "share", "word", "is_on"))
    return Predicate(f"{name} IS NULL", lambda row: row.get(name) is None)


def _truth(draw: random.Random) -> Predicate:
    wanted = draw.random() < 0.5
    return Predicate(f"is_on = {str(wanted).upper()}", _unless_null("is_on", lambda value: value is wanted))


def _unless_null(name: str, holds: Callable[[Any], bool]) -> Callable[[Message], Verdict]:
    return lambda row: None if row.get(name) is None else holds(row[name])


def _and(left: Verdict, right: Verdict) -> Verdict:
    return False if False in (left, right) else None if None in (left, right) else True


def _or(left: Verdict, right: Verdict) -> Verdict:
    return True if True in (left, right) else None if None in (left, right) else False


def _not(verdict: Verdict) -> Verdict:
    return None if verdict is None else not verdict
