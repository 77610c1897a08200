"""Random queries over a `wild` table, each as Merlot's SQL and as DuckDB's, from one random generator.

Sums are of columns whose doubles add up exactly; all else may be asked of the wild ones too. What may fail (`%` by
zero, an overflow) stands behind a guard, or in `fallible` queries: no oracle, but all layouts must fail or none.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.oracle.query_generator import Pair, RandomQuery
from tests.oracle.registry_expressions import KEYS, SHOWN, Expressions
from tests.oracle.registry_folds import Fold
from tests.oracle.registry_recipe import Recipe
from tests.oracle.wild_table import DECIMAL_PLACES, NAME, WildTable

from merlot.tree.literals import timestamp_text

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_SUMMED = ("j", "k", "m", "t")
_WHOLE = ("id", "i", "j", "k", "l", "m", "ms")
_KEYS = ("i", "j", "k", "l", "m", "f", "d", "n", "b", "ts", "s", "w", "x")
_ORDERED = ("i", "j", "k", "l", "m", "f", "d", "t", "n", "ts", "s")
_DIRECTIONS = ("", "ASC", "DESC", "ASC NULLS FIRST", "DESC NULLS LAST")
_ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe")
_NARROW: tuple[Pair, ...] = (
    ("CAST(j AS BOOLEAN)", "j <> 0"),
    ("CAST(j + k AS BOOLEAN)", "j::BIGINT + k <> 0"),
    ("j + k", "j::BIGINT + k"),
    ("j - k * 3", "j::BIGINT - k::BIGINT * 3"),
    ("j * j", "j::BIGINT * j"),
    ("-j", "-(j::BIGINT)"),
    ("ABS(k)", "abs(k::BIGINT)"),
    ("k % 4", "k::BIGINT % 4"),
    ("CAST(b AS INT) + j", "b::INT + j::BIGINT"),
    ("CAST(CAST(j AS STRING) AS LONG) - j", "j::BIGINT - j"),
)
_OTHERS: tuple[Pair, ...] = (
    ("upper(s)", "upper(s)"),
    ("lower(s)", "lower(s)"),
    ("length(s)", "length(s)"),
    ("concat(s, lower(w), '/')", "s || '/' || lower(w)"),
    ("substr(s, 0, 2)", "substr(s, 1, 2)"),
    ("t / k", "t / k"),
    ("t * 2.5 - j", "t * 2.5::DOUBLE - j"),
    ("CAST(w AS LONG)", "w::BIGINT"),
    ("CAST(q AS DOUBLE)", "q::DOUBLE"),
    ("CAST(q AS BIG_DECIMAL)", f"q::DECIMAL(38, {DECIMAL_PLACES})"),
    ("n + CAST(q AS BIG_DECIMAL)", f"n + q::DECIMAL(38, {DECIMAL_PLACES})"),
    ("-n", "-n"),
    ("CASE WHEN b THEN f ELSE d END", "CASE WHEN b THEN f::DOUBLE ELSE d END"),
    ("CASE WHEN j > 5 THEN s WHEN k = 0 THEN upper(w) ELSE 'ß' END",) * 2,
    ("CASE WHEN k = 0 THEN -1 ELSE m % k END", "CASE WHEN k = 0 THEN -1 ELSE m % k END"),
    ("f > d", "f::DOUBLE > d"),
    ("d = d", "d = d"),
    ("NOT b OR i < l", "NOT b OR i < l"),
    ("DATETRUNC('year', ts)", "epoch_ms(date_trunc('year', ts))"),
    ("DATETRUNC('week', ts, 'MILLISECONDS')", "epoch_ms(date_trunc('week', ts))"),
    ("DATETRUNC('hour', ms)", "ms // 3600000 * 3600000"),
    *(
        (
            f"DATETRUNC('{unit}', ms, 'MILLISECONDS', '{zone}')",
            (
                f"epoch_ms(timezone('{zone}', date_trunc('{unit}', "
                f"timezone('{zone}', timezone('UTC', make_timestamp(ms * 1000))))))"
            ),
        )
        for zone in _ZONES
        for unit in ("day", "month")
    ),
)
"""The zones' days have one midnight each, on which DuckDB and Merlot agree."""
_FALLIBLE = ("m % k = 0", "l - 1 > 0", "l * 3 < 5", "ABS(l) > 7", "-l > 2", "7 % (j - 5) = 1", "CAST(l AS INT) = 1")
_GUARDS: tuple[tuple[str, str, str], ...] = (
    ("k <> 0", "m % k >= 0", "TRY(m % k) >= 0"),
    ("j <> 5", "m % (j - 5) = 1", "TRY(m % (j::BIGINT - 5)) = 1"),
    ("l BETWEEN -1000 AND 1000", "l * 9007199254740993 > 5", "TRY(l * 9007199254740993) > 5"),
    ("l > -5000", "ABS(l) > 3", "TRY(abs(l)) > 3"),
    ("i >= 0", "CAST(i AS INT) - 9223372036854775807 < 0", "TRY(i::BIGINT - 9223372036854775807) < 0"),
)


class WildGenerator:
    """Queries without end over one table; the same seed gives the same ones."""

    def __init__(self, table: WildTable, generator: random.Random, *, nulled: bool = True, calls: float = 0.0) -> None:
        """`calls` is the share of calls of the registries' functions, for which the oracle needs the references."""
        self._random = generator
        self._calls = calls
        self.expressions = Expressions(generator, lambda: self.condition(0))
        self._samples = table.samples
        self._has_nulled = nulled
        self._nulls = False

    def query(self) -> RandomQuery:
        """The next query."""
        self._toss(0.4)
        kinds = (
            self._selection,
            self._aggregation,
            self._group_by,
            self._group_by,
            self._group_by_list,
            self._distinct,
        )
        kind = self._random.choice(kinds)
        ours, theirs, is_ordered = kind()
        return RandomQuery(self._option() + ours, theirs, self._nulls, is_ordered)

    def query_of(self, name: str, asked: Recipe | Fold) -> RandomQuery:
        """A query with a call of that function or aggregate in it."""
        self._toss(0.4)
        if isinstance(asked, Fold):
            keys = [self._key()] if self._random.random() < 0.5 else []
            tails = (" GROUP BY " + keys[0][0] + " LIMIT 5000000", " GROUP BY 1") if keys else ("", "")
            ours, theirs = self._assemble([*keys, self.expressions.fold(name, asked)], *tails)
            return RandomQuery(self._option() + ours, theirs, self._nulls, False)
        if asked.needs_nulls:
            self._nulls = self.expressions.nulls = True
        call = self.expressions.call(name, asked)
        if asked.gives in KEYS and self._random.random() < 0.3:
            ours, theirs = self._assemble(
                [call, ("COUNT(*)",) * 2, self._aggregate()], f" GROUP BY {call[0]} LIMIT 5000000", " GROUP BY 1"
            )
            return RandomQuery(self._option() + ours, theirs, self._nulls, False)
        tail = f" ORDER BY id LIMIT {self._random.choice((1, 40, 5000))}"
        ours, theirs = self._assemble([("id", "id"), call], tail, tail)
        return RandomQuery(self._option() + ours, theirs, self._nulls, True)

    def _toss(self, share: float) -> None:
        self._nulls = self.expressions.nulls = self._random.random() < share

    def fallible(self) -> str:
        """A query that may have no answer."""
        self._toss(0.5)
        parts = [self._random.choice(_FALLIBLE), *(self.condition(1)[0] for _ in range(self._random.randrange(3)))]
        self._random.shuffle(parts)
        word = self._random.choice((" AND ", " OR "))
        condition = f"({word.join(f'({part})' for part in parts)})"
        if self._random.random() < 0.3:
            condition = f"NOT {condition}"
        form = self._random.choice(
            (
                "SELECT COUNT(*), SUM(m) FROM {0} WHERE {1}",
                "SELECT COUNT(*) FILTER (WHERE {1}), MAX(k) FROM {0}",
                "SELECT j, SUM(CASE WHEN {1} THEN m ELSE k END) FROM {0} GROUP BY j ORDER BY j LIMIT 1000",
                "SELECT {1}, COUNT(*) FROM {0} GROUP BY {1} LIMIT 1000",
            )
        )
        return self._option() + form.format(NAME, condition)

    def thirds(self) -> tuple[str, list[str]]:
        """A query of the whole table, and ones of the rows for which a condition is true, false and unknown."""
        self._toss(0.6)
        condition = self.condition(3)[0]
        aggregates = "COUNT(*), SUMLONG(m), SUM(t), MINLONG(k), MAXLONG(k), MIN(j), MAX(j)"
        select = f"{self._option()}SELECT {aggregates} FROM {NAME}"
        unknown = f"CASE WHEN {condition} THEN false WHEN NOT ({condition}) THEN false ELSE true END"
        return select, [f"{select} WHERE {part}" for part in (condition, f"NOT ({condition})", unknown)]

    def groups(self) -> tuple[str, str]:
        """A query of all rows that pass a filter, and the same by groups."""
        self._toss(0.4)
        keys = ", ".join(dict.fromkeys(self._key()[0] for _ in range(self._random.randrange(1, 4))))
        aggregates = "COUNT(*), SUMLONG(m), SUM(t), MINLONG(k), MAXLONG(k), MIN(j), MAX(j)"
        tail = f"FROM {NAME} WHERE {self.condition()[0]}"
        option = self._option()
        return (
            f"{option}SELECT {aggregates} {tail}",
            f"{option}SELECT {aggregates} {tail} GROUP BY {keys} LIMIT 5000000",
        )

    def condition(self, depth: int = 2) -> Pair:
        """A predicate in both dialects."""
        if depth > 0 and self._random.random() < 0.55:
            word = self._random.choice(("AND", "AND", "OR", "OR", "NOT"))
            if word == "NOT":
                ours, theirs = self.condition(depth - 1)
                return f"NOT ({ours})", f"NOT ({theirs})"
            parts = [self.condition(depth - 1) for _ in range(self._random.randrange(2, 4))]
            ours, theirs = (f"({f' {word} '.join(part[side] for part in parts)})" for side in (0, 1))
            return ours, theirs
        if depth > 0 and self._is_call():
            return self._random.choice((self._called, lambda: self.expressions.of(("b",))))()
        kinds = (self._whole, self._whole, self._real, self._real, self._decimal, self._instant, self._text, self._text)
        return self._random.choice((*kinds, self._list, self._list, self._computed, self._guarded, self._other))()

    # Queries

    def _option(self) -> str:
        return "SET enableNullHandling=true; " if self._nulls else ""

    def _selection(self) -> tuple[str, str, bool]:
        names = self._random.sample((*_KEYS, "q", "t", "ms", "li", "ls", "ld"), 3)
        computed = self.expressions.of(SHOWN) if self._is_call() else self._random.choice((*_NARROW, *_OTHERS))
        columns = [*map(_shown, names), computed, ("id", "id")]
        orders = [f"{key} {self._random.choice(_DIRECTIONS)}" for key in self._random.sample(_ORDERED, 2)]
        order = ", ".join([*orders[: self._random.randrange(3)], "id"])
        tail = f" ORDER BY {order} LIMIT {self._random.choice((1, 7, 40, 500))} OFFSET {self._random.choice((0, 0, 3))}"
        return *self._assemble(columns, tail, tail), True

    def _distinct(self) -> tuple[str, str, bool]:
        keys = [self._key() for _ in range(self._random.randrange(1, 4))]
        keys[0] = ("DISTINCT " + keys[0][0], "DISTINCT " + keys[0][1])
        return *self._assemble(keys, " LIMIT 5000000", ""), False

    def _aggregation(self) -> tuple[str, str, bool]:
        items = [self._aggregate() for _ in range(self._random.randrange(1, 5))]
        return *self._assemble(items, "", ""), False

    def _group_by(self) -> tuple[str, str, bool]:
        keys = list(dict.fromkeys(self._key() for _ in range(self._random.randrange(1, 4))))
        items = [self._aggregate() for _ in range(self._random.randrange(1, 4))]
        places = ", ".join(str(place + 1) for place in range(len(keys)))
        ours = f" GROUP BY {', '.join(key[0] for key in keys)} LIMIT 5000000"
        return *self._assemble([*keys, *items], ours, f" GROUP BY {places}"), False

    def _group_by_list(self) -> tuple[str, str, bool]:
        """Every element of a list is a row of its own, and a null is one."""
        name, key, where = self._random.choice(("li", "ls", "ld")), self._key(), self.condition()
        ours = (
            f"SELECT {name}, {key[0]}, COUNT(*), SUM(m), MAX(k) FROM {NAME} WHERE {where[0]} GROUP BY {name}, {key[0]}"
        )
        exploded = f"SELECT *, unnest(COALESCE({name}, [NULL])) AS element FROM {NAME} WHERE {where[1]}"
        theirs = f"SELECT element, {key[1]}, COUNT(*), SUM(m), MAX(k) FROM ({exploded}) AS {NAME} GROUP BY 1, 2"
        return f"{ours} LIMIT 5000000", theirs, False

    def _assemble(self, columns: Sequence[Pair], our_tail: str, their_tail: str) -> Pair:
        where = self.condition() if self._random.random() < 0.8 else None
        ours, theirs = (", ".join(column[side] for column in columns) for side in (0, 1))
        our_where, their_where = (f" WHERE {where[0]}", f" WHERE {where[1]}") if where else ("", "")
        return (
            f"SELECT {ours} FROM {NAME}{our_where}{our_tail}",
            f"SELECT {theirs} FROM {NAME}{their_where}{their_tail}",
        )

    def _key(self) -> Pair:
        if self._is_call():
            return self.expressions.of(KEYS)
        pick = self._random.random()
        if pick < 0.5:
            return _shown(self._random.choice(_KEYS))
        return self._random.choice(_NARROW if pick < 0.8 else _OTHERS)

    def _is_call(self) -> bool:
        return self._calls > 0 and self._random.random() < self._calls

    def _aggregate(self) -> Pair:
        if self._is_call():
            return self.expressions.aggregate()
        function = self._random.choice(("COUNT(*)", "COUNT", "DISTINCTCOUNT", "SUM", "MIN", "MAX", "AVG", "LONG"))
        ours, theirs, empty = self._unfiltered(function)
        if self._random.random() < 0.25:
            condition = self.condition(0)
            ours, theirs = f"{ours} FILTER (WHERE {condition[0]})", f"{theirs} FILTER (WHERE {condition[1]})"
        return ours, theirs if self._nulls or not empty else f"COALESCE({theirs}, {empty})"

    def _unfiltered(self, function: str) -> tuple[str, str, str]:
        """In both dialects, and what it is of no rows with null handling off."""
        if function == "COUNT(*)":
            return function, function, ""
        if function == "COUNT":
            name = self._random.choice(_KEYS)
            return f"COUNT({name})", f"COUNT({name})", ""
        if function == "DISTINCTCOUNT":
            ours, theirs = self._key()
            return f"DISTINCTCOUNT({ours})", f"COUNT(DISTINCT {theirs})", ""
        if function == "LONG":
            function = self._random.choice(("SUM", "MIN", "MAX"))
            name = self._random.choice(("j", "k", "m") if function == "SUM" else _WHOLE)
            empty = {"SUM": "0", "MIN": "9223372036854775807", "MAX": "-9223372036854775808"}[function]
            return f"{function}LONG({name})", f"{function}({name})", empty
        names = _SUMMED if function in ("SUM", "AVG") else (*_WHOLE, "f", "d", "t")
        ours, theirs = self._measure(names)
        empty = {"SUM": "0", "MIN": "'inf'::DOUBLE", "MAX": "'-inf'::DOUBLE", "AVG": "'-inf'::DOUBLE"}[function]
        return f"{function}({ours})", f"{function}({theirs})", empty

    def _measure(self, names: Sequence[str]) -> Pair:
        pick = self._random.randrange(6)
        if pick == 0:
            return self._random.choice(_NARROW[2:])
        if pick == 1:
            return "CASE WHEN b THEN m ELSE k END", "CASE WHEN b THEN m ELSE k END"
        name = self._random.choice(names)
        return name, name

    # Predicates

    def _over(self, column: Pair, literal: Callable[[], Pair]) -> Pair:
        """A comparison of an expression with one, two or several constants."""
        pick = self._random.randrange(4)
        if pick == 0:
            values = [literal() for _ in range(self._random.randrange(1, 6))]
            word = self._random.choice(("IN", "NOT IN"))
            return _both(lambda side: f"{column[side]} {word} ({', '.join(value[side] for value in values)})")
        low, high = literal(), literal()
        if pick == 1:
            word = self._random.choice(("BETWEEN", "NOT BETWEEN"))
            return _both(lambda side: f"{column[side]} {word} {low[side]} AND {high[side]}")
        comparison = self._random.choice(_COMPARISONS)
        if self._random.random() < 0.2:
            return _both(lambda side: f"{low[side]} {comparison} {column[side]}")
        return _both(lambda side: f"{column[side]} {comparison} {low[side]}")

    def _sample(self, name: str) -> Any:
        values = self._samples[name]
        return self._random.choice(values) if values else 0

    def _whole(self) -> Pair:
        name = self._random.choice(_WHOLE)
        if self._random.random() < 0.1:
            other = self._random.choice(_WHOLE)
            text = f"{name} {self._random.choice(_COMPARISONS)} {other}"
            return text, text
        defaults = (-(2**31), -(2**63), 0)

        def literal() -> Pair:
            value = self._random.choice(defaults) if self._random.random() < 0.1 else self._sample(name)
            value = min(max(value + self._random.choice((0, 0, 0, 1, -1)), -(2**63)), 2**63 - 1)
            return str(value), f"'{value}'::BIGINT"

        return self._over((name, name), literal)

    def _real(self) -> Pair:
        name = self._random.choice(("f", "d", "t", "d"))
        if self._random.random() < 0.15:
            other = self._random.choice(("f", "d", "t"))
            comparison = self._random.choice(_COMPARISONS)
            return f"{name} {comparison} {other}", f"{name}::DOUBLE {comparison} {other}::DOUBLE"
        return self._over((name, f"{name}::DOUBLE"), lambda: _real_literal(self._sample(name)))

    def _decimal(self) -> Pair:
        def literal() -> Pair:
            text = str(self._sample(self._random.choice(("n", "q"))))
            return f"CAST('{text}' AS BIG_DECIMAL)", f"'{text}'::DECIMAL(38, {DECIMAL_PLACES})"

        return self._over(("n", "n"), literal)

    def _instant(self) -> Pair:
        def literal() -> Pair:
            millis = self._sample("ts") + self._random.choice((0, 0, 1, -86_400_000))
            return f"'{timestamp_text(millis)}'", f"make_timestamp({millis * 1000})"

        return self._over(("ts", "ts"), literal)

    def _text(self) -> Pair:
        name = self._random.choice(("s", "s", "w", "q"))
        pick = self._random.random()
        if pick < 0.3:
            part = str(self._sample(name))[: self._random.randrange(1, 4)].replace("%", "").replace("_", "")
            pattern = self._random.choice((f"{part}%", f"%{part}", f"%{part}%", f"_{part}%")).replace("'", "''")
            text = f"{name} {self._random.choice(('LIKE', 'NOT LIKE'))} '{pattern}'"
            return text, text
        column = name if pick < 0.8 else f"{self._random.choice(('upper', 'lower'))}({name})"

        def literal() -> Pair:
            text = _quoted(str(self._sample(name)))
            text = text if column == name else f"{column.partition('(')[0]}({text})"
            return text, text

        return self._over((column, column), literal)

    def _list(self) -> Pair:
        """A positive predicate holds if it does for any element; a negative one is its complement."""
        name = self._random.choice(("li", "ls", "ld"))
        rows = self._samples[name]
        if not rows:
            return "b", "b"
        elements = [self._random.choice(self._random.choice(rows)) for _ in range(2)]
        literals = [_list_literal(element) for element in elements]
        (first, their_first), (second, their_second) = literals
        pick = self._random.randrange(5)
        if pick == 0:
            return f"{name} <> {first}", f"NOT list_contains({name}, {their_first})"
        if pick == 1:
            return f"{name} NOT IN ({first}, {second})", f"NOT list_has_any({name}, [{their_first}, {their_second}])"
        ours, theirs = self._random.choice(
            (
                (f"= {first}", f"= {their_first}"),
                (f"> {first}", f"> {their_first}"),
                (f"<= {first}", f"<= {their_first}"),
                (f"BETWEEN {first} AND {second}", f"BETWEEN {their_first} AND {their_second}"),
                (f"IN ({first}, {second})", f"IN ({their_first}, {their_second})"),
            )
        )
        return f"{name} {ours}", f"len(list_filter({name}, lambda x: x {theirs})) > 0"

    def _computed(self) -> Pair:
        pick = self._random.randrange(4)
        if pick == 0:
            ours, theirs = self._random.choice(_NARROW[2:])
            return self._over((ours, theirs), lambda: (str(value := self._random.randrange(-10, 1010)), str(value)))
        if pick == 1:
            return self._over(("CAST(w AS LONG)", "w::BIGINT"), lambda: (text := str(self._sample("w")), text))
        if pick == 2:
            ours, theirs = self._random.choice(_OTHERS[5:7])
            return self._over(
                (ours, theirs), lambda: _real_literal(self._random.choice((0.0, 1.5, math.inf, math.nan)))
            )
        truncated = self._random.choice(
            [pair for pair in _OTHERS if pair[0].startswith("DATETRUNC") and "ms" in pair[0]]
        )
        return self._over(truncated, lambda: (text := str(self._sample("ms")), text))

    def _called(self) -> Pair:
        """What a function gives, compared."""
        kind = self._random.choice(("w", "s", "m"))
        names = {"w": "j", "s": "s", "m": "ms"}

        def literal() -> Pair:
            value = str(self._sample(names[kind]))
            text = _quoted(value) if kind == "s" else value
            return text, text

        return self._over(self.expressions.of((kind,)), literal)

    def _guarded(self) -> Pair:
        guard, ours, theirs = self._random.choice(_GUARDS)
        parts = [(guard, guard), (ours, theirs)]
        self._random.shuffle(parts)
        if self._random.random() < 0.5:
            return _both(lambda side: f"({parts[0][side]} AND {parts[1][side]})")
        return _both(lambda side: f"(NOT ({guard}) OR {(ours, theirs)[side]})")

    def _other(self) -> Pair:
        pick = self._random.randrange(3)
        if pick == 0 or not self._has_nulled:
            return self._random.choice((("b", "b"), ("NOT b", "NOT b"), ("length(s) > 2", "length(s) > 2")))
        if pick == 1:
            value = self._sample("x")
            text = value.hex() if isinstance(value, bytes) else ""
            comparison = self._random.choice(_COMPARISONS)
            return f"x {comparison} X'{text}'", f"x {comparison} from_hex('{text}')"
        name, word = self._random.choice(("i", "l", "d", "s", "ts", "n", "li")), self._random.choice(("", "NOT "))
        return f"{name} IS {word}NULL", f"(SELECT o.{name} FROM nulled.{NAME} o WHERE o.id = {NAME}.id) IS {word}NULL"


def _both(text: Callable[[int], str]) -> Pair:
    return text(0), text(1)


def _shown(name: str) -> Pair:
    """DuckDB's driver has no instants past 9999."""
    return (name, "epoch_ms(ts)") if name == "ts" else (name, name)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _real_literal(value: float) -> Pair:
    if math.isfinite(value):
        return repr(value), f"'{value!r}'::DOUBLE"
    name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"CAST('{name}' AS DOUBLE)", f"'{name}'::DOUBLE"


def _list_literal(element: Any) -> Pair:
    if isinstance(element, float):
        return _real_literal(element)
    text = _quoted(element) if isinstance(element, str) else str(element)
    return text, text
