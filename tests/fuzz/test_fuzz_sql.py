"""Whatever a query's text is, a node answers it or says what is wrong with it: no bug, no hang, no word in the log."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
from urllib.parse import urlsplit

from tests.fuzz.fuzzing import CASE_S, Loud, cases, spoiled_text
from tests.sql.slt_data import things
from tests.sql.slt_nodes import Remote

from merlot.functions.registry import FUNCTIONS

COLUMNS = (*things().schema.names, "$segmentName", "$docId", "$totalDocs", "$crc", "nothing", '"id"', "ID", "things.id")
NAMES = [name for function in FUNCTIONS for name in (function.name, *function.aliases)]
AGGREGATES = (
    "COUNT",
    "SUM",
    "MIN",
    "MAX",
    "AVG",
    "DISTINCTCOUNT",
    "SUMLONG",
    "MINLONG",
    "MAXLONG",
    "MINMAXRANGE",
    "DISTINCTCOUNTHLL",
)
LITERALS = (
    *(
        "0",
        "1",
        "-1",
        "2147483647",
        "-2147483648",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
    ),
    *("1e308", "1E+999999", "0.1", "-0.0", "9" * 400, "." + "9" * 400, "NULL", "TRUE", "'x'", "''", "'it''s'", "'%'"),
    *(
        "'2013-01-01 00:00:00'",
        "'NaN'",
        "'-Infinity'",
        "x'00ff'",
        "x'0'",
        "'DAY'",
        "'P1D'",
        "'yyyy'",
        "'\u65e5\u672c'",
        "'\\'",
        "5::INT",
    ),
)
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "!=", "+", "-", "*", "/", "%", "||", "AND", "OR", "LIKE", "IS", "IN")
TYPES = (
    "INT",
    "LONG",
    "FLOAT",
    "DOUBLE",
    "BIG_DECIMAL",
    "BOOLEAN",
    "TIMESTAMP",
    "STRING",
    "BYTES",
    "JSON",
    "ARRAY",
    "NOTHING",
)
WORDS = (
    *OPERATORS,
    *LITERALS,
    *COLUMNS,
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP BY",
        "HAVING",
        "ORDER BY",
        "LIMIT",
        "OFFSET",
        "DISTINCT",
        "AS",
        "NOT",
        "BETWEEN",
    ),
    *(
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "CAST",
        "FILTER",
        "OVER",
        "JOIN",
        "UNION",
        "WITH",
        "EXPLAIN PLAN FOR",
        "SET",
    ),
    *(
        "(",
        ")",
        ",",
        ";",
        ".",
        "*",
        "?",
        "@",
        "[",
        "]",
        "{",
        "}",
        "--",
        "/*",
        "*/",
        "'",
        '"',
        "`",
        "$",
        "::",
        "OPTION(a=b)",
    ),
)


class Grammar:
    """Queries that mostly parse and mostly make no sense."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def query(self) -> str:
        rng = self._rng
        text = "SELECT " + rng.choice(("", "", "DISTINCT ")) + self._list(self._output, 4)
        if rng.random() < 0.95:
            text += rng.choice((" FROM things", " FROM things", " FROM things t", " FROM nothing"))
        for clause, chance, make in (
            (" WHERE ", 0.7, self.condition),
            (" GROUP BY ", 0.4, lambda: self._list(lambda: self.value(2), 3)),
            (" HAVING ", 0.2, self.condition),
            (" ORDER BY ", 0.4, lambda: self._list(self._key, 3)),
        ):
            if rng.random() < chance:
                text += clause + make()
        if rng.random() < 0.4:
            text += f" LIMIT {rng.choice((0, 1, 7, 5000, 2147483647, 2147483648, 10**30, -1))}"
        if rng.random() < 0.1:
            text += f" OFFSET {rng.choice((0, 1, 5000, 2147483647))}"
        options = (
            "timeoutMs=1",
            "timeoutMs=" + "9" * 30,
            "enableNullHandling=true",
            "skipSegmentPruning=true",
            "x='y'",
        )
        if rng.random() < 0.3:
            text = (
                f"SET {rng.choice(options)}; {text}" if rng.random() < 0.5 else f"{text} OPTION({rng.choice(options)})"
            )
        return text

    def condition(self, depth: int = 3) -> str:
        rng = self._rng
        if depth and rng.random() < 0.5:
            parts = [self.condition(depth - 1) for _ in range(rng.choice((2, 2, 3, 12)))]
            return "(" + rng.choice((" AND ", " OR ")).join(parts) + ")"
        if depth and rng.random() < 0.15:
            return f"NOT {self.condition(depth - 1)}"
        value = self.value(2)
        match rng.randrange(6):
            case 0:
                listed = self._list(lambda: self.value(rng.choice((0, 0, 0, 1))), rng.choice((1, 3, 40)))
                return f"{value} {rng.choice(('IN', 'NOT IN'))} ({listed})"
            case 1:
                return f"{value} BETWEEN {self.value(1)} AND {self.value(1)}"
            case 2:
                return f"{value} LIKE {rng.choice(LITERALS)}" + rng.choice(("", "", " ESCAPE '!'"))
            case 3:
                return f"{value} IS {rng.choice(('NULL', 'NOT NULL', 'TRUE', 'NOT FALSE'))}"
        return f"{value} {rng.choice(OPERATORS[:7])} {self.value(2)}"

    def value(self, depth: int) -> str:
        rng = self._rng
        if not depth or rng.random() < 0.4:
            return rng.choice(COLUMNS if rng.random() < 0.6 else LITERALS)
        match rng.randrange(5):
            case 0:
                name = rng.choice((*NAMES, "NOTHING"))
                return f"{name}({self._list(lambda: self.value(depth - 1), 5)})"
            case 1:
                return f"CAST({self.value(depth - 1)} AS {rng.choice(TYPES)})"
            case 2:
                arms = " ".join(f"WHEN {self.condition(0)} THEN {self.value(0)}" for _ in range(rng.randrange(1, 4)))
                return f"CASE {arms} ELSE {self.value(0)} END"
            case 3:
                return f"-{self.value(depth - 1)}"
        return f"({self.value(depth - 1)} {rng.choice(OPERATORS[7:13])} {self.value(depth - 1)})"

    def _output(self) -> str:
        rng = self._rng
        text = rng.choice((lambda: self.value(3), self._aggregate, lambda: "*"))()
        return text + rng.choice(("", "", " AS x", " AS 'y'", ' AS "id"'))

    def _aggregate(self) -> str:
        inner = self._rng.choice(("*", self.value(2), f"DISTINCT {self.value(1)}"))
        rest = f" FILTER (WHERE {self.condition(1)})" if self._rng.random() < 0.2 else ""
        return f"{self._rng.choice(AGGREGATES)}({inner}){rest}"

    def _key(self) -> str:
        made = self._rng.choice((self.value(1), self._aggregate(), "1", "x"))
        return made + self._rng.choice(("", " DESC", " ASC NULLS FIRST", " NULLS LAST"))

    def _list(self, make: object, most: int) -> str:
        assert callable(make)
        return ", ".join(make() for _ in range(self._rng.randrange(1, most + 1)))


def test_no_text_is_answered_by_a_bug_or_not_at_all(node: Remote, loud: Loud) -> None:
    with contextlib.closing(http.client.HTTPConnection(urlsplit(node.url).netloc, timeout=CASE_S)) as connection:
        problems = _problems(connection, loud.said)
    assert not problems, "\n".join(problems)
    assert node.query("SELECT COUNT(*) FROM things").rows


def _problems(connection: http.client.HTTPConnection, said: list[str]) -> list[str]:
    kept = [Grammar(random.Random(number)).query() for number in range(50)]
    problems: list[str] = []
    for rng in cases("sql", quick=250, every=1250):
        sql = Grammar(rng).query() if rng.random() < 0.6 else spoiled_text(rng, rng.choice(kept), WORDS)
        if rng.random() < 0.1:
            kept[rng.randrange(len(kept))] = sql[:2000]
        connection.request("POST", "/query/sql", json.dumps({"sql": sql}))
        answer = json.loads(connection.getresponse().read())
        codes = [entry["errorCode"] for entry in answer["exceptions"]]
        if said or {450, 1000, 500} & set(codes) or len(str(answer["exceptions"])) > 20_000:
            problems.append(f"{sql!r}\n  {str(answer['exceptions'])[:300]}\n  {' '.join(said)[-1500:]}")
            said.clear()
            if len(problems) == 5:
                break
    return problems
