"""Random queries over the table `things`, each as Merlot's SQL and as DuckDB's, from one random generator.

Constants come from the data, or lie just beside it. Answers are determined: what is ordered is ordered completely, and
only what is ordered is cut by LIMIT.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Pair = tuple[str, str]
"""The same expression for Merlot and for DuckDB."""


@dataclass(frozen=True)
class RandomQuery:
    """One question in two dialects."""

    sql: str
    duckdb_sql: str
    nulls: bool
    is_ordered: bool


_INTEGERS = ("id", "small", "signed", "big", "wide", "sold", "maybe", "day", "created")
_REALS = ("ratio", "price", "revenue")
_TEXTS = ("color", "name", "note")
_KEYS = ("small", "signed", "color", "active", "maybe", "day", "ratio", "note", "happened", "exact", "sold", "digest")
_SELECTED = (*_INTEGERS, *_REALS, *_TEXTS, "active", "happened", "exact", "digest", "tags", "scores")
_LISTS = ("tags", "scores", "counts", "weights")
_SAFE_INTEGERS = ("small", "signed", "sold", "maybe", "id")
_HAVINGS = ("COUNT(*) > 3", "COUNT(*) = 1", "MAX(price) > 900", "AVG(sold) < 50")
_DIRECTIONS = ("", "ASC", "DESC", "ASC NULLS FIRST", "DESC NULLS LAST")
_EXPRESSIONS: tuple[Pair, ...] = (
    ("sold * 3 - small", "sold * 3 - small"),
    ("price / 4 + ratio", "price / 4 + ratio"),
    ("upper(color)", "upper(color)"),
    ("concat(lower(color), name, '/')", "lower(color) || '/' || name"),
    ("substr(name, 1, 4)", "substr(name, 2, 3)"),
    ("length(note)", "length(note)"),
    ("abs(sold - 50)", "abs(sold - 50)"),
    ("-small", "-small"),
    ("sold % 7", "sold % 7"),
    ("small > 10 AND active", "small > 10 AND active"),
    ("NOT active OR signed > 0", "NOT active OR signed > 0"),
    ("color IN ('red', 'blue')", "color IN ('red', 'blue')"),
    ("tags = 'a'", "list_contains(tags, 'a')"),
    ("CAST(small AS STRING)", "small::VARCHAR"),
    ("CAST(price AS LONG)", "trunc(price)::BIGINT"),
    ("CASE WHEN signed > 0 THEN price WHEN maybe = 3 THEN 1 ELSE small END",) * 2,
    ("DATETRUNC('week', happened)", "epoch_ms(date_trunc('week', happened))"),
    ("DATETRUNC('hour', created)", "created // 3600000 * 3600000"),
)
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


class QueryGenerator:
    """Queries without end; the same seed gives the same ones."""

    def __init__(self, rows: pa.Table, seed: int) -> None:
        self._random = random.Random(seed)
        self._rows = rows
        self._values: dict[str, list[Any]] = {}
        self._nulls = False

    def query(self) -> RandomQuery:
        """The next query."""
        self._nulls = self._random.random() < 0.35
        kinds = (self._selection, self._selection, self._aggregation, self._group_by, self._group_by, self._distinct)
        kind = self._random.choice((*kinds, self._group_by_list))
        ours, theirs, is_ordered = kind()
        option = "SET enableNullHandling=true; " if self._nulls else ""
        return RandomQuery(option + ours, theirs, self._nulls, is_ordered)

    def condition(self, depth: int = 2) -> Pair:
        """A predicate in both dialects."""
        if depth > 0 and self._random.random() < 0.55:
            word = self._random.choice(("AND", "AND", "OR", "OR", "NOT"))
            if word == "NOT":
                ours, theirs = self.condition(depth - 1)
                return f"NOT ({ours})", f"NOT ({theirs})"
            parts = [self.condition(depth - 1) for _ in range(self._random.randrange(2, 4))]
            return tuple(f"({f' {word} '.join(part[side] for part in parts)})" for side in (0, 1))  # type: ignore[return-value]
        return self._random.choice(
            (self._integer, self._integer, self._real, self._text, self._text, self._list, self._list, self._other)
        )()

    def _selection(self) -> tuple[str, str, bool]:
        names = [(name, name) for name in self._random.sample(_SELECTED, 3)]
        columns = [*names, self._random.choice(_EXPRESSIONS), ("id", "id")]
        orders = [f"{key} {self._random.choice(_DIRECTIONS)}" for key in self._random.sample(_KEYS, 2)]
        order = ", ".join([*orders[: self._random.randrange(3)], "id"])
        limit, offset = self._random.choice((0, 1, 7, 40, 5000)), self._random.choice((0, 0, 3))
        tail = f" ORDER BY {order} LIMIT {limit} OFFSET {offset}"
        ours, theirs = (", ".join(column[side] for column in columns) for side in (0, 1))
        return *self._assemble(ours, theirs, tail, tail), True

    def _distinct(self) -> tuple[str, str, bool]:
        keys = ", ".join(self._random.sample(_KEYS, self._random.randrange(1, 3)))
        tail = f" ORDER BY {keys} LIMIT {self._random.choice((1, 5, 30, 10000))}"
        return *self._assemble(f"DISTINCT {keys}", f"DISTINCT {keys}", tail, tail), True

    def _aggregation(self) -> tuple[str, str, bool]:
        items = [self._aggregate() for _ in range(self._random.randrange(1, 5))]
        ours, theirs = (", ".join(item[side] for item in items) for side in (0, 1))
        return *self._assemble(ours, theirs, "", ""), False

    def _group_by(self) -> tuple[str, str, bool]:
        keys = [self._key() for _ in range(self._random.randrange(1, 4))]
        keys = list({key[0]: key for key in keys}.values())
        items = [self._aggregate() for _ in range(self._random.randrange(0, 4))] or [("COUNT(*)", "COUNT(*)")]
        having = self._having()
        is_ordered = self._random.random() < 0.6
        limit = 20 if is_ordered else 100_000
        first_order = self._random.choice((("", ""), ("COUNT(*) DESC, ",) * 2, ("MAX(sold), ",) * 2))
        texts = []
        for side in (0, 1):
            group = ", ".join(key[side] for key in keys)
            order = f" ORDER BY {first_order[side]}{group}" if is_ordered else ""
            tail = f" GROUP BY {group}{having[side]}{order} LIMIT {limit}"
            texts.append((", ".join([group, *(item[side] for item in items)]), tail))
        (ours, our_tail), (theirs, their_tail) = texts
        return *self._assemble(ours, theirs, our_tail, their_tail), is_ordered

    def _group_by_list(self) -> tuple[str, str, bool]:
        """Every element of a list is a row of its own."""
        name, key = self._random.choice(("tags", "scores", "counts")), self._random.choice(("color", "small", "active"))
        where = self.condition()
        aggregates = "COUNT(*), SUM(sold), MAX(price)"
        ours = f"SELECT {name}, {key}, {aggregates} FROM things WHERE {where[0]} GROUP BY {name}, {key} LIMIT 100000"
        exploded = f"SELECT *, unnest({name}) AS element FROM things WHERE {where[1]}"
        return ours, f"SELECT element, {key}, {aggregates} FROM ({exploded}) GROUP BY element, {key}", False

    def _assemble(self, ours: str, theirs: str, our_tail: str, their_tail: str) -> Pair:
        where = self.condition() if self._random.random() < 0.8 else None
        our_where, their_where = (f" WHERE {where[0]}", f" WHERE {where[1]}") if where else ("", "")
        return (
            f"SELECT {ours} FROM things{our_where}{our_tail}",
            f"SELECT {theirs} FROM things{their_where}{their_tail}",
        )

    def _key(self) -> Pair:
        pick = self._random.randrange(8)
        if pick == 0:
            return "DATETRUNC('month', happened)", "epoch_ms(date_trunc('month', happened))"
        if pick == 1:
            return "small % 3", "small % 3"
        if pick == 2:
            return "CASE WHEN sold > 50 THEN 'high' ELSE color END", "CASE WHEN sold > 50 THEN 'high' ELSE color END"
        name = self._random.choice(_KEYS)
        return name, name

    def _having(self) -> Pair:
        if self._random.random() < 0.7:
            return "", ""
        text = " HAVING " + self._random.choice(_HAVINGS)
        return text, text

    def _aggregate(self) -> Pair:
        pick = self._random.randrange(7)
        if pick == 0:
            return "COUNT(*)", "COUNT(*)"
        if pick == 1:
            name = self._random.choice((*_KEYS, "name", "big", "price"))
            return f"DISTINCTCOUNT({name})", f"COUNT(DISTINCT {name})"
        if pick == 2:
            name = self._random.choice(_KEYS)
            return f"COUNT({name})", f"COUNT({name})"
        function = self._random.choice(("SUM", "MIN", "MAX", "AVG"))
        ours, theirs = self._measure()
        filtered = self.condition(0) if self._random.random() < 0.25 else None
        suffix = [f" FILTER (WHERE {filtered[side]})" if filtered else "" for side in (0, 1)]
        empty = {"SUM": "0", "MIN": "'inf'::DOUBLE", "MAX": "'-inf'::DOUBLE", "AVG": "'-inf'::DOUBLE"}[function]
        their_text = f"{function}({theirs}){suffix[1]}"
        return f"{function}({ours}){suffix[0]}", their_text if self._nulls else f"COALESCE({their_text}, {empty})"

    def _measure(self) -> Pair:
        pick = self._random.randrange(5)
        if pick == 0:
            return self._arithmetic()
        if pick == 1:
            return "CASE WHEN active THEN sold ELSE small END", "CASE WHEN active THEN sold ELSE small END"
        name = self._random.choice((*_INTEGERS, *_REALS, "exact"))
        return name, name

    def _arithmetic(self) -> Pair:
        first, second = self._random.choices(_SAFE_INTEGERS, k=2)
        operator = self._random.choice("+-*")
        number = self._random.randrange(1, 9)
        return f"{first} {operator} {second} + {number}", f"{first}::BIGINT {operator} {second}::BIGINT + {number}"

    def _integer(self) -> Pair:
        if self._random.random() < 0.1:
            ours, theirs = self._arithmetic()
            bound = self._random.randrange(-500, 2000)
            return f"{ours} > {bound}", f"{theirs} > {bound}"
        name = self._random.choice(_INTEGERS)
        if self._random.random() < 0.08:
            other = self._random.choice(_INTEGERS)
            text = f"{name} {self._random.choice(_COMPARISONS)} {other}"
            return text, text
        # DuckDB would compare a large integer with a fraction as doubles.
        offsets = (0, 0, 0, 1, -1) if name in ("big", "wide") else (0, 0, 0, 1, -1, 0.5)
        return self._over(name, lambda: self._value(name) + self._random.choice(offsets))

    def _real(self) -> Pair:
        name = self._random.choice(_REALS)
        return self._over(name, lambda: self._value(name))

    def _text(self) -> Pair:
        name = self._random.choice(_TEXTS)
        if self._random.random() < 0.3:
            value = str(self._value(name))
            part = value[: self._random.randrange(1, 4)].replace("\\", "").replace("%", "").replace("_", "")
            pattern = self._random.choice((f"{part}%", f"%{part}", f"%{part}%", f"_{part}%")).replace("'", "''")
            text = f"{name} {self._random.choice(('LIKE', 'NOT LIKE'))} '{pattern}'"
            return text, text
        return self._over(name, lambda: self._value(name))

    def _over(self, name: str, value: Any) -> Pair:
        """A comparison of a column with one, two or several constants."""
        pick = self._random.randrange(4)
        if pick == 0:
            values = ", ".join(_literal(value()) for _ in range(self._random.randrange(1, 6)))
            text = f"{name} {self._random.choice(('IN', 'NOT IN'))} ({values})"
        elif pick == 1:
            text = (
                f"{name} {self._random.choice(('BETWEEN', 'NOT BETWEEN'))} {_literal(value())} AND {_literal(value())}"
            )
        else:
            text = f"{name} {self._random.choice(_COMPARISONS)} {_literal(value())}"
        return text, text

    def _list(self) -> Pair:
        """A positive predicate holds if it does for any element; a negative one is its complement."""
        name = self._random.choice(_LISTS)
        values = [self._random.choice(self._value(name)) for _ in range(2)]
        first, second = (_literal(value) for value in values)
        element = self._random.choice(
            (f"= {first}", f"> {first}", f"<= {first}", f"BETWEEN {first} AND {second}", f"IN ({first}, {second})")
        )
        test = f"len(list_filter({name}, lambda x: x {element})) > 0"
        pick = self._random.randrange(4)
        if pick == 0:
            return f"{name} <> {first}", f"NOT list_contains({name}, {first})"
        if pick == 1:
            return f"{name} NOT IN ({first}, {second})", f"NOT list_has_any({name}, [{first}, {second}])"
        return f"{name} {element}", test

    def _other(self) -> Pair:
        pick = self._random.randrange(5)
        if pick == 0:
            moment = self._value("happened")
            text = f"happened {self._random.choice(_COMPARISONS)} '{moment:%Y-%m-%d %H:%M:%S.%f}'"
            return text, text
        if pick == 1:
            return "active", "active"
        if pick == 2:
            name = self._random.choice(("signed", "note", "maybe", "happened"))
            negated = self._random.choice(("IS NULL", "IS NOT NULL"))
            return f"{name} {negated}", f"(SELECT n.{name} FROM nulled.things n WHERE n.id = things.id) {negated}"
        if pick == 3:
            bound = self._random.randrange(-(10**8), 10**8) / 100
            text = f"exact {self._random.choice(_COMPARISONS)} {bound}"
            return text, text
        return "length(color) > 3", "length(color) > 3"

    def _value(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = [value for value in self._rows.column(name).to_pylist() if value is not None]
        return self._random.choice(self._values[name])


def _literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
