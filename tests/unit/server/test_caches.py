"""A server's caches keep to the bounds that it sets, and tell of themselves."""

from collections.abc import Iterator

import numpy as np
import pytest

from merlot import telemetry
from merlot.query.shortcuts import coalesced_segments
from merlot.segment import buffers
from merlot.server.caches import set_bounds
from merlot.server.settings import ServerSettings

CACHES = (buffers.DECODE_CACHE, coalesced_segments.BATCH_CACHE)


@pytest.fixture(autouse=True)
def _bounds() -> Iterator[None]:
    before = [cache.stats()["capacity_bytes"] for cache in CACHES]
    yield
    for cache, capacity in zip(CACHES, before, strict=True):
        cache.resize(capacity)


def capacities() -> list[int]:
    return [cache.stats()["capacity_bytes"] for cache in CACHES]


def test_bounds_are_those_of_the_server() -> None:
    set_bounds(ServerSettings(decoded_bytes=1_000, coalesced_bytes=2_000))
    assert capacities() == [1_000, 2_000]


@pytest.mark.parametrize("total", [512 << 20, 64 << 30])
def test_bounds_that_nobody_sets_are_shares_of_the_memory(monkeypatch: pytest.MonkeyPatch, total: int) -> None:
    monkeypatch.setattr("merlot.memory.total_bytes", lambda: total)
    set_bounds(ServerSettings())
    assert capacities() == [total // 4, min(total // 8, 512 << 20)]


def test_metrics_tell_what_caches_hold_and_drop() -> None:
    def told() -> dict[str, float]:
        lines = telemetry.render_metrics().decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith("merlot_server_cache_"))
        return {name: float(value) for name, _, value in found}

    set_bounds(ServerSettings(decoded_bytes=0))  # what other tests left there goes
    set_bounds(ServerSettings(decoded_bytes=1_500))
    before = told()
    for name in ("a", "b", "b"):
        buffers.DECODE_CACHE.get((-1, name), lambda: np.zeros(1_000, np.uint8))
    after = told()
    cache = '{cache="decoded"}'
    assert after[f"merlot_server_cache_bytes{cache}"] == 1_000
    assert after[f"merlot_server_cache_capacity_bytes{cache}"] == 1_500
    for name, count in (("hits", 1), ("misses", 2), ("evictions", 1)):
        key = f"merlot_server_cache_{name}_total{cache}"
        assert after[key] - before[key] == count
    assert 'merlot_server_cache_bytes{cache="joined"}' in after
    buffers.DECODE_CACHE.drop(-1)
