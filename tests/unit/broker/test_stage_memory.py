"""Memory of queries of several stages, by the memory that their broker may take."""

from __future__ import annotations

import pytest

from merlot.broker.settings import MOST_STAGE_MEMORY_BYTES, BrokerSettings, stage_memory_bytes

MIB = 1 << 20


@pytest.mark.parametrize("queries", [1, 2, 3, 8])
@pytest.mark.parametrize("total", [64 * MIB, 512 * MIB, 1024 * MIB, 3 * 1024 * MIB, 64 * 1024 * MIB, 1 << 50])
def test_all_that_run_at_a_time_take_half_of_the_memory_at_most(queries: int, total: int) -> None:
    each = stage_memory_bytes(BrokerSettings(stage_queries=queries), total)
    assert 2 * each * queries <= total // 2
    assert each == MOST_STAGE_MEMORY_BYTES or 2 * (each + 1) * queries > total // 2, "no more than it must be smaller"
    assert 0 < each <= MOST_STAGE_MEMORY_BYTES


def test_the_charts_broker_of_a_gibibyte_has_room_for_two_queries() -> None:
    assert stage_memory_bytes(BrokerSettings(), 1024 * MIB) == 128 * MIB


@pytest.mark.parametrize("total", [64 * MIB, 1 << 50])
def test_a_deployment_may_say_how_much(total: int) -> None:
    assert stage_memory_bytes(BrokerSettings(stage_memory_bytes=7 * MIB), total) == 7 * MIB
