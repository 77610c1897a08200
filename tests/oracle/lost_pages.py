"""Ask segments whose files are cut after they were opened, checked and read: a process that tells what becomes of each.

Zeros stand in place of what is gone, below kernels that trust what was checked before. Whatever they make of it, the
process must live; what is answered is not looked at, since a server throws it away."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.oracle.forged_segments import Bench
from tests.oracle.numbered_cases import each_case

from merlot.query.shortcuts import coalesced_segments
from merlot.query.star_trees import coalesced as coalesced_trees
from merlot.segment import lost_pages
from merlot.segment.immutable import ImmutableSegment

SIZES = (150, 17_000, 40_000)
"""The first one's file is read, not mapped: it stands beside the others."""
PAGE = 4096


def attempt(bench: Bench, seed: int) -> str:
    chance = random.Random(seed)
    path = bench.folder / f"cut-{seed}.mseg"
    path.write_bytes(chance.choice(bench.sound[1:]))
    coalesced_segments.SIGHTINGS, coalesced_segments.MIN_SEGMENTS = chance.choice(((1, 1), (3, 4)))
    coalesced_trees.SIGHTINGS = chance.choice((1, 3))
    before = lost_pages.num_faults()
    with contextlib.suppress(Exception), ImmutableSegment.open(path, verify=True) as segment:
        plans = chance.sample(bench.plans, 4)
        for plan in plans[: chance.randrange(5)]:
            bench._query(plan, [segment])
        os.truncate(path, PAGE * chance.randrange(1, 1 + path.stat().st_size // PAGE))
        for plan in (*plans, chance.choice(bench.tree_plans)):
            with contextlib.suppress(Exception):
                bench._query(plan, [segment])
    path.unlink()
    return "lost" if lost_pages.num_faults() != before else "untouched"


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        each_case(range(first, first + count), partial(attempt, Bench(Path(folder), SIZES)))


if __name__ == "__main__":
    main()
