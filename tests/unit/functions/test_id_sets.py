"""Texts of id sets: what is written is read, as Java's classes write it, and other texts are refused."""

from __future__ import annotations

import base64
import random

import numpy as np
import pytest
from pyroaring import BitMap

from merlot.values.types import TypeName
from merlot.vectors import id_sets
from merlot.vectors.account import Working
from merlot.vectors.errors import LimitExceededError

EDGES = {
    TypeName.INT: [-(2**31), -1, 0, 1, 2**31 - 1],
    TypeName.LONG: [-(2**63), -(2**32), -1, 0, 1, 2**32, 2**63 - 1],
}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("type_", EDGES)
def test_what_is_written_holds_just_its_ids(seed, type_):
    random_ = random.Random(seed)
    every = np.array([*EDGES[type_], *(random_.randrange(-(2**30), 2**30) for _ in range(200))], np.int64)
    ids = every[[random_.random() < 0.5 for _ in every]]
    found = id_sets.read(id_sets.write(type_, ids))
    assert found.type is (type_ if len(ids) else None)
    assert found.holds(every).tolist() == [one in set(ids.tolist()) for one in every.tolist()]


def test_only_bitmaps_whose_high_words_occur_are_visited():
    calls: list[int] = []
    ids = np.arange(1_000, dtype=np.int64) << 32
    found = id_sets.read(id_sets.write(TypeName.LONG, ids))
    with Working(check=lambda: calls.append(1)):
        assert found.holds(np.array([5 << 32, 6 << 32, (5 << 32) + 1, -1, 5 << 32])).tolist() == [1, 1, 0, 0, 1]
    assert len(calls) == 2


def test_writing_many_bitmaps_stops_when_the_query_does():
    def check():
        raise LimitExceededError("it is late")

    with Working(check=check), pytest.raises(LimitExceededError, match="it is late"):
        id_sets.write(TypeName.LONG, np.arange(1_000, dtype=np.int64) << 32)


@pytest.mark.parametrize("type_", EDGES)
def test_bitmaps_of_many_bytes_are_read(type_):
    ids = np.arange(0, 1_000_000, 3)
    found = id_sets.read(id_sets.write(type_, ids))
    assert np.array_equal(np.flatnonzero(found.holds(np.arange(1_000_000))), ids)


def test_the_bytes_are_those_of_javas_roaring64_navigable_map():
    data = base64.b64decode(id_sets.write(TypeName.LONG, np.array([-1, 5, 2**32 + 7])))
    low, one, minus_one = (5).to_bytes(2, "little"), (7).to_bytes(2, "little"), b"\xff\xff"
    bitmap = b"\x3a\x30\x00\x00\x01\x00\x00\x00%s\x00\x00\x10\x00\x00\x00%s"
    wanted = b"\x02\x00\x00\x00\x00\x03"
    for high, key, value in (
        (b"\x00" * 4, b"\x00\x00", low),
        (b"\x00\x00\x00\x01", b"\x00\x00", one),
        (b"\xff" * 4, b"\xff\xff", minus_one),
    ):
        wanted += high + bitmap % (key, value)
    assert data == wanted


def test_a_set_of_two_billion_ints_is_not_taken_apart():
    runs = BitMap()
    runs.add_range(0, 2**31)
    runs.run_optimize()
    found = id_sets.read(base64.b64encode(b"\x01" + runs.serialize()).decode())
    assert found.holds(np.array([-1, 0, 2**31 - 1])).tolist() == [False, True, True]


@pytest.mark.parametrize("type_", EDGES)
def test_bytes_that_were_cut_off_or_prolonged_are_refused(type_):
    for ids in (np.arange(10), np.array([1, 70_000, 9])):
        data = base64.b64decode(id_sets.write(type_, ids))
        for broken in (*(data[:kept] for kept in range(len(data))), data + b"x"):
            with pytest.raises(id_sets.IdSetError):
                id_sets.read(base64.b64encode(broken).decode())


def test_bloom_filters_are_refused_by_their_name():
    with pytest.raises(id_sets.IdSetError, match="Bloom filter"):
        id_sets.read(base64.b64encode(b"\x03\x00").decode())
