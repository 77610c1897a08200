"""Queries of one table as tools send them: from the table, from subqueries around it, by WITH, and from its halves."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_COLUMNS: Final = "id, small, maybe, signed, color"
_NUMBERS: Final = ("id", "small", "maybe", "signed")
FORMS: Final[Mapping[str, str]] = {
    "plain": "SELECT {select} FROM things{tail}",
    "derived": "SELECT {select} FROM (SELECT * FROM things) AS v{tail}",
    "derived twice": f"SELECT {{select}} FROM (SELECT * FROM (SELECT {_COLUMNS} FROM things) AS w) AS v{{tail}}",
    "with": "WITH v AS (SELECT * FROM things) SELECT {select} FROM v{tail}",
    "halves": (
        f"SELECT {{select}} FROM (SELECT {_COLUMNS} FROM things WHERE id < 1500 UNION ALL "
        f"SELECT {_COLUMNS} FROM things WHERE id >= 1500) AS v{{tail}}"
    ),
}
ONE_LEAF: Final = ("plain", "derived", "derived twice", "with")
"""Forms that are one question to one table."""


@dataclass(frozen=True, slots=True)
class WrappedQuery:
    """A SELECT over a relation of the columns of `things`."""

    select: str
    tail: str
    sees_nulls: bool
    """Whether it asks for nulls: DuckDB has none where null handling is off."""

    def text(self, form: str) -> str:
        """The query in one of its forms."""
        return FORMS[form].format(select=self.select, tail=self.tail)


_TABLE: Final = re.compile(r"\b(things|edges) ([a-z])\b")
_SUBQUERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "things": (
        f"SELECT {_COLUMNS} FROM things",
        f"SELECT {_COLUMNS} FROM things WHERE small > 10",
        "SELECT id, small + 1 AS small, maybe, signed, UPPER(color) AS color FROM things WHERE id < 2000",
        (
            "SELECT id, CASE WHEN small > 20 THEN 1 ELSE 2 END AS small, COALESCE(maybe, 3) AS maybe, 7 AS signed, "
            "color FROM things WHERE maybe IS NULL OR id < 1000"
        ),
        f"SELECT DISTINCT {_COLUMNS} FROM things WHERE id < 2500",
        f"SELECT {_COLUMNS} FROM things ORDER BY id LIMIT 900",
        "SELECT id, color, MAX(small) AS small, MIN(maybe) AS maybe, SUM(signed) AS signed FROM things GROUP BY 1, 2",
        f"SELECT {_COLUMNS} FROM things WHERE small < 30 UNION ALL SELECT {_COLUMNS} FROM things WHERE small >= 30",
        f"SELECT {_COLUMNS} FROM (SELECT {_COLUMNS} FROM things WHERE id > 20) AS w WHERE id IN (SELECT id FROM edges)",
        f"SELECT {_COLUMNS} FROM (SELECT *, COUNT(*) OVER (PARTITION BY id) AS n FROM things) AS w WHERE n = 1",
    ),
    "edges": (
        "SELECT * FROM edges",
        "SELECT id, few FROM edges WHERE few > 1",
        "SELECT id, few * 2 AS few FROM edges",
        "SELECT id, 5 AS few FROM edges WHERE id > 3",
        "SELECT id, few FROM edges UNION SELECT id, few FROM edges WHERE few < 3",
    ),
}


def with_subqueries(sql: str, seed: int) -> str:
    """A query in which subqueries stand for tables."""
    chosen = random.Random(seed)

    def put(table: re.Match[str]) -> str:
        if chosen.randrange(5) == 0:
            return table[0]
        return f"({chosen.choice(_SUBQUERIES[table[1]])}) AS {table[2]}"

    return _TABLE.sub(put, sql)


class RewriteGenerator:
    """Queries by a seed; those with LIMIT are ordered by what tells each row from others."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> WrappedQuery:
        """A query."""
        kind = self._random.randrange(4)
        where = self._where()
        if kind == 0:
            select = ", ".join(["id", *(self._value() for _ in range(self._random.randint(0, 2)))])
            return self._made(select, where + self._end("id"))
        if kind == 1:
            return self._made(", ".join(self._aggregate() for _ in range(3)), where)
        if kind == 2:
            key = self._random.choice(("color", "small", "maybe"))
            return self._made(f"DISTINCT {key}", where + self._end(key))
        key = self._random.choice(("color", "small", "maybe", "small + 1"))
        having = self._random.choice(("", "", " HAVING COUNT(*) > 20", " HAVING MAX(id) > 2000"))
        select = ", ".join([key, *(self._aggregate() for _ in range(self._random.randint(1, 3)))])
        return self._made(select, f"{where} GROUP BY {key}{having}{self._end(key)}")

    def _made(self, select: str, tail: str) -> WrappedQuery:
        return WrappedQuery(select, tail, "NULL" in f"{select}{tail}" or "COALESCE" in f"{select}{tail}")

    def _end(self, key: str) -> str:
        if self._random.randrange(2):
            return ""
        offset = self._random.choice(("", "", " OFFSET 3"))
        return f" ORDER BY {key}{self._random.choice((' DESC', ''))} LIMIT {self._random.randrange(1, 40)}{offset}"

    def _where(self) -> str:
        parts = [self._condition() for _ in range(self._random.randrange(4))]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _number(self) -> int:
        return self._random.choice((self._random.randrange(-5, 60), self._random.randrange(3100)))

    def _condition(self) -> str:
        column = self._random.choice(_NUMBERS)
        kind = self._random.randrange(7)
        if kind == 0:
            return f"{column} BETWEEN {self._number()} AND {self._number()}"
        if kind == 1:
            return f"{column} IN ({self._number()}, {self._number()}, 7)"
        if kind == 2:
            return f"color {self._random.choice(('=', '<>'))} '{self._random.choice(('red', 'blue', 'x'))}'"
        if kind == 3:
            return f"({column} < {self._number()} OR NOT color = 'red')"
        if kind == 4:
            return f"maybe IS {self._random.choice(('', 'NOT '))}NULL"
        if kind == 5:
            return f"small + {self._number()} > {column}"
        return f"{column} {self._random.choice(('<', '<=', '>', '>='))} {self._number()}"

    def _value(self) -> str:
        column = self._random.choice(_NUMBERS)
        return self._random.choice(
            (
                column,
                "color",
                f"{column} + small",
                f"CASE WHEN {column} > {self._number()} THEN small END",
                f"COALESCE(maybe, {self._number()})",
                "UPPER(color)",
            )
        )

    def _aggregate(self) -> str:
        value = self._random.choice((*_NUMBERS, "small + 1", "CASE WHEN small > 20 THEN maybe END"))
        kinds = ("COUNT(*)", "COUNT({})", "SUM({})", "MIN({})", "MAX({})", "AVG({})", "COUNT(DISTINCT {})")
        condition = f" FILTER (WHERE {self._condition()})" if self._random.randrange(4) == 0 else ""
        return self._random.choice(kinds).format(value) + condition
