"""Requests and answers as bytes, and the .proto file that documents them."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from merlot import wire
from merlot.errors import CorruptionError
from merlot.ids import TableName
from merlot.query.result import Partial, QueryStats
from merlot.wire import frames
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


def test_counters_of_a_newer_server_are_ignored() -> None:
    frame = frames.ExecuteResponse.FromString(encode_response(ServerResponse(partial=partial())))
    frame.stats = b'{"num_docs_scanned": 3, "num_photons": 5}'
    got = decode_response(frame.SerializeToString())
    assert got.partial is not None
    assert got.partial.stats == QueryStats(num_docs_scanned=3)


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_broken_answer_is_corrupt(cut: int) -> None:
    data = encode_response(ServerResponse(partial=partial()))
    with pytest.raises(CorruptionError):
        decode_response(data[:-cut])


def test_a_broken_request_is_corrupt() -> None:
    with pytest.raises(CorruptionError):
        decode_request(b"\xff\xff\xff")


def test_the_proto_file_says_what_the_code_says() -> None:
    text = (Path(wire.__path__[0]) / "merlot.proto").read_text()
    text = re.sub(r"//.*", "", text)
    kinds = {"string": 9, "bytes": 12, "int32": 5, "int64": 3}
    documented = {
        name: {field: (int(number), kinds[kind]) for kind, field, number in re.findall(r"(\w+) (\w+) = (\d+);", body)}
        for name, body in re.findall(r"message (\w+) \{(.*?)\}", text, re.DOTALL)
    }
    declared = {
        name: {field.name: (field.number, field.type) for field in getattr(frames, name).DESCRIPTOR.fields}
        for name in documented
    }
    assert documented == declared
    assert f"package {frames.PACKAGE};" in text
    assert set(re.findall(r"rpc (\w+)\(", text)) == {"Execute", "Ping"}
