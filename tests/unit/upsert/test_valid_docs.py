"""Valid docs under a writer and readers: a reader never sees two rows of a key, nor none."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.upsert.upsert_rows import ingest, partition

from merlot.errors import CorruptionError
from merlot.upsert.valid_docs import Bits

# Docs on both sides of a page's end.
DOCS = st.lists(st.one_of(st.integers(0, 300), st.integers(65_500, 65_600)), max_size=40)


@given(st.lists(st.tuples(DOCS, st.booleans()), max_size=6))
def test_bits_change_without_touching_what_readers_hold(steps: list[tuple[list[int], bool]]) -> None:
    bits, held = Bits(), set[int]()
    versions = []
    for docs, to in steps:
        bits = bits.changed(np.array(docs, np.int64), to=to)
        held = held | set(docs) if to else held - set(docs)
        versions.append((bits, sorted(held)))
    for bits, expected in versions:
        assert (bits.docs().tolist(), bits.count) == (expected, len(expected))
        assert Bits.deserialized(bits.serialized(), 70_000).docs().tolist() == expected


def test_bytes_that_are_no_bitmap_are_refused() -> None:
    data = Bits().changed(np.array([5, 900]), to=True).serialized()
    with pytest.raises(CorruptionError, match="docs=900"):
        Bits.deserialized(data, 900)
    with pytest.raises(CorruptionError):
        Bits.deserialized(data[:-1], 1000)


def test_a_reader_in_a_loop_sees_each_key_once_while_its_rows_move_between_segments() -> None:
    upserts, num_keys, rounds = partition(), 500, 60
    ingest(upserts, [(key, 0, False) for key in range(num_keys)], 0, 0)
    wrong: list[int] = []
    cuts = 0
    done = threading.Event()

    def read() -> None:
        nonlocal cuts
        while not done.is_set():
            cut = upserts.cut
            # Doc d of every segment is a row of key d.
            found = np.concatenate([segment.live.docs() for segment in cut.segments.values()])
            cuts += 1
            if not np.array_equal(np.sort(found), np.arange(num_keys)):
                wrong.append(len(found))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, rounds):
            for first in range(0, num_keys, 100):
                ingest(upserts, [(key, number, False) for key in range(first, first + 100)], number, first)
    finally:
        done.set()
        reader.join()
    assert wrong == []
    assert cuts
