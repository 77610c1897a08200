"""Random queries of several stages over two test tables, in words that Merlot and DuckDB read alike."""

from __future__ import annotations

import random
from typing import Final

_THINGS: Final = {"INT": ("id", "small", "maybe"), "LONG": ("signed",), "STRING": ("color",)}
_EDGES: Final = {"INT": ("id", "few"), "LONG": (), "STRING": ()}
_TABLES: Final = {"things": _THINGS, "edges": _EDGES}
_JOINS: Final = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_AGGREGATES: Final = ("COUNT({})", "SUM({})", "MIN({})", "MAX({})", "AVG({})", "COUNT(DISTINCT {})")
_SETS: Final = ("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
_WINDOWS: Final = (
    "ROW_NUMBER() OVER (ORDER BY {order})",
    "RANK() OVER (PARTITION BY {key} ORDER BY {order})",
    "DENSE_RANK() OVER (ORDER BY {key})",
    "SUM({key}) OVER (PARTITION BY {key} ORDER BY {order})",
    "COUNT(*) OVER (PARTITION BY {key})",
    "LAG({key}) OVER (ORDER BY {order})",
    "MAX({key}) OVER (ORDER BY {order} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
)


class StageGenerator:
    """Queries by a seed; rows of their answers have no order of their own but are the same rows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> str:
        """A query."""
        kinds = (self._joined, self._grouped, self._set, self._subqueried, self._windowed, self._with, self._nested)
        return self._one(kinds)()

    def _one(self, choices: tuple[object, ...] | list[object]) -> object:
        return self._random.choice(choices)

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _number(self) -> int:
        return self._random.choice((self._random.randrange(-5, 60), self._random.randrange(3100), 0))

    def _condition(self, alias: str, table: str) -> str:
        """A condition on one relation."""
        column = f"{alias}.{self._random.choice(_TABLES[table]['INT'])}"
        kind = self._random.randrange(6)
        if kind == 0:
            return f"{column} BETWEEN {self._number()} AND {self._number()}"
        if kind == 1:
            return f"{column} IN ({', '.join(str(self._number()) for _ in range(3))})"
        if kind == 2:
            return f"NOT ({column} {self._random.choice(_COMPARISONS)} {self._number()})"
        if kind == 3 and table == "things":
            return f"{alias}.color {self._random.choice(('=', '<>'))} '{self._random.choice(('red', 'blue', 'x', ''))}'"
        if kind == 4:
            other = f"{alias}.{self._random.choice(_TABLES[table]['INT'])}"
            return f"({column} < {self._number()} OR {other} > {self._number()})"
        return f"{column} {self._random.choice(_COMPARISONS)} {self._number()}"

    def _from(self) -> tuple[str, dict[str, str]]:
        """A join of two or three relations on their ids, and what is called what; none grows beyond its rows."""
        aliases = {"a": self._random.choice(tuple(_TABLES))}
        text = f"{aliases['a']} a"
        for alias in ("b", "c")[: self._random.randint(1, 2)]:
            table = self._random.choice(tuple(_TABLES))
            left = self._random.choice(tuple(aliases))
            on = f"{left}.id = {alias}.id" + (f" + {self._random.randrange(3)}" if self._chance(30) else "")
            if self._chance(40):
                on += f" AND {self._condition(alias, table)}"
            if self._chance(20):
                on += f" AND {self._condition(left, aliases[left])}"
            text += f" {self._random.choice(_JOINS)} {table} {alias} ON {on}"
            aliases[alias] = table
        return text, aliases

    def _where(self, aliases: dict[str, str]) -> str:
        parts = [self._condition(alias, table) for alias, table in aliases.items() if self._chance(50)]
        if self._chance(15):
            first, second = self._random.sample(sorted(aliases), 2)
            parts.append(f"{first}.id < {second}.id + {self._number()}")
        if self._chance(15):
            alias = self._random.choice(sorted(aliases))
            parts.append(f"({' OR '.join(self._condition(one, table) for one, table in aliases.items())})")
            parts.append(f"{alias}.id IS {self._random.choice(('', 'NOT '))}NULL")
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _column(self, aliases: dict[str, str], kind: str = "INT") -> str:
        alias = self._random.choice(sorted(aliases))
        return f"{alias}.{self._random.choice(_TABLES[aliases[alias]][kind])}"

    def _value(self, aliases: dict[str, str]) -> str:
        column = self._column(aliases)
        return self._random.choice(
            (
                column,
                column,
                f"{column} + {self._column(aliases)}",
                f"CASE WHEN {column} > {self._number()} THEN {self._column(aliases)} ELSE 1 END",
                f"COALESCE({column}, {self._number()})",
                f"ABS({column} - 7)",
            )
        )

    def _joined(self) -> str:
        text, aliases = self._from()
        values = ", ".join(self._value(aliases) for _ in range(self._random.randint(1, 3)))
        distinct = "DISTINCT " if self._chance(20) else ""
        return f"SELECT {distinct}{values} FROM {text}{self._where(aliases)}"

    def _grouped(self) -> str:
        text, aliases = self._from()
        key = self._column(aliases)
        made = [self._random.choice(_AGGREGATES).format(self._value(aliases)) for _ in range(2)]
        having = f" HAVING COUNT(*) > {self._random.randrange(3)}" if self._chance(30) else ""
        if self._chance(20):
            return f"SELECT {', '.join(made)} FROM {text}{self._where(aliases)}"
        return f"SELECT {key}, {', '.join(made)} FROM {text}{self._where(aliases)} GROUP BY {key}{having}"

    def _plain(self) -> str:
        """Two whole numbers a row, of one table."""
        table = self._random.choice(tuple(_TABLES))
        first, second = (self._random.choice(_TABLES[table]["INT"]) for _ in "12")
        if self._chance(40):
            return f"SELECT a.{first}, COUNT(*) FROM {table} a WHERE {self._condition('a', table)} GROUP BY a.{first}"
        return f"SELECT a.{first}, a.{second} FROM {table} a WHERE {self._condition('a', table)}"

    def _set(self) -> str:
        text = f"({self._plain()})"
        for _ in range(self._random.randint(1, 2)):
            text = f"({text} {self._random.choice(_SETS)} ({self._plain()}))"
        return text[1:-1]

    def _subqueried(self) -> str:
        table, other = (self._random.choice(tuple(_TABLES)) for _ in "12")
        inner, column = self._condition("s", other), self._random.choice(_TABLES[other]["INT"])
        tests = (
            f"a.id IN (SELECT s.{column} FROM {other} s WHERE {inner})",
            f"a.id NOT IN (SELECT s.id FROM {other} s WHERE {inner})",
            f"EXISTS (SELECT 1 FROM {other} s WHERE s.id = a.id AND {inner})",
            f"NOT EXISTS (SELECT 1 FROM {other} s WHERE s.{column} = a.id AND {inner})",
            f"a.id > (SELECT AVG(s.{column}) FROM {other} s WHERE {inner})",
            f"a.id = (SELECT MAX(s.id) FROM {other} s WHERE s.{column} = a.id)",
            f"a.id >= ALL (SELECT s.{column} FROM {other} s WHERE {inner})",
        )
        value = f"(SELECT COUNT(*) FROM {other} s WHERE s.id = a.id)" if self._chance(30) else "a.id"
        rest = f" {self._random.choice(('AND', 'OR'))} {self._condition('a', table)}" if self._chance(50) else ""
        return f"SELECT a.id, {value} FROM {table} a WHERE {self._random.choice(tests)}{rest}"

    def _windowed(self) -> str:
        table = self._random.choice(tuple(_TABLES))
        key = f"a.{self._random.choice(_TABLES[table]['INT'])}"
        window = self._random.choice(_WINDOWS).format(key=key, order="a.id")
        return f"SELECT a.id, {window} FROM {table} a WHERE {self._condition('a', table)}"

    def _with(self) -> str:
        kind = self._random.choice(("JOIN", "LEFT JOIN"))
        return (
            f"WITH x(p, q) AS ({self._plain()}), y AS (SELECT p, SUM(q) AS t FROM x GROUP BY p) "
            f"SELECT x.p, x.q, y.t FROM x {kind} y ON x.p = y.p WHERE x.q >= {self._random.randrange(4)}"
        )

    def _nested(self) -> str:
        text, aliases = self._from()
        inner = f"SELECT {self._column(aliases)} AS p, COUNT(*) AS n FROM {text}{self._where(aliases)} GROUP BY 1"
        return f"SELECT v.n, COUNT(*), MIN(v.p) FROM ({inner}) v WHERE v.n > {self._random.randrange(2)} GROUP BY v.n"
