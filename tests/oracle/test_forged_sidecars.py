"""Sidecars that lie under right checksums are refused when they are opened, or answer; nothing else happens.

`MERLOT_FORGED_SIDECARS` sets how many, `MERLOT_SEED` the first one's number.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import budget
from tests.oracle.forged_segments import INDEXING, NUMBERS, OTHERS, QUERIES, SCHEMA, rows
from tests.support.forgery import Parts, put_together, taken_apart
from tests.support.indexes import every_index

from merlot.errors import MerlotError
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.spec.indexing import IndexingSpec
from merlot.sql.parse import parse

NUM_FILES = budget.count("MERLOT_FORGED_SIDECARS", quick=40, every=200, fuzz=5000)
FIRST = budget.seed(0)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ImmutableSegment, Path]]:
    """A segment without indexes, some columns raw, and the sidecar that gives it all of them."""
    folder = tmp_path_factory.mktemp("forged")
    stored = IndexingSpec(no_dictionary=("some", "text", "many"))
    built = build_segment(BuildRequest(name="t_0", table="t", schema=SCHEMA, indexing=stored), rows(500), folder)
    trees = [tree.model_dump(by_alias=True) for tree in INDEXING.star_tree_index_configs]
    ahead = INDEXING.timestamp_granularities
    asked = every_index(SCHEMA, ("ratio", "marks"), star_tree_index_configs=trees, timestamp_granularities=ahead)
    with ImmutableSegment.open(built.path) as segment:
        yield segment, build_sidecar(segment, plan_of(segment.metadata, asked), asked, folder)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield (*at, key)
        yield from places(member, (*at, key))


def forge(parts: Parts, chance: random.Random) -> None:
    """Change a number of the footer, or some bytes of a buffer."""
    if chance.random() < 0.5:
        *way, last = chance.choice(list(places(parts.content)))
        member: Any = parts.content
        for key in way:
            member = member[key]
        member[last] = chance.choice((*NUMBERS, *OTHERS))
        return
    number = chance.randrange(len(parts.buffers))
    data = bytearray(parts.buffers[number])
    for _ in range(chance.randrange(1, 4) if data else 0):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 255, chance.randrange(256)))
    parts.buffers[number] = bytes(data)


@pytest.mark.timeout(0)
def test_a_forged_sidecar_is_refused_or_answers(honest: tuple[ImmutableSegment, Path]) -> None:
    segment, path = honest
    content, counts = path.read_bytes(), Counter[str]()
    leaves = [plan(bind(parse(sql), SCHEMA)).leaf for sql in QUERIES]
    print(f"MERLOT_SEED={FIRST}")
    for seed in range(FIRST, FIRST + NUM_FILES):
        chance, parts = random.Random(seed), taken_apart(content)
        for _ in range(chance.randrange(1, 4)):
            forge(parts, chance)
        path.write_bytes(put_together(parts))
        try:
            given = segment.beside(Sidecar.open(path, segment.metadata, verify=True))
            for leaf in leaves:
                execute(leaf, [given], ExecutionContext(schema=SCHEMA))
        except MerlotError:
            counts["refused"] += 1
        else:
            counts["answered"] += 1
    print(dict(counts))
    assert counts["refused"] > counts["answered"] > 0
