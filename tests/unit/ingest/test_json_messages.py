"""The kernel that scans messages gives what reading them one by one gives, whatever is in them."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from merlot.ingest.decoders.json import JsonDecoder, _on_one_line
from merlot.ingest.decoders.protocol import Wanted
from merlot.ingest.source.json_records import RecordColumns

COLUMNS = {"a": False, "name": False, "list": True, "é": False, "deep": False}
KEYS = st.sampled_from(["a", "A", "name", "Name", "list", "é", "deep", "other", 'q"k', "x\\y", ""])
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=6),
        st.sampled_from(["\n", '"', "\\", "\u2028", "\x7f", "😀", "é"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
objects = st.lists(st.tuples(KEYS, values), max_size=6)
LITERALS = st.sampled_from(
    [
        *(b"-0", b"00", b"1.", b".5", b"1e5", b"1E-2", b"+1", b"-", b"1_0", b"-1.50", b"NaN", b"nul", b"nulll", b"tru"),
        *(b"123456789012345678", b"1234567890123456789", b"0.1234567890123456789", b"True", b"[1,]", b"[", b"{}"),
        *(b"{,}", b'{"a":1,}', b'{"a":[{"b":[]}]}', b"[" * 70 + b"]" * 70, b"\xff", b'"a" "b"', b'"\\u00e9"'),
        *(b'"\\ud800"', b'"\\x"', b'"\t"'),
    ]
)


def written(pairs: list[tuple[str, Any]], ascii_only: bool, indent: int | None) -> bytes:
    parts = [
        f"{json.dumps(key, ensure_ascii=ascii_only)}: {json.dumps(value, ensure_ascii=ascii_only, indent=indent)}"
        for key, value in pairs
    ]
    return ("{" + ", ".join(parts) + "}").encode("utf-8", "surrogatepass")


messages = st.one_of(
    st.builds(written, objects, st.booleans(), st.sampled_from([None, 1])),
    st.builds(lambda key, value: b'{ "%s" :%s }' % (key.encode(), value), KEYS, LITERALS),
    st.builds(lambda value, tail: value + tail, LITERALS, st.sampled_from([b"", b" ", b"\n", b"{}"])),
    st.builds(
        lambda text, cut: text[:cut] + text[cut + 1 :], st.builds(written, objects, st.booleans(), st.none()),
        st.integers(0, 40),
    ),
    st.binary(max_size=8),
)  # fmt: skip


def one_by_one(payloads: list[bytes]) -> tuple[dict[str, list[Any]], list[int]]:
    lines = [_on_one_line(payload) for payload in payloads]
    columns, corrupt = RecordColumns(COLUMNS).read(b"\n".join(lines), lines)
    num_rows = len(payloads) - len(corrupt)
    return {name: columns[name].to_pylist() if name in columns else [None] * num_rows for name in COLUMNS}, corrupt


@given(st.lists(messages, min_size=1, max_size=8))
@example([b'{"a": 1}', b'{"A": 2}', b'{"a": 1, "A": 2}', b'{"a": 1, "a": 2}', b"{}"])
@example([b'{"deep": {\n"x": [1,\n2]}}'])
@example([b'{"a": "\xc3', b'\xa9"}'])
def test_batch_is_read_as_its_messages_are(payloads: list[bytes]) -> None:
    [decoded] = JsonDecoder(Wanted(columns=COLUMNS, names=())).decode(pa.array(payloads, pa.large_binary()))
    expected, corrupt = one_by_one(payloads)
    bad = np.concatenate([[], *decoded.bad.values()]).astype(int).tolist()
    assert bad == corrupt
    assert decoded.messages.tolist() == [row for row in range(len(payloads)) if row not in corrupt]
    for name, values_ in expected.items():
        found = decoded.columns[name].to_pylist() if name in decoded.columns else [None] * len(values_)
        assert [_same_text(name, value) for value in found] == [_same_text(name, value) for value in values_]


def _same_text(name: str, value: Any) -> Any:
    """Nested values may have their line breaks replaced where they are read one by one."""
    return value.replace("\n", " ") if isinstance(value, str) and value[:1] in "{[" and name != "list" else value


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.decimals(allow_nan=False))))
def test_number_is_what_its_text_says(numbers: list[Any]) -> None:
    texts = [b"null" if one is None else str(one).encode() for one in numbers]
    payloads = [b'{"n": %s, "x": %s}' % (text, text) for text in texts]
    types = {"n": pa.int64(), "x": pa.float64()}
    wanted = Wanted(columns={"n": False, "x": False}, types=types, names=())
    [typed] = JsonDecoder(wanted).decode(pa.array(payloads, pa.large_binary()))
    [plain] = JsonDecoder(Wanted(columns=wanted.columns, names=())).decode(pa.array(payloads, pa.large_binary()))
    for name, values_ in typed.columns.items():
        read = float if pa.types.is_floating(values_.type) else int
        if values_.type == pa.string():
            continue
        expected = [None if text is None else read(text) for text in plain.columns[name].to_pylist()]
        assert list(map(repr, values_.to_pylist())) == list(map(repr, expected))


@pytest.mark.parametrize(("text", "expected"), [("12", 12), ("-5", -5), ("999999999999999999", 10**18 - 1)])
def test_short_integers_come_as_numbers(text: str, expected: int) -> None:
    wanted = Wanted(columns={"n": False}, types={"n": pa.int64()}, names=())
    [decoded] = JsonDecoder(wanted).decode(pa.array([f'{{"n":{text}}}'.encode()], pa.large_binary()))
    assert decoded.columns["n"].equals(pa.array([expected]))


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"k":', "}")])
def test_list_of_any_depth_is_a_list_or_bad(left: str, right: str) -> None:
    texts = [f"{left * depth}0{right * depth}" for depth in [*range(800, 1_000), 5_000, 2]]
    decoder = JsonDecoder(Wanted(columns={"list": True}, names=("list",)))
    [found] = decoder.decode(pa.array([f'{{"list": {text}}}'.encode() for text in texts], pa.large_binary()))
    rows = found.messages.tolist()
    assert sorted([*rows, *(row for bad in found.bad.values() for row in bad.tolist())]) == list(range(len(texts)))
    assert {0, len(texts) - 1} <= set(rows)
    for row, items in zip(rows, found.columns["list"].to_pylist(), strict=True):
        assert items in ([texts[row]], [texts[row][1:-1]])
