"""Random queries that group joined rows, and subqueries that read the query around them, in words that Merlot and
DuckDB read alike."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Final

_TABLES: Final = {
    "things": (("small", "maybe"), ("id", "small", "maybe"), ("color",)),
    "edges": (("few",), ("id", "few"), ()),
    "holes": (("k", "m"), ("k", "m"), ("g",)),
}
"""By table: numbers of few values, all numbers, and texts of few values."""
_JOINS: Final = ("JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_TESTS: Final = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
_AGGREGATES: Final = (
    *("COUNT(*)", "COUNT({})", "SUM({})", "AVG({})", "MIN({})", "MAX({})"),
    *("COUNT(DISTINCT {})", "SUM(CAST({} AS DOUBLE))", "AVG(CAST({} AS DOUBLE))"),
)


class JoinGenerator:
    """Queries by a seed; each join is by keys of few values, so that groups of rows meet groups of rows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> str:
        """Return a query."""
        kinds = (self._grouped, self._grouped, self._tested, self._compared, self._distinct)
        return self._random.choice(kinds)()

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _table(self, alias: str, joined: Collection[str] = ()) -> str:
        """Return a table. Those of hundreds of rows are joined once: keys of few values make millions of rows."""
        tables = ("things", "edges", "holes") if alias == "a" else ("edges", "holes")
        return self._random.choice([table for table in tables if table == "holes" or table not in joined])

    def _few(self, alias: str, table: str) -> str:
        return f"{alias}.{self._random.choice(_TABLES[table][0])}"

    def _number(self, alias: str, table: str) -> str:
        columns = (*_TABLES[table][1], "real") if table == "edges" else _TABLES[table][1]
        column = f"{alias}.{self._random.choice(columns)}"
        return self._random.choice((column, column, f"{column} + 1", f"CASE WHEN {column} > 2 THEN {column} END"))

    def _condition(self, alias: str, table: str) -> str:
        column = f"{alias}.{self._random.choice(_TABLES[table][1])}"
        comparison = self._random.choice(("=", "<>", "<", "<=", ">", ">="))
        return f"{column} {comparison} {self._random.choice((0, 1, 2, 3, 5, 20))}"

    def _key(self, aliases: dict[str, str]) -> str:
        alias = self._random.choice(sorted(aliases))
        texts = _TABLES[aliases[alias]][2]
        if texts and self._chance(40):
            return f"{alias}.{texts[0]}"
        column = self._few(alias, aliases[alias])
        return f"{column} + 1" if self._chance(20) else column

    def _from(self) -> tuple[str, dict[str, str]]:
        aliases = {"a": self._table("a")}
        text = f"{aliases['a']} a"
        for alias in ("b", "c")[: 1 + self._chance(35)]:
            table = self._table(alias, aliases.values())
            left = self._random.choice(sorted(aliases))
            on = [f"{self._few(left, aliases[left])} = {self._few(alias, table)}"]
            on += [self._condition(alias, table)] if self._chance(30) else []
            on += [self._condition(left, aliases[left])] if self._chance(15) else []
            kind = self._random.choice(_TESTS if self._chance(12) else _JOINS)
            text += f" {kind} {table} {alias} ON {' AND '.join(on)}"
            if kind not in _TESTS:
                aliases[alias] = table
        return text, aliases

    def _where(self, aliases: dict[str, str]) -> str:
        parts = [self._condition(alias, table) for alias, table in aliases.items() if self._chance(30)]
        if len(aliases) > 1 and self._chance(20):
            first, second = self._random.sample(sorted(aliases), 2)
            parts.append(f"{self._few(first, aliases[first])} < {self._few(second, aliases[second])} + 2")
        if len(aliases) > 1 and self._chance(15):
            parts.append(f"({' OR '.join(self._condition(alias, table) for alias, table in aliases.items())})")
        if self._chance(15):
            alias = self._random.choice(sorted(aliases))
            parts.append(f"{self._few(alias, aliases[alias])} {self._member()}")
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _member(self) -> str:
        table = self._table("s")
        word = self._random.choice(("IN", "IN", "NOT IN"))
        return f"{word} (SELECT {self._few('s', table)} FROM {table} s WHERE {self._condition('s', table)})"

    def _aggregate(self, aliases: dict[str, str]) -> str:
        alias = self._random.choice(sorted(aliases))
        made = self._random.choice(_AGGREGATES).format(self._number(alias, aliases[alias]))
        if self._chance(20):
            other = self._random.choice(sorted(aliases))
            made += f" FILTER (WHERE {self._condition(other, aliases[other])})"
        return made

    def _grouped(self) -> str:
        text, aliases = self._from()
        made = [self._aggregate(aliases) for _ in range(self._random.randint(1, 3))]
        if self._chance(15):
            return f"SELECT {', '.join(made)} FROM {text}{self._where(aliases)}"
        key = self._key(aliases)
        having = f" HAVING {self._aggregate(aliases)} > 2" if self._chance(25) else ""
        return f"SELECT {key}, {', '.join(made)} FROM {text}{self._where(aliases)} GROUP BY {key}{having}"

    def _correlated(self, outputs: str, aliases: dict[str, str]) -> str:
        table = self._table("s")
        outer = self._random.choice(sorted(aliases))
        comparison = "=" if self._chance(85) else self._random.choice(("<>", "<"))
        parts = [f"{self._few('s', table)} {comparison} {self._few(outer, aliases[outer])}"]
        parts += [self._condition("s", table)] if self._chance(60) else []
        value = self._random.choice(("{}", "{}", "{} + 1", "COALESCE({}, 0)"))
        made = outputs or value.format(self._aggregate({"s": table}))
        return f"(SELECT {made} FROM {table} s WHERE {' AND '.join(parts)})"

    def _tested(self) -> str:
        aliases = {"a": self._table("a")}
        test = f"{self._random.choice(('EXISTS', 'NOT EXISTS'))} {self._correlated('1', aliases)}"
        if self._chance(30):
            test = f"{self._few('a', aliases['a'])} {self._member()}"
        rest = f" {self._random.choice(('AND', 'OR'))} {self._condition('a', aliases['a'])}" if self._chance(40) else ""
        if self._chance(50):
            key = self._key(aliases)
            return f"SELECT {key}, {self._aggregate(aliases)} FROM {aliases['a']} a WHERE {test}{rest} GROUP BY {key}"
        return f"SELECT {self._few('a', aliases['a'])} FROM {aliases['a']} a WHERE {test}{rest}"

    def _compared(self) -> str:
        """Return a query with a scalar subquery as a value or in a condition."""
        aliases = {"a": self._table("a")}
        column, value = self._few("a", aliases["a"]), self._correlated("", aliases)
        if self._chance(50):
            return f"SELECT {column}, {value} FROM {aliases['a']} a"
        return f"SELECT {column} FROM {aliases['a']} a WHERE {column} {self._random.choice(('<', '>=', '='))} {value}"

    def _distinct(self) -> str:
        text, aliases = self._from()
        return f"SELECT DISTINCT {self._key(aliases)}, {self._key(aliases)} FROM {text}{self._where(aliases)}"
