"""Random queries over the whole grammar above leaves, one level within another, in words that Merlot and DuckDB read
alike: joins of all kinds, groups and grouping sets, windows, set operations, WITH, subqueries as values and conditions,
DISTINCT, FILTER, QUALIFY, and ORDER BY with LIMIT and OFFSET at any level.

Rows that a LIMIT keeps are always the same, up to equal rows: the order before it is that of all columns. Tables are
small, so that no join grows large.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from tests.sql.slt_data import Dataset

from merlot.spec.schema import TableSchema

Columns = dict[str, str]
"""Names of a relation's columns and their kinds: N for whole numbers, S for texts."""
_TABLES: Final[dict[str, Columns]] = {
    "big": {"id": "N", "a": "N", "b": "N", "s": "S"},
    "tiny": {"id": "N", "a": "N", "s": "S"},
}
_ROWS: Final = {"big": 60, "tiny": 12}
_WORDS: Final = ("x", "y", "zz", "")
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_JOINS: Final = (
    "JOIN",
    "JOIN",
    "LEFT JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
)
_SETS: Final = ("UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
_FRAMES: Final = ("", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS UNBOUNDED PRECEDING")


def plan_tables(seed: int) -> list[Dataset]:
    """The tables of the queries, with nulls in all columns but `id`."""
    chosen = random.Random(seed)
    return [_dataset(name, columns, chosen) for name, columns in _TABLES.items()]


def _dataset(name: str, columns: Columns, chosen: random.Random) -> Dataset:
    types = {"id": "INT", "a": "INT", "b": "LONG", "s": "STRING"}
    fields = [{"name": column, "type": types[column]} for column in columns]
    for field in fields:
        if field["type"] != "STRING":
            field["role"] = "metric"  # 0 where null: the least whole number overflows sums
    number = _ROWS[name]
    values: dict[str, pa.Array] = {
        "id": pa.array(range(number), pa.int32()),
        "a": pa.array(chosen.choices((*range(8), None, None), k=number), pa.int32()),
        "b": pa.array(chosen.choices((*range(-3, 4), 2**40, None), k=number), pa.int64()),
        "s": pa.array(chosen.choices((*_WORDS, None), k=number), pa.string()),
    }
    rows = pa.table({column: values[column] for column in columns})
    return Dataset(name=name, schema=TableSchema.model_validate({"fields": fields}), rows=rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """A query in Merlot's words; whether it asks for nulls, of which DuckDB has none where null handling is off."""

    sql: str
    sees_nulls: bool

    @property
    def duckdb(self) -> str:
        """The query in DuckDB's words."""
        return self.sql.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")


@dataclass(frozen=True, slots=True)
class _Query:
    text: str
    kinds: tuple[str, ...]
    """Kinds of its columns, which are called c0, c1, …"""

    @property
    def columns(self) -> Columns:
        return {f"c{number}": kind for number, kind in enumerate(self.kinds)}


class PlanGenerator:
    """Queries by a seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._number = 0
        self._sees_nulls = False
        self._common: dict[str, Columns] = {}

    def plan(self) -> Plan:
        """A query."""
        self._sees_nulls, self._common = False, {}
        common = []
        while len(common) < 2 and self._chance(20):
            query = self._query(1)
            name = self._name("w")
            common.append(f"{name} AS ({query.text})")
            self._common[name] = query.columns
        query = self._query(self._random.choice((1, 2, 2, 3)))
        text = f"WITH {', '.join(common)} {query.text}" if common else query.text
        return Plan(text, self._sees_nulls)

    # Choices

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _name(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def _constant(self, kind: str) -> str:
        if kind == "S":
            return f"'{self._random.choice(_WORDS)}'"
        return str(self._random.choice((self._random.randrange(-2, 9), self._random.randrange(60))))

    # Queries

    def _query(self, depth: int, kinds: Sequence[str] | None = None) -> _Query:
        """A query; of columns of these kinds, if there are any."""
        makers: tuple[Callable[[int, Sequence[str] | None], _Query], ...] = (
            self._selected,
            self._selected,
            self._grouped,
            self._grouped,
            self._windowed,
            self._united,
        )
        query = self._random.choice(makers)(depth, kinds)
        if self._chance(5):
            return _Query(f"{query.text} ORDER BY 1", query.kinds)
        return self._limited(query) if self._chance(25) else query

    def _limited(self, query: _Query) -> _Query:
        """The first rows by the order of all columns."""
        keys = [f"{number + 1}{self._random.choice((' DESC', ' ASC', ''))}" for number in range(len(query.kinds))]
        self._random.shuffle(keys)
        offset = f" OFFSET {self._random.randrange(6)}" if self._chance(40) else ""
        return _Query(
            f"{query.text} ORDER BY {', '.join(keys)} LIMIT {self._random.randrange(1, 30)}{offset}", query.kinds
        )

    def _selected(self, depth: int, kinds: Sequence[str] | None) -> _Query:
        source, scope = self._source(depth)
        values = self._values(scope, kinds, depth)
        distinct = "DISTINCT " if self._chance(20) else ""
        return self._made(distinct, [text for text, _ in values], [kind for _, kind in values], source, scope, depth)

    def _made(
        self, distinct: str, values: list[str], kinds: list[str], source: str, scope: Columns, depth: int, end: str = ""
    ) -> _Query:
        items = ", ".join(f"{value} AS c{number}" for number, value in enumerate(values))
        return _Query(f"SELECT {distinct}{items} FROM {source}{self._where(scope, depth)}{end}", tuple(kinds))

    def _values(self, scope: Columns, kinds: Sequence[str] | None, depth: int) -> list[tuple[str, str]]:
        wanted = kinds or [self._random.choice("NNS") for _ in range(self._random.randint(1, 3))]
        return [(self._value(scope, kind, depth), kind) for kind in wanted]

    def _grouped(self, depth: int, kinds: Sequence[str] | None) -> _Query:
        source, scope = self._source(depth) if self._chance(70) else self._relation(depth)
        wanted = list(kinds or [self._random.choice("NNS") for _ in range(self._random.randint(1, 3))])
        is_key = [self._chance(60) for _ in wanted]
        values = [
            self._value(scope, kind, 0) if key else self._aggregate(scope, kind)
            for kind, key in zip(wanted, is_key, strict=True)
        ]
        keys = [value for value, key in zip(values, is_key, strict=True) if key]
        having = f" HAVING {self._aggregate(scope, 'N')} > {self._random.randrange(3)}" if self._chance(25) else ""
        end = (f" GROUP BY {self._grouping(list(dict.fromkeys(keys)))}" if keys else "") + having
        distinct = "DISTINCT " if self._chance(15) else ""
        return self._made(distinct, values, wanted, source, scope, depth, end)

    def _grouping(self, keys: list[str]) -> str:
        listed = ", ".join(keys)
        if self._chance(75):
            return listed
        sets = ", ".join(f"({', '.join(self._random.sample(keys, self._random.randint(0, len(keys))))})" for _ in "12")
        return self._random.choice((f"ROLLUP({listed})", f"CUBE({listed})", f"GROUPING SETS (({listed}), {sets})"))

    def _windowed(self, depth: int, kinds: Sequence[str] | None) -> _Query:
        """Windows over one relation: an order by all columns of it tells all rows apart but equal ones."""
        source, scope = self._relation(depth)
        wanted = list(kinds or [self._random.choice("NNS") for _ in range(self._random.randint(1, 3))])
        order = ", ".join(f"{name}{self._random.choice((' DESC', ''))}" for name in scope)
        values = [
            self._window(scope, kind, order) if self._chance(60) else self._column(scope, kind) for kind in wanted
        ]
        end = f" QUALIFY {self._window(scope, 'N', order)} > {self._random.randrange(4)}" if self._chance(30) else ""
        return self._made("", values, wanted, source, scope, depth, end)

    def _window(self, scope: Columns, kind: str, order: str) -> str:
        column = self._column(scope, kind)
        parts = f"PARTITION BY {self._any_column(scope)} " if self._chance(60) else ""
        if kind == "S":
            function = self._random.choice(("LAG", "LEAD", "FIRST_VALUE"))
            return f"{function}({column}) OVER ({parts}ORDER BY {order})"
        return self._random.choice(
            (
                f"ROW_NUMBER() OVER ({parts}ORDER BY {order})",
                f"RANK() OVER ({parts}ORDER BY {self._any_column(scope)})",
                f"DENSE_RANK() OVER ({parts}ORDER BY {self._any_column(scope)} DESC)",
                f"COUNT(*) OVER ({parts.strip()})",
                f"SUM({column}) OVER ({parts}ORDER BY {order}{self._random.choice(_FRAMES)})",
                f"MAX({column}) OVER ({parts.strip()})",
                f"LAG({column}) OVER ({parts}ORDER BY {order})",
            )
        )

    def _united(self, depth: int, kinds: Sequence[str] | None, word: str = "") -> _Query:
        wanted = kinds or [self._random.choice("NNS") for _ in range(self._random.randint(1, 3))]
        below = max(0, depth - 1)
        left, right = self._query(below, wanted), self._query(below, wanted)
        return _Query(f"({left.text}) {word or self._random.choice(_SETS)} ({right.text})", tuple(wanted))

    # FROM

    def _source(self, depth: int) -> tuple[str, Columns]:
        text, scope = self._relation(depth)
        while self._chance(35) and text.count(" JOIN ") < 2:
            kind = self._random.choice(_JOINS)
            right, columns = self._relation(depth - 1)
            both = {**scope, **columns}
            on = self._equality(scope, columns)
            if self._chance(30):
                on += f" AND {self._condition(self._random.choice((scope, columns, both)), 0)}"
            text = f"{text} {kind} {right} ON {on}"
            scope = scope if "SEMI" in kind or "ANTI" in kind else both
        return text, scope

    def _equality(self, left: Columns, right: Columns) -> str:
        kinds = [kind for kind in "NNS" if kind in left.values() and kind in right.values()]
        if not kinds:
            return f"{self._any_column(left)} IS NOT DISTINCT FROM {self._any_column(left)}"
        kind = self._random.choice(kinds)
        return f"{self._column(left, kind)} = {self._column(right, kind)}"

    def _relation(self, depth: int) -> tuple[str, Columns]:
        name = self._name("r")
        if depth > 0 and self._chance(60):
            query = self._united(depth, None, "UNION ALL") if self._chance(20) else self._query(depth - 1)
            return f"({query.text}) AS {name}", self._qualified(name, query.columns)
        tables = {**_TABLES, **self._common}
        table = self._random.choice(list(tables))
        return f"{table} AS {name}", self._qualified(name, tables[table])

    @staticmethod
    def _qualified(name: str, columns: Columns) -> Columns:
        return {f"{name}.{column}": kind for column, kind in columns.items()}

    # Expressions

    def _any_column(self, scope: Columns) -> str:
        return self._random.choice(list(scope))

    def _column(self, scope: Columns, kind: str) -> str:
        """A column of a kind, or what makes one of another column."""
        found = [name for name, other in scope.items() if other == kind]
        if found:
            return self._random.choice(found)
        other = self._any_column(scope)
        return f"CAST({other} AS VARCHAR)" if kind == "S" else f"LENGTH({other})"

    def _value(self, scope: Columns, kind: str, depth: int) -> str:
        column, condition = self._column(scope, kind), self._condition(scope, 0)
        forms = [column, column, column, f"CASE WHEN {condition} THEN {column} ELSE {self._constant(kind)} END"]
        forms += [f"CASE WHEN {condition} THEN {column} END"]
        forms += [f"UPPER({column})"] if kind == "S" else [f"{column} + {self._random.randrange(3)}", f"ABS({column})"]
        if self._chance(10):
            self._sees_nulls = True
            return f"COALESCE({column}, {self._constant(kind)})"
        if depth > 0 and kind == "N" and self._chance(15):
            return self._scalar(scope, depth)
        return self._random.choice(forms)

    def _scalar(self, scope: Columns, depth: int) -> str:
        """A subquery for one value, which may read the relations around it."""
        relation, columns = self._relation(depth - 1)
        correlated = f" WHERE {self._equality(columns, scope)}" if self._chance(60) else ""
        function = self._random.choice(("MAX", "MIN", "SUM", "COUNT"))
        return f"(SELECT {function}({self._column(columns, 'N')}) FROM {relation}{correlated})"

    def _aggregate(self, scope: Columns, kind: str) -> str:
        value = self._value(scope, kind, 0)
        forms = ("MIN({})", "MAX({})")
        if kind == "N":
            forms = (*forms, "COUNT({})", "SUM({})", "COUNT(DISTINCT {})", "COUNT(*)")
        condition = f" FILTER (WHERE {self._condition(scope, 0)})" if self._chance(20) else ""
        return self._random.choice(forms).format(value) + condition

    def _where(self, scope: Columns, depth: int) -> str:
        parts = [self._condition(scope, depth) for _ in range(self._random.choice((0, 0, 1, 1, 2)))]
        if self._chance(5):
            parts.append(self._random.choice(("1 = 1", "1 = 1", "1 = 0")))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _condition(self, scope: Columns, depth: int) -> str:
        kind = self._random.choice([kind for kind in "NNS" if kind in scope.values()])
        column = self._column(scope, kind)
        compared = f"{column} {self._random.choice(_COMPARISONS)} {self._constant(kind)}"
        choice = self._random.randrange(12)
        if choice == 0:
            self._sees_nulls = True
            return f"{column} IS {self._random.choice(('', 'NOT '))}NULL"
        if choice == 1:
            return f"{column} {self._random.choice(('IN', 'NOT IN'))} ({self._constant(kind)}, {self._constant(kind)})"
        if choice == 2:
            return f"({compared} OR {self._condition(scope, 0)})"
        if choice == 3:
            return f"NOT ({compared} AND {self._condition(scope, 0)})"
        if choice == 4:
            return f"{column} = {self._column(scope, kind)}"
        if choice in (5, 6, 7) and depth > 0:
            return self._tested(scope, kind, column, depth)
        return compared

    def _tested(self, scope: Columns, kind: str, column: str, depth: int) -> str:
        """A condition by a subquery."""
        if self._chance(40):
            query = self._query(depth - 1, [kind])
            return f"{column} {self._random.choice(('IN', 'IN', 'NOT IN'))} ({query.text})"
        relation, columns = self._relation(depth - 1)
        where = self._equality(columns, scope)
        if self._chance(30):
            where += f" AND {self._condition(columns, 0)}"
        if self._chance(70):
            return f"{self._random.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {relation} WHERE {where})"
        return f"{self._column(scope, 'N')} >= {self._scalar(scope, depth)}"
