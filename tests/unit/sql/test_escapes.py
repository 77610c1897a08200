"""Escapes of ODBC are read as the expressions that they stand for; malformed ones are refused where they go wrong."""

import pytest

from merlot.functions.registry import callable_as
from merlot.sql import escapes
from merlot.sql.node_text import node_text
from merlot.sql.parse import parse_statement
from merlot.tree.errors import SqlParseError, SqlValidationError


def read(expression: str) -> str:
    text = node_text(parse_statement(f"SELECT {expression} FROM t").tree)
    return text.removeprefix("SELECT ").removesuffix(' FROM "t"')


@pytest.mark.parametrize(
    ("escape", "meaning"),
    [
        ("{fn UCASE(a)}", "UPPER(a)"),
        ("{fn lcase({fn left(a, 2)})}", "LOWER(LEFTSUBSTR(a, 2))"),
        ("{fn ABS(a)} + 1", "ABS(a) + 1"),
        ("{fn ROUND(a, 2)}", "ROUNDDECIMAL(a, 2)"),
        ("{fn LOCATE('x', a)}", "(STRPOS(a, 'x') + 1)"),
        ("{fn CONVERT(a, SQL_BIGINT)}", "CAST(a AS BIGINT)"),
        ("{fn CONVERT(a, SQL_INTEGER)}", "CAST(a AS INT)"),
        ("{fn TIMESTAMPADD(SQL_TSI_DAY, 1, a)}", "TIMESTAMPADD('DAY', 1, a)"),
        ("{fn DAYOFWEEK(a)}", "(DAYOFWEEK(a) % 7 + 1)"),
        ("{fn EXTRACT(YEAR FROM a)}", "EXTRACT(YEAR FROM a)"),
        ("{ts '2020-01-31 10:00:00'}", "CAST('2020-01-31 10:00:00' AS TIMESTAMP)"),
        ("{d '2020-01-31'}", "CAST('2020-01-31' AS TIMESTAMP)"),
        ("DATE '2020-01-31'", "CAST('2020-01-31' AS TIMESTAMP)"),
    ],
)
def test_an_escape_is_read_as_what_it_stands_for(escape: str, meaning: str) -> None:
    assert read(escape) == meaning


@pytest.mark.parametrize("escape", ["{", "{}", "{fn}", "{fn 5}", "{fn ABS(a}", "{fn ABS(a)", "{d 5}", "{ts}"])
def test_a_malformed_escape_is_a_syntax_error(escape: str) -> None:
    with pytest.raises(SqlParseError):
        read(escape)


@pytest.mark.parametrize("escape", ["{d '2020-1-31'}", "DATE '2020'", "{fn CONVERT(a)}", "{fn LOCATE(a)}"])
def test_an_escape_that_makes_no_sense_says_why(escape: str) -> None:
    with pytest.raises(SqlValidationError, match=r"is written as|takes"):
        read(escape)


def test_functions_of_escapes_exist() -> None:
    assert all(callable_as(name) for name in escapes._NAMES.values())
