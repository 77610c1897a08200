"""Upserts in the simulated cluster: each replica of a partition has the product's own index of keys.

The index is told of rows as they come, follows the agreed ends of segments, settings with another time to live, lost
disks and new lives of its server, and begins anew with a checkpoint or with what is stored. Whatever it went through,
its valid docs must be those of a dict that is told of the same rows one by one: no key with two rows, none without one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tests.simulation.rows import Row, content_crc
from tests.simulation.world import Part, Server, World
from tests.unit.upsert.oracle import Oracle

from merlot.cluster.consuming.machine import Replica
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.consuming.steps import Event
from merlot.spec.schema import FieldSpec
from merlot.spec.upserting import PruningStrategy
from merlot.upsert.checkpoint import PartitionCheckpoint, SegmentSnapshot
from merlot.upsert.comparison import ComparisonColumn
from merlot.upsert.expiry import Watermark
from merlot.upsert.keys import KeyColumns
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules
from merlot.upsert.snapshots import decode, encode
from merlot.upsert.valid_docs import SegmentDocs, ValidDocsView
from merlot.values.types import TypeName

TIMES_TO_LIVE: tuple[float | None, ...] = (None, 60.0, 15.0)
"""By the settings' first number."""
NUM_KEYS = 7
RULES = Rules(
    keys=KeyColumns([FieldSpec(name="k", type=TypeName.INT)]),
    comparisons=(ComparisonColumn(FieldSpec(name="v", type=TypeName.LONG)),),
    deletes_by=FieldSpec(name="d", type=TypeName.BOOLEAN),
)


class Stretch(NamedTuple):
    """The rows of a segment that a replica has, and by which settings they are decided."""

    sequence: int
    settings: str
    rows: tuple[Row, ...]


class Kept(NamedTuple):
    """A checkpoint in the deep store: the snapshot of each segment, by sequence."""

    mark: Watermark
    snapshots: dict[int, bytes]


Checkpoints = dict[int, Kept]
"""By what the segments hold whose end they are of."""


class UpsertWorld(World):
    """A history of an upsert table."""

    def __init__(self, seed: int, *, forgets_frozen: bool = False) -> None:
        super().__init__(seed)
        self.odds = random.Random(~seed)
        self.keys: dict[tuple[str, int], ReplicaKeys] = {}
        self.checkpoints: dict[int, Checkpoints] = {}
        self.forgets_frozen = forgets_frozen
        self.num_checks = self.num_recovered = 0

    def give(self, server: Server, part: Part, event: Event) -> None:
        super().give(server, part, event)
        number = part.replica.record.partition
        if server.parts.get(number) is not part:
            self.keys.pop((server.name, number), None)
            return
        stretches = self.stretches(server, part.replica, part.rows)
        if stretches is not None:
            self.follow(server, number, stretches)

    def follow(self, server: Server, number: int, stretches: Sequence[Stretch]) -> None:
        keys = self.keys.setdefault((server.name, number), ReplicaKeys(self, number))
        if keys.told and [one.stretch for one in keys.told] == stretches:
            return
        keys.follow(stretches)
        if not self.is_troubled or self.odds.random() < 0.4:
            assert keys.valid() == expected(stretches), f"valid docs differ: {server.name}/{number} {stretches}"
            self.num_checks += 1

    def stretches(self, server: Server, replica: Replica, head: Sequence[Row]) -> list[Stretch] | None:
        """What the replica has, in the order of the stream; None while a file is not here."""
        at = replica.record
        found: list[tuple[int, tuple[Row, ...]]] = []
        chain = chains(self.view.stream_segments).get(at.partition, {})
        for sequence in sorted(one for one in chain if one < at.sequence):
            record = chain[sequence]
            if record.name not in server.sealed:
                return None
            found.append((sequence, server.sealed[record.name]))
        found.append((at.sequence, tuple(head)))
        # A sealed segment's record has its settings no more; the rows tell by which they were read.
        return [Stretch(sequence, rows[0][1], rows) for sequence, rows in found if rows]

    def kill(self, server: Server) -> None:
        super().kill(server)
        for partition in self.produced:
            self.keys.pop((server.name, partition), None)
        if self.odds.random() < 0.3:
            server.sealed = {}


class Told:
    """A segment in the index."""

    def __init__(self, number: int, stretch: Stretch) -> None:
        self.number, self.stretch = number, stretch


class ReplicaKeys:
    """The index of one replica, and what it was told of."""

    def __init__(self, world: UpsertWorld, partition: int) -> None:
        self._world = world
        self._kept = world.checkpoints.setdefault(partition, {})
        self._pruning = world.odds.choice(list(PruningStrategy))
        self._index: PartitionUpserts | None = None
        self._settings = ""
        self._next_number = 0
        self.told: list[Told] = []

    def follow(self, stretches: Sequence[Stretch]) -> None:
        """Go on with what came since, or build the index anew where rows that it has are gone."""
        if self._index is None or not self._continues(stretches):
            self._begin(stretches)
        for number, stretch in enumerate(stretches):
            if number == len(self.told):
                self._open(stretch)
            self._tell(self.told[number], stretch)

    def valid(self) -> dict[tuple[int, int], bool]:
        """The valid docs by sequence and doc, with whether they delete their keys."""
        assert self._index is not None
        cut = self._index.cut
        found = {}
        for one in self.told:
            docs = cut.segments.get(one.number, SegmentDocs())
            found.update({(one.stretch.sequence, int(doc)): False for doc in docs.live.docs()})
            found.update({(one.stretch.sequence, int(doc)): True for doc in docs.tombstones.docs()})
        return found

    def _continues(self, stretches: Sequence[Stretch]) -> bool:
        last = len(self.told) - 1
        if last < 0 or len(stretches) <= last:
            return False
        if any(one.stretch != stretches[number] for number, one in enumerate(self.told[:-1])):
            return False
        old, now = self.told[last].stretch, stretches[last]
        if old[:2] != now[:2]:
            return False
        if now.rows[: len(old.rows)] == old.rows:
            return True
        following = stretches[last + 1] if len(stretches) > last + 1 else None
        tail = old.rows[len(now.rows) :]
        is_carried = following is not None and following.rows[: len(tail)] == tail
        if not is_carried or following is None or old.rows[: len(now.rows)] != now.rows:
            return False
        if following.settings != now.settings:
            return False
        self._move_tail(now, following.sequence, tail)
        return True

    def _move_tail(self, now: Stretch, sequence: int, tail: tuple[Row, ...]) -> None:
        assert self._index is not None
        old = self.told[-1]
        old.stretch = now
        self._keep(len(now.rows))
        self._next_number += 1
        self._index.move_tail(old.number, len(now.rows), self._next_number)
        self._index.committed()
        self.told.append(Told(self._next_number, Stretch(sequence, now.settings, tail)))

    def _open(self, stretch: Stretch) -> None:
        if self.told:
            self._keep(len(self.told[-1].stretch.rows))
        assert self._index is not None
        self._index.committed()
        self._next_number += 1
        self.told.append(Told(self._next_number, stretch._replace(rows=())))

    def _tell(self, told: Told, stretch: Stretch) -> None:
        first, index = len(told.stretch.rows), self._index
        assert index is not None
        if len(stretch.rows) > first:
            if self._settings != stretch.settings:
                mark = index.watermark
                index.set_rules(self._rules(stretch.settings))
                self._settings = stretch.settings
                if self._world.forgets_frozen:
                    index._mark = mark
            # What is stored is replayed as what comes is added: nothing is dropped here, so both decide alike.
            way = index.add if self._world.odds.random() < 0.5 else index.replay
            way(table_of(stretch.rows[first:]), told.number, first)
            index.publish()
        told.stretch = stretch
        if self._world.odds.random() < 0.5:
            index.tidy()
            index.scan()

    def _keep(self, num_docs: int) -> None:
        """Write the checkpoint at the end of the last segment, which is the same whoever writes it."""
        assert self._index is not None
        found = self._index.cut_at(self.told[-1].number, num_docs)
        if found is None:
            return
        kept = Kept(
            found[1],
            {
                one.stretch.sequence: encode(str(one.stretch.sequence), self._snapshot(found[0], one))
                for one in self.told
            },
        )
        before = self._kept.setdefault(content_of(one.stretch for one in self.told), kept)
        assert before == kept, f"replicas' checkpoints differ: {before} {kept}"

    def _snapshot(self, cut: ValidDocsView, told: Told) -> SegmentSnapshot:
        return SegmentSnapshot.of(cut.segments.get(told.number, SegmentDocs()), len(told.stretch.rows))

    def _begin(self, stretches: Sequence[Stretch]) -> None:
        """An index with nothing, or with the newest checkpoint of segments that are here."""
        self._settings = stretches[0].settings if stretches else ""
        self._index, self.told = PartitionUpserts(self._rules(self._settings)), []
        self._pruning = self._world.odds.choice(list(PruningStrategy))
        for count in range(len(stretches) - 1, 0, -1):
            kept = self._kept.get(content_of(stretches[:count]))
            if kept is not None and self._world.odds.random() < 0.7:
                self._recover(kept, stretches[:count])
                return

    def _recover(self, kept: Kept, stretches: Sequence[Stretch]) -> None:
        self._world.num_recovered += 1
        self._settings = stretches[-1].settings
        for stretch in stretches:
            self._next_number += 1
            self.told.append(Told(self._next_number, stretch))
        segments = {
            one.number: decode(str(one.stretch.sequence), kept.snapshots[one.stretch.sequence]) for one in self.told
        }
        checkpoint = PartitionCheckpoint(end_offset=0, watermark=kept.mark, segments=segments)
        index = self._index = PartitionUpserts.recovered(self._rules(self._settings), checkpoint)
        for one in self.told:
            docs = segments[one.number].docs().docs()
            rows = table_of([one.stretch.rows[doc] for doc in docs])
            if index.may_expire:
                alive = index.alive(rows)
                docs, rows = docs[alive], rows.filter(pa.array(alive))
            index.load(rows, one.number, docs)

    def _rules(self, settings: str) -> Rules:
        return replace(RULES, time_to_live=time_to_live(settings), pruning=self._pruning)


def time_to_live(settings: str) -> float | None:
    return TIMES_TO_LIVE[int(settings.partition("/")[0] or 0)]


def content_of(stretches: Iterable[Stretch]) -> int:
    return content_crc([row for one in stretches for row in ((one.sequence, one.settings), *one.rows)])


def fields_of(offset: int) -> tuple[int, int, bool]:
    """Key, comparison value and whether the row deletes: values come out of order, some of them twice."""
    noise = offset * 2_654_435_761 >> 7
    return noise % NUM_KEYS, max(offset - noise // 7 % 12, 0) * 2, noise // 84 % 9 == 0


def table_of(rows: Sequence[Row]) -> pa.Table:
    columns = np.array([fields_of(offset) for offset, _ in rows], np.int64).reshape(-1, 3)
    return pa.table(
        {
            "k": pa.array(columns[:, 0].astype(np.int32)),
            "v": pa.array(columns[:, 1]),
            "d": pa.array(columns[:, 2].astype(np.bool_)),
        }
    )


def expected(stretches: Sequence[Stretch]) -> dict[tuple[int, int], bool]:
    """What a dict comes to."""
    oracle, settings = Oracle(), ""
    for stretch in stretches:
        if settings != stretch.settings:
            found = time_to_live(stretch.settings)
            oracle.change(math.inf if found is None else found)
            settings = stretch.settings
        for doc, (offset, _) in enumerate(stretch.rows):
            key, value, is_deleted = fields_of(offset)
            oracle.add(key, value, is_deleted, (stretch.sequence, doc))
    return oracle.valid
