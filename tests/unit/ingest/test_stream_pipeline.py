"""What becomes of a stream's messages: rows with their offsets, or counts."""

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.errors import InvalidInputError
from merlot.ingest.stream import Pipeline, StreamRows
from merlot.spec.table import TableSpec
from merlot.streams.protocol import Messages

FIELDS = [
    {"name": "city", "type": "STRING"},
    {"name": "rides", "type": "LONG", "role": "metric"},
    {"name": "fare", "type": "DOUBLE", "role": "metric"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
]


def pipeline(fields: Sequence[dict[str, Any]] = FIELDS, **stream: Any) -> Pipeline:
    spec = TableSpec.model_validate(
        {
            "schema": {"fields": fields},
            "timeColumn": "at",
            "ingestion": {"stream": {"type": "files", "topic": "trips", **stream}},
        }
    )
    declared = spec.ingestion.stream
    assert declared is not None
    return Pipeline(spec, declared, 3)


def messages(*values: bytes | None, first: int = 100, **parts: Any) -> Messages:
    return Messages(
        values=pa.array(values, pa.large_binary()),
        offsets=np.arange(first, first + len(values), dtype=np.int64),
        timestamps_ms=parts.pop("timestamps_ms", np.full(len(values), -1, dtype=np.int64)),
        next_offset=first + len(values),
        **parts,
    )


def record(city: str, rides: Any = 1, **more: Any) -> bytes:
    return json.dumps({"city": city, "rides": rides, "at": 1_000, **more}).encode()


def cities(found: StreamRows) -> list[str]:
    return found.rows.column("city").to_pylist()


def test_each_row_has_the_offset_of_its_message() -> None:
    found = pipeline().rows(messages(record("a"), b"?", None, record("b"), record("c", "many")))
    assert cities(found) == ["a", "b"]
    assert found.offsets.tolist() == [100, 103]
    assert (found.next_offset, found.num_tombstones) == (105, 1)
    assert found.bad.by_reason == {"rides: not a value of LONG": 1, "the message is no record": 1}


def test_samples_of_bad_messages_name_their_offsets() -> None:
    lines = pipeline().rows(messages(b"\xff\xfe", record("c", "many"))).bad.to_lines()
    assert '      trips#3 row 100: {"message": "fffe"}' in lines
    assert any("trips#3 row 101: rides = 'many' in" in line for line in lines)


def test_poll_without_messages_has_no_rows() -> None:
    for decoder in ({"type": "JSON"}, {"type": "CSV"}, {"type": "ARROW"}):
        found = pipeline(decoder=decoder).rows(messages(first=7))
        assert (found.rows.num_rows, found.offsets.tolist(), found.next_offset) == (0, [], 7)
    found = pipeline().rows(messages(None, None))
    assert (found.rows.num_rows, found.num_tombstones) == (0, 2)


payloads = st.one_of(
    st.none(),
    st.builds(record, st.sampled_from(["a", "b", "é", "x" * 600]), st.sampled_from([1, 2.0, "3", "many", None])),
    st.sampled_from([b"?", b"{}", b'{"CITY": "z", "at": "2020-01-01 00:00:00"}', b'{"city": "\\u0041", "at": 5}']),
)


@given(st.lists(payloads, max_size=12), st.integers(0, 12))
def test_rows_do_not_depend_on_how_polls_cut_the_stream(values: list[bytes | None], cut: int) -> None:
    made = pipeline(filter="rides is null or rides < 3", derivedColumns={"tags": "upper(city)"})
    whole = made.rows(messages(*values))
    parts = [made.rows(messages(*values[:cut])), made.rows(messages(*values[cut:], first=100 + len(values[:cut])))]
    assert pa.concat_tables([part.rows for part in parts]).equals(whole.rows)
    assert [*parts[0].offsets, *parts[1].offsets] == whole.offsets.tolist()
    assert (parts[0].bad + parts[1].bad).by_reason == whole.bad.by_reason
    assert sum(part.num_filtered for part in parts) == whole.num_filtered


def test_stop_takes_all_before_the_first_bad_message_and_nothing_behind() -> None:
    made = pipeline(badMessages="stop")
    sent = [record(str(number)) for number in range(37)]
    for place in (0, 1, 20, 36):
        found = made.rows(messages(*sent[:place], b"?", *sent[place + 1 :]))
        assert cities(found) == [str(number) for number in range(place)]
        assert (found.next_offset, found.bad.count) == (100 + place, 0)
        assert found.stopped_by is not None
        assert (found.stopped_by.row_number, found.stopped_by.reason) == (100 + place, "the message is no record")
    assert made.rows(messages(*sent)).stopped_by is None


def test_columns_are_filled_from_beside_the_value() -> None:
    fields = [
        *FIELDS,
        {"name": "key", "type": "STRING"},
        {"name": "raw", "type": "BYTES"},
        {"name": "place", "type": "LONG"},
        {"name": "part", "type": "INT"},
        {"name": "sent", "type": "TIMESTAMP"},
        {"name": "day", "type": "INT", "role": "dateTime", "format": "EPOCH|DAYS"},
    ]
    sources = {
        "key": "key", "raw": "headers.trace", "place": "offset", "part": "partition", "sent": "timestamp",
    }  # fmt: skip
    found = pipeline(fields, metadata=sources).rows(
        messages(
            record("a", key="not this one"),
            record("b"),
            record("c"),
            keys=pa.array([b"k", None, b"\xff"], pa.large_binary()),
            headers=[[("trace", b"1"), ("trace", b"\x02")], (), [("other", b"")]],
            timestamps_ms=np.array([86_400_000, -1, 5], dtype=np.int64),
        )
    )
    rows = found.rows.select(["city", "key", "raw", "place", "part"]).to_pylist()
    assert rows == [
        {"city": "a", "key": "k", "raw": b"\x02", "place": 100, "part": 3},
        {"city": "b", "key": None, "raw": None, "place": 101, "part": 3},
    ]
    assert found.rows.column("sent").cast(pa.int64()).to_pylist() == [86_400_000, None]
    assert found.bad.by_reason == {"key: not a value of STRING": 1}


def test_expressions_see_columns_in_their_types_and_others_as_text() -> None:
    made = pipeline(
        filter="rides >= 2 and status <> 'test'",
        derivedColumns={"city": "concat(upper(city), status, ':')", "fare": "cast(cents as double) / 100"},
    )
    found = made.rows(
        messages(
            record("a", 2, status="ok", cents=250),
            record("b", 1, status="ok", cents=1),
            record("c", 2, status="test", cents=1),
            record("d", 2, cents=1),
            record("e", 3, status="ok", cents="few"),
            record("f", 1, status="ok", cents="few"),
            b"?",
        )
    )
    assert found.rows.select(["city", "fare"]).to_pylist() == [{"city": "A:ok", "fare": 2.5}]
    assert found.bad.by_reason == {"fare: the expression fails": 2, "the message is no record": 1}
    assert found.num_filtered == 3


@pytest.mark.parametrize(
    "stream",
    [
        {"filter": "rides >"},
        {"filter": "now() > 5"},
        {"filter": "city"},
        {"derivedColumns": {"city": "sum(rides)"}},
        {"derivedColumns": {"city": "city from trips where 1 = 1"}},
        {"derivedColumns": {"city": "no_such_function(city)"}},
        {"derivedColumns": {"city": "city, rides"}},
    ],
)
def test_wrong_expression_is_refused_before_anything_is_read(stream: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        pipeline(**stream)


def test_csv_message_is_one_record() -> None:
    made = pipeline(decoder={"type": "CSV", "csv": {"columns": ["at", "city", "rides", "more"], "nullValue": "NA"}})
    found = made.rows(
        messages(
            *(b"1000,a,1,", b'1000,"b,""x""\ny",2,z\r\n', b"1000,c", b"1000,d,1,,", b"", b'1000,"e,1,'),
            *(b"1000,f,1,\n1000,g,1,", b"1000,\xff,1,", b"1000,NA,NA,"),
        )
    )
    assert found.rows.select(["city", "rides"]).to_pylist() == [
        {"city": "a", "rides": 1},
        {"city": 'b,"x"\ny', "rides": 2},
        {"city": None, "rides": None},
    ]
    assert found.offsets.tolist() == [100, 101, 108]
    assert found.bad.by_reason == {"the message has not 4 values": 2, "the message is no record": 4}


def arrow(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)
    return sink.getvalue()


def test_arrow_message_is_many_rows_of_one_offset() -> None:
    at = pa.array([1, 2, 3], pa.timestamp("ms"))
    first = arrow(pa.table({"city": ["a", "b", "c"], "rides": [1, 2, 3], "at": at}))
    second = arrow(pa.table({"CITY": ["d"], "rides": ["4"], "at": at[:1], "tags": [["x"]]}))
    twice = arrow(pa.table({"City": ["d"], "CITY": ["4"], "at": at[:1]}))
    found = pipeline(decoder={"type": "ARROW"}).rows(
        messages(first, second, first[:-8], b"?", twice, first[: len(first) // 2], first)
    )
    assert cities(found) == ["a", "b", "c", "d", "a", "b", "c"]
    assert found.rows.column("rides").to_pylist() == [1, 2, 3, 4, 1, 2, 3]
    assert found.offsets.tolist() == [100, 100, 100, 101, 106, 106, 106]
    assert found.bad.by_reason == {"several columns may be meant": 1, "the message is no record": 3}


def test_rows_of_a_message_have_its_metadata_though_the_poll_has_as_many_rows_as_messages() -> None:
    fields = [{"name": "city", "type": "STRING"}, {"name": "place", "type": "LONG"}, FIELDS[-1]]
    made = pipeline(fields, decoder={"type": "ARROW"}, metadata={"place": "offset", "at": "timestamp"})
    sent = messages(
        arrow(pa.table({"city": pa.array([], pa.string())})),
        arrow(pa.table({"city": ["a", "b", "c"]})),
        arrow(pa.table({"city": ["d"]})),
        b"?",
        timestamps_ms=np.array([1, 2, 3, 4], dtype=np.int64),
    )
    rows = made.rows(sent).rows
    assert rows.column("city").to_pylist() == ["a", "b", "c", "d"]
    assert rows.column("place").to_pylist() == [101, 101, 101, 102]
    assert rows.column("at").cast(pa.int64()).to_pylist() == [2, 2, 2, 3]


def categories(prefix: str) -> pa.DictionaryArray:
    ids = np.arange(100, dtype=np.int8)
    return pa.DictionaryArray.from_arrays(ids, pa.array([f"{prefix}{number}" for number in range(100)]))


def in_lists(values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32), values)


def test_arrow_messages_and_batches_whose_dictionaries_cannot_be_united_are_read() -> None:
    fields = [*FIELDS, {"name": "props", "type": "JSON"}]
    at = pa.array(range(100), pa.timestamp("ms"))
    first, second = categories("a"), categories("b")
    tables = [pa.table({"city": part, "tags": in_lists(part), "at": at}) for part in (first, second)]
    structs = [pa.table({"props": pa.StructArray.from_arrays([part], ["k"]), "at": at}) for part in (first, second)]
    found = pipeline(fields, decoder={"type": "ARROW"}).rows(
        messages(*map(arrow, tables), arrow(pa.concat_tables(tables)), *map(arrow, structs))
    )
    texts = [*first.to_pylist(), *second.to_pylist()]
    assert found.bad.count == 0
    assert cities(found) == [*texts, *texts, *[None] * 200]
    assert found.rows.column("tags").to_pylist()[:400] == [[text] for text in [*texts, *texts]]
    assert [json.loads(text)["k"] for text in found.rows.column("props").to_pylist()[400:]] == texts


def test_table_of_nothing_but_metadata_takes_every_record() -> None:
    fields = [{"name": "place", "type": "LONG"}, {"name": "at", "type": "TIMESTAMP", "role": "dateTime"}]
    made = pipeline(fields, metadata={"place": "offset", "at": "timestamp"})
    found = made.rows(messages(b"{}", b"?", b'{"a": 1}', timestamps_ms=np.arange(3, dtype=np.int64)))
    assert found.rows.column("place").to_pylist() == [100, 102]
    assert found.bad.count == 1
