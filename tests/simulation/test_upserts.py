"""Thousands of histories of upsert tables, each from its seed; and bugs that they find."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest
from tests.budget import count
from tests.simulation.upserts import UpsertWorld

NUM_HISTORIES = count("MERLOT_SIMULATIONS", quick=25, every=60, fuzz=10_000)
NUM_CHUNKS = 10
ENOUGH = 100
"""Histories among which a planted bug must be found."""


@pytest.mark.timeout(0)
def test_every_replica_has_the_valid_docs_of_a_dict_whatever_befalls_it() -> None:
    began = time.monotonic()
    seeds = [range(first, NUM_HISTORIES, NUM_CHUNKS) for first in range(NUM_CHUNKS)]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
        played = list(processes.map(play, seeds))
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


def failure_of(world: UpsertWorld) -> str:
    """What is wrong with a history; empty if nothing is."""
    try:
        world.run()
    except AssertionError as error:
        return str(error)
    return ""
