"""A backfill that was under way when the metastore was lost goes on in the next one, at whichever step it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests import budget
from tests.unit.cluster.stream_table import TABLE
from tests.unit.controller.test_backfill_steps import (
    MANIFEST,
    MOST_ROUNDS,
    READ_BEFORE,
    World,
    assert_read_again_once,
)

from merlot.cluster.backfill_record import ORDER, BackfillStep
from merlot.cluster.consuming import backfills
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.stream_facts import find_state
from merlot.cluster.consuming.transactions import SealedSegment
from merlot.cluster.losses import LostRecord, mark_lost, name_store
from merlot.cluster.manifests import tables
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.cleaning.catalog import catalog_of
from merlot.controller.cleaning.catalog_store import write_catalog
from merlot.controller.service import ControllerService
from merlot.metastore.protocol import Check
from merlot.metastore.sqlite import SqliteMetastore
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER

EVERY = 5 if budget.IS_QUICK else 1
"""Moments of a step from one at which the metastore is lost to the next."""


class StoredWorld(World):
    """Its segments have files, and its table a catalog."""

    def __init__(self, folder: Path, deep: Path) -> None:
        self.deep = deep
        self.files = DeepStore(str(deep))
        super().__init__(folder)

    def stored(self, made: SealedSegment) -> SealedSegment:
        if made.file is None:
            return made
        name = f"{made.file.name}.mseg"
        (self.deep / TABLE).mkdir(parents=True, exist_ok=True)
        (self.deep / TABLE / name).write_bytes(b"rows")
        return replace(made, file=made.file.model_copy(update={"url": self.files.url_below(TABLE, name)}))

    def lose(self, folder: Path) -> StoredWorld:
        """Return the world after its metastore was lost now, and the table was recovered in a new one."""
        catalog = catalog_of("old", tables.get_table(self.store, "t"), self.view, find_state(self.store, TABLE))
        new = SqliteMetastore(folder / "meta.db")
        tables.put_table(new, MANIFEST)
        new.create("/fence", b"")
        name_store(new, "new", Check("/fence", 0))
        lost = LostRecord(num_segments=1, total_docs=1, reason="the metastore is a new one", since_ms=1)
        mark_lost(new, TABLE, lost, Check("/fence", 0))
        write_catalog(self.files, TABLE, catalog)
        places = AllowedPlaces(AllowedStores(own=str(self.deep)), AllowedStreams(folders=EVERY_FOLDER))
        service = ControllerService(new, self.time, places=places)
        service.recovery.open_files = lambda _: self.files
        service.recovery.recover("t")
        new.close()
        world = StoredWorld(folder, self.deep)
        world.time.ms = self.time.ms + 60_000
        return world


def goes_on_without_its_metastore(world: StoredWorld, folder: Path) -> None:
    folder.mkdir()
    next_world = world.lose(folder)
    assert next_world.record == world.record.model_copy(update={"message": ""})
    assert next_world.run(next_world.store), (world.record, next_world.record)
    assert_read_again_once(next_world)
    assert {one.start_offset >= READ_BEFORE for one in open_segments(next_world.view).values()} == {True}
    next_world.store.close()


@pytest.mark.parametrize("is_after_servers", [False, True], ids=["after the controller", "after the servers"])
def test_a_backfill_goes_on_from_any_moment_at_which_the_metastore_is_lost(
    tmp_path: Path, is_after_servers: bool
) -> None:
    (tmp_path / "first").mkdir()
    world = StoredWorld(tmp_path / "first", tmp_path / "deep")
    world.ask({0: 0, 1: 0})
    steps: set[BackfillStep] = set()
    for number in range(MOST_ROUNDS):
        world.control(world.store)
        if is_after_servers:
            world.serve()
        if world.record.step not in steps or number % EVERY == 0:
            goes_on_without_its_metastore(world, tmp_path / str(number))
        steps.add(world.record.step)
        if world.record.is_over:
            break
        if not is_after_servers:
            world.serve()
    assert steps >= set(ORDER[1:]), steps
    world.store.close()


def test_a_table_that_is_deleted_and_keeps_its_files_goes_on_with_its_backfill(tmp_path: Path) -> None:
    world = StoredWorld(tmp_path, tmp_path / "deep")
    world.ask({0: 0, 1: 0})
    assert not world.run(world.store, 8)
    before = find_state(world.store, TABLE)
    assert before.backfill is not None
    tables.delete_table(world.store, "t", files=tables.Files.KEEP)
    assert backfills.find_backfill(world.store, TABLE) is None
    tables.put_table(world.store, MANIFEST)
    assert find_state(world.store, TABLE) == before
    assert world.run(world.store)
    assert_read_again_once(world)
    world.store.close()
