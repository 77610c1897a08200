"""Requests and answers as bytes."""

from decimal import Decimal

import orjson
import pyarrow as pa
import pytest

from merlot.errors import CorruptionError
from merlot.ids import TableName
from merlot.query.answer.partial import Partial, PlainRows
from merlot.query.answer.result import QueryStats
from merlot.wire import plain_rows
from merlot.wire.codec import decode_request, decode_response, encode_request, encode_response
from merlot.wire.messages import ServerRequest, ServerResponse

REQUEST = ServerRequest(
    request_id="7", table=TableName("orders_OFFLINE"), query=b'{"v":1}', segments=("a@1", "ß b@2"), timeout_ms=900
)


def partial() -> Partial:
    data = pa.table(
        {"k0": pa.array(["x", None]), "a0": pa.array([2**62, 5], pa.int64()), "a1": pa.array([b"\x00", b"\xff"])}
    )
    return Partial(data, QueryStats(num_docs_scanned=3, total_docs=9, num_groups_limit_reached=True))


def test_a_request_comes_back_as_it_was() -> None:
    assert decode_request(encode_request(REQUEST)) == REQUEST


@pytest.mark.parametrize(
    "members",
    [
        {"id": 7},
        {"table": ["t"]},
        {"timeoutMs": "900"},
        {"timeoutMs": 0},
        {"timeoutMs": 1e300},
        {"timeoutMs": 2**63},
        {"timeoutMs": True},
        {"whereBytes": -1},
        {"whereBytes": 99},
        {"whereBytes": None},
        {"segments": 5},
        {"segments": ["a@1"]},
    ],
)
def test_a_request_with_a_member_of_another_kind_is_none(members: dict[str, object]) -> None:
    header = orjson.dumps({"id": "7", "table": "t", "timeoutMs": 900, "segments": "a@1", "whereBytes": 1} | members)
    with pytest.raises(CorruptionError):
        decode_request(len(header).to_bytes(4, "little") + header + b"{}")


def test_an_answer_comes_back_as_it_was() -> None:
    sent = ServerResponse(partial=partial(), missing=("a@1",))
    got = decode_response(encode_response(sent))
    assert got.partial is not None
    assert got.partial.data.equals(partial().data)
    assert got.partial.stats == partial().stats
    assert (got.missing, got.error) == (("a@1",), None)


def test_an_answer_without_rows_keeps_its_columns() -> None:
    empty = Partial(partial().data.slice(0, 0), QueryStats())
    got = decode_response(encode_response(ServerResponse(partial=empty)))
    assert got.partial is not None
    assert got.partial.data.schema == partial().data.schema
    assert got.partial.data.num_rows == 0


def test_an_error_comes_back_without_a_partial() -> None:
    sent = ServerResponse(error=(250, "query passed its deadline"))
    assert decode_response(encode_response(sent)) == sent


def test_members_of_a_newer_server_are_ignored() -> None:
    header = b'{"stats":{"num_docs_scanned":3,"num_photons":5},"columns":"a0.count:l","values":[[7]],"mood":"good"}'
    got = decode_response(len(header).to_bytes(4, "little") + header)
    assert got.partial is not None
    assert got.partial.stats == QueryStats(num_docs_scanned=3)
    assert got.partial.data.to_pylist() == [{"a0.count": 7}]


def few(*columns: pa.Array) -> pa.Table:
    return pa.table(list(columns), names=[f"a{number}" for number in range(len(columns))])


PLAIN = few(
    pa.array([2**63 - 1, -(2**63), None], pa.int64()),
    pa.array([0.1, -0.0, 5e-324], pa.float64()),
    pa.array([0.1, None, 3.4e38], pa.float32()),
    pa.array(["", "ß\n\u0000", None], pa.string()),
    pa.array([True, None, False], pa.bool_()),
    pa.array([-(2**31), 0, 2**31 - 1], pa.int32()),
)
OTHERS = [
    few(pa.array([float("nan"), 1.0])),
    few(pa.array([float("-inf")])),
    few(pa.array([b"\x00\xff"])),
    few(pa.array([[1, 2], []], pa.list_(pa.int64()))),
    few(pa.array(range(plain_rows.FEW_ROWS + 1))),
]


def round_trip(table: pa.Table) -> Partial:
    got = decode_response(encode_response(ServerResponse(partial=Partial(table, QueryStats())))).partial
    assert got is not None
    return got


def test_few_rows_travel_as_plain_values_and_come_back_exactly() -> None:
    got = round_trip(PLAIN)
    assert isinstance(got.content, PlainRows)
    assert got.data.equals(PLAIN)
    assert [str(value) for value in got.data["a1"].to_pylist()] == ["0.1", "-0.0", "5e-324"]
    assert round_trip(got.data).data.equals(PLAIN)
    assert round_trip(PLAIN.slice(0, 0)).data.equals(PLAIN.slice(0, 0))


@pytest.mark.parametrize("table", OTHERS)
def test_other_rows_travel_as_arrow(table: pa.Table) -> None:
    got = round_trip(table)
    assert isinstance(got.content, pa.Table)
    assert str(got.data.to_pylist()) == str(table.to_pylist())
    assert got.data.schema == table.schema


@pytest.mark.parametrize(
    "header",
    [
        b'{"stats":{},"columns":"a:l","values":[[1],[2]]}',
        b'{"stats":{},"columns":"a:l,b:l","values":[[1],[2,3]]}',
        b'{"stats":{},"columns":"a:?","values":[[1]]}',
        b'{"stats":{},"columns":"a:l"}',
        b'{"stats":7}',
        b'{"stats":{}}',
        b'{"error":7}',
        b"[]",
        b"",
    ],
)
def test_answers_that_make_no_sense_are_corrupt(header: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_response(len(header).to_bytes(4, "little") + header)


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_broken_answer_is_corrupt(cut: int) -> None:
    data = encode_response(ServerResponse(partial=partial()))
    with pytest.raises(CorruptionError):
        decode_response(data[:-cut])


def test_a_broken_request_is_corrupt() -> None:
    with pytest.raises(CorruptionError):
        decode_request(b"\xff\xff\xff")


def with_body(header: dict[str, object], body: bytes = b"") -> bytes:
    text = orjson.dumps(header)
    return len(text).to_bytes(4, "little") + text + body


def stream_of(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def patched(table: pa.Table, before: bytes, after: bytes) -> bytes:
    """The table's stream with other bytes in a buffer, at the last place that has these."""
    stream = stream_of(table)
    place = stream.rindex(before)
    return stream[:place] + after + stream[place + len(before) :]


def offsets(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


HOSTILE = {
    "an offset beyond its bytes": lambda: patched(pa.table({"c0": ["x" * 77]}), offsets(0, 77), offsets(0, 1 << 30)),
    "offsets that go back": lambda: patched(
        pa.table({"c0": ["x" * 77, "y", "z"]}), offsets(0, 77, 78, 79), offsets(0, 77, 3, 79)
    ),
    "a list beyond its values": lambda: patched(
        pa.table({"c0": [list(range(77))]}), offsets(0, 77), offsets(0, 1 << 30)
    ),
    "a text that is no UTF-8": lambda: patched(pa.table({"c0": ["abcdefgh"]}), b"abcdefgh", b"abc\xff\xfegh"),
    "rows that expand": lambda: stream_of(pa.table({"c0": [0] * 1_000_000}), "zstd"),
    "rows of nothing": lambda: stream_of(pa.table({"c0": pa.nulls(1 << 30)})),
    "no stream": lambda: b"x" * 100,
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_rows_that_may_not_be_computed_with_are_no_answer(name: str) -> None:
    body = HOSTILE[name]()
    assert len(body) < 1 << 20
    with pytest.raises(CorruptionError):
        decode_response(with_body({"stats": {}}, body))


def test_rows_of_every_type_of_a_partial_answer_are_read() -> None:
    tables = [
        pa.table({"c0": pa.array([True, False, None] * 100_000)}),
        pa.table({"c0": pa.nulls(10_000_000)}),
        pa.table({"k0": ["x", None] * 50_000, "a0": [1.5, None] * 50_000}),
        pa.table({"a0": pa.array([[1, 2], None, []] * 1_000), "a1": pa.array([b"\0\xff", None, b""] * 1_000)}),
        pa.table({"a0": pa.array([Decimal("1.5"), None] * 100, pa.decimal128(38, 2))}),
        pa.table({"c0": pa.array([], pa.int64())}),
        pa.table({}),
    ]
    for table in tables:
        got = decode_response(encode_response(ServerResponse(partial=Partial(table, QueryStats()))))
        assert got.partial is not None
        assert got.partial.data.equals(table)


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        *(("a:l", [["x"]]), ("a:l", [[True]]), ("a:l", [[1 << 63]]), ("a:i", [[1 << 31]]), ("a:i", [[1.0]])),
        *(
            ("a:b", [[1]]),
            ("a:s", [[1]]),
            ("a:d", [["1"]]),
            ("a:d", [[True]]),
            ("a:d", [[1 << 60]]),
            ("a:f", [[1 << 30]]),
            ("a:l", ["x"]),
            ("a:l", [{"0": 1}]),
        ),
        *(("a:l", {"a": 1}), ("a:l", [[[1]]]), ("a:l,b:l", [[1], [1, 2]]), ("a:l", []), (7, [[1]]), (["a:l"], [[1]])),
    ],
)
def test_plain_rows_of_other_types_are_no_answer(columns: object, values: object) -> None:
    with pytest.raises(CorruptionError):
        decode_response(with_body({"stats": {}, "columns": columns, "values": values}))


@pytest.mark.parametrize(
    "members",
    [
        {"stats": {"total_docs": "x"}},
        {"stats": {"total_docs": 1.5}},
        {"stats": {"num_groups_limit_reached": 1}},
        {"stats": []},
        {"missing": ["a@1"]},
        {"error": ["x", "y"]},
        {"error": [1]},
    ],
)
def test_answer_with_a_member_of_another_kind_is_none(members: dict[str, object]) -> None:
    header = {"stats": {}, "columns": "a:l", "values": [[1]]} | members
    with pytest.raises(CorruptionError):
        decode_response(with_body(header))
