"""Casting one column: what fits, what does not, and that both ways of casting text agree."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from merlot.ingest.casts import CAST_TYPES, cast
from merlot.spec.types import TypeName

BAD = object()
UTC = dt.UTC


def outcome(source: pa.Array, target: TypeName) -> list[Any]:
    result = cast(source, target)
    assert result.values.type == CAST_TYPES[target]
    assert result.bad.null_count == 0
    values = result.values.to_pylist()
    assert all(value is None for value, bad in zip(values, result.bad.to_pylist(), strict=True) if bad)
    return [BAD if bad else value for value, bad in zip(values, result.bad.to_pylist(), strict=True)]


CASES: list[tuple[str, pa.Array, TypeName, list[Any]]] = [
    (
        "ints in range",
        pa.array([1, None, 2**31 - 1, 2**31, -(2**31) - 1]),
        TypeName.INT,
        [1, None, 2**31 - 1, BAD, BAD],
    ),
    ("unsigned", pa.array([1, 2**64 - 1], pa.uint64()), TypeName.LONG, [1, BAD]),
    ("whole doubles", pa.array([517.0, 1.5, math.nan, math.inf, None]), TypeName.INT, [517, BAD, BAD, BAD, None]),
    ("doubles at 2^63", pa.array([-(2.0**63), 2.0**63]), TypeName.LONG, [-(2**63), BAD]),
    ("decimals", pa.array([Decimal("7.00"), Decimal("7.01")]), TypeName.INT, [7, BAD]),
    ("text of ints", pa.array(["12", "-3", None]), TypeName.INT, [12, -3, None]),
    (
        "mixed text",
        pa.array(["12", " 5 ", "12.0", "x", "", "9999999999"]),
        TypeName.INT,
        [12, 5, 12, BAD, BAD, BAD],
    ),
    ("19 digits", pa.array(["9223372036854775807", "9223372036854775808"]), TypeName.LONG, [2**63 - 1, BAD]),
    ("hex is no number", pa.array(["0x10"]), TypeName.LONG, [BAD]),
    ("bool to int", pa.array([True, False, None]), TypeName.INT, [1, 0, None]),
    ("date to int", pa.array([dt.date(2013, 1, 1)]), TypeName.LONG, [1356998400000]),
    ("int to double", pa.array([1, None]), TypeName.DOUBLE, [1.0, None]),
    (
        "text to double",
        pa.array(["1.5", "1e3", "x", "1e999", "inf", None]),
        TypeName.DOUBLE,
        [1.5, 1e3, BAD, BAD, math.inf, None],
    ),
    ("text to double, all plain", pa.array(["1.5", "-2", "1e10"]), TypeName.DOUBLE, [1.5, -2.0, 1e10]),
    ("double to float", pa.array([1.5, 1e300, math.inf, None]), TypeName.FLOAT, [1.5, BAD, math.inf, None]),
    ("list to double", pa.array([[1.0], None]), TypeName.DOUBLE, [BAD, None]),
    ("ints to boolean", pa.array([0, 1, 2, None]), TypeName.BOOLEAN, [False, True, BAD, None]),
    ("text to boolean", pa.array(["TRUE", "0", "yes", None]), TypeName.BOOLEAN, [True, False, BAD, None]),
    ("date to boolean", pa.array([dt.date(2013, 1, 1)]), TypeName.BOOLEAN, [BAD]),
    ("timestamp us rounds down", pa.array([-1, 1999, None], pa.timestamp("us")), TypeName.TIMESTAMP, [-1, 1, None]),
    ("timestamp with zone", pa.array([1000], pa.timestamp("s", "Europe/Paris")), TypeName.TIMESTAMP, [1_000_000]),
    ("date to timestamp", pa.array([dt.date(1969, 12, 31)]), TypeName.TIMESTAMP, [-86_400_000]),
    (
        "text to timestamp",
        pa.array(["2013-01-01T05:00:00Z", "2013-01-01 05:00:00.25", "2013-02-30 00:00:00", "1356998400000", "soon"]),
        TypeName.TIMESTAMP,
        [1357016400000, 1357016400250, BAD, 1356998400000, BAD],
    ),
    ("text to timestamp at once", pa.array(["2013-01-01T05:00:00Z", None]), TypeName.TIMESTAMP, [1357016400000, None]),
    ("numbers to text", pa.array([1.0, 1e20, None]), TypeName.STRING, ["1.0", "1e+20", None]),
    ("ints to text", pa.array([1, None]), TypeName.STRING, ["1", None]),
    ("bytes to text", pa.array([b"ok", b"\xff", None]), TypeName.STRING, ["ok", BAD, None]),
    ("struct to text", pa.array([{"a": 1, "b": "é"}, None]), TypeName.STRING, ['{"a":1,"b":"é"}', None]),
    ("text to JSON", pa.array(['{"a": 1}', "{a", "", None]), TypeName.JSON, ['{"a": 1}', BAD, BAD, None]),
    ("list to JSON", pa.array([[1, 2], None]), TypeName.JSON, ["[1,2]", None]),
    ("number to JSON", pa.array([1.5, None]), TypeName.JSON, ["1.5", None]),
    ("map to JSON", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), TypeName.JSON, ['{"k":1}']),
    ("hex to bytes", pa.array(["00ff", "0", None]), TypeName.BYTES, [b"\x00\xff", BAD, None]),
    ("int to bytes", pa.array([1, None]), TypeName.BYTES, [BAD, None]),
    ("decimals to text", pa.array([Decimal("1.50"), Decimal("-0.00")]), TypeName.BIG_DECIMAL, ["1.5", "0"]),
    ("text to decimal", pa.array(["1E+3", "x", "NaN", None]), TypeName.BIG_DECIMAL, ["1000", BAD, BAD, None]),
    ("double to decimal", pa.array([0.1, math.nan]), TypeName.BIG_DECIMAL, ["0.1", BAD]),
    ("all null", pa.nulls(2), TypeName.STRING, [None, None]),
    ("dictionary", pa.array(["1", "x"]).dictionary_encode(), TypeName.INT, [1, BAD]),
    ("empty", pa.array([], pa.string()), TypeName.LONG, []),
]


@pytest.mark.parametrize(
    ("source", "target", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_values_fit_or_are_marked(source: pa.Array, target: TypeName, expected: list[Any]) -> None:
    assert outcome(source, target) == expected


@pytest.mark.parametrize("target", [name for name in TypeName if name is not TypeName.UNKNOWN])
def test_verdict_on_text_does_not_depend_on_its_neighbours(target: TypeName) -> None:
    texts = [
        "1",
        "0",
        "12.5",
        "1e3",
        "-7",
        "2013-01-01 00:00:00",
        "2013-01-01T00:00:00Z",
        "true",
        "00ff",
        "",
        " 1",
        "x",
    ]
    together = outcome(pa.array(texts), target)
    alone = [outcome(pa.array([text]), target)[0] for text in texts]
    assert together == alone
