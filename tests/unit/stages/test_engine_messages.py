"""What DuckDB says of numbers, said by the engine that is installed, in our words."""

import duckdb
import pytest

from merlot.errors import first_line
from merlot.query.stages.engine_messages import DOES_NOT_FIT, of_number

NINES = "'" + "9" * 38 + "'"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("9223372036854775807 + x::BIGINT", "LONG overflow in addition"),
        ("9223372036854775807 * (x + 1)::BIGINT", "LONG overflow in multiplication"),
        ("-(x::BIGINT - 9223372036854775807 - 2)", "overflow in negation"),
        ("abs(x::BIGINT - 9223372036854775807 - 2)", "overflow in ABS"),
        ("(x + 9223372036854775806)::BIGINT::INT", "number is out of range of INT value=9223372036854775807"),
        ("(sum((x + 9223372036854775806)::BIGINT) OVER () * 2)::BIGINT", "SUM is out of range of LONG value=1844"),
        ("(x * 1e300::DOUBLE)::FLOAT", "number is out of range of FLOAT value=1e+300"),
        (f"{NINES}::DECIMAL(38, 0) * (x + 1)::DECIMAL(38, 0)", "BIG_DECIMAL overflow in multiplication"),
        (f"{NINES}::DECIMAL(38, 0) + x::DECIMAL(38, 0)", "BIG_DECIMAL overflow in addition"),
        ("(x || 'abc')::INT", "value is no INT value='1abc'"),
        (f"(x || {NINES})::DECIMAL(38, 10)", "value is no BIG_DECIMAL"),
    ],
)
def test_a_number_that_does_not_fit_is_told_in_pinot_s_types(expression, said):
    with duckdb.connect() as connection, pytest.raises(duckdb.Error) as raised:
        connection.sql(f"SELECT {expression} FROM (VALUES (1)) AS v (x)").fetchall()
    assert isinstance(raised.value, duckdb.OutOfRangeException | duckdb.ConversionException)
    assert of_number(first_line(raised.value)).startswith(said)


def test_what_is_new_to_us_is_no_word_of_the_engine():
    assert of_number("Out of Range Error: INTERNAL c0.c1") == DOES_NOT_FIT
