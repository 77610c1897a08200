"""Thousands of histories of a table of batches, each from its seed; and defects that they find."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from tests.budget import count
from tests.simulation.histories import failure_of, play_all
from tests.simulation.planted import DEFECTS, Defect
from tests.simulation.tables import TableWorld

NUM_HISTORIES = count("MERLOT_SIMULATIONS", quick=2, every=120, fuzz=10_000)
ENOUGH = 200
"""Histories among which each planted defect must be found."""
WORK = ("publish", "start", "put", "end", "undo", "delete", "undelete")
"""What clients must have done at least once."""


@dataclass
class Played:
    """What came of some histories."""

    failures: list[str] = field(default_factory=list)
    num: Counter[str] = field(default_factory=Counter)


@pytest.mark.timeout(0)
def test_no_row_is_lost_or_counted_twice_and_no_file_goes_too_early() -> None:
    began = time.monotonic()
    played = play_all(play, NUM_HISTORIES)
    num = sum((one.num for one in played), Counter[str]())
    print(f"histories={NUM_HISTORIES} seconds={time.monotonic() - began:.1f} {dict(num)}")
    assert [failure for one in played for failure in one.failures] == []
    assert num["answers"] > 50 * NUM_HISTORIES
    assert num["deletions"] > 2 * NUM_HISTORIES
    assert all(num[what] >= NUM_HISTORIES // 10 for what in WORK), num
    if NUM_HISTORIES >= 100:
        assert num["recoveries"] > NUM_HISTORIES // 100


def play(seeds: Sequence[int]) -> Played:
    """In a process of its own."""
    played = Played()
    for seed in seeds:
        world = TableWorld(seed)
        if failure := failure_of(world):
            played.failures.append(f"history of seed {seed}: {failure}")
        played.num.update(world.counts())
    return played


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name)
def test_a_planted_defect_is_found(defect: Defect) -> None:
    found = [failure for some in play_all(partial(play_planted, DEFECTS.index(defect)), ENOUGH) for failure in some]
    broken = Counter(failure[:2] for failure in found)
    print(f"{defect.name}: {dict(broken)} {min(found, key=len, default='')}")
    assert any(rule in broken for rule in defect.rules), f"{len(found)} of {ENOUGH} histories failed: {broken}"


def play_planted(number: int, seeds: Sequence[int]) -> list[str]:
    """What the first of these histories that goes wrong with a defect says; a chunk of seeds ends there."""
    for seed in seeds:
        with DEFECTS[number].planted():
            failure = failure_of(TableWorld(seed))
        if any(failure.startswith(rule) for rule in DEFECTS[number].rules):
            return [failure]
    return []
