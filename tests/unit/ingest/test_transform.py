"""Conforming rows: bad ones counted once with their reason, the rest exactly of the schema's types."""

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from merlot.ingest.bad_rows import BadRow, BadRows
from merlot.ingest.grouping import SegmentGroup, group, group_of
from merlot.ingest.transform import CORRUPT_RECORD, SOURCE_FILE, SOURCE_ROW, conform, inside, is_impossible
from merlot.segment.arrow_types import arrow_schema
from merlot.spec.table import TableSpec
from merlot.values.datetime_format import parse
from merlot.values.types import TypeName


def spec_of(*fields: dict[str, Any], time_column: str | None = None, **others: Any) -> TableSpec:
    return TableSpec.model_validate({"schema": {"fields": list(fields)}, "timeColumn": time_column, **others})


TIME = {"name": "at", "type": "TIMESTAMP", "role": "dateTime"}
CODE = {"name": "code", "type": "STRING"}


def test_rows_have_exactly_the_columns_and_types_of_the_schema() -> None:
    spec = spec_of(TIME, CODE, {"name": "n", "type": "INT"}, {"name": "absent", "type": "DOUBLE"}, time_column="at")
    source = pa.table({"extra": [1], "n": [7], "code": ["a"], "at": [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)]})
    done = conform(source, spec)
    assert done.rows.schema == arrow_schema(spec.table_schema)
    assert done.rows.column("at").cast(pa.int64()).to_pylist() == [1356998400000]
    assert done.rows.drop(["at"]).to_pylist() == [{"code": "a", "n": 7, "absent": None}]
    assert done.bad.count == 0


def test_a_row_with_several_problems_counts_once() -> None:
    spec = spec_of({"name": "a", "type": "INT"}, {"name": "b", "type": "INT"})
    done = conform(pa.table({"a": ["x", "1", "1"], "b": ["x", "x", "2"]}), spec)
    assert done.rows.to_pylist() == [{"a": 1, "b": 2}]
    assert done.bad.by_reason == {"a: not a value of INT": 1, "b: not a value of INT": 1}
    assert done.bad.samples[0] == BadRow("a: not a value of INT", (("a", "x"), ("b", "x")), column="a", value="x")


def test_samples_of_bad_rows_tell_file_row_column_and_value() -> None:
    partitioning = {"columns": {"code": {"functionName": "Modulo", "numPartitions": 4}}}
    spec = spec_of(CODE, {"name": "n", "type": "INT"}, partitioning=partitioning)
    source = pa.table(
        {
            "code": ["1", "x", "2", None],
            "n": ["7", "8", "9.5", None],
            CORRUPT_RECORD: [None, None, None, '{"oops'],
            SOURCE_FILE: pa.array(["s3://b/1.json"] * 3 + ["s3://b/2.json"]).dictionary_encode(),
            SOURCE_ROW: [1, 2, 3, 1],
        }
    )
    done = group(conform(source, spec), spec)
    assert done.rows.to_pylist() == [{"code": "1", "n": 7}]
    by_reason = {sample.reason: sample for sample in done.bad.samples}
    places = {reason: (one.file, one.row_number, one.column, one.value) for reason, one in by_reason.items()}
    assert places == {
        "code: Modulo refuses the value": ("s3://b/1.json", 2, "code", "x"),
        "n: not a value of INT": ("s3://b/1.json", 3, "n", "9.5"),
        "the line is no record": ("s3://b/2.json", 1, "", ""),
    }
    assert by_reason["n: not a value of INT"].values == (("code", "2"), ("n", "9.5"))
    assert BadRows.from_json(done.bad.to_json()) == done.bad
    assert """      s3://b/1.json row 3: n = '9.5' in {"code": "2", "n": "9.5"}""" in done.bad.to_lines()


def test_the_window_keeps_rows_and_their_places_together() -> None:
    source = pa.table({"at": [5, 15], SOURCE_FILE: ["f", "f"], SOURCE_ROW: [1, 2]})
    kept, outside = inside(conform(source, spec_of(TIME, time_column="at")), (10, 20))
    assert outside == 1
    assert kept.origin is not None
    assert kept.origin.to_pylist() == [{SOURCE_FILE: "f", SOURCE_ROW: 2}]


ODD_VALUES = [
    pa.array([253402300805], pa.timestamp("s")),
    pa.array([2**55], pa.timestamp("s", "Europe/Paris")),
    pa.array([2**31 - 1], pa.date32()),
    pa.array([[253402300805]], pa.list_(pa.timestamp("s"))),
    pa.array([2**62], pa.duration("s")),
    pa.array([1], pa.timestamp("s", "Nowhere/Here")),
    pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")),
]


@pytest.mark.parametrize("odd", ODD_VALUES, ids=[str(odd.type) for odd in ODD_VALUES])
def test_a_bad_row_is_sampled_whatever_else_it_holds(odd: pa.Array) -> None:
    done = conform(pa.table({"n": ["x"], "odd": odd}), spec_of({"name": "n", "type": "INT"}))
    assert done.bad.by_reason == {"n: not a value of INT": 1}
    assert dict(done.bad.samples[0].values)["odd"]


def test_time_must_be_there_and_within_the_calendar() -> None:
    spec = spec_of(TIME, time_column="at")
    done = conform(pa.table({"at": [0, None, 10**15, -(10**14)]}), spec)
    assert done.rows.num_rows == 1
    assert done.bad.by_reason == {"at: no time": 1, "at: time outside years 1 to 9999": 2}


def test_time_formats_keep_the_raw_value_and_find_the_instant() -> None:
    day = {"name": "day", "type": "STRING", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|yyyyMMdd"}
    done = conform(pa.table({"day": ["20130102", "20131302"]}), spec_of(day, time_column="day"))
    assert done.rows.column("day").to_pylist() == ["20130102"]
    assert done.millis.to_pylist() == [1357084800000]
    assert done.bad.by_reason == {"day: not in the format SIMPLE_DATE_FORMAT|yyyyMMdd": 1}


def test_instants_become_what_the_column_stores() -> None:
    hours = {"name": "h", "type": "LONG", "role": "dateTime", "format": "EPOCH|HOURS"}
    text = {"name": "d", "type": "STRING", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|yyyy-MM-dd"}
    moments = pa.array([-1_800_000_000], pa.timestamp("us"))
    done = conform(pa.table({"h": moments, "d": moments}), spec_of(hours, text, time_column="h"))
    assert done.rows.to_pylist() == [{"h": -1, "d": "1969-12-31"}]
    assert done.millis.to_pylist() == [-3_600_000]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo", "America/Sao_Paulo", "Pacific/Kiritimati"])
def test_a_date_is_the_same_day_in_a_pattern_of_any_zone(zone: str) -> None:
    day = {"name": "day", "type": "STRING", "role": "dateTime", "format": f"SIMPLE_DATE_FORMAT|yyyyMMdd|{zone}"}
    dates = [dt.date(2013, 1, 31), dt.date(2018, 11, 4), dt.date(1, 1, 2), dt.date(9999, 12, 30)]
    for kind in (pa.date32(), pa.date64()):
        done = conform(pa.table({"day": pa.array(dates, kind)}), spec_of(day, time_column="day"))
        assert done.rows.column("day").to_pylist() == ["20130131", "20181104", "00010102", "99991230"]
        assert done.millis.to_pylist()[0] == parse(day["format"]).to_millis("20130131")


def test_instants_that_no_text_of_the_pattern_can_hold_are_bad_rows() -> None:
    day = {"name": "day", "type": "STRING", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|yyyyMMdd"}
    late = pa.array([253402300805, 0, None], pa.timestamp("s"))
    for source in (late, pa.array([2932897, 0, None], pa.int32()).cast(pa.date32())):
        done = conform(pa.table({"day": source}), spec_of(day))
        assert done.rows.column("day").to_pylist() == ["19700101", None]
        assert done.bad.by_reason == {"day: not a value of STRING": 1}


def test_times_as_text_are_never_cut() -> None:
    day = {"name": "day", "type": "STRING", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|yyyyMM", "maxLength": 6}
    done = conform(pa.table({"day": ["201301", "+201301"]}), spec_of(day, time_column="day"))
    assert done.rows.column("day").to_pylist() == ["201301"]
    assert done.bad.by_reason == {"day: longer than 6 characters": 1}
    assert done.cut == {}


def test_a_part_of_a_unit_is_no_count_of_it() -> None:
    at = {"name": "at", "type": "STRING", "role": "dateTime", "format": "EPOCH|DAYS"}
    done = conform(pa.table({"at": ["12", "12.0", "12.7", "1_2"]}), spec_of(at, time_column="at"))
    assert done.millis.to_pylist() == [12 * 86_400_000] * 2
    assert done.bad.by_reason == {"at: not in the format EPOCH|DAYS": 2}


@pytest.mark.parametrize(
    ("unit", "per_second"), [("NANOSECONDS", 10**9), ("MICROSECONDS", 10**6), ("MILLISECONDS", 1000), ("SECONDS", 1)]
)
@pytest.mark.parametrize("arrow_unit", ["s", "ms", "us", "ns"])
def test_an_instant_is_counted_in_every_unit_without_loss(unit: str, per_second: int, arrow_unit: str) -> None:
    at = {"name": "at", "type": "LONG", "role": "dateTime", "format": f"EPOCH|{unit}"}
    ticks = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[arrow_unit]
    seconds = [0, -1, 1_700_000_000, -5]
    column = pa.array([one * ticks + (ticks > 1) for one in seconds], pa.timestamp(arrow_unit))
    done = conform(pa.table({"at": column}), spec_of(at, time_column="at"))
    finer = [one * per_second + per_second * (ticks > 1) // ticks for one in seconds]
    assert done.rows.column("at").to_pylist() == finer
    assert done.millis.to_pylist() == [value * 1000 // per_second for value in finer]


def test_an_instant_that_no_count_holds_is_bad() -> None:
    at = {"name": "at", "type": "LONG", "role": "dateTime", "format": "1:NANOSECONDS:EPOCH"}
    column = pa.array([dt.datetime(2262, 1, 1, tzinfo=dt.UTC), dt.datetime(2263, 1, 1, tzinfo=dt.UTC)])
    done = conform(pa.table({"at": column}), spec_of(at, time_column="at"))
    assert done.rows.num_rows == 1
    assert done.bad.count == 1


def test_a_type_that_cannot_fit_is_named() -> None:
    done = conform(pa.table({"n": pa.array([1, None], pa.duration("s"))}), spec_of({"name": "n", "type": "INT"}))
    assert done.rows.to_pylist() == [{"n": None}]
    assert done.bad.by_reason == {"n: duration[s] is no value of INT": 1}


def test_lists_are_cast_value_by_value() -> None:
    spec = spec_of({"name": "xs", "type": "INT", "multiValue": True})
    done = conform(pa.table({"xs": [["1", "2"], ["x"], [], None, ["3", None]]}), spec)
    assert done.rows.column("xs").to_pylist() == [[1, 2], [], None, [3]]
    assert done.bad.by_reason == {"xs: not a value of INT[]": 1}


def test_a_single_value_becomes_a_list_of_one() -> None:
    spec = spec_of({"name": "xs", "type": "INT", "multiValue": True})
    assert conform(pa.table({"xs": [1, None, 2]}), spec).rows.column("xs").to_pylist() == [[1], None, [2]]


def test_sliced_lists_are_cast_too() -> None:
    spec = spec_of({"name": "xs", "type": "INT", "multiValue": True})
    source = pa.table({"xs": [[9], ["1", "2"][:0] or [1], [2, 3]]}).slice(1)
    assert conform(source, spec).rows.column("xs").to_pylist() == [[1], [2, 3]]


HIDDEN = pa.array([1, 2, 9, 9, 3, 4])
LISTS = [
    pa.FixedSizeListArray.from_arrays(HIDDEN, 2, mask=pa.array([False, True, False])),
    pa.ListArray.from_arrays(pa.array([0, 2, 4, 6], pa.int32()), HIDDEN, mask=pa.array([False, True, False])),
    pa.LargeListArray.from_arrays(pa.array([0, 2, 4, 6]), HIDDEN, mask=pa.array([False, True, False])),
    pa.ListViewArray.from_arrays(
        pa.array([0, 2, 4], pa.int32()), pa.array([2, 2, 2], pa.int32()), HIDDEN, mask=pa.array([False, True, False])
    ),
    pa.array([[1, 2], None, [3, 4]], pa.large_list_view(pa.int64())),
]


@pytest.mark.parametrize("lists", LISTS, ids=[str(lists.type) for lists in LISTS])
def test_lists_of_every_layout_are_lists(lists: pa.Array) -> None:
    spec = spec_of({"name": "xs", "type": "INT", "multiValue": True})
    assert conform(pa.table({"xs": lists}), spec).rows.column("xs").to_pylist() == [[1, 2], None, [3, 4]]
    assert conform(pa.table({"xs": lists[1:]}), spec).rows.column("xs").to_pylist() == [None, [3, 4]]


def test_long_texts_are_cut_and_counted() -> None:
    spec = spec_of({"name": "t", "type": "STRING", "maxLength": 3}, {"name": "b", "type": "BYTES", "maxLength": 2})
    done = conform(pa.table({"t": ["ééé", "abcd"], "b": [b"12", b"123"]}), spec)
    assert done.rows.to_pylist() == [{"t": "ééé", "b": b"12"}, {"t": "abc", "b": b"12"}]
    assert done.cut == {"t": 1, "b": 1}


def test_long_texts_in_lists_are_cut_and_counted() -> None:
    spec = spec_of({"name": "ts", "type": "STRING", "maxLength": 2, "multiValue": True})
    source = pa.table({"ts": [["x"], ["abc", "de"], None, [], ["fghi"]]}).slice(1)
    done = conform(source, spec)
    assert done.rows.column("ts").to_pylist() == [["ab", "de"], None, [], ["fg"]]
    assert done.cut == {"ts": 2}


def test_json_is_never_cut() -> None:
    long = json.dumps({"text": "é" * 600}, ensure_ascii=False)
    free = conform(pa.table({"j": [long]}), spec_of({"name": "j", "type": "JSON"}))
    assert free.rows.column("j").to_pylist() == [long]
    bound = conform(pa.table({"j": ['{"a": 1}', long, None]}), spec_of({"name": "j", "type": "JSON", "maxLength": 600}))
    assert bound.rows.column("j").to_pylist() == ['{"a": 1}', None]
    assert bound.bad.by_reason == {"j: longer than 600 characters": 1}
    assert bound.cut == {}


def test_input_lines_that_are_no_record_are_bad_rows() -> None:
    done = conform(pa.table({"code": ["a", None], "_corrupt_record": [None, "{oops"]}), spec_of(CODE))
    assert done.rows.num_rows == 1
    assert done.bad.by_reason == {"the line is no record": 1}


def test_groups_are_days_and_partitions() -> None:
    partitioning = {"columns": {"code": {"functionName": "Murmur", "numPartitions": 4}}}
    spec = spec_of(TIME, CODE, time_column="at", partitioning=partitioning)
    done = group(conform(pa.table({"at": [-1, 0, 86_400_000], "code": ["0", "1", None]}), spec), spec)
    assert done.keys[0].to_pylist() == [-1, 0, 1]
    assert done.keys[1].to_pylist()[:2] == [0, 3]
    assert done.keys[1].null_count == 0
    assert group_of((-1, 0), spec).name("t") == "t_1969-12-31_p0"


def test_values_that_a_partition_function_refuses_are_bad_rows() -> None:
    partitioning = {"columns": {"code": {"functionName": "Modulo", "numPartitions": 4}}}
    spec = spec_of(CODE, partitioning=partitioning)
    done = group(conform(pa.table({"code": ["5", "x", None]}), spec), spec)
    assert done.rows.column("code").to_pylist() == ["5"]
    assert done.keys[1].to_pylist() == [1]
    assert done.bad.by_reason == {"code: Modulo refuses the value": 2}


def test_segment_names_say_day_and_partitions() -> None:
    assert SegmentGroup(None).name("t") == "t_0"
    assert SegmentGroup(None, (3,)).name("t") == "t_p3"
    assert SegmentGroup(15706, (3, 1)).name("t") == "t_2013-01-01_p3_1"


def test_bad_rows_add_up_in_any_order() -> None:
    one = BadRows({"x": 2}, (BadRow("x", (("a", "1"),)), BadRow("x", (("a", "3"),))))
    two = BadRows({"x": 3, "y": 1}, tuple(BadRow("x", (("a", str(n)),)) for n in range(5)))
    assert one + two == two + one
    assert (one + two).count == 6
    assert len((one + two).samples) == 3
    assert BadRows.from_json((one + two).to_json()) == one + two


SCALARS = [
    *(pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 2), pa.decimal64(15, 2), pa.decimal128(38, 38), pa.decimal128(5, -3), pa.decimal256(76, 0)),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Nowhere/Here")),
    *(pa.duration("s"), pa.duration("ns"), pa.month_day_nano_interval()),
    *(pa.uuid(), pa.json_(), pa.bool8(), pa.fixed_shape_tensor(pa.int32(), [2])),
]
NESTED = [
    *(pa.dictionary(pa.int8(), pa.string()), pa.run_end_encoded(pa.int32(), pa.string())),
    *(pa.struct([]), pa.struct([("a", pa.int8()), ("a", pa.int8())]), pa.struct([("a", pa.duration("s"))])),
    *(pa.list_view(pa.int8()), pa.large_list_view(pa.int8()), pa.large_list(pa.date32()), pa.list_(pa.null())),
    *(
        pa.list_(pa.list_(pa.string_view())),
        pa.list_(pa.float16(), 2),
        pa.map_(pa.uuid(), pa.struct([("a", pa.null())])),
    ),
    *(pa.sparse_union([pa.field("a", pa.int8())]), pa.dense_union([pa.field("a", pa.string())])),
    *(pa.map_(pa.list_(pa.int8()), pa.int8()), pa.dictionary(pa.int8(), pa.timestamp("ns"))),
]
DECLARED = [
    *({"name": "c", "type": str(name)} for name in TypeName if name is not TypeName.UNKNOWN),
    *({"name": "c", "type": name, "multiValue": True} for name in ("INT", "DOUBLE", "STRING", "BYTES", "TIMESTAMP")),
    {"name": "c", "type": "LONG", "role": "dateTime", "format": "EPOCH|DAYS"},
    {"name": "c", "type": "STRING", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|yyyyMMdd|America/New_York"},
]


@pytest.mark.parametrize("kind", [*SCALARS, *NESTED], ids=str)
def test_no_type_of_arrow_is_an_error(kind: pa.DataType) -> None:
    for field in DECLARED:
        spec = spec_of(field)
        assert conform(pa.table({"c": pa.nulls(0, kind)}), spec).rows.num_rows == 0
        (column,) = spec.table_schema.fields
        assert is_impossible(kind, column) in (True, False)
        if not pa.types.is_union(kind):
            # Nulls are nulls, whether the type can become the declared one or not.
            nulls = conform(pa.table({"c": pa.nulls(3, kind)})[1:], spec)
            assert nulls.rows.column("c").to_pylist() == [None, None]
