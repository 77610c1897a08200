"""A table that consumes a stream gets its partitions' chains back from its catalog, and reads on where they end."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.unit.cluster import stream_table
from tests.unit.cluster.stream_table import PINNED, TABLE

from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.stream_facts import find_state, record_stream, record_topic_id, set_paused
from merlot.cluster.losses import LostRecord, find_lost, mark_lost, name_store
from merlot.cluster.manifests import tables
from merlot.cluster.records import AskedEnd, StreamSegmentRecord, StreamStateRecord
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.cleaning.catalog import catalog_of
from merlot.controller.cleaning.catalog_store import read_catalog, write_catalog
from merlot.controller.service import ControllerService
from merlot.errors import ConflictError, InvalidInputError, MerlotError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Check, Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER
from merlot.testing.clock import FakeClock

MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema: {fields: [{name: a, type: INT}]}
  ingestion: {stream: {type: files, topic: /topic}}
""")[0]


class Lost:
    """A table of two partitions with two sealed segments each, whose metastore is gone."""

    def __init__(self, folder: Path, *, paused: bool = False, is_old: bool = False) -> None:
        """is_old: the catalog is one that an older release wrote, which told the topic's id alone."""
        self.paused = paused
        self.state = StreamStateRecord(topic_id="topic 1", starts={0: 0, 1: 1000, 2: 77}, is_paused=paused)
        self.starts = {0: 0, 1: 1000} if is_old else self.state.starts
        folder.mkdir(exist_ok=True)
        self.clock = FakeClock(stream_table.NOW_MS)
        self.uri = str(folder / "deep")
        self.files = DeepStore(self.uri)
        old = SqliteMetastore(folder / "old.sqlite")
        tables.put_table(old, MANIFEST, clock=self.clock)
        stream_table.begin(old, 0, 1000)
        self.sealed: list[StreamSegmentRecord] = [
            one for at in itertools.product((0, 1), (100, 250)) for one in self._seal(old, *at)
        ]
        if paused:
            ask = partial(transactions.ask_to_end, partitions=None, asked=AskedEnd.PAUSE, now_ms=stream_table.NOW_MS)
            mutate(old, TABLE, ask)
            for partition in (0, 1):
                assert self._seal(old, partition, 0) == []
        for partition in () if paused else (0, 1):
            self._ask_for_other_settings(old, partition)
            end = stream_table.end_of(stream_table.opened(old, partition), 5000)
            mutate(old, TABLE, lambda view, end=end: transactions.propose_end(view, end))
        catalog = catalog_of("old", tables.get_table(old, "t"), load(old, TABLE), self.state)
        write_catalog(self.files, TABLE, catalog.model_copy(update={"stream": None}) if is_old else catalog)
        old.close()
        self.store = SqliteMetastore(folder / "new.sqlite")
        tables.put_table(self.store, MANIFEST, clock=self.clock)
        self.store.create("/fence", b"")
        fence = Check("/fence", 0)
        name_store(self.store, "new", fence)
        mark_lost(self.store, TABLE, LostRecord(num_segments=4, total_docs=1, reason="new", since_ms=1), fence)

    def _ask_for_other_settings(self, old: Metastore, partition: int) -> None:
        ask = partial(transactions.ask_to_end, partitions=(partition,), asked=AskedEnd.FORCE, next_pinned="other")
        mutate(old, TABLE, partial(ask, now_ms=stream_table.NOW_MS))

    def _seal(self, old: Metastore, partition: int, length: int) -> list[StreamSegmentRecord]:
        record = stream_table.opened(old, partition)
        end = record.start_offset + length
        mutate(old, TABLE, lambda view: transactions.propose_end(view, stream_table.end_of(record, end)))
        url = self.files.url_below(TABLE, f"{record.name}.mseg")
        Path(self.uri, TABLE).mkdir(parents=True, exist_ok=True)
        Path(self.uri, TABLE, f"{record.name}.mseg").write_bytes(b"rows")
        made = stream_table.sealed(record, end)
        if made.file is not None:
            made = replace(made, file=made.file.model_copy(update={"url": url}))
        view = mutate(old, TABLE, lambda view: transactions.commit(view, made))
        done = view.segment(record.name)
        return [done] if isinstance(done, StreamSegmentRecord) else []

    def recover(self, store: Metastore | None = None, **flags: bool) -> dict[str, object]:
        service = ControllerService(
            store or self.store,
            self.clock,
            places=AllowedPlaces(AllowedStores(own=self.uri), AllowedStreams(folders=EVERY_FOLDER)),
        )
        service.recovery.open_files = lambda _: self.files
        done: dict[str, object] = service.recovery.recover("t", **flags)
        return done

    def check_whole(self) -> None:
        view = load(self.store, TABLE)
        assert sorted(one.key for one in view.stream_segments if not one.is_open) == sorted(
            one.key for one in self.sealed
        )
        opened = open_segments(view)
        sequence = 3 if self.paused else 2
        assert {number: (one.sequence, one.start_offset) for number, one in opened.items()} == {
            0: (sequence, 350),
            1: (sequence, 1350),
        }
        for one in opened.values():
            status = "PAUSED" if self.paused else "CONSUMING"
            assert (one.status, one.end_offset, one.pinned, one.sealer) == (status, None, PINNED, "")
            assert (one.asked_end, one.next_pinned, one.next_offset) == (AskedEnd.NO, "", None), "it is asked again"
        state = find_state(self.store, TABLE)
        assert (state.topic_id, state.starts, state.is_paused) == ("topic 1", self.starts, self.paused)
        assert find_lost(self.store, TABLE) is None


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Lost]:
    lost = Lost(tmp_path)
    yield lost
    lost.store.close()


def test_each_partition_reads_on_where_its_last_segment_ends(lost: Lost) -> None:
    done = lost.recover()
    assert done["partitions"] == [
        {"partition": 0, "segments": 2, "offset": 350},
        {"partition": 1, "segments": 2, "offset": 1350},
    ]
    lost.check_whole()


def test_a_missing_file_is_refused_with_its_offsets(lost: Lost) -> None:
    gone = lost.sealed[0]
    lost.files.delete(gone.url)
    with pytest.raises(ConflictError, match=r"files are missing .*0:0-100.*--accept-loss"):
        lost.recover()
    assert find_lost(lost.store, TABLE) is not None
    assert lost.recover(accept_loss=True)["missing"] == [gone.name]
    lost.sealed.remove(gone)
    lost.check_whole()


def test_offsets_of_another_topic_are_refused(lost: Lost) -> None:
    record_stream(lost.store, TABLE, {0: 0}, InstanceId("s"), 1)
    record_topic_id(lost.store, TABLE, "topic 2")
    with pytest.raises(ConflictError, match="topic is another one"):
        lost.recover()
    assert load(lost.store, TABLE).segments == {}


def test_a_table_that_has_consumed_since_is_refused(lost: Lost) -> None:
    lost.clock.advance(1)
    begins = [transactions.Begin(partition=0, offset=0, servers=stream_table.SERVERS)]
    mutate(lost.store, TABLE, lambda view: transactions.begin(view, begins, PINNED, stream_table.NOW_MS + 5000))
    with pytest.raises(ConflictError, match="has consumed its stream since"):
        lost.recover()


def test_a_metastore_that_is_an_older_copy_is_refused(lost: Lost) -> None:
    record = tables.get_table(lost.store, "t")
    write_catalog(
        lost.files,
        TABLE,
        catalog_of("new", record, load(lost.store, TABLE), None).model_copy(
            update={"has_stream": True, "num_segments": 1, "epoch": 99}
        ),
    )
    with pytest.raises(InvalidInputError, match=r"the metastore is an older copy.*--accept-loss"):
        lost.recover()


def test_partitions_that_servers_have_found_since_are_new_ones(lost: Lost) -> None:
    """They read a new partition from its beginning, but partitions that they find at a first look from its end."""
    record_stream(lost.store, TABLE, {0: 5000, 1: 6000, 3: 7000}, InstanceId("s"), 1)
    lost.recover()
    lost.check_whole()


@pytest.mark.parametrize("is_old", [False, True], ids=["", "old catalog"])
@pytest.mark.parametrize("paused", [False, True], ids=["consuming", "paused"])
def test_a_table_comes_back_paused_or_consuming_as_it_was(tmp_path: Path, paused: bool, is_old: bool) -> None:
    lost = Lost(tmp_path, paused=paused, is_old=is_old)
    set_paused(lost.store, TABLE, paused=not paused, now_ms=1)
    lost.recover()
    lost.check_whole()
    catalog = read_catalog(lost.files, TABLE)
    assert catalog is not None
    assert catalog.stream == find_state(lost.store, TABLE)
    lost.store.close()


@pytest.mark.parametrize("paused", [False, True], ids=["consuming", "paused"])
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_whoever_dies_while_recovering_can_begin_again(fault: Fault, tmp_path: Path, paused: bool) -> None:
    for at in itertools.count():
        lost = Lost(tmp_path / str(at), paused=paused)
        faulty = FaultyMetastore(lost.store.session(), fault, at)
        with contextlib.suppress(ProcessDied, MerlotError):
            lost.recover(faulty)
        if find_lost(lost.store, TABLE) is not None:
            lost.recover()
        lost.check_whole()
        lost.store.close()
        if faulty.num_writes <= at:
            break
    assert at >= 4
