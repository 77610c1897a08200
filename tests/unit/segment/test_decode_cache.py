"""The cache of decoded columns keeps to its bound and is safe on threads."""

import mmap
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from merlot.segment import buffers
from merlot.segment.buffers import Array, DecodeCache
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.indexing import Compression, IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName


def kilobyte() -> Array:
    return np.zeros(1024, dtype=np.uint8)


def test_an_array_is_decoded_once_and_read_only() -> None:
    cache = DecodeCache(10_000)
    first = cache.get((1, "a"), kilobyte)
    assert cache.get((1, "a"), kilobyte) is first
    assert not first.flags.writeable
    assert cache.stats() | {"hits": 1, "misses": 1, "bytes": 1024, "entries": 1} == cache.stats()


def test_the_least_recently_used_array_goes_first() -> None:
    cache = DecodeCache(3 * 1024)
    for name in "abc":
        cache.get((1, name), kilobyte)
    cache.get((1, "a"), kilobyte)
    cache.get((1, "d"), kilobyte)
    assert [cache.peek((1, name)) is not None for name in "abcd"] == [True, False, True, True]
    assert cache.stats()["bytes"] == 3 * 1024


def test_an_array_larger_than_the_bound_is_handed_out_and_not_kept() -> None:
    cache = DecodeCache(100)
    assert len(cache.get((1, "a"), kilobyte)) == 1024
    assert cache.stats()["entries"] == 0


def test_a_smaller_bound_evicts_at_once_and_a_closed_segment_is_forgotten() -> None:
    cache = DecodeCache(10 * 1024)
    for owner in (1, 2):
        for name in "ab":
            cache.get((owner, name), kilobyte)
    cache.drop(1)
    assert cache.stats()["entries"] == 2
    assert cache.peek((2, "b")) is not None
    cache.resize(1024)
    assert cache.stats()["bytes"] == 1024


def test_threads_never_exceed_the_bound_or_lose_count() -> None:
    cache = DecodeCache(20 * 1024)

    def work(seed: int) -> None:
        numbers = random.Random(seed)
        for _ in range(2000):
            owner, name = numbers.randrange(4), numbers.randrange(30)
            assert len(cache.get((owner, str(name)), kilobyte)) == 1024
            if numbers.random() < 0.02:
                cache.drop(owner)
            assert cache.stats()["bytes"] <= 20 * 1024

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    stats = cache.stats()
    assert stats["bytes"] == 1024 * stats["entries"]
    for owner in range(4):
        cache.drop(owner)
    assert cache.stats() | {"bytes": 0, "entries": 0} == cache.stats()


def columns_of(segment: ImmutableSegment) -> list[Array]:
    """All that is decoded of it: packed ids, packed and compressed numbers, starts of lists."""
    ids, packed, lz4, lists = (segment.column(name) for name in ("ids", "packed", "lz4", "lists"))
    assert ids is not None
    assert packed is not None
    assert lz4 is not None
    assert lists is not None
    return [ids.dict_ids(), packed.values(), lz4.values(), lists.offsets(), lists.dict_ids()]


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[ImmutableSegment]:
    numbers = np.random.default_rng(0).integers(0, 1_000, 50_000)
    lists = [list(range(number % 4)) for number in numbers.tolist()]
    rows = pa.table(
        {
            "ids": pa.array(numbers % 5, pa.int32()),
            "packed": pa.array(numbers),
            "lz4": pa.array(numbers * 0.5),
            "lists": pa.array(lists, pa.list_(pa.int32())),
        }
    )
    types = {"ids": TypeName.INT, "packed": TypeName.LONG, "lz4": TypeName.DOUBLE, "lists": TypeName.INT}
    fields = [FieldSpec(name=name, type=one, multi_value=name == "lists") for name, one in types.items()]
    schema = TableSchema(fields=tuple(fields))
    indexing = IndexingSpec(no_dictionary=("packed", "lz4"), compression={"lz4": Compression.LZ4})
    built = build_segment(BuildRequest(name="s", table="t", schema=schema, indexing=indexing), rows, tmp_path)
    bound = buffers.DECODE_CACHE.stats()["capacity_bytes"]
    yield ImmutableSegment.open(built.path)
    buffers.DECODE_CACHE.resize(bound)


@pytest.mark.parametrize("has_room", [True, False])
def test_large_arrays_lie_in_files_where_the_disk_has_room(
    segment: ImmutableSegment, has_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [array.copy() for array in columns_of(segment)]
    segment.close()
    buffers.DECODE_CACHE.resize(16 * 1024)
    monkeypatch.setattr(buffers, "SMALL_BYTES", 0)
    if not has_room:
        monkeypatch.setattr(buffers, "FREE_SHARE", 1)
    found = columns_of(segment)
    kept = sum(array.nbytes // buffers.FILE_SHARE for array in found)
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert not any(array.flags.writeable for array in found)
    assert in_files(found) == (len(found) if has_room else 0)
    assert buffers.DECODE_CACHE.stats()["bytes"] <= (kept if has_room else 16 * 1024)
    assert list(segment.path.parent.iterdir()) == [segment.path], "the files have no names"


def in_files(arrays: list[Array]) -> int:
    """How many of them."""
    return sum(isinstance(getattr(array.base, "obj", None), mmap.mmap) for array in arrays)
