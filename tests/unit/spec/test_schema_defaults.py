"""The values that stand for null are Pinot's, and can be declared."""

import math
from decimal import Decimal

import pytest
from pydantic import ValidationError

from merlot.spec.schema import FieldRole, FieldSpec
from merlot.values.scalars import FieldValue
from merlot.values.types import TypeName


def default_of(type_name: TypeName, role: FieldRole = FieldRole.DIMENSION, declared: object = None) -> FieldValue:
    document = {"name": "x", "type": type_name, "role": role, "defaultNullValue": declared}
    if role is FieldRole.DATE_TIME:
        document["format"] = "TIMESTAMP"
    return FieldSpec.model_validate({key: value for key, value in document.items() if value is not None}).default_value


@pytest.mark.parametrize(
    ("type_name", "expected"),
    [
        (TypeName.INT, -(2**31)),
        (TypeName.LONG, -(2**63)),
        (TypeName.FLOAT, -math.inf),
        (TypeName.DOUBLE, -math.inf),
        (TypeName.BIG_DECIMAL, Decimal(0)),
        (TypeName.BOOLEAN, False),
        (TypeName.TIMESTAMP, 0),
        (TypeName.STRING, "null"),
        (TypeName.JSON, "null"),
        (TypeName.BYTES, b""),
    ],
)
def test_default_of_a_dimension(type_name: TypeName, expected: FieldValue) -> None:
    value = default_of(type_name)
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize("type_name", [TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE])
def test_default_of_a_metric_is_zero(type_name: TypeName) -> None:
    assert default_of(type_name, FieldRole.METRIC) == 0


def test_default_of_a_date_time_is_that_of_a_dimension() -> None:
    assert default_of(TypeName.LONG, FieldRole.DATE_TIME) == -(2**63)
    assert default_of(TypeName.TIMESTAMP, FieldRole.DATE_TIME) == 0


@pytest.mark.parametrize(
    ("type_name", "declared", "expected"),
    [
        (TypeName.INT, -1, -1),
        (TypeName.LONG, "9223372036854775807", 2**63 - 1),
        (TypeName.FLOAT, 0.1, 0.10000000149011612),
        (TypeName.DOUBLE, "NaN", math.nan),
        (TypeName.DOUBLE, "-Infinity", -math.inf),
        (TypeName.BIG_DECIMAL, "12.50", Decimal("12.50")),
        (TypeName.BOOLEAN, True, True),
        (TypeName.BOOLEAN, "false", False),
        (TypeName.TIMESTAMP, "1970-01-02 00:00:00", 86_400_000),
        (TypeName.STRING, "", ""),
        (TypeName.JSON, "{}", "{}"),
        (TypeName.BYTES, "beef", b"\xbe\xef"),
    ],
)
def test_declared_default_is_typed(type_name: TypeName, declared: object, expected: FieldValue) -> None:
    value = default_of(type_name, declared=declared)
    assert value == expected or (value != value and expected != expected)
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("type_name", "declared"),
    [
        (TypeName.INT, 2**31),
        (TypeName.INT, 1.5),
        (TypeName.INT, True),
        (TypeName.LONG, "1_000"),
        (TypeName.LONG, "\u0661"),
        (TypeName.DOUBLE, "1_0.5"),
        (TypeName.DOUBLE, "1e999"),
        (TypeName.BIG_DECIMAL, "1_000"),
        (TypeName.TIMESTAMP, "1_000"),
        (TypeName.JSON, "NaN"),
        (TypeName.FLOAT, "1e60"),
        (TypeName.BIG_DECIMAL, "NaN"),
        (TypeName.BOOLEAN, 2),
        (TypeName.TIMESTAMP, "noon"),
        (TypeName.TIMESTAMP, "99999999999999999999"),
        (TypeName.TIMESTAMP, 2**63),
        (TypeName.STRING, 3),
        (TypeName.JSON, "{"),
        (TypeName.JSON, "[" * 100_000),
        (TypeName.BYTES, "xyz"),
    ],
)
def test_default_that_the_type_cannot_hold_is_refused(type_name: TypeName, declared: object) -> None:
    with pytest.raises(ValidationError, match=f"is no {type_name}"):
        default_of(type_name, declared=declared)
