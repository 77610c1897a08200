"""Casting one column: what fits, what does not, and that both ways of casting text agree."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.ingest.casts import CAST_TYPES, cast
from merlot.values.types import TypeName

BAD = object()
INF, NAN = math.inf, math.nan
EPOCH = "1970-01-01 00:00:00."
UUID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"
MAP = pa.map_(pa.string(), pa.int64())
UNION = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
NO_UTF8 = pa.StringArray.from_buffers(
    3, pa.py_buffer(np.array([0, 2, 3, 3], np.int32).tobytes()), pa.py_buffer(b"ok\xff"), pa.py_buffer(b"\3")
)
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
    ("signed text", pa.array(["+5", "-6", "+0"]), TypeName.INT, [5, -6, 0]),
    (
        "signed text to double",
        pa.array(["+5", " .5", "5.", "-nan", "Infinity"]),
        TypeName.DOUBLE,
        [5.0, 0.5, 5.0, NAN, INF],
    ),
    ("digits without end", pa.array(["1." + "7" * 20_000, "1." + "0" * 20_000]), TypeName.BIG_DECIMAL, [BAD, "1"]),
    ("too large once rounded", pa.array(["1" * 400, "1e99999999999", "3.5e38"]), TypeName.FLOAT, [BAD, BAD, BAD]),
    ("rounded once", pa.array(["1.00000005960464485"]), TypeName.FLOAT, [1.0000001192092896]),
    ("seconds past 64 bits", pa.array([2**62, -(2**62), 7], pa.timestamp("s")), TypeName.LONG, [BAD, BAD, 7000]),
    ("seconds past 64 bits", pa.array([2**62, 7], pa.timestamp("s")), TypeName.TIMESTAMP, [BAD, 7000]),
    ("a year 0", pa.array(["0000-01-01 00:00:00", "0001-01-01 00:00:00"]), TypeName.TIMESTAMP, [BAD, -62135596800000]),
    ("short float to text", pa.array([0.1, 1e20, -0.0], pa.float32()), TypeName.STRING, ["0.1", "1e+20", "-0.0"]),
    ("short float to decimal", pa.array([0.1, 16777216.0], pa.float32()), TypeName.BIG_DECIMAL, ["0.1", "16777216"]),
    ("half float to text", pa.array([0.1, 65504, None], pa.float16()), TypeName.STRING, ["0.1", "65500.0", None]),
    ("half float to double", pa.array([0.1], pa.float16()), TypeName.DOUBLE, [0.0999755859375]),
    ("half float to int", pa.array([3.0, 0.5], pa.float16()), TypeName.INT, [3, BAD]),
    ("tiny decimal to text", pa.array([Decimal("1E-8")], pa.decimal128(10, 8)), TypeName.STRING, ["0.00000001"]),
    ("large decimals", pa.array([Decimal("1.2E5")], pa.decimal128(10, -3)), TypeName.BIG_DECIMAL, ["120000"]),
    ("large decimals to text", pa.array([Decimal("1.2E5")], pa.decimal128(10, -3)), TypeName.STRING, ["120000"]),
    ("large decimals to int", pa.array([Decimal("1.2E5")], pa.decimal128(10, -3)), TypeName.INT, [120000]),
    ("short decimals", pa.array([Decimal("7.00"), None], pa.decimal32(5, 2)), TypeName.INT, [7, None]),
    ("short decimals to text", pa.array([Decimal("7.10")], pa.decimal64(15, 2)), TypeName.STRING, ["7.10"]),
    (
        "wide decimals",
        pa.array([Decimal(2**63), Decimal(2**63 - 1)], pa.decimal256(50, 0)),
        TypeName.LONG,
        [BAD, 2**63 - 1],
    ),
    ("decimals to boolean", pa.array([Decimal("1.0"), Decimal("0.5")]), TypeName.BOOLEAN, [True, BAD]),
    (
        "near 1 to boolean",
        pa.array([Decimal("1.00000000000000001"), Decimal(1)]),
        TypeName.BOOLEAN,
        [BAD, True],
    ),
    ("number text to boolean", pa.array(["1.0", "0e5", "2"]), TypeName.BOOLEAN, [True, False, BAD]),
    (
        "zeros of text decimals",
        pa.array(["-0.00", "007", "1.50", "+2", "10"]),
        TypeName.BIG_DECIMAL,
        ["0", "7", "1.5", "2", "10"],
    ),
    ("booleans to decimal", pa.array([True, None]), TypeName.BIG_DECIMAL, ["1", None]),
    (
        "micros to text",
        pa.array([1, 1_500_000], pa.timestamp("us")),
        TypeName.STRING,
        [EPOCH + "000001", "1970-01-01 00:00:01.500"],
    ),
    (
        "nanos to text",
        pa.array([1, 1000, None], pa.timestamp("ns")),
        TypeName.STRING,
        [EPOCH + "000000001", EPOCH + "000001", None],
    ),
    ("zoned to text", pa.array([0], pa.timestamp("us", "Asia/Tokyo")), TypeName.STRING, [EPOCH + "000"]),
    ("nanos to JSON", pa.array([1], pa.timestamp("ns")), TypeName.JSON, [f'"{EPOCH}000000001"']),
    (
        "year 10000 to text",
        pa.array([253402300800, -62135596801, 0], pa.timestamp("s")),
        TypeName.STRING,
        [BAD, BAD, EPOCH + "000"],
    ),
    (
        "day of year 10000",
        pa.array([2932897, 2932896], pa.int32()).cast(pa.date32()),
        TypeName.STRING,
        [BAD, "9999-12-31"],
    ),
    (
        "time to text",
        pa.array([1, 1_500_000, 3_600_000_000], pa.time64("us")),
        TypeName.STRING,
        ["00:00:00.000001", "00:00:01.500", "01:00:00"],
    ),
    ("time past midnight", pa.array([86_400], pa.time32("s")), TypeName.STRING, [BAD]),
    ("durations", pa.array([1, None], pa.duration("s")), TypeName.STRING, [BAD, None]),
    ("intervals", pa.array([pa.MonthDayNano([1, 2, 3])]), TypeName.JSON, [BAD]),
    ("UUID to text", pa.array([bytes(range(16)), None], pa.uuid()), TypeName.STRING, [UUID_TEXT, None]),
    ("UUID to JSON", pa.array([bytes(range(16))], pa.uuid()), TypeName.JSON, [f'"{UUID_TEXT}"']),
    ("UUID to bytes", pa.array([bytes(range(16))], pa.uuid()), TypeName.BYTES, [bytes(range(16))]),
    (
        "lists of UUIDs to JSON",
        pa.ListArray.from_arrays(
            pa.array([0, 1, 2], pa.int32()),
            pa.array([bytes(16), bytes(range(16))], pa.uuid()),
            mask=pa.array([True, False]),
        ),
        TypeName.JSON,
        [None, f'["{UUID_TEXT}"]'],
    ),
    ("bytes to JSON", pa.array([b'{"a": 1}', b"{oops", b"\xff"]), TypeName.JSON, ['{"a": 1}', BAD, BAD]),
    ("NaN to JSON", pa.array([math.nan, -math.inf, 1.0]), TypeName.JSON, ['"NaN"', '"-Infinity"', "1.0"]),
    ("NaN within JSON", pa.array([{"a": math.nan, "b": [math.inf]}]), TypeName.JSON, ['{"a":"NaN","b":["Infinity"]}']),
    ("decimals within JSON", pa.array([{"a": Decimal("1.10")}]), TypeName.JSON, ['{"a":1.10}']),
    ("short floats within JSON", pa.array([[0.1]], pa.list_(pa.float32())), TypeName.JSON, ["[0.1]"]),
    ("nulls within JSON", pa.array([{"a": None, "b": [None, {}]}]), TypeName.JSON, ['{"a":null,"b":[null,{}]}']),
    ("map within JSON", pa.array([{"m": [("k", 1)]}], pa.struct([("m", MAP)])), TypeName.JSON, ['{"m":{"k":1}}']),
    (
        "map with a key twice",
        pa.array([[("k", 1), ("k", 2)], [("k", 1), ("j", 2)], None], MAP),
        TypeName.JSON,
        [BAD, '{"k":1,"j":2}', None],
    ),
    (
        "map of dates",
        pa.array([[(dt.date(2013, 1, 31), 1)]], pa.map_(pa.date32(), pa.int64())),
        TypeName.JSON,
        ['{"2013-01-31":1}'],
    ),
    ("sliced map", pa.array([[("k", 1)], None, [("j", 2)]], MAP)[1:], TypeName.STRING, [None, '{"j":2}']),
    ("quotes within JSON", pa.array([{'q"': 'a"\\\n'}]), TypeName.JSON, ['{"q\\"":"a\\"\\\\\\n"}']),
    ("bytes within JSON", pa.array([{"b": b"\xff"}]), TypeName.JSON, ['{"b":"/w=="}']),
    (
        "a day of year 10000 within JSON",
        pa.array([[2932897], [0]], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
        TypeName.JSON,
        [BAD, '["1970-01-01"]'],
    ),
    (
        "list views to JSON",
        pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())),
        TypeName.JSON,
        ["[1]", None, "[2,3]"],
    ),
    ("unions", UNION, TypeName.STRING, [BAD, BAD]),
    ("runs", pc.run_end_encode(pa.array(["1", "1", "x"])), TypeName.INT, [1, 1, BAD]),
    (
        "boolean of 8 bits",
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())),
        TypeName.BOOLEAN,
        [True, False],
    ),
    ("text that is no UTF-8", NO_UTF8, TypeName.STRING, ["ok", BAD, None]),
    ("number that is no UTF-8", NO_UTF8, TypeName.INT, [BAD, BAD, None]),
    (
        "text that is no UTF-8 within JSON",
        pa.StructArray.from_arrays([NO_UTF8], ["a"]),
        TypeName.JSON,
        ['{"a":"ok"}', BAD, '{"a":null}'],
    ),
    ("all null", pa.nulls(2), TypeName.STRING, [None, None]),
    ("dictionary", pa.array(["1", "x"]).dictionary_encode(), TypeName.INT, [1, BAD]),
    ("empty", pa.array([], pa.string()), TypeName.LONG, []),
]


@pytest.mark.parametrize(
    ("source", "target", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_values_fit_or_are_marked(source: pa.Array, target: TypeName, expected: list[Any]) -> None:
    assert repr(outcome(source, target)) == repr(expected)


@pytest.mark.parametrize("target", [name for name in TypeName if name is not TypeName.UNKNOWN])
def test_verdict_on_text_does_not_depend_on_its_neighbours(target: TypeName) -> None:
    texts = [
        "1",
        "0",
        "12.5",
        "-0.50",
        "1e3",
        "+5",
        "1_000",
        "\uff11\uff12",
        "1e999",
        "1e9999999",
        "NaN",
        "-0",
        "0000-01-01 00:00:00",
        "2013-02-30 00:00:00",
        "2013-01-01 00:00:60",
        "2013-01-01 00:00:00.1234567",
        "12.0",
        ".",
        "\u00a01",
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
    assert repr(together) == repr(alone)


@pytest.mark.parametrize("target", [name for name in TypeName if name is not TypeName.UNKNOWN])
def test_no_type_reads_what_only_python_takes_for_a_number(target: TypeName) -> None:
    texts = pa.array(["1_000", "\uff11\uff12", "\u0661", "\u00a01"])
    if target not in (TypeName.STRING, TypeName.BYTES):
        assert outcome(texts, target) == [BAD] * 4


@pytest.mark.parametrize(
    ("precision", "scale"), [(5, 2), (15, 2), (18, 4), (19, 2), (38, 2), (38, 18), (50, 10), (10, -2)]
)
def test_decimals_become_the_nearest_float_of_their_text(precision: int, scale: int) -> None:
    rng = np.random.default_rng(precision)
    digits = rng.integers(1, 10 ** min(precision, 18), 2000)
    exact = [Decimal(int(number)).scaleb(-scale) for number in digits >> rng.integers(0, 40, 2000)]
    kind = pa.decimal256(precision, scale) if precision > 38 else pa.decimal128(precision, scale)
    column = pa.array([Decimal("0.57").quantize(Decimal(1).scaleb(-scale)), None, *exact], kind)[1:]
    assert outcome(column, TypeName.DOUBLE) == [None, *(float(str(number)) for number in exact)]
    nearest = [float(np.float32(str(number))) for number in exact]
    assert outcome(column, TypeName.FLOAT)[1:] == nearest


@given(st.lists(st.tuples(st.integers(-(10**18) + 1, 10**18 - 1), st.booleans())), st.integers(0, 18))
def test_decimals_are_whole_numbers_where_their_text_is(numbers: list[tuple[int, bool]], scale: int) -> None:
    exact = [None if is_null else Decimal(number).scaleb(-scale) for number, is_null in numbers]
    column = pa.array(exact, pa.decimal128(18, scale))
    whole = [None if one is None else int(one) if one == int(one) else BAD for one in exact]
    assert outcome(column, TypeName.LONG) == whole
