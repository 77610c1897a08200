"""BIG_DECIMAL past the 28 digits that Python rounds to by itself."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from random import Random

import pytest
from tests.budget import count

from merlot.spec.indexing import IndexingSpec
from merlot.vectors.decimals import exactly, plain_text
from merlot.vectors.errors import QueryArithmeticError

FIELDS = [{"name": "k", "type": "INT"}, {"name": "n", "type": "BIG_DECIMAL"}]
LARGE = "1" + "0" * 40
ROWS = [{"k": 1, "n": LARGE}, {"k": 2, "n": "1.5"}, {"k": 3, "n": "-" + LARGE}]


@pytest.mark.parametrize("pieces", [[ROWS], [ROWS[:1], ROWS[1:2], ROWS[2:]]])
def test_sums_are_exact_in_a_segment_and_over_several(make_table, pieces):
    table = make_table(FIELDS, *pieces)
    assert table.query("SELECT SUM(n), AVG(n) FROM t") == [[1.5, 0.5]]
    assert table.query("SELECT k % 1, SUM(n) FROM t GROUP BY k % 1") == [[0, 1.5]]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("n + 1.5", LARGE[:-1] + "1.5"),
        ("n - 1", "9" * 40),
        ("(n + 1) * 3", "3" + "0" * 39 + "3"),
        ("-(n + 1)", "-" + LARGE[:-1] + "1"),
        ("ABS(-(n + 1))", LARGE[:-1] + "1"),
        ("(n + 1) % 10", "1"),
        (f"n + (CAST('{LARGE}' AS BIG_DECIMAL) - 1)", "1" + "9" * 40),
    ],
)
def test_arithmetic_keeps_every_digit(make_table, sql, expected):
    table = make_table(FIELDS, ROWS)
    assert table.query(f"SELECT {sql} FROM t WHERE k = 1") == [[expected]]


@pytest.mark.parametrize(
    "value", [f"n + {LARGE}", "CAST((k - 1) / 0.0 AS BIG_DECIMAL)", "CAST(k / 0.0 AS BIG_DECIMAL)"]
)
def test_casting_what_no_whole_number_holds_is_a_query_error(make_table, value):
    table = make_table(FIELDS, [{"k": 1, "n": "1"}])
    with pytest.raises(QueryArithmeticError, match="does not fit"):
        table.query(f"SELECT CAST({value} AS LONG) FROM t")


SAME = [{"k": 1, "n": "1.5"}, {"k": 2, "n": "2"}, {"k": 3, "n": "-2"}, {"k": 4, "n": "-1.5"}, {"k": 5, "n": "0"}]


@pytest.mark.parametrize("pieces", [[SAME], [SAME[:2], SAME[2:]]])
@pytest.mark.parametrize("indexing", [None, IndexingSpec(no_dictionary=("k", "n"))])
def test_equal_numbers_are_one_group_however_many_zeros_computing_them_left(make_table, pieces, indexing):
    table = make_table(FIELDS, *pieces, indexing=indexing)
    assert table.query("SELECT n - n, COUNT(*) FROM t GROUP BY n - n") == [["0", 5]]
    assert table.query("SELECT DISTINCTCOUNT(n * 1.50 - n * 1.5), DISTINCTCOUNT(n - n) FROM t") == [[1, 1]]
    squares = "SELECT DISTINCT n * n * CAST('1.00' AS BIG_DECIMAL) FROM t ORDER BY 1"
    assert table.query(squares) == [["0"], ["2.25"], ["4"]]
    assert table.query("SELECT CAST(n * 1.50 AS STRING), -(n - n) FROM t WHERE k = 2") == [["3", "0"]]


def test_a_default_value_is_the_number_that_it_is_written_as(make_table):
    late = {**FIELDS[1], "name": "late", "defaultNullValue": "1.50"}
    old = make_table(FIELDS, SAME).segments
    new = make_table([*FIELDS, late], [{"k": 6, "n": "1", "late": None}, {"k": 7, "n": "1", "late": "1.5"}])
    both = replace(new, segments=[*old, *new.segments])
    assert both.query("SELECT late, COUNT(*) FROM t GROUP BY late") == [["1.5", 7]]


EXPRESSIONS = {
    "n": lambda n, k: n,
    "n * n": lambda n, k: n * n,
    "n * (1 - n) * (1.5 + n)": lambda n, k: n * (1 - n) * (Decimal("1.5") + n),
    "k - n": lambda n, k: k - n,
    "-(n * 1000000000000)": lambda n, k: -(n * 10**12),
    "n * n * n * n": lambda n, k: n * n * n * n,
    "n + CAST('0.000000000001' AS BIG_DECIMAL)": lambda n, k: n + Decimal("0.000000000001"),
}
SIZES = ((10**4, 2), (10**9, 4), (10**18, 6), (10**30, 10))
"""How large numbers are, and how many digits they have after the point: all fit 64 bits, some, none."""


@pytest.mark.parametrize("seed", range(count("MERLOT_DECIMALS", quick=3, every=8)))
def test_sums_are_the_same_in_64_bits_and_beyond_them(make_table, seed):
    random = Random(seed)
    sizes = [random.choice(SIZES) for _ in range(3)]
    pieces = [
        [
            {"k": random.randrange(-3, 3), "n": None if random.random() < 0.1 else _number(random, *size)}
            for _ in range(random.choice((1, 9, 60)))
        ]
        for size in sizes
    ]
    indexing = random.choice((None, IndexingSpec(no_dictionary=("k", "n"))))
    table = make_table([FIELDS[0], {**FIELDS[1]}], *pieces, indexing=indexing)
    rows = [(row["k"], Decimal(row["n"] or "0"), row["n"] is None) for piece in pieces for row in piece]
    nulls = random.random() < 0.5
    option = f"SET enableNullHandling = {'true' if nulls else 'false'}; "
    for sql, function in EXPRESSIONS.items():
        with exactly():
            totals: dict[int, Decimal] = {}
            for k, n, is_null in rows:
                if not (nulls and is_null) and k != 2:
                    totals[k] = totals.get(k, Decimal(0)) + function(n, k)
        found = table.query(
            f"{option}SELECT k, SUMPRECISION({sql}), SUM({sql}) FROM t WHERE k <> 2 GROUP BY k LIMIT 99"
        )
        for k, exact, rounded in found:
            if k in totals:
                assert (exact, rounded) == (plain_text(totals[k]), float(totals[k]))
        with exactly():
            total = sum(totals.values(), Decimal(0))
        if totals:
            assert table.query(f"{option}SELECT SUMPRECISION({sql}) FROM t WHERE k <> 2") == [[plain_text(total)]]


COMPARISONS = {
    "=": lambda n, one, other: n == one,
    "<>": lambda n, one, other: n != one,
    "<": lambda n, one, other: n < one,
    "<=": lambda n, one, other: n <= one,
    ">": lambda n, one, other: n > one,
    ">=": lambda n, one, other: n >= one,
    "BETWEEN": lambda n, one, other: one <= n <= other,
    "NOT BETWEEN": lambda n, one, other: not one <= n <= other,
}


@pytest.mark.parametrize("seed", range(count("MERLOT_DECIMALS", quick=3, every=8)))
def test_comparisons_and_texts_are_the_same_in_64_bits_and_beyond_them(make_table, seed):
    random = Random(seed)
    sizes = [random.choice(SIZES) for _ in range(3)]
    pieces = [[{"k": row, "n": _number(random, *size)} for row in range(random.choice((1, 9, 90)))] for size in sizes]
    indexing = random.choice((None, IndexingSpec(no_dictionary=("n",))))
    table = make_table(FIELDS, *pieces, indexing=indexing)
    numbers = [Decimal(row["n"]) for piece in pieces for row in piece]
    few = table.query("SELECT n FROM t LIMIT 999")
    assert sorted(few) == sorted([[plain_text(number)] for number in numbers])
    assert table.query("SELECT n FROM t ORDER BY n LIMIT 999") == [[plain_text(number)] for number in sorted(numbers)]
    for operator, holds in COMPARISONS.items():
        size, places = random.choice(SIZES)
        chosen = [random.choice(numbers), Decimal(random.randrange(-size, size)).scaleb(-places - 1)]
        one, other = random.choice((sorted(chosen), chosen))
        limits = f"{_constant(one)} AND {_constant(other)}" if operator.endswith("BETWEEN") else _constant(one)
        with exactly():
            expected = sum(holds(number, one, other) for number in numbers)
            negated = sum(holds(-number, one, other) for number in numbers)
        found = table.query(f"SELECT COUNT(*) FROM t WHERE n {operator} {limits}")
        assert found == [[expected]], (operator, limits)
        assert table.query(f"SELECT COUNT(*) FROM t WHERE NOT n {operator} {limits}") == [[len(numbers) - expected]]
        assert table.query(f"SELECT COUNT(*) FROM t WHERE -n {operator} {limits}") == [[negated]], (operator, limits)


VALUES = {
    "CASE WHEN n > 1 THEN n * 2 WHEN k = 0 THEN 0.125 ELSE -n END": lambda n, k: (
        n * 2 if n > 1 else Decimal("0.125") if k == 0 else -n
    ),
    "COALESCE(n, k)": lambda n, k: n,
    "GREATEST(n, k, n + 0.5)": lambda n, k: max(n + Decimal("0.5"), Decimal(k)),
    "LEAST(n, k)": lambda n, k: min(n, Decimal(k)),
    "ABS(n - 1)": lambda n, k: abs(n - 1),
    "MOD(n, 7)": lambda n, k: n % 7,
    "ROUNDDECIMAL(n, 1)": lambda n, k: _rounded(n, 1, ROUND_HALF_UP),
    "ROUNDDECIMAL(n, -2)": lambda n, k: _rounded(n, -2, ROUND_HALF_UP),
    "TRUNCATE(n, 1)": lambda n, k: _rounded(n, 1, ROUND_DOWN),
    "FLOOR(n)": lambda n, k: _rounded(n, 0, ROUND_FLOOR),
    "CEIL(n)": lambda n, k: _rounded(n, 0, ROUND_CEILING),
    "SIGN(n)": lambda n, k: Decimal((n > 0) - (n < 0)),
    "CAST(CAST(n AS STRING) AS BIG_DECIMAL)": lambda n, k: n,
}
DOUBLES = {
    "CAST(n AS DOUBLE)": float,
    "n / 4": lambda n: float(n) / 4,
    "SQRT(ABS(n))": lambda n: math.sqrt(abs(float(n))),
}


@pytest.mark.parametrize("seed", range(count("MERLOT_DECIMALS", quick=2, every=4)))
def test_functions_are_the_same_in_64_bits_and_beyond_them(make_table, seed):
    random = Random(seed)
    sizes = [random.choice(SIZES) for _ in range(2)]
    pieces = [
        [{"k": random.randrange(-3, 3), "n": _number(random, *size)} for _ in range(random.choice((1, 9, 90)))]
        for size in sizes
    ]
    indexing = random.choice((None, IndexingSpec(no_dictionary=("k", "n"))))
    table = make_table(FIELDS, *pieces, indexing=indexing)
    rows = [(Decimal(row["n"]), row["k"]) for piece in pieces for row in piece]
    for sql, function in VALUES.items():
        with exactly():
            expected = sorted(function(n, k) for n, k in rows)
            groups = Counter(expected)
        texts = [[plain_text(value)] for value in expected]
        assert table.query(f"SELECT {sql} AS v FROM t ORDER BY v LIMIT 999") == texts, sql
        counted = [[plain_text(value), count] for value, count in sorted(groups.items())]
        assert table.query(f"SELECT {sql} AS v, COUNT(*) FROM t GROUP BY v ORDER BY v LIMIT 999") == counted, sql
        ends = [[float(expected[0]), float(expected[-1]), len(groups)]]
        assert table.query(f"SELECT MIN({sql}), MAX({sql}), DISTINCTCOUNT({sql}) FROM t") == ends, sql
    for sql, double_of in DOUBLES.items():
        found = table.query(f"SELECT {sql} AS v FROM t ORDER BY v LIMIT 999")
        assert found == sorted([double_of(n)] for n, _ in rows), sql
    chosen = random.sample(sorted({n for n, _ in rows}), min(3, len({n for n, _ in rows})))
    listed = ", ".join(_constant(one) for one in [*chosen, Decimal("0.123456789"), Decimal(10) ** 30])
    within = sum(n in chosen for n, _ in rows)
    assert table.query(f"SELECT COUNT(*) FROM t WHERE n + 0 IN ({listed})") == [[within]]
    assert table.query(f"SELECT COUNT(*) FROM t WHERE n + 0 NOT IN ({listed})") == [[len(rows) - within]]


def _rounded(number, scale, mode):
    return number.quantize(Decimal(1).scaleb(-scale), rounding=mode)


def _constant(number):
    return f"CAST('{plain_text(number)}' AS BIG_DECIMAL)"


def _number(random, size, places):
    return plain_text(Decimal(random.randrange(-size, size)).scaleb(-random.randrange(places + 1)))
