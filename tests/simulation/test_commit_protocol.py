"""Thousands of histories of a stream's segments, each from its seed; and bugs that they find."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from tests.budget import count
from tests.simulation.histories import failure_of, play_all
from tests.simulation.world import Planted, World

from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import stream_segment
from merlot.cluster.consuming.transactions import SealedSegment
from merlot.cluster.records import ConsumingStatus
from merlot.cluster.segments.mutations import Mutation, PutSegments
from merlot.cluster.segments.view import Bucket, TableView

NUM_HISTORIES = count("MERLOT_SIMULATIONS", quick=30, every=300, fuzz=10_000)
ENOUGH = 200
"""Histories among which each planted bug must be found."""


@pytest.mark.timeout(0)
def test_every_row_is_committed_once_and_none_is_taken_back() -> None:
    began = time.monotonic()
    played = play_all(play, NUM_HISTORIES)
    failures = [failure for one in played for failure in one.failures]
    num_commits = sum(one.num_commits for one in played)
    print(f"histories={NUM_HISTORIES} commits={num_commits} seconds={time.monotonic() - began:.1f}")
    assert failures == []
    assert num_commits > NUM_HISTORIES, "histories in which nothing happens prove nothing"


@dataclass(frozen=True)
class Played:
    """What came of some histories."""

    num_commits: int
    failures: list[str]


def play(seeds: Sequence[int]) -> Played:
    """In a process of its own."""
    num_commits, failures = 0, []
    for seed in seeds:
        world = World(seed)
        if failure := failure_of(world):
            failures.append(f"history of seed {seed}: {failure}")
        num_commits += world.invariants.num_commits
    return Played(num_commits, failures)


def commit_unchecked(view: TableView, sealed: SealedSegment) -> list[Mutation]:
    """As if a commit did not look at what is agreed: whoever is late overwrites what was committed before."""
    record = stream_segment(view, sealed.segment)
    if record is None:
        return []
    update = {"status": ConsumingStatus.SEALING.value, "end_offset": sealed.end_offset}
    segments = {**view.segments, record.name: record.model_copy(update=update)}
    blind = replace(view, buckets={0: Bucket("", segments, view.assignment)})
    made = transactions.commit(blind, sealed)
    return [PutSegments(one.records) if isinstance(one, PutSegments) else one for one in made]


@pytest.mark.parametrize(
    ("planted", "symptom"),
    [
        (Planted(commit=commit_unchecked), "a committed segment changed"),
        (Planted(drops_tail=True), "answered rows were taken back"),
    ],
    ids=["commit without the check of the version", "tail dropped at the split"],
)
@pytest.mark.timeout(0)
def test_a_planted_bug_is_found(planted: Planted, symptom: str) -> None:
    found = (failure for seed in range(ENOUGH) if (failure := failure_of(World(seed, planted))))
    assert any(symptom in failure for failure in found)
