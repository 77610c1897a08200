"""A replica follows segments that become one, whenever it hears of it, and shows the same rows before and after."""

from __future__ import annotations

import random
from collections.abc import Collection

import numpy as np
import pytest
from tests.unit.server.test_upsert_listener import REQUEST, Chain, Replica, visible

from merlot.cluster.consuming.merged import MERGED, merged_sequences
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.rewritten import files_to_keep

ROWS = 20
NUM_SEALED = 5


class LongChain(Chain):
    """Of so many keys that each segment has rows that count."""

    def produce(self, number: int) -> None:
        now = len(self.rows)
        self.rows += [(self._draw.randrange(80), now + row - self._draw.choice((0, 0, 1, 9))) for row in range(number)]


class World:
    """A chain of sealed segments, of which two or more are merged, and a replica that has them all."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.chain = LongChain(self.draw)
        self.replica = Replica(self.chain)
        for _ in range(NUM_SEALED):
            self.commit(self.replica)
        self.settle(self.replica)

    @property
    def stop(self) -> int:
        return len(self.chain.rows)

    def commit(self, replica: Replica) -> None:
        self.chain.produce(ROWS)
        replica.read(self.stop)
        old = self.chain.open
        self.chain.commit(self.stop)
        crc = {"crc": 100 + old.sequence}
        done = self.chain.records[old.sequence].model_copy(update=crc)
        self.chain.records = {**self.chain.records, old.sequence: done}
        self.chain.sealed[done.key_text] = self.chain.sealed.pop(f"{done.name}@0")
        replica.follow(done, carries=True)
        replica.segments.release()

    def settle(self, replica: Replica) -> None:
        replica.listener.files._seen = None  # it is time to look
        replica.listener.settle()

    def merge(self, first: int, last: int, crc: int) -> str:
        """The first swap, of what a cut of now has for valid; the key of the new file."""
        records = [record for one, record in sorted(self.chain.records.items()) if first <= one <= last]
        offsets = sorted(row for record in records for row in self._rows(record.key_text))
        kept = [offset for offset in offsets if offset in self.chain.newest(self.stop)]
        growing = ConsumingSegment(REQUEST, 0)
        growing.append(self.chain.table(0, self.stop).take(kept), np.array(kept), self.stop)
        marks = {COMPACTED: "1", MERGED: ",".join(record.key_text for record in records)}
        update = {"crc": crc, "total_docs": len(kept), "custom_map": marks}
        merged = records[-1].model_copy(update=update)
        self.chain.records = {**self.chain.records, last: merged}
        self.chain.sealed[merged.key_text] = growing.snapshot()
        return merged.key_text

    def _rows(self, key: str) -> list[int]:
        column = self.chain.sealed[key].column("offset")
        assert column is not None
        docs = np.arange(self.chain.sealed[key].num_docs, dtype=np.uint32)
        if column.dictionary is not None:
            assert column.dictionary.numeric is not None
            return [int(one) for one in column.dictionary.numeric[column.take_dict_ids(docs)]]
        return [int(one) for one in column.take_values(docs)]

    def finish(self, last: int) -> None:
        """The second swap."""
        gone = merged_sequences(self.chain.records[last]).keys() - {last}
        self.chain.records = {one: record for one, record in self.chain.records.items() if one not in gone}

    def shows_newest(self, replica: Replica, without: Collection[int] = ()) -> None:
        """By the new files, once for each row."""
        view = replica.listener.view
        assert view is not None
        found: list[int] = []
        for part in view.log.parts:
            masked = view.masked(part.sequence, part.snapshot()) if part.rows is not None else None
            found += [] if masked is None else visible(masked)
        in_line = {part.sequence for part in view.log.parts if part.rows is not None}
        for sequence, record in self.chain.records.items():
            if sequence not in {*in_line, *without} and not record.is_open:
                masked = view.masked(sequence, self.chain.sealed[record.key_text])
                assert masked is not None, sequence
                found += visible(masked)
        assert len(found) == len(set(found))
        assert set(found) == self.chain.newest(self.stop)


@pytest.fixture(params=range(8))
def world(request: pytest.FixtureRequest) -> World:
    return World(int(request.param))


def old_rows(world: World, replica: Replica, keys: list[str]) -> list[int]:
    """What is shown by files that were merged."""
    view = replica.listener.view
    assert view is not None
    found: list[int] = []
    for key in keys:
        former = view.former[key]
        bits = former.words(view.cut.valid(view.numbers[former.sequence]))
        docs = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
        rows = world._rows(key)
        found += [rows[doc] for doc in docs.tolist()]
    return found


def test_either_set_of_files_shows_the_same_rows_while_more_are_replaced(world: World) -> None:
    olds = [world.chain.records[one].key_text for one in (0, 1, 2)]
    before = {row for key in olds for row in world._rows(key)} & world.chain.newest(world.stop)
    new = world.merge(0, 2, 50)
    world.replica.loaded.add(new)
    world.settle(world.replica)
    assert world.replica.listener.view is not None
    assert world.replica.listener.view.knows(2, new)
    assert all(world.replica.listener.view.knows(one, key) for one, key in enumerate(olds))
    world.shows_newest(world.replica, {0, 1})
    assert set(old_rows(world, world.replica, olds)) == before
    for _ in range(2):
        world.commit(world.replica)
        world.settle(world.replica)
        world.shows_newest(world.replica, {0, 1})
        assert set(old_rows(world, world.replica, olds)) == before & world.chain.newest(world.stop)
    world.finish(2)
    world.commit(world.replica)
    world.shows_newest(world.replica)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_replica_that_begins_anew_reads_the_merged_file_alone(world: World, is_finished: bool) -> None:
    new = world.merge(1, 3, 50)
    if is_finished:
        world.finish(3)
    world.replica.restart()
    view = world.replica.listener.view
    assert view is not None
    assert view.knows(3, new)
    world.shows_newest(world.replica, set() if is_finished else {1, 2})
    assert world.replica.listener.stats.keys == len(world.chain.newest(world.stop))


def test_a_replica_that_hears_of_it_late_shows_the_same(world: World) -> None:
    """The others are gone before it has the new file, and rows come meanwhile."""
    new = world.merge(0, 2, 50)
    world.finish(2)
    world.commit(world.replica)
    world.settle(world.replica)
    view = world.replica.listener.view
    assert view is not None
    assert not view.knows(2, new), "it has not loaded the file"
    world.replica.loaded.add(new)
    world.settle(world.replica)
    world.shows_newest(world.replica)
    assert world.replica.listener.stats.keys == len(world.chain.newest(world.stop))


def test_a_replica_that_missed_a_merge_follows_the_next(world: World) -> None:
    world.merge(1, 2, 50)
    world.finish(2)
    if world.draw.random() < 0.5:
        world.commit(world.replica)
    newest = world.merge(0, 2, 51)
    if world.draw.random() < 0.5:
        world.finish(2)
    world.replica.loaded.add(newest)
    world.settle(world.replica)
    world.settle(world.replica)
    world.shows_newest(world.replica, {0} if 0 in world.chain.records else set())


def test_files_of_before_two_merges_still_show_what_they_should(world: World) -> None:
    olds = [world.chain.records[one].key_text for one in (1, 2)]
    before = {row for key in olds for row in world._rows(key)}
    first = world.merge(1, 2, 50)
    world.replica.loaded.add(first)
    world.settle(world.replica)
    world.finish(2)
    world.commit(world.replica)
    second = world.merge(0, 3, 51)
    world.replica.loaded.add(second)
    world.settle(world.replica)
    assert world.replica.listener.view is not None
    assert world.replica.listener.view.knows(3, second)
    assert set(old_rows(world, world.replica, olds)) == before & world.chain.newest(world.stop)
    world.shows_newest(world.replica, {0, 2})


def test_files_are_kept_until_the_index_follows_the_one_that_both_swaps_put_in_their_place(world: World) -> None:
    def kept() -> set[str]:
        view = world.replica.listener.view
        assert view is not None
        return files_to_keep({0: view.keys, 1: {}}, world.chain.records.values())

    olds = {world.chain.records[one].key_text for one in (0, 1, 2)}
    assert not kept()
    new = world.merge(0, 2, 50)
    assert kept() == olds
    world.finish(2)
    assert kept() == olds
    world.replica.loaded.add(new)
    world.settle(world.replica)
    assert not kept()
    world.shows_newest(world.replica)
