"""Thousands of histories of upsert tables, each from its seed; and bugs that they find."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import pytest
from tests.budget import count
from tests.simulation.histories import failure_of, play_all
from tests.simulation.upserts import UpsertWorld

NUM_HISTORIES = count("MERLOT_SIMULATIONS", quick=10, every=60, fuzz=10_000)
ENOUGH = 100
"""Histories among which a planted bug must be found."""


@pytest.mark.timeout(0)
def test_every_replica_has_the_valid_docs_of_a_dict_whatever_befalls_it() -> None:
    began = time.monotonic()
    played = play_all(play, NUM_HISTORIES)
    failures = [failure for one in played for failure in one[2]]
    num_checks, num_recovered = sum(one[0] for one in played), sum(one[1] for one in played)
    seconds = time.monotonic() - began
    print(f"histories={NUM_HISTORIES} checks={num_checks} recovered={num_recovered} seconds={seconds:.1f}")
    assert failures == []
    assert num_checks > NUM_HISTORIES, "histories in which nothing is looked at prove nothing"
    assert num_recovered > NUM_HISTORIES // 4, "nor do those in which no index begins with a checkpoint"


def play(seeds: Sequence[int]) -> tuple[int, int, list[str]]:
    """Checks, recoveries and failures, in a process of its own."""
    num_checks, num_recovered, failures = 0, 0, []
    for seed in seeds:
        world = UpsertWorld(seed)
        if failure := failure_of(world):
            failures.append(f"history of seed {seed}: {failure}")
        num_checks += world.num_checks
        num_recovered += world.num_recovered
    return num_checks, num_recovered, failures


@pytest.mark.timeout(0)
def test_forgetting_what_was_dead_by_an_earlier_time_to_live_is_found() -> None:
    forgetful = partial(UpsertWorld, forgets_frozen=True)
    found = (failure for seed in range(ENOUGH) if (failure := failure_of(forgetful(seed))))
    assert any("differ" in failure for failure in found)
