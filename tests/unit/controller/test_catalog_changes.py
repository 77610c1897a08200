"""A catalog with the changes beside it says what a whole one would, whoever dies while it is written."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.budget import seed
from tests.unit.cluster import stream_table
from tests.unit.cluster.stream_table import NOW_MS, TABLE

from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.stream_facts import set_paused
from merlot.cluster.instances.leases import Lease
from merlot.cluster.losses import CatalogRecord, store_id
from merlot.cluster.manifests import tables
from merlot.cluster.records import LineageRecord, SegmentRecord
from merlot.cluster.segments.transaction import (
    Assign,
    EndReplacement,
    ForgetReplacement,
    Mutation,
    PreconditionError,
    PutOutputs,
    PutSegments,
    RemoveSegments,
    RevertReplacement,
    StartReplacement,
    mutate,
)
from merlot.cluster.segments.view import TableView, load
from merlot.controller.cleaning.catalog import FEW, catalog_of
from merlot.controller.cleaning.catalog_store import CHANGES_FILE, FILE, FOLDER, read_catalog
from merlot.controller.cleaning.catalogs import WHOLE_S, Catalogs, stream_state
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables
from merlot.spec.tasks import MERGE_LEVEL
from merlot.store.deepstore import DeepStore
from merlot.testing.clock import FakeClock

MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema: {fields: [{name: a, type: INT}]}
  ingestion: {stream: {type: files, topic: /topic}, batch: [{name: b, sourceUri: /b, format: CSV}]}
""")[0]


class Died(Exception):
    """The controller is gone."""


@dataclass
class DyingStore:
    """A deep store whose writer dies at a write, before or after it."""

    inner: DeepStore
    dies_at: int = -1
    is_written: bool = False
    num_puts: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put(self, source: Path, url: str) -> None:
        self.num_puts += 1
        if self.num_puts - 1 != self.dies_at:
            self.inner.put(source, url)
            return
        if self.is_written:
            self.inner.put(source, url)
        raise Died


class Life:
    """A table of two partitions and of batches, which changes at random."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        folder.mkdir(exist_ok=True)
        self.draw, self.clock = draw, FakeClock(NOW_MS)
        self.always_few = FEW
        self.files = DeepStore(str(folder / "deep"))
        self.changes_file = folder / "deep" / TABLE / FOLDER / CHANGES_FILE
        self.store = SqliteMetastore(folder / "meta.sqlite")
        self.record = tables.put_table(self.store, MANIFEST, clock=self.clock)
        stream_table.begin(self.store, 0, 1000)
        self._names = itertools.count()
        self._entries = itertools.count()
        self._live: list[tuple[str, LineageRecord]] = []

    @property
    def view(self) -> TableView:
        return load(self.store, TABLE)

    def lead(self, shelf: Any) -> Catalogs:
        """A controller that begins to lead."""
        made = Catalogs(self.store, lambda _: shelf, self.clock, always_few=self.always_few)
        lease = Lease.acquire(self.store, "c", "c", self.clock)
        assert lease is not None
        made.lead(lease)
        assert not made.is_lost(self.record, self.view)
        made.settle()
        return made

    def change(self) -> None:
        acts = (self.commit, self.commit, self.commit, self.publish, self.remove, self.assign, self.pause)
        self.draw.choice((*acts, self.merge, self.forget))()

    def commit(self) -> None:
        partition = self.draw.choice((0, 1))
        record = open_segments(self.view)[partition]
        end = record.start_offset + self.draw.choice((0, 10, 20))
        mutate(self.store, TABLE, lambda view: transactions.propose_end(view, stream_table.end_of(record, end)))
        made = stream_table.sealed(record, end, crc=self.draw.randrange(1, 99))
        mutate(self.store, TABLE, lambda view: transactions.commit(view, replace(made, now_ms=NOW_MS)))

    def publish(self) -> None:
        name = f"b{self.draw.randrange(8)}"
        self.put(name, self.draw.randrange(1, 9))

    def put(self, name: str, crc: int, **more: Any) -> None:
        record = SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///d/{name}@{crc}", total_docs=crc, **more)
        self._try(PutSegments((record,)))

    def remove(self) -> None:
        known = [one for one in self.view.visible.values() if not one.is_open]
        if known:
            one = self.draw.choice(known)
            self._try(RemoveSegments((one.key,)))

    def assign(self) -> None:
        names = self.draw.sample(sorted(self.view.segments), 1)
        self._try(Assign(dict.fromkeys(names, (InstanceId(self.draw.choice("ab")),))))

    def pause(self) -> None:
        set_paused(self.store, TABLE, paused=self.draw.choice((True, False)), now_ms=NOW_MS)

    def merge(self) -> None:
        inputs = [name for name, one in self.view.visible.items() if not one.is_open][:2]
        if not inputs:
            return
        entry, name = f"e{next(self._entries)}", f"m{next(self._names)}"
        details = LineageRecord(created_ms=NOW_MS, segments_from=tuple(inputs), segments_to=(name,))
        start = StartReplacement(entry=entry, segments_from=dict.fromkeys(inputs), segments_to=(name,), now_ms=NOW_MS)
        output = SegmentRecord(
            name=name, crc=3, size_bytes=1, url=f"file:///d/{name}", total_docs=3, custom_map={MERGE_LEVEL: "1d"}
        )
        self._try(start)
        self._try(PutOutputs(entry, (output,)))
        if self.draw.random() < 0.7:
            self._try(EndReplacement(entry=entry, details=details, now_ms=NOW_MS))
        self._live.append((entry, details))

    def forget(self) -> None:
        if not self._live:
            return
        entry, details = self._live.pop(self.draw.randrange(len(self._live)))
        if self.draw.random() < 0.5:
            self._try(RevertReplacement(entry=entry, details=details, now_ms=NOW_MS))
        self._try(ForgetReplacement(entry))

    def _try(self, mutation: Mutation) -> None:
        with contextlib.suppress(PreconditionError):
            mutate(self.store, TABLE, lambda _: [mutation])

    def keep(self, catalogs: Catalogs) -> None:
        """As the controller does after each change; what only waits for a minute has waited."""
        self.clock.advance(61)
        catalogs.keep(self.record, self.view, MANIFEST.spec)

    def expected(self) -> CatalogRecord:
        view, stream = self.view, stream_state(self.store, TABLE, MANIFEST.spec)
        own_id = store_id(self.store)
        assert own_id is not None
        return in_order(catalog_of(own_id, self.record, view, stream))

    def read(self) -> CatalogRecord | None:
        found = read_catalog(self.files, TABLE)
        return None if found is None else in_order(found)


def in_order(catalog: CatalogRecord) -> CatalogRecord:
    def by_name(records: Any) -> Any:
        return tuple(sorted(records, key=lambda one: one.name))

    update = {"edition": "", "records": by_name(catalog.records)}
    return catalog.model_copy(update={**update, "stream_segments": by_name(catalog.stream_segments)})


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path, random.Random(seed()))
    yield made
    made.store.close()


@pytest.mark.parametrize("few", [0, 3, 1000])
def test_changes_beside_a_catalog_say_what_a_whole_one_would(life: Life, few: int) -> None:
    life.always_few = few
    catalogs = life.lead(life.files)
    for _ in range(150):
        life.change()
        life.keep(catalogs)
        assert life.read() == life.expected()


def test_a_commit_writes_what_it_changes(life: Life) -> None:
    for number in range(300):
        life.put(f"s{number}", 7919 * number + 1)
    catalogs = life.lead(life.files)
    life.keep(catalogs)
    whole = written(life, FILE)
    sizes = []
    for _ in range(8):
        life.commit()
        life.keep(catalogs)
        assert written(life, FILE) == whole
        sizes.append(len(written(life, CHANGES_FILE)))
    assert max(sizes) < len(whole) / 4
    life.clock.advance(WHOLE_S)
    life.commit()
    life.keep(catalogs)
    assert written(life, FILE) != whole, "a catalog that an old leader wrote late does not stay"


def written(life: Life, name: str) -> bytes:
    return life.files.read(life.files.url_below(TABLE, FOLDER, name), bytes)


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
def test_whoever_dies_between_two_files_leaves_a_catalog_of_some_moment(tmp_path: Path, is_written: bool) -> None:
    for dies_at in range(12):
        life = Life(tmp_path / str(dies_at), random.Random(dies_at))
        life.always_few = 3
        moments: list[CatalogRecord | None] = [None]
        for shelf in (DyingStore(life.files, dies_at, is_written), DyingStore(life.files)):
            catalogs = life.lead(shelf)
            with contextlib.suppress(Died):
                for _ in range(14):
                    life.change()
                    moments.append(life.expected())
                    life.keep(catalogs)
                    assert life.read() == moments[-1]
            assert life.read() in moments[-2:], "of the last change, or of the one before it"
        life.store.close()


def test_changes_that_belong_to_another_catalog_do_not_count(life: Life) -> None:
    stale = life.lead(life.files)
    life.keep(stale)
    life.commit()
    life.keep(stale)
    changes = written(life, CHANGES_FILE)
    life.clock.advance(3600)
    fresh = life.lead(life.files)
    life.commit()
    life.keep(fresh)
    expected = life.expected()
    life.changes_file.write_bytes(changes)
    assert life.read() == expected


def test_changes_that_are_damaged_leave_the_older_catalog(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    catalogs = life.lead(life.files)
    life.commit()
    life.keep(catalogs)
    before = life.expected()
    life.commit()
    life.keep(catalogs)
    life.changes_file.write_bytes(b"?")
    assert life.read() == before
    assert "an older state is taken" in caplog.text
