"""What one text may hold: as much as tools send, and an error that says the limit beyond that."""

from decimal import Decimal

import pytest
from tests.sql.slt_stages import bind_stages

from merlot.errors import InvalidInputError
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.spec.schema import TableSchema
from merlot.sql import limits
from merlot.sql.budget import Budget, PlanningCancelledError, PlanningTimeoutError
from merlot.sql.parse import parse, parse_statement
from merlot.testing.clock import FakeClock
from merlot.tree.errors import SqlParseError, SqlValidationError
from merlot.tree.nodes import Call
from merlot.vectors.decimals import plain_text
from merlot.vectors.errors import LimitExceededError

MAX_TOKENS, MAX_NAME_CHARS, MAX_OPTIONS, MAX_IN_VALUES, MAX_PREDICATES, MAX_ITEMS = 4_000, 1_000, 50, 1_000, 100, 100
SCHEMA = TableSchema.model_validate({"fields": [{"name": name, "type": "INT"} for name in ("a", "b")]})


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real ones take seconds to reach."""
    for name in ("MAX_TOKENS", "MAX_OPTIONS", "MAX_IN_VALUES", "MAX_PREDICATES", "MAX_ITEMS"):
        monkeypatch.setattr(limits, name, globals()[name])


def chain(word: str, condition: str, count: int) -> str:
    return "SELECT a FROM t WHERE " + f" {word} ".join(condition.format(number) for number in range(count))


def listed(count: int) -> str:
    return ",".join(map(str, range(count)))


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize(
    ("sql", "error", "limit"),
    [
        (chain("OR", "a={}", MAX_PREDICATES + 2), SqlValidationError, MAX_PREDICATES),
        (chain("AND", "a>{}", MAX_PREDICATES + 2), SqlValidationError, MAX_PREDICATES),
        ("SELECT CASE " + "WHEN a=1 THEN 2 " * (MAX_PREDICATES + 1) + "END FROM t", SqlValidationError, MAX_PREDICATES),
        ("SELECT " + "a," * MAX_ITEMS + "a,a FROM t", SqlValidationError, MAX_ITEMS),
        ("SELECT a FROM t GROUP BY " + "a," * MAX_ITEMS + "a,a", SqlValidationError, MAX_ITEMS),
        ("SELECT " + "*," * (MAX_ITEMS - 1) + "* FROM t", SqlValidationError, MAX_ITEMS),
        (f"SELECT a FROM t WHERE a IN ({listed(MAX_IN_VALUES + 1)})", SqlValidationError, MAX_IN_VALUES),
        (
            f"SELECT a FROM t WHERE a IN ({listed(600)}) OR b IN ({listed(600)})",
            SqlValidationError,
            MAX_IN_VALUES,
        ),
        ("SELECT a FROM t " + "OPTION(x=1)" * (MAX_OPTIONS + 1), SqlParseError, MAX_OPTIONS),
        ("SET x=1;" * (MAX_OPTIONS + 1) + "SELECT a FROM t", SqlParseError, MAX_OPTIONS),
        ("SELECT a FROM t OPTION(" + "x=1," * MAX_OPTIONS + "x=1)", SqlParseError, MAX_OPTIONS),
        ("SELECT " + "a " * MAX_TOKENS, SqlParseError, MAX_TOKENS),
        ("SELECT " + "x" * (MAX_NAME_CHARS + 1) + " FROM t", SqlParseError, MAX_NAME_CHARS),
        ('SELECT a AS "' + "x" * (MAX_NAME_CHARS + 1) + '" FROM t', SqlParseError, MAX_NAME_CHARS),
    ],
    ids=lambda value: f"{value[:20]}…{len(value)}" if isinstance(value, str) else None,
)
def test_more_than_the_limit_is_refused_and_the_limit_named(
    sql: str, error: type[InvalidInputError], limit: int
) -> None:
    with pytest.raises(error, match=f"limit={limit}$") as caught:
        bind(parse(sql), SCHEMA)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "opening",
    [
        *("(", "[", "ARRAY[", "a[", "f(", "f(DISTINCT ", "CASE WHEN ", "CASE ", "CAST(", "EXTRACT(YEAR FROM ", "TRIM("),
        *(
            "(a, ",
            "a IN (",
            "a IN (SELECT ",
            "(SELECT ",
            "EXISTS (SELECT ",
            "a = ANY (SELECT ",
            "1 + (",
            "NOT (",
            "- (",
        ),
        *("f(a) FILTER (WHERE ", "f(a) OVER (ORDER BY ", "SUBSTRING(", "a IN (1) AND (", "a BETWEEN (", "a LIKE ("),
    ],
)
def test_what_opens_and_opens_is_refused_at_the_limit(opening: str) -> None:
    for count in (limits.MAX_NESTING + 1, 3_000):
        with pytest.raises(SqlParseError, match=f"nested deeper than {limits.MAX_NESTING} levels"):
            parse("SELECT " + opening * count)


@pytest.mark.parametrize("opening", ["SELECT * FROM (", "(", "WITH a AS (", "SELECT a FROM t GROUP BY GROUPING SETS ("])
def test_queries_that_open_and_open_are_refused_at_the_limit(opening: str) -> None:
    repeated = opening if " GROUPING" not in opening else "GROUPING SETS ("
    for count in (limits.MAX_NESTING + 1, 3_000):
        with pytest.raises(SqlParseError, match=f"nested deeper than {limits.MAX_NESTING} levels"):
            parse_statement(opening + repeated * count + "SELECT 1")


@pytest.mark.parametrize("sign", ["+", "-", "*", "||", "+a*"])
def test_more_operators_in_a_row_than_the_tree_may_have_levels_are_refused(sign: str) -> None:
    with pytest.raises(SqlParseError, match=f"nested deeper than {limits.MAX_CHAIN} levels"):
        parse("SELECT " + f"a{sign}" * (limits.MAX_CHAIN + 1) + "a FROM t")


@pytest.mark.parametrize("sign", ["- ", "+ ", "NOT "])
def test_more_signs_in_a_row_than_the_limit_are_refused(sign: str) -> None:
    parse("SELECT " + sign * limits.MAX_RUN + "a FROM t")
    with pytest.raises(SqlParseError, match="nested deeper"):
        parse("SELECT " + sign * (limits.MAX_RUN + 1) + "a FROM t")


def test_more_queries_in_a_row_than_the_limit_are_refused() -> None:
    parse_statement(" UNION ALL ".join(["SELECT a FROM t"] * 90))
    with pytest.raises(SqlParseError, match=f"too many queries joined limit={limits.MAX_TERMS}"):
        parse_statement(" UNION ALL ".join(["SELECT a FROM t"] * (limits.MAX_TERMS + 2)))


@pytest.mark.usefixtures("low_limits")
def test_as_much_as_the_limit_is_answered() -> None:
    for sql in (
        chain("OR", "a={}", MAX_PREDICATES),
        f"SELECT a FROM t WHERE a IN ({listed(MAX_IN_VALUES)})",
        "SELECT " + "a," * MAX_ITEMS + "a FROM t",
        "SELECT a FROM t OPTION(" + "x=1," * (MAX_OPTIONS - 1) + "x=1)",
        "SELECT " + "1 IN (1,2), " * 10 + "1",
    ):
        bind(parse(sql), SCHEMA if " FROM " in sql else None)


@pytest.mark.usefixtures("low_limits")
def test_columns_that_double_with_each_query_are_refused() -> None:
    queries = ["q0 AS (SELECT 1 AS x)", *(f"q{to + 1} AS (SELECT * FROM q{to} AS p, q{to} AS q)" for to in range(40))]
    for sql in (f"WITH {', '.join(queries)} SELECT 1 FROM q40", "SELECT " + "p.*, " * 51 + "1 FROM t AS p, t AS q"):
        with pytest.raises(SqlValidationError, match=f"too many columns in SELECT .*limit={MAX_ITEMS}$"):
            bind_stages(parse_statement(sql), {"t": SCHEMA})


def test_columns_of_stars_with_one_name_are_numbered() -> None:
    bound = bind_stages(parse_statement("SELECT p.a, *, p.a AS a1, p.* FROM t AS p, t AS q"), {"t": SCHEMA})
    assert [output.label for output in bound.query.outputs] == ["a", "a0", "b", "a1", "b0", "a1", "a2", "b1"]


@pytest.mark.parametrize("keys", ["ROLLUP({})", "CUBE({})", "GROUPING SETS ({})"])
def test_more_grouping_sets_than_the_limit_are_refused(keys: str) -> None:
    for count in (128, 9_000):
        with pytest.raises(SqlValidationError, match="too many grouping sets limit=128"):
            bind_stages(parse_statement(f"SELECT 1 FROM t GROUP BY {keys.format('a,' * count + 'b')}"), {"t": SCHEMA})


def test_rows_that_a_query_begins_with_are_read_once() -> None:
    """They would be read twice at each level, and counted twice against the limit."""
    rows = ",".join(f"({number})" for number in range(limits.MAX_ITEMS - 100))
    query = f"SELECT * FROM (VALUES {rows} ORDER BY 1 LIMIT 1) AS v (x)"
    for _ in range(11):
        query = f"SELECT x FROM (VALUES ({query}) LIMIT 1) AS v (x)"
    assert parse_statement(query).has_stages


def nested(form: str, levels: int) -> str:
    made = "a"
    for _ in range(levels):
        made = form.format(made)
    return f"SELECT {made} FROM t WHERE {made} = 1"


@pytest.mark.parametrize(
    "form",
    [
        "COALESCE({}, 1)",
        "NULLIF({}, b)",
        "CASE {} WHEN 1 THEN 1 WHEN 2 THEN 2 WHEN 3 THEN 3 END",
        "CASE WHEN {} BETWEEN b AND 7 + b THEN 1 ELSE 2 END",
        "CASE WHEN {} IN (b, 2 * b) THEN 1 ELSE 2 END",
        "CASE WHEN {} IS NOT DISTINCT FROM b THEN 1 ELSE 2 END",
    ],
)
@pytest.mark.parametrize("nulls", ["true", "false"])
def test_operands_that_double_with_each_level_are_refused(form: str, nulls: str) -> None:
    options = {"enableNullHandling": nulls}
    assert bind(parse(nested(form, 3)), SCHEMA, options).where
    with pytest.raises(SqlValidationError, match="repeats its operands too often"):
        bind(parse(nested(form, 22)), SCHEMA, options)


def test_subject_that_many_branches_repeat_is_refused() -> None:
    subject = " + ".join(["a"] * 50)
    for form in (f"CASE {subject} " + "WHEN b THEN 1 " * 2_000 + "END = 1", f"{subject} IN (" + "b, " * 2_000 + "b)"):
        with pytest.raises(SqlValidationError, match="repeats its operands too often"):
            bind(parse(f"SELECT a FROM t WHERE {form}"), SCHEMA)


def test_label_that_triples_with_each_level_is_refused() -> None:
    case = "a"
    for _ in range(20):
        case = f"CASE {case} WHEN NULL THEN 1 WHEN NULL THEN 2 WHEN NULL THEN 3 ELSE 4 END"
    with pytest.raises(SqlValidationError, match="name the expression with AS"):
        bind(parse(f"SELECT {case} FROM t"), SCHEMA)
    assert bind(parse(f"SELECT {case} AS c FROM t"), SCHEMA).select[0].label == "c"


def test_a_chain_of_equalities_is_a_list() -> None:
    for word, operator, function in (("OR", "=", "in"), ("AND", "<>", "not_in")):
        where = bind(parse(chain(word, "a" + operator + "{}", 500) + f" {word} b {operator} 7"), SCHEMA).where
        assert isinstance(where, Call)
        in_list, other = where.args
        assert isinstance(in_list, Call)
        assert (in_list.function, len(in_list.args)) == (function, 501)
        assert isinstance(other, Call)
        assert other.function == ("equals" if word == "OR" else "not_equals")


def test_many_aggregates_and_keys_are_planned() -> None:
    keys = ",".join(f"a+{number}" for number in range(500))
    sums = ",".join(f"SUM(b+{number})" for number in range(500))
    made = plan(bind(parse(f"SELECT {keys},{sums} FROM t GROUP BY {keys}"), SCHEMA))
    work = made.leaf.work
    assert (len(work.keys), len(work.aggregates), len(made.finish.outputs)) == (500, 500, 1_000)


LONG = chain("OR", "(a={} AND b>7)", 500)


def test_parsing_and_binding_end_at_the_deadline_and_when_nobody_waits() -> None:
    clock = FakeClock()
    parsed = parse(LONG, Budget(clock.monotonic(), clock))
    bind(parsed, SCHEMA, budget=Budget(clock.monotonic(), clock))
    late, given_up = Budget(clock.monotonic() - 1, clock), Budget()
    given_up.withdraw()
    for budget, error in ((late, PlanningTimeoutError), (given_up, PlanningCancelledError)):
        with pytest.raises(error):
            parse(LONG, budget)
        with pytest.raises(error):
            bind(parsed, SCHEMA, budget=budget)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t ORDER BY {digits}",
        "SELECT a FROM t GROUP BY {digits}",
        "SELECT a FROM t UNION SELECT b FROM t ORDER BY {digits}",
        "SELECT a FROM t WHERE a = {digits}",
        "SELECT a FROM t WHERE a IN (1, {digits})",
        "SELECT a FROM t LIMIT {digits}",
        "SELECT a FROM t OFFSET {digits}",
        "SELECT ROUND(a, {digits}) FROM t",
        "SELECT DISTINCTCOUNTTHETASKETCH(a, 'nominalEntries={digits}') FROM t",
        "SELECT DISTINCTCOUNTRAWCPCSKETCH(a, 'nominalEntries={digits}') FROM t",
        "SELECT FUNNELMAXSTEP(a, 10, {digits}, a = 1) FROM t",
        "SELECT FUNNELMAXSTEP(a, 10, 1, a = 1, 'MAXSTEPDURATION={digits}') FROM t",
        "SELECT DATETIMECONVERT(a, '{digits}:MILLISECONDS:EPOCH', '1:DAYS:EPOCH', '1:DAYS') FROM t",
        "SELECT DATETIMECONVERT(a, '1:MILLISECONDS:EPOCH', '1:DAYS:EPOCH', '{digits}:DAYS') FROM t",
        "SELECT a, LAG(a, {digits}) OVER (ORDER BY a) FROM t",
        "SELECT a, NTILE({digits}) OVER (ORDER BY a) FROM t",
        "SELECT SUM(a) OVER (ORDER BY a ROWS BETWEEN {digits} PRECEDING AND CURRENT ROW) FROM t",
    ],
)
def test_number_of_more_digits_than_python_reads_is_refused(sql: str) -> None:
    text = sql.format(digits="9" * 5_000)
    with pytest.raises(InvalidInputError) as caught:
        bind_stages(parse_statement(text), {"t": SCHEMA})
    assert len(str(caught.value)) < 1_000
    with pytest.raises(InvalidInputError):
        bind(parse(text), SCHEMA, {})


@pytest.mark.parametrize("digit", ["\u00b2", "\u0663", "\u00bd"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t WHERE a = {digit}",
        "SELECT a FROM t WHERE a = 1 AND a = {digit}",
        "SELECT a FROM t WHERE a = 1 OR a = {digit}",
        "SELECT a + '{digit}' FROM t",
        "SELECT .{digit} FROM t",
        "SELECT a FROM t LIMIT {digit}",
        "SELECT a FROM t ORDER BY {digit}",
        "SELECT SUM(a) OVER (ORDER BY b RANGE BETWEEN .{digit} PRECEDING AND CURRENT ROW) FROM t",
        "SELECT SUM(a) OVER (ORDER BY b RANGE BETWEEN {digit} PRECEDING AND CURRENT ROW) FROM t",
    ],
)
def test_digits_beyond_ascii_are_no_number(sql: str, digit: str) -> None:
    with pytest.raises(InvalidInputError):
        bind_stages(parse_statement(sql.format(digit=digit)), {"t": SCHEMA})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1e-9999999999 FROM t",
        "SELECT a FROM t WHERE a = 1e-9999999999",
        "SELECT a FROM t WHERE a IN (1, 1e-9999999999)",
        "SELECT 0." + "0" * 20_000 + "1 FROM t",
    ],
)
def test_number_of_a_fraction_without_end_is_refused(sql: str) -> None:
    with pytest.raises(SqlValidationError, match="digits after the point"):
        bind(parse(sql), SCHEMA, {})


def test_decimal_without_end_is_not_written() -> None:
    for text in ("1e-9999999999", "1e9999999999"):
        with pytest.raises(LimitExceededError, match="too many digits"):
            plain_text(Decimal(text))
    assert len(plain_text(Decimal("1e-999999"))) == 1_000_001
