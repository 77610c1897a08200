"""Random interleavings of what happens to a partition: replicas that prune differently, and the oracle, agree on every
valid doc."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import count
from tests.unit.upsert.oracle import Oracle, Place
from tests.unit.upsert.upsert_rows import Row, rules, table, valid_places

from merlot.spec.upserting import PruningStrategy
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules

SENT_UNTIL = 40
EXAMPLES = count("MERLOT_UPSERTS", quick=10, every=40, fuzz=10_000)

ROW = st.tuples(st.integers(0, 7), st.integers(0, 60), st.integers(0, 4).map(lambda number: number == 0))


@dataclass(frozen=True)
class Ingest:
    rows: list[Row]


@dataclass(frozen=True)
class Commit:
    pass


@dataclass(frozen=True)
class Merge:
    """Of all segments but the open one: what is not valid goes, the rest turns round."""


@dataclass(frozen=True)
class MoveTail:
    docs: int


@dataclass(frozen=True)
class Recover:
    replica: int


@dataclass(frozen=True)
class ChangeTtl:
    ttl: int | None
    turns: int
    """By how many the ways of pruning move on from replica to replica."""


STEPS = st.one_of(
    st.builds(Ingest, st.lists(ROW, min_size=1, max_size=12)),
    st.builds(Commit),
    st.builds(Merge),
    st.builds(MoveTail, st.integers(0, 5)),
    st.builds(Recover, st.integers(0, 3)),
    st.builds(ChangeTtl, st.sampled_from([None, 5, 20]), st.integers(0, 2)),
)


@dataclass
class World:
    """The oracle, replicas, and the rows of all docs."""

    options: dict[str, object]
    ttl: int | None
    skew: int | None
    oracle: Oracle
    replicas: list[PartitionUpserts] = field(default_factory=list)
    rows: dict[Place, Row] = field(default_factory=dict)
    open_segment: int = 0
    next_segment: int = 1

    @property
    def num_open(self) -> int:
        return sum(segment == self.open_segment for segment, _ in self.rows)

    def rules(self, pruning: str) -> Rules:
        ttl = {} if self.ttl is None else {"primaryKeyTtl": str(self.ttl)}
        found = rules(**self.options, **ttl, pruning=pruning, messageTimeColumn="sent")
        return replace(found, max_future_skew_ms=self.skew)

    def table(self, rows: list[Row]) -> pa.Table:
        """Messages tell their own time, but for none is it later than SENT_UNTIL."""
        return table(rows, [min(value, SENT_UNTIL) for _, value, _ in rows])

    def check(self) -> None:
        for replica in self.replicas:
            assert valid_places(replica.cut) == self.oracle.valid

    def move(self, moved: dict[Place, Place]) -> None:
        """Give docs other places; the others are gone."""
        self.oracle.move(lambda place: moved.get(place, place))
        self.rows = {moved[place]: row for place, row in self.rows.items() if place in moved}


def begin(ttl: int | None, deleted_ttl: int | None, *, drops: bool, skips: bool, skew: int | None) -> World:
    options: dict[str, object] = {"dropOutOfOrderRecord": drops, "skipLateEvents": skips}
    if deleted_ttl is not None:
        options["deletedKeysTtl"] = str(deleted_ttl)
    bounds = math.inf if ttl is None else ttl, math.inf if deleted_ttl is None else deleted_ttl
    world = World(options, ttl, skew, Oracle(*bounds, drops=drops, skips_late=skips))
    if skew is not None:
        world.oracle.ceiling = SENT_UNTIL + skew
    for pruning in ("COMMIT", "SCAN", "ROTATION", "COMMIT"):
        world.replicas.append(PartitionUpserts(world.rules(pruning)))
    return world


def ingest(world: World, step: Ingest) -> None:
    first = world.num_open
    kept = []
    for row in step.rows:
        place = world.open_segment, first + len(kept)
        if world.oracle.add(*row, place):
            world.rows[place] = row
            kept.append(row)
    for number, replica in enumerate(world.replicas):
        # The first takes rows in a batch, the second one by one, the others in halves.
        doc = first
        for part in _parts(step.rows, (len(step.rows), 1)[number] if number < 2 else len(step.rows) // 2 + 1):
            doc += replica.add(world.table(part), world.open_segment, doc).rows.num_rows
            replica.publish()
        assert doc == first + len(kept)


def _parts(rows: list[Row], size: int) -> Iterator[list[Row]]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def commit(world: World, _step: Commit) -> None:
    world.open_segment, world.next_segment = world.next_segment, world.next_segment + 1
    for number, replica in enumerate(world.replicas):
        replica.committed()
        for _ in range(number * 30):  # some are not done before the next rows come
            replica.tidy()
        if replica.rules.pruning is PruningStrategy.SCAN:
            for _ in range(40):
                replica.scan()


def merge(world: World, _step: Merge) -> None:
    sealed = sorted({segment for segment, _ in world.rows} - {world.open_segment})
    left = sorted(place for place in world.oracle.valid if place[0] in sealed)
    target, world.next_segment = world.next_segment, world.next_segment + 1
    places = {place: (target, len(left) - 1 - number) for number, place in enumerate(left)}
    sources = {}
    for segment in sealed:
        docs = range(1 + max(doc for number, doc in world.rows if number == segment))
        sources[segment] = np.array([places.get((segment, doc), (0, -1))[1] for doc in docs])
    for replica in world.replicas:
        assert replica.replace_segments(sources, target, len(left)) == 0
    world.move(places | {place: place for place in world.rows if place[0] == world.open_segment})


def move_tail(world: World, step: MoveTail) -> None:
    first = min(step.docs, world.num_open)
    target, world.next_segment = world.next_segment, world.next_segment + 1
    for replica in world.replicas:
        replica.move_tail(world.open_segment, first, target)
    tail = {place: (target, place[1] - first) for place in world.rows if place[0] == world.open_segment}
    moved = {place: to for place, to in tail.items() if to[1] >= 0}
    world.move({place: moved.get(place, place) for place in world.rows})
    world.open_segment = target


def recover(world: World, step: Recover) -> None:
    """A replica dies; another takes its place from a checkpoint of one that lives."""
    before = world.replicas[step.replica]
    checkpoint = world.replicas[step.replica - 1].checkpoint(17)
    after = PartitionUpserts.recovered(before.rules, checkpoint)
    for segment, docs in checkpoint.cut().segments.items():
        valid = np.concatenate([docs.live.docs(), docs.tombstones.docs()])
        after.load(table([world.rows[segment, doc] for doc in valid.tolist()]), segment, valid)
    world.replicas[step.replica] = after


def change_ttl(world: World, step: ChangeTtl) -> None:
    commit(world, Commit())
    world.ttl = step.ttl
    world.oracle.change(math.inf if step.ttl is None else step.ttl)
    ways = [replica.rules.pruning for replica in world.replicas]
    for replica, pruning in zip(world.replicas, ways[step.turns :] + ways[: step.turns], strict=True):
        replica.set_rules(world.rules(pruning))


ACTIONS: dict[type, Callable[[World, object], None]] = {
    Ingest: ingest,
    Commit: commit,
    Merge: merge,
    MoveTail: move_tail,
    Recover: recover,
    ChangeTtl: change_ttl,
}  # type: ignore[dict-item]
TTLS = st.sampled_from([None, 5, 20])


@given(st.lists(STEPS, min_size=3, max_size=20), TTLS, TTLS, st.booleans(), st.booleans(), st.sampled_from([None, 3]))
@settings(max_examples=EXAMPLES)
def test_replicas_and_the_oracle_agree_on_every_doc(
    steps: list[object], ttl: int | None, deleted_ttl: int | None, drops: bool, skips: bool, skew: int | None
) -> None:
    world = begin(ttl, deleted_ttl, drops=drops, skips=skips, skew=skew)
    for step in steps:
        ACTIONS[type(step)](world, step)
        world.check()
    offsets = {replica.checkpoint(5).watermark for replica in world.replicas}
    assert len(offsets) == 1
    bits = [replica.checkpoint(5).segments for replica in world.replicas]
    for others in bits[1:]:
        shared = set(others) & set(bits[0])
        assert {number: others[number].live for number in shared} == {number: bits[0][number].live for number in shared}
