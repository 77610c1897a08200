"""The cache of decoded columns keeps to its bound and is safe on threads."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from merlot.segment.buffers import Array, DecodeCache


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
