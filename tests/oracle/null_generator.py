"""Random queries that ask for nulls at any height above a table, in Merlot's words and in DuckDB's.

DuckDB's `holes` holds default values or nulls, and beside each column `x` whether it is null, `x_null`, which its texts
carry through every SELECT; a group is null if it is of nulls alone. Merlot's texts say `IS NULL` and no more.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

COLUMNS: Final = ("g", "k", "m")
_TEXTS: Final = ("'x'", "'y'", "'none'", "'null'")
_NUMBERS: Final = ("0", "1", "3", "-2147483648")


class Pair(NamedTuple):
    """One text in either language."""

    merlot: str
    duckdb: str


def _same(text: str) -> Pair:
    return Pair(text, text)


def _put(form: str, *parts: Pair) -> Pair:
    return Pair(form.format(*(part.merlot for part in parts)), form.format(*(part.duckdb for part in parts)))


class NullGenerator:
    """Queries by a seed; their rows have no order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def query(self) -> Pair:
        """A query of several stages."""
        source = self._source(self._random.randrange(4))
        kind = self._random.randrange(4)
        where = self._where(5)
        if kind == 0:
            values = [self._value() for _ in range(2)]
            return _put("SELECT {}, {} FROM {}{}", *values, source, where)
        made = [self._aggregate() for _ in range(3)]
        if kind == 1:
            return _put("SELECT {}, {}, {} FROM {}{}", *made, source, where)
        if kind == 2:
            key = self._random.choice((_same("g"), _same("k"), self._text(), self._test()))
            return _put("SELECT {0}, {1}, {2}, {3} FROM {4}{5} GROUP BY {0}", key, *made, source, where)
        return _put("SELECT g, {}, {}, {} FROM {}{} GROUP BY ROLLUP(g)", *made, source, where)

    def plain(self) -> Pair:
        """A query of the table that means the same in one stage, in several and above a subquery; `{}` stands for the
        relation."""
        tests = [self._random.choice((self._test, self._known))() for _ in range(3)]
        if self._random.randrange(2):
            return _put("SELECT g, COUNT(*), COUNT(*) FILTER (WHERE {}) FROM {{}} WHERE {} OR {} GROUP BY g", *tests)
        return _put("SELECT {}, COUNT(*) FROM {{}} WHERE {} GROUP BY 1", self._text(), tests[0])

    def _source(self, depth: int) -> Pair:
        if depth == 0:
            return _same("holes")
        kinds = (self._filtered, self._filtered, self._windowed, self._united, self._distinct, self._grouped)
        inner = self._random.choice((*kinds, self._joined, self._common, self._left_over))(depth - 1)
        return _put(f"({{}}) AS {self._alias()}", inner)

    def _alias(self) -> str:
        self._number += 1
        return f"z{self._number}"

    def _filtered(self, depth: int) -> Pair:
        return _rows("g, k, m", _put("{}{}", self._source(depth), self._where(3)))

    def _windowed(self, depth: int) -> Pair:
        count = self._random.choice(("COUNT(*)", "COUNT(*) FILTER (WHERE {})", "SUM(CASE WHEN {} THEN 1 END)"))
        window = _put(f"{count} OVER (PARTITION BY k) AS m", self._test())
        source = self._source(depth)
        return Pair(
            f"SELECT g, k, {window.merlot} FROM {source.merlot}",
            f"SELECT g, g_null, k, k_null, {window.duckdb}, FALSE AS m_null FROM {source.duckdb}",
        )

    def _united(self, depth: int) -> Pair:
        left, right = (self._filtered(self._random.randint(0, depth)) for _ in "12")
        if self._random.randrange(2):
            return _put("{} UNION ALL {}", left, right)
        united = _put("({} UNION ALL {})", left, right).duckdb
        return Pair(f"{left.merlot} UNION {right.merlot}", _grouped_rows(f"{united} AS {self._alias()}"))

    def _left_over(self, depth: int) -> Pair:
        word = self._random.choice(("INTERSECT", "EXCEPT"))
        left, right = (self._filtered(self._random.randint(0, depth)) for _ in "12")
        sides = [f"SELECT g, k, m FROM ({side.duckdb}) AS {self._alias()}" for side in (left, right)]
        rows = f"({f' {word} '.join(sides)}) AS {self._alias()}"
        values = "g, FALSE AS g_null, k, FALSE AS k_null, m, FALSE AS m_null"
        return Pair(f"{left.merlot} {word} {right.merlot}", f"SELECT {values} FROM {rows}")

    def _distinct(self, depth: int) -> Pair:
        source = _put("{}{}", self._source(depth), self._where(2))
        return Pair(f"SELECT DISTINCT g, k, m FROM {source.merlot}", _grouped_rows(source.duckdb))

    def _grouped(self, depth: int) -> Pair:
        source, made = _put("{}{}", self._source(depth), self._where(3)), self._aggregate()
        sets = self._random.choice(("g, k", "g, k", "ROLLUP(g, k)"))
        bits = "bool_and(g_null) AS g_null, bool_and(k_null) AS k_null, FALSE AS m_null"
        return Pair(
            f"SELECT g, k, {made.merlot} AS m FROM {source.merlot} GROUP BY {sets}",
            f"SELECT g, k, {made.duckdb} AS m, {bits} FROM {source.duckdb} GROUP BY {sets}",
        )

    def _joined(self, depth: int) -> Pair:
        kind = self._random.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        left, right = (_put(f"({{}}) AS {side}", self._filtered(min(depth, 1))) for side in "ab")
        test = Pair("a.g IS NULL", "(a.g IS NULL OR a.g_null)")
        condition = "a.k = b.k AND a.m = b.m" + self._random.choice(("", " AND NOT ({})"))
        source = _put(f"{{0}} {kind} {{1}} ON {condition.replace('{}', '{2}')}", left, right, test)
        return Pair(
            f"SELECT a.g AS g, b.k AS k, b.m AS m FROM {source.merlot}",
            f"SELECT a.g, a.g_null, b.k, b.k_null, b.m, b.m_null FROM {source.duckdb}",
        )

    def _common(self, depth: int) -> Pair:
        name = f"c{self._alias()}"
        inner = self._filtered(depth)
        return _put(f"WITH {name} AS ({{}}) {{}}", inner, _rows("g, k, m", _put(f"{name}{{}}", self._where(3))))

    def _where(self, percent_tenths: int) -> Pair:
        if self._random.randrange(10) >= 2 * percent_tenths:
            return _same("")
        return _put(" WHERE {}", self._condition())

    def _condition(self) -> Pair:
        kind = self._random.randrange(6)
        if kind < 3:
            return self._test()
        if kind == 3:
            return self._known()
        if kind == 4:
            sign = self._random.choice(("=", "<>", "<"))
            return _put(self._random.choice(("{} {} 1", "NOT ({} {} 1)")), self._may_be_null(), _same(sign))
        return _put(self._random.choice(("({} OR {})", "({} AND NOT {})")), self._test(), self._known())

    def _test(self) -> Pair:
        """IS [NOT] NULL of a column."""
        name = self._random.choice(COLUMNS)
        if self._random.randrange(2):
            return Pair(f"{name} IS NULL", f"({name} IS NULL OR {name}_null)")
        return Pair(f"{name} IS NOT NULL", f"(NOT ({name} IS NULL OR {name}_null))")

    def _known(self) -> Pair:
        if self._random.randrange(2):
            return _put(f"{{}} = {self._random.choice(_TEXTS)}", self._text())
        return _put(f"{{}} > {self._random.choice(_NUMBERS)}", self._whole())

    def _text(self) -> Pair:
        other = self._random.choice(_TEXTS)
        return Pair(f"COALESCE(g, {other})", f"CASE WHEN (g IS NULL OR g_null) THEN {other} ELSE g END")

    def _whole(self) -> Pair:
        name, other = self._random.choice("km"), self._random.choice(_NUMBERS)
        is_null = f"({name} IS NULL OR {name}_null)"
        return Pair(f"COALESCE({name}, {other})", f"CASE WHEN {is_null} THEN {other} ELSE {name} END")

    def _may_be_null(self) -> Pair:
        return self._random.choice(
            (
                _put("CASE WHEN {} THEN m END", self._condition_of_values()),
                _put("CASE WHEN {} THEN k WHEN m > 2 THEN 7 END", self._test()),
                _same("NULLIF(m, 3)"),
            )
        )

    def _condition_of_values(self) -> Pair:
        return _same(self._random.choice(("m > 2", "k <> 1", "g = 'x'", "m > 100")))

    def _value(self) -> Pair:
        return self._random.choice((self._text, self._whole, self._test, self._may_be_null))()

    def _aggregate(self) -> Pair:
        forms = ("COUNT({})", "COUNT({})", "SUM({})", "MIN({})", "MAX({})", "AVG({})", "COUNT(DISTINCT {})")
        kind = self._random.randrange(5)
        if kind == 0:
            return _put("COUNT(*) FILTER (WHERE {})", self._test())
        made = _put(self._random.choice(forms), self._may_be_null() if kind < 4 else self._whole())
        return made if self._random.randrange(3) else _put("{} FILTER (WHERE {})", made, self._test())


def _rows(columns: str, source: Pair) -> Pair:
    bits = ", ".join(f"{name}, {name}_null" for name in columns.split(", "))
    return Pair(f"SELECT {columns} FROM {source.merlot}", f"SELECT {bits} FROM {source.duckdb}")


def _grouped_rows(source: str) -> str:
    bits = ", ".join(f"{name}, bool_and({name}_null) AS {name}_null" for name in COLUMNS)
    return f"SELECT {bits} FROM {source} GROUP BY g, k, m"
