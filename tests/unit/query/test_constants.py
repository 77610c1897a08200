"""A constant is worth what a column of that value is: both are computed by the same code."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from merlot.errors import MerlotError
from merlot.query.plan.binding import bind
from merlot.sql.parse import parse
from merlot.tree.nodes import Call, Literal
from merlot.tree.types import STRING

_TEXTS = [
    "",
    "a",
    "Straße",
    "ß",
    "İ",
    "ı",
    "ǆ",
    "ﬁ",
    "Ωμέγα ΣΑΣ",
    "日本",
    "é",
    "e\u0301",
    "😀x",
    "it's",
    "a\\b",
    "  12.7 ",
    "0x1F",
]
_TEXTS += ["-0", "1e3", "1_000", "٣", "+5", "9223372036854775808", "true", "FALSE", "NaN", "-inf", "Infinity", "ff00"]
_TEXTS += ["2013-01-01", "2013-01-01 05:06:07.8", "2013-02-30 00:00:00", "20130101", "1356998400000", "0001-01-01"]
_TEXT_CALLS = ["upper({})", "lower({})", "length({})", "concat({}, 'x', '-')", "{} || {}", "substr({}, 1)"]
_TEXT_CALLS += ["substr({}, 0, 2)", "substr({}, -3, -1)", "CAST({} AS INT)", "CAST({} AS LONG)", "CAST({} AS DOUBLE)"]
_TEXT_CALLS += ["CAST({} AS FLOAT)", "CAST({} AS BOOLEAN)", "CAST({} AS TIMESTAMP)", "CAST({} AS BIG_DECIMAL)"]
_TEXT_CALLS += ["CAST({} AS BYTES)", "upper(lower({}))"]
_LONGS = [0, 1, -1, 7, -7, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63) + 1, -(2**63), 253402300800000]
_DOUBLES = ["0.0", "-0.5", "1.5", "1e16", "1e300", "-1e-300", "9.3e18", "123456789.125"]
_NUMBER_CALLS = ["{} + 1", "{} - 1", "{} * 3", "{} * {}", "{} / 3", "{} % 7", "{} % -1", "7 % {}", "-{}", "abs({})"]
_NUMBER_CALLS += [
    "CAST({} AS INT)",
    "CAST({} AS LONG)",
    "CAST({} AS FLOAT)",
    "CAST({} AS DOUBLE)",
    "CAST({} AS STRING)",
]
_NUMBER_CALLS += [
    "CAST({} AS BOOLEAN)",
    "CAST({} AS BIG_DECIMAL)",
    "CAST({} AS TIMESTAMP)",
    "CAST({} AS BIG_DECIMAL) * {}",
]
_TIME_CALLS = [f"DATETRUNC('{unit}', {{}})" for unit in ("second", "day", "week", "month", "year")]
_TIME_CALLS += ["DATETRUNC('hour', {}, 'SECONDS', 'Europe/Berlin', 'DAYS')", "DATETRUNC('day', {}, 'HOURS')"]
_TIME_CALLS += ["CAST(CAST({} AS TIMESTAMP) AS STRING)"]
_FIELDS = [
    {"name": "id", "type": "INT"},
    {"name": "s", "type": "STRING"},
    {"name": "l", "type": "LONG", "role": "metric"},
    {"name": "d", "type": "DOUBLE", "role": "metric"},
]


def _cases() -> list[tuple[str, str, list[tuple[Any, str]]]]:
    texts = [(text, "'" + text.replace("'", "''") + "'") for text in _TEXTS]
    longs = [(number, str(number)) for number in _LONGS]
    doubles = [(float(text), text) for text in _DOUBLES]
    cases = [("s", call, texts) for call in _TEXT_CALLS]
    cases += [("l", call, longs) for call in _NUMBER_CALLS + _TIME_CALLS]
    return cases + [("d", call, doubles) for call in _NUMBER_CALLS]


def _answer(table: Any, sql: str) -> str:
    try:
        return json.dumps(table.query(sql))
    except MerlotError as error:
        return f"{error.code} {error}"


@pytest.mark.parametrize(("column", "call", "values"), _cases(), ids=lambda one: one if isinstance(one, str) else "")
def test_a_call_of_a_constant_is_that_of_a_column(make_table, column, call, values):
    table = make_table(_FIELDS, [{"id": number, column: value} for number, (value, _) in enumerate(values)])
    for number, (_, text) in enumerate(values):
        where = f"FROM t WHERE id = {number}"
        of_column = _answer(table, f"SELECT {call.replace('{}', column)} {where}")
        # LONG constants, however small.
        constant = f"CAST({text} AS LONG)" if column == "l" else f"({text})"
        assert _answer(table, f"SELECT {call.replace('{}', constant)} {where}") == of_column, (call, text)


def test_a_constant_without_a_value_fails_only_where_a_row_asks_for_it(make_table):
    table = make_table(_FIELDS, [{"id": number} for number in range(5)])
    for call in ("5 % 0", "9223372036854775807 + 1", "CAST('x' AS INT)", "ABS(-9223372036854775807 - 1)"):
        assert table.query(f"SELECT {call} FROM t WHERE id > 9") == []
        assert table.query(f"SELECT CASE WHEN id > 9 THEN {call} ELSE 1 END FROM t LIMIT 1") == [[1]]
        assert table.query(f"SELECT COUNT(*) FROM t WHERE id > 9 AND {call} = 1") == [[0]]
        assert _answer(table, f"SELECT {call} FROM t").startswith("200 ")


def test_constants_are_worked_out_before_they_are_compared(make_table):
    table = make_table(_FIELDS, [{"id": number, "s": "Straße"} for number in range(5)])
    calls = ("upper('Straße')", "upper('Stra' || 'ße')", "substr('xStraße', 1)", "lower('STRASSE')")
    for first, second in itertools.combinations(calls, 2):
        both = f"SELECT COUNT(*) FROM t WHERE upper(s) IN ({first}, {second})"
        either = f"SELECT COUNT(*) FROM t WHERE upper(s) = {first} OR upper(s) = {second}"
        assert table.query(both) == table.query(either)
    assert table.query("SELECT COUNT(*) FROM t WHERE s LIKE concat('Stra', '%')") == [[5]]


def test_long_constants_stay_calls():
    """They are not kept with plans, nor worked out where others wait to be planned."""
    short, long = (
        bind(parse(f"SELECT REPEAT(REPEAT('a', 1000), {times})"), None).select[0].expr for times in (5, 5000)
    )
    assert short == Literal("a" * 5000, STRING)
    assert isinstance(long, Call)
    assert long.args[0] == Literal("a" * 1000, STRING)


@pytest.mark.parametrize(
    ("call", "is_worked_out"),
    [
        ("REPEAT('a', 10000)", True),
        ("UPPER(REPEAT('a', 4096))", True),
        ("UPPER(REPEAT('a', 4097))", False),
        ("CONCAT(REPEAT('a', 3000), REPEAT('b', 3000))", False),
        ("LEVENSHTEINDISTANCE(REPEAT('a', 10000), REPEAT('b', 10000))", False),
        ("LENGTH(TOUTF8(REPEAT('a', 4097)))", False),
    ],
)
def test_what_is_made_of_long_constants_is_left_to_the_rows(call: str, is_worked_out: bool) -> None:
    (output,) = bind(parse(f"SELECT {call}"), None).select
    assert isinstance(output.expr, Literal if is_worked_out else Call)
