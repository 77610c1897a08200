"""Random filters over random segments: a verdict never contradicts the rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import count, seed

from merlot.query.pruning.blooms import ColumnBlooms, SegmentBloom
from merlot.query.pruning.evaluate import evaluate
from merlot.query.pruning.partitions import ColumnPartitions, SegmentPartitions, function_of
from merlot.query.pruning.ranges import ColumnRanges
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.query.pruning.verdicts import ALL, NONE
from merlot.segment.index import bloom
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.types import BOOLEAN, DOUBLE, LONG, STRING, SqlType
from merlot.values.types import TypeName

CASES = count("MERLOT_PRUNING_CASES", quick=400, every=2000, fuzz=100_000)
DEFAULT = {"t": 0, "m": "", "s": "", "l": 0}
TYPES = {"t": LONG, "m": STRING, "s": STRING, "l": SqlType(TypeName.LONG, is_array=True)}
WORDS = ["", "a", "ab", "abc", "b", "ba", "é", "z"]
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "equals": lambda value, other: value == other,
    "less_than": lambda value, other: value < other,
    "less_than_or_equal": lambda value, other: value <= other,
    "greater_than": lambda value, other: value > other,
    "greater_than_or_equal": lambda value, other: value >= other,
}
Row = dict[str, Any]


def _of(function: str, *args: Expr, type_: SqlType = LONG) -> Expr:
    return Call(function, args, type_)


def _first_of_month(days: int) -> int:
    return (date(1970, 1, 1) + timedelta(days=days)).replace(day=1).toordinal() - date(1970, 1, 1).toordinal()


T, THREE, MINUS = Column("t", LONG), Literal(3, LONG), Literal(-2, LONG)
FUNCTIONS: list[tuple[Expr, Callable[[int], Any]]] = [
    (_of("plus", T, THREE), lambda t: t + 3),
    (_of("plus", MINUS, T), lambda t: t - 2),
    (_of("minus", T, THREE), lambda t: t - 3),
    (_of("minus", THREE, T), lambda t: 3 - t),
    (_of("minus", T, _of("mod", T, THREE)), lambda t: t - int(math.fmod(t, 3))),
    (_of("minus", T, _of("mod", T, MINUS)), lambda t: t - int(math.fmod(t, -2))),
    (_of("minus", T, _of("mod", _of("plus", T, THREE), THREE)), lambda t: t - int(math.fmod(t + 3, 3))),
    (_of("times", THREE, _of("minus", T, THREE)), lambda t: 3 * (t - 3)),
    (_of("times", T, MINUS), lambda t: t * -2),
    (_of("times", T, T), lambda t: t * t),
    (_of("divide", T, THREE, type_=DOUBLE), lambda t: t / 3),
    (_of("divide", T, MINUS, type_=DOUBLE), lambda t: t / -2),
    (_of("negate", T), lambda t: -t),
    (_of("abs", _of("minus", T, THREE)), lambda t: abs(t - 3)),
    (_of("mod", T, THREE), lambda t: int(math.fmod(t, 3))),
    (_of("cast", T, type_=DOUBLE), float),
    (
        _of(
            "datetrunc",
            *(Literal("MONTH", STRING), _of("times", T, THREE)),
            *(Literal(word, STRING) for word in ("DAYS", "UTC", "DAYS")),
        ),
        lambda t: _first_of_month(3 * t),
    ),
]
"""Of the number `t`: some rise with it, some do not."""
VALUE_OF = dict(FUNCTIONS)


@dataclass
class Case:
    rng: random.Random
    nulls_matter: bool

    def rows(self) -> list[Row]:
        """Values near each other, so that segments of one value occur; None is null."""
        centre, spread = self.rng.randrange(12), self.rng.choice([0, 1, 3])
        null_share = self.rng.choice([0.0, 0.0, 0.3, 1.0])
        words = self.rng.sample(WORDS, self.rng.choice([1, 2, 4]))
        return [self._row(centre, spread, words, null_share) for _ in range(self.rng.choice([0, 1, 2, 6]))]

    def _row(self, centre: int, spread: int, words: Sequence[str], null_share: float) -> Row:
        def number() -> int:
            return centre + self.rng.randint(-spread, spread)

        row: Row = {
            "t": number(),
            "m": str(number()),
            "s": self.rng.choice(words),
            "l": [number() for _ in range(self.rng.choice([0, 1, 2]))],
        }
        for name in ("t", "m", "s"):
            if self.rng.random() < null_share:
                row[name] = None
        return row

    def filter(self, depth: int = 0) -> Expr:
        if depth < 3 and self.rng.random() < 0.55:
            kind = self.rng.choice(["and", "or", "not"])
            count = 1 if kind == "not" else self.rng.choice([2, 3])
            return Call(kind, tuple(self.filter(depth + 1) for _ in range(count)), BOOLEAN)
        return self._leaf()

    def _leaf(self) -> Expr:
        name = self.rng.choice("tttmmsl")
        column = Column(name, TYPES[name])
        kind = self.rng.choice([*COMPARE, "not_equals", "between", "in", "in", "not_in", "is_null", "like", "opaque"])
        if kind == "is_null" and name != "l":
            return Call(self.rng.choice(["is_null", "is_not_null"]), (column,), BOOLEAN)
        if kind == "opaque" and name == "t":
            function = self.rng.choice(FUNCTIONS)[0]
            compare = self.rng.choice([*COMPARE, "not_equals"])
            return Call(compare, (function, Literal(self._value(name), LONG)), BOOLEAN)
        if kind == "like" and name == "s":
            return Call(
                "like", (column, Literal(self.rng.choice(["a%", "ab%", "%b", "_b", "é%", "a"]), STRING)), BOOLEAN
            )
        if kind == "between":
            low, high = sorted([self._value(name), self._value(name)])
            return Call("between", (column, Literal(low, LONG), Literal(high, LONG)), BOOLEAN)
        if kind in ("in", "not_in"):
            count = self.rng.choice([2, 3, 12])
            values = (Literal(self._value(name), LONG) for _ in range(count))
            return Call(kind, (column, *values), BOOLEAN)
        if kind not in COMPARE and kind != "not_equals":
            kind = "equals"
        return Call(kind, (column, Literal(self._value(name), LONG)), BOOLEAN)

    def _value(self, name: str) -> Any:
        if name == "s":
            return self.rng.choice(WORDS)
        number = self.rng.randrange(-2, 15)
        return str(number) if name == "m" else number

    def passes(self, expr: Expr, row: Row) -> bool | None:
        """What SQL says of a row; None is NULL."""
        assert isinstance(expr, Call)
        match expr.function:
            case "and" | "or":
                verdicts = [self.passes(arg, row) for arg in expr.args]
                decides = expr.function == "or"
                return decides if decides in verdicts else (None if None in verdicts else not decides)
            case "not":
                verdict = self.passes(expr.args[0], row)
                return None if verdict is None else not verdict
        subject = expr.args[0]
        column = T if isinstance(subject, Call) else subject
        assert isinstance(column, Column)
        value = row[column.name]
        if expr.function in ("is_null", "is_not_null"):
            return (value is None) == (expr.function == "is_null")
        if value is None:
            if self.nulls_matter:
                return None
            value = DEFAULT[column.name]
        constants = [arg.value for arg in expr.args[1:] if isinstance(arg, Literal)]
        if isinstance(subject, Call):
            return _holds(expr.function, VALUE_OF[subject](value), constants)
        if isinstance(value, list):
            if expr.function in ("not_equals", "not_in"):
                return not any(one in constants for one in value)
            return any(_holds(expr.function, one, constants) for one in value)
        return _holds(expr.function, value, constants)


def _holds(function: str, value: Any, constants: Sequence[Any]) -> bool:
    match function:
        case "between":
            return bool(constants[0] <= value <= constants[1])
        case "in" | "not_in":
            return (value in constants) == (function == "in")
        case "not_equals":
            return bool(value != constants[0])
        case "like":
            return _like(value, constants[0])
    return COMPARE[function](value, constants[0])


def _like(value: str, pattern: str) -> bool:
    if pattern.startswith("%"):
        return value.endswith(pattern[1:])
    if pattern.endswith("%"):
        return value.startswith(pattern[:-1])
    return len(value) == 2 and value[1] == "b" if pattern == "_b" else value == pattern


def _statistics(segments: Sequence[Sequence[Row]], rng: random.Random) -> SegmentStatistics:
    """As a builder would write them: bounds of stored values, nulls stored as defaults; here and there unknown."""
    ranges = {}
    for name in "tmsl":
        bounds = []
        for rows in segments:
            stored = _stored(rows, name)
            known = bool(stored) and rng.random() < 0.9
            bounds.append((min(stored), max(stored)) if known else None)
        ranges[name] = ColumnRanges.of(bounds)
    function = function_of("Murmur", 4, None)
    partitions = [
        SegmentPartitions(function, frozenset(function.partition_of(text) for text in _stored(rows, "m")))
        if rng.random() < 0.8
        else None
        for rows in segments
    ]
    return SegmentStatistics(
        num_segments=len(segments),
        is_empty=np.array([not rows for rows in segments]),
        ranges=ranges,
        partitions={"m": ColumnPartitions.of(TypeName.STRING, partitions)},
        blooms={name: _blooms(segments, name, rng) for name in "tmsl"},
        null_counts={
            name: np.array([sum(row[name] is None for row in rows) if rng.random() < 0.9 else -1 for rows in segments])
            for name in "tms"
        },
        num_docs=np.array([len(rows) for rows in segments]),
    )


def _blooms(segments: Sequence[Sequence[Row]], name: str, rng: random.Random) -> ColumnBlooms:
    type_ = TypeName.LONG if name in "tl" else TypeName.STRING
    known = []
    for rows in segments:
        stored = _stored(rows, name)
        values = np.array(stored, np.int64) if type_ is TypeName.LONG else pa.array(stored, pa.string())
        words = bloom.write(type_, values, rng.choice([0.5, 0.01]))[bloom.WORDS]
        known.append(SegmentBloom(type_, words) if rng.random() < 0.5 else None)
    return ColumnBlooms.of(known)


def _stored(rows: Sequence[Row], name: str) -> list[Any]:
    if name == "l":
        return [value for row in rows for value in row["l"]]
    return [DEFAULT[name] if row[name] is None else row[name] for row in rows]


@pytest.mark.timeout(600)
def test_no_verdict_contradicts_the_rows():
    first = seed()
    pruned = taken_whole = 0
    for number in range(CASES):
        rng = random.Random(f"{first}/{number}")
        case = Case(rng, nulls_matter=rng.random() < 0.5)
        segments = [case.rows() for _ in range(8)]
        where = case.filter()
        verdicts = evaluate(where, _statistics(segments, rng), null_handling=case.nulls_matter).tolist()
        for rows, verdict in zip(segments, verdicts, strict=True):
            kept = [case.passes(where, row) is True for row in rows]
            told = f"seed {first} case {number}: {where}\n{rows}"
            assert verdict != NONE or not any(kept), told
            assert verdict != ALL or all(kept), told
            pruned += verdict == NONE and bool(rows)
            taken_whole += verdict == ALL
    assert pruned > CASES
    assert taken_whole > CASES / 10
