"""Constants: their types, conversions and texts."""

import math
from decimal import Decimal

import pytest

from merlot.tree import literals
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Literal, Value
from merlot.tree.types import BOOLEAN, BYTES, DOUBLE, FLOAT, INT, LONG, STRING, TIMESTAMP, SqlType
from merlot.values.types import TypeName


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("0", 0, "INT"),
        ("-2147483648", -(2**31), "INT"),
        ("2147483648", 2**31, "LONG"),
        ("-9223372036854775808", -(2**63), "LONG"),
        ("9223372036854775808", Decimal(2**63), "BIG_DECIMAL"),
        ("1.0", 1.0, "DOUBLE"),
        ("1e3", 1000.0, "DOUBLE"),
        (".5", 0.5, "DOUBLE"),
        ("0.1000000000000000055511151231257827", Decimal("0.1000000000000000055511151231257827"), "BIG_DECIMAL"),
    ],
)
def test_numbers_have_the_smallest_type_that_holds_them(text: str, value: Value, type_: str) -> None:
    literal = literals.number(text)
    assert (literal.value, str(literal.type)) == (value, type_)
    assert type(literal.value) is type(value)


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (5.9, DOUBLE, INT, 5),
        (-5.9, DOUBLE, INT, -5),
        ("12", STRING, LONG, 12),
        (" 12.7 ", STRING, INT, 12),
        (True, BOOLEAN, INT, 1),
        (1, INT, BOOLEAN, True),
        ("TRUE", STRING, BOOLEAN, True),
        (True, BOOLEAN, STRING, "true"),
        ("ff00", STRING, BYTES, b"\xff\x00"),
        (b"\xff\x00", BYTES, STRING, "ff00"),
        (1356998400000, TIMESTAMP, STRING, "2013-01-01 00:00:00.0"),
        (1356998400120, TIMESTAMP, STRING, "2013-01-01 00:00:00.12"),
        (0.1, DOUBLE, FLOAT, 0.10000000149011612),
        (None, SqlType(TypeName.UNKNOWN), INT, None),
    ],
)
def test_conversion_follows_cast(value: Value, source: SqlType, target: SqlType, expected: Value) -> None:
    converted = literals.convert(Literal(value, source), target)
    assert (converted.value, converted.type) == (expected, target)


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        ("abc", STRING, INT),
        (3e9, DOUBLE, INT),
        (math.inf, DOUBLE, LONG),
        (2, INT, BOOLEAN),
        ("xyz", STRING, BYTES),
        (5, INT, BYTES),
        ("not a day", STRING, TIMESTAMP),
    ],
)
def test_what_has_no_value_of_the_type_is_refused(value: Value, source: SqlType, target: SqlType) -> None:
    with pytest.raises(SqlValidationError):
        literals.convert(Literal(value, source), target)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1970-01-01", 0),
        ("1969-12-31 23:59:59.999", -1),
        ("2013-01-01 00:00:00", 1356998400000),
        ("2013-01-01T00:00:00Z", 1356998400000),
        ("2013-01-01T00:00:00-05:00", 1357016400000),
        ("1356998400000", 1356998400000),
        ("-1", -1),
    ],
)
def test_timestamps_are_utc_unless_they_say_otherwise(text: str, millis: int) -> None:
    assert literals.timestamp_millis(text) == millis


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (-(2**63), "-292275055-05-16 16:47:04.192"),
        (2**63 - 1, "292278994-08-17 07:12:55.807"),
        (253402300799999, "9999-12-31 23:59:59.999"),
        (253402300800000, "10000-01-01 00:00:00.0"),
        (-62135596800000, "0001-01-01 00:00:00.0"),
        (-62135596800001, "0000-12-31 23:59:59.999"),
        (-62167219200001, "-0001-12-31 23:59:59.999"),
    ],
)
def test_the_calendar_of_texts_goes_on_to_both_ends_of_long(millis: int, text: str) -> None:
    assert literals.timestamp_text(millis) == text
    assert literals.timestamp_millis(text) == millis


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3.4028234663852886e38, 3.4028234663852886e38),
        (3.4028235e38, 3.4028234663852886e38),
        (1e39, math.inf),
        (-1e39, -math.inf),
        (math.inf, math.inf),
        (1e-50, 0.0),
    ],
)
def test_floats_round_to_the_nearest_float32(value: float, expected: float) -> None:
    assert literals.to_float32(value) == expected
