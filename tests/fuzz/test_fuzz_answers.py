"""Whatever a server answers, a broker reads it to the end or takes it for no answer, in its time and memory."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from tests import budget
from tests.fuzz.children import Watch, bound_memory, in_child
from tests.fuzz.fuzzing import spoiled_bytes, spoiled_json

from merlot.errors import CorruptionError
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.wire.codec import decode_response, encode_response
from merlot.wire.messages import ServerResponse

TEXTS = ["x", "", None, "längere Texte"] * 10
TABLES = (
    pa.table({"c0": list(range(40)), "c1": TEXTS, "c2": [1.5, None] * 20, "c3": [True, None] * 20}),
    pa.table({"k0": TEXTS, "a0": [[1, 2], None, [], [3]] * 10, "a1": [b"\0\xff", None] * 20}),
    pa.table({"k0": pa.array([None, {"a": "x", "b": [1]}] * 20), "k1": pa.array(TEXTS).dictionary_encode()}),
    pa.table({"a0": [1 << 62], "a1": [0.1]}),
)


def spoiled(rng: random.Random, answer: bytes) -> bytes:
    """Members of its header of other kinds, bytes of its rows changed, or all of it spoiled."""
    if rng.random() < 0.2:
        return spoiled_bytes(rng, answer)
    size = int.from_bytes(answer[:4], "little")
    text, body = answer[4 : 4 + size], answer[4 + size :]
    if rng.random() < 0.3 or not body:
        text = json.dumps(spoiled_json(rng, json.loads(text))).encode()
    else:
        changed = bytearray(body)
        for _ in range(rng.choice((1, 1, 2, 8))):
            place = rng.randrange(len(changed))
            changed[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        body = bytes(changed) if rng.random() < 0.9 else spoiled_bytes(rng, body)
    return len(text).to_bytes(4, "little") + text + body


def read_all(first: int, last: int) -> None:
    """In the child: every answer is rows, each of which can be read, or none."""
    good = [encode_response(ServerResponse(partial=Partial(one, QueryStats(total_docs=9)))) for one in TABLES]
    bound_memory()
    watch, num_read = Watch(), 0
    for number in range(first, last):
        rng = random.Random(f"{budget.seed()}-{number}")
        answer = spoiled(rng, rng.choice(good))
        with watch.case(answer):
            try:
                partial = decode_response(answer).partial
            except CorruptionError:
                continue
            if partial is not None:
                num_read += 1
                partial.data.to_pylist()
                pa.concat_tables([partial.data]).combine_chunks().slice(1)
                _ = partial.stats + QueryStats()
    print(f"fuzz answers MERLOT_SEED={budget.seed()}: {last - first} answers, {num_read} read", flush=True)
    assert not watch.slow, watch.slow[:5]
    assert 0 < num_read < last - first


@pytest.mark.parametrize("part", range(2))
def test_spoiled_answers_are_read_or_none(part: int) -> None:
    count = budget.count("MERLOT_FUZZ_ANSWERS", quick=400, every=10_000, fuzz=50_000)
    in_child(read_all, part * count, (part + 1) * count)
