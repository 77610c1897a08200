"""Replicas agree, with each other and with a dict, on keys and deletions that expire and on what retention removes,
whichever of them began anew, and with what."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.budget import count
from tests.unit.server.test_upsert_listener import Chain, is_deletion
from tests.unit.server.test_upsert_restarts import MISHAPS, KeepingReplica
from tests.unit.upsert.oracle import Oracle

NUM_SEEDS = count("MERLOT_EXPIRIES", quick=3, every=6, fuzz=200)
SETTINGS = '{{"mode":"FULL","deleteRecordColumn":"gone",{ttl}"deletedKeysTtl":"{deleted}"{snapshots}}}'
KEPT = ',"snapshot":"ENABLE","snapshotStore":"LOCAL"'


class Cluster:
    """Three replicas of a partition, each with a disk, and what they shall show."""

    def __init__(self, draw: random.Random, folder: Path, *, keeps: bool) -> None:
        self.draw, self.folder = draw, folder
        self.ttl, self.deleted_ttl = draw.choice((None, 25, 40)), draw.choice((1, 4, 12, 30))
        ttl = "" if self.ttl is None else f'"primaryKeyTtl":"{self.ttl}",'
        settings = SETTINGS.format(ttl=ttl, deleted=self.deleted_ttl, snapshots=KEPT if keeps else "")
        self.chain = Chain(draw)
        self.chain.records[0] = self.chain.records[0].model_copy(update={"upsert": settings})
        self.replicas = [KeepingReplica(self.chain, folder / str(number)) for number in range(3)]
        self.removed: list[tuple[int, int]] = []
        """Up to which offset, and when: how far the stream was."""

    def expected(self, stop: int) -> set[int]:
        oracle = Oracle(float("inf") if self.ttl is None else self.ttl, self.deleted_ttl)
        removed = dict(reversed(pair) for pair in self.removed)
        for offset, (key, at) in enumerate(self.chain.rows[:stop]):
            self._forget(oracle, removed.get(offset, 0))
            oracle.add(key, at, is_deletion(offset), (0, offset))
        self._forget(oracle, removed.get(stop, 0))
        return {offset for (_, offset), is_deleted in oracle.valid.items() if not is_deleted}

    def _forget(self, oracle: Oracle, before: int) -> None:
        oracle.valid = {place: gone for place, gone in oracle.valid.items() if place[1] >= before}
        oracle.newest = {key: found for key, found in oracle.newest.items() if found.place[1] >= before}

    def check(self) -> None:
        for replica in self.replicas:
            stop, seen = replica.seen()
            assert sorted(seen) == sorted(self.expected(stop)), (stop, self.removed)

    def read(self) -> None:
        self.chain.produce(self.draw.randrange(1, 20))
        replica = self.draw.choice(self.replicas)
        replica.read(self.draw.randrange(replica.offset, len(self.chain.rows)) + 1)

    def commit(self) -> None:
        old = self.chain.open
        furthest = max(replica.offset for replica in self.replicas)
        if furthest > old.start_offset:
            self.chain.commit(self.draw.randrange(old.start_offset, furthest) + 1)
            for replica in self.replicas:
                replica.follow(self.chain.records[old.sequence], carries=self.draw.random() < 0.7)
                replica.listener.settle()

    def restart(self) -> None:
        replica = self.draw.choice(self.replicas)
        before = replica.offset
        if self.draw.random() < 0.5:
            replica.listener.close()
        self.draw.choice(MISHAPS if not self.removed else MISHAPS[:1])(replica.folder / "local", self.draw)
        replica.restart()
        if before > replica.offset:
            replica.read(before)

    def retain(self) -> None:
        """Remove the oldest segment, as one begins: all learn of it at the same row, also those that read it again."""
        sealed = [one for one in self.chain.records.values() if not one.is_open]
        if len(sealed) < 2:
            return
        self.chain.produce(1)
        for replica in self.replicas:
            replica.read(len(self.chain.rows))
        old = self.chain.open
        self.chain.commit(len(self.chain.rows))
        for replica in self.replicas:
            replica.follow(self.chain.records[old.sequence], carries=True)
            replica.listener.settle()
        gone = sealed[0]
        self.chain.records = {number: one for number, one in self.chain.records.items() if one is not gone}
        assert gone.end_offset is not None
        self.removed.append((gone.end_offset, len(self.chain.rows)))
        for replica in self.replicas:
            replica.segments.release()


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_deletions_expire_alike_on_replicas_that_go_on_and_on_those_that_begin_anew(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    cluster = Cluster(draw, tmp_path, keeps=seed % 2 == 0)
    for _ in range(40):
        draw.choice((cluster.read, cluster.read, cluster.read, cluster.commit, cluster.restart))()
        cluster.check()


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_what_retention_removes_shows_no_row_again_that_it_hid(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    cluster = Cluster(draw, tmp_path, keeps=True)
    for _ in range(40):
        draw.choice((cluster.read, cluster.read, cluster.read, cluster.commit, cluster.restart, cluster.retain))()
        cluster.check()
