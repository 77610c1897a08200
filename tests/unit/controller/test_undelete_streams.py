"""Removed segments of a stream come back with their offsets, all or none, unless their rows are in the table again."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.unit.cluster import stream_table
from tests.unit.cluster.stream_table import NOW_MS, PINNED, TABLE

from merlot.cluster import paths
from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.transactions import Begin
from merlot.cluster.manifests import tables
from merlot.cluster.records import LineageRecord, SegmentRecord, StreamSegmentRecord, TrashRecord
from merlot.cluster.segments import commit
from merlot.cluster.segments.transaction import (
    EndReplacement,
    ForgetReplacement,
    PutOutputs,
    RemoveSegments,
    StartReplacement,
    mutate,
)
from merlot.cluster.segments.view import load
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.service import ControllerService
from merlot.errors import ConflictError, InvalidInputError, MerlotError
from merlot.ids import SegmentKey, SegmentName
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables
from merlot.spec.tasks import MERGE_LEVEL
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.testing.clock import FakeClock

TEXT = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema: {fields: [{name: a, type: INT}]}
  ingestion: {stream: {type: files, topic: /topic}}
"""
MANIFEST = load_tables(TEXT)[0]
ENDS = (100, 250, 300)


class Consumed:
    """A table of one partition with three sealed segments."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.clock = FakeClock(NOW_MS)
        self.uri = str(folder / "deep")
        self.files = DeepStore(self.uri)
        self.store = SqliteMetastore(folder / "meta.sqlite")
        tables.put_table(self.store, MANIFEST, clock=self.clock)
        stream_table.begin(self.store, 0)
        self.sealed = [self.seal(end) for end in ENDS]

    def seal(self, end: int) -> StreamSegmentRecord:
        record = stream_table.opened(self.store)
        mutate(self.store, TABLE, lambda view: transactions.propose_end(view, stream_table.end_of(record, end)))
        made = stream_table.sealed(record, end, crc=end)
        assert made.file is not None
        file = made.file.model_copy(update={"url": self.files.url_of(TABLE, made.file.key)})
        view = mutate(self.store, TABLE, lambda view: transactions.commit(view, replace(made, file=file)))
        done = view.segment(record.name)
        assert isinstance(done, StreamSegmentRecord)
        return done

    def service(self, store: Metastore | None = None) -> ControllerService:
        service = ControllerService(store or self.store, self.clock, places=AllowedPlaces(AllowedStores(own=self.uri)))
        service.recovery.open_files = lambda _: self.files
        service.recovery.read = self.read
        return service

    def read(self, url: str, *_: object) -> SegmentRecord:
        """What a footer tells."""
        key = SegmentKey.parse(Path(url).stem)
        known = next((one for one in self.sealed if one.key == key), None)
        docs = 1 if known is None else known.total_docs
        return stream_table.file_of(known or self.sealed[0], docs, key.crc).model_copy(
            update={"name": key.name, "url": url}
        )

    def remove(self, *records: SegmentRecord) -> None:
        self.clock.advance(1)
        self.service().delete_segments("t", lambda _: [one.name for one in records])
        self.clock.advance(1)

    def undelete(self, *records: SegmentRecord, store: Metastore | None = None) -> Any:
        return self.service(store).recovery.undelete("t", [one.name for one in records])

    def chain(self) -> Mapping[str, StreamSegmentRecord]:
        return {one.name: one for one in load(self.store, TABLE).stream_segments}


@pytest.fixture
def consumed(tmp_path: Path) -> Iterator[Consumed]:
    consumed = Consumed(tmp_path)
    yield consumed
    consumed.store.close()


def timeless(record: SegmentRecord) -> SegmentRecord:
    return record.model_copy(update={"refresh_time_ms": -1})


@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (0, 2), (0, 1, 2)], ids=str)
def test_a_record_comes_back_as_it_was(consumed: Consumed, numbers: tuple[int, ...]) -> None:
    before = consumed.chain()
    records = [consumed.sealed[number] for number in numbers]
    consumed.remove(*records)
    consumed.undelete(*records)
    after = consumed.chain()
    assert {name: timeless(one) for name, one in after.items()} == before
    assert all(after[one.name].refresh_time_ms == consumed.clock.now_ms() for one in records)
    assert consumed.seal(400).start_offset == 300, "the stream goes on where it was"


def test_what_the_open_segment_reads_again_does_not_come_back(consumed: Consumed) -> None:
    consumed.remove(*consumed.sealed)
    opened = stream_table.opened(consumed.store)
    ended = replace(stream_table.end_of(opened, 310), next_offset=240)
    mutate(consumed.store, TABLE, lambda view: transactions.propose_end(view, ended))
    made = stream_table.sealed(opened, 310)
    mutate(consumed.store, TABLE, lambda view: transactions.commit(view, made))
    assert stream_table.opened(consumed.store).start_offset == 240
    for again in consumed.sealed[1:]:
        with pytest.raises(ConflictError, match="consumed again"):
            consumed.undelete(again)
    with pytest.raises(ConflictError, match="consumed again"):
        consumed.undelete(*consumed.sealed)
    assert consumed.chain().keys().isdisjoint(one.name for one in consumed.sealed), "all or none"
    consumed.undelete(consumed.sealed[0])


def merge(consumed: Consumed, *inputs: SegmentRecord, name: str) -> SegmentRecord:
    """Merge segments whose records are forgotten at once."""
    key = SegmentKey(SegmentName(name), 9)
    record = SegmentRecord(
        name=name,
        crc=9,
        size_bytes=1,
        url=consumed.files.url_of(TABLE, key),
        total_docs=1,
        custom_map={MERGE_LEVEL: "1d"},
        push_time_ms=consumed.clock.now_ms(),
    )
    names, now_ms = tuple(one.name for one in inputs), consumed.clock.now_ms()
    start = StartReplacement(entry="e", segments_from=dict.fromkeys(names), segments_to=(name,), now_ms=now_ms)
    details = LineageRecord(created_ms=now_ms, segments_from=names, segments_to=(name,))
    end = EndReplacement(entry="e", details=details, now_ms=now_ms)
    mutate(consumed.store, TABLE, lambda _: [start, PutOutputs("e", (record,)), end, ForgetReplacement("e")])
    found = load(consumed.store, TABLE).segment(name)
    assert found is not None
    assert found.stream_offsets
    return found


def test_inputs_and_output_of_a_merge_do_not_come_back_beside_each_other(consumed: Consumed) -> None:
    merged = merge(consumed, *consumed.sealed[:2], name="merged")
    with pytest.raises(ConflictError, match=r"rows are in the table already.*now_in=merged"):
        consumed.undelete(consumed.sealed[0])
    consumed.remove(merged)
    consumed.undelete(merged)
    after = load(consumed.store, TABLE).segment("merged")
    assert after is not None
    assert (after.stream_offsets, after.custom_map) == (merged.stream_offsets, merged.custom_map)
    with pytest.raises(ConflictError, match=r"rows are in the table already.*now_in=merged"):
        consumed.undelete(consumed.sealed[0])
    consumed.remove(merged)
    consumed.undelete(consumed.sealed[0])
    with pytest.raises(ConflictError, match="rows are in the table already"):
        consumed.undelete(merged)
    consumed.undelete(consumed.sealed[1])


def test_a_segment_between_merged_ones_comes_back_unless_they_may_have_its_rows(consumed: Consumed) -> None:
    middle = consumed.sealed[1]
    consumed.remove(middle)
    consumed.clock.advance(1)
    merge(consumed, consumed.sealed[0], consumed.sealed[2], name="later")
    with pytest.raises(ConflictError, match="or may have been"):
        consumed.undelete(middle)


def test_a_list_of_the_trash_that_tells_no_offsets_is_refused(
    consumed: Consumed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "MAX_MULTI_BYTES", 1)
    consumed.remove(consumed.sealed[0])
    monkeypatch.undo()
    with pytest.raises(InvalidInputError, match=r"does not say which offsets.*consume-from"):
        consumed.undelete(consumed.sealed[0])


def test_what_an_earlier_table_of_the_name_removed_is_refused(consumed: Consumed) -> None:
    consumed.remove(consumed.sealed[0])
    consumed.clock.advance(10)
    tables.delete_table(consumed.store, "t", clock=consumed.clock)
    consumed.clock.advance(10)
    tables.put_table(consumed.store, MANIFEST, clock=consumed.clock)
    for one in consumed.sealed:
        with pytest.raises(InvalidInputError, match="does not say which offsets"):
            consumed.undelete(one)


def test_the_place_of_another_segment_is_refused(consumed: Consumed) -> None:
    consumed.remove(*consumed.sealed)
    opened = stream_table.opened(consumed.store)
    mutate(consumed.store, TABLE, lambda _: [RemoveSegments((opened.key,), even_open=True)])
    begins = [Begin(partition=0, offset=9000, servers=stream_table.SERVERS)]
    mutate(consumed.store, TABLE, lambda view: transactions.begin(view, begins, PINNED, NOW_MS + 120_000))
    assert open_segments(load(consumed.store, TABLE))[0].sequence == 0
    for one in consumed.sealed:
        with pytest.raises(ConflictError, match="another segment has the place"):
            consumed.undelete(one)


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_whoever_dies_while_undeleting_has_brought_back_all_or_none(fault: Fault, tmp_path: Path) -> None:
    for at in itertools.count():
        consumed = Consumed(tmp_path / str(at))
        before = consumed.chain()
        gone = [consumed.sealed[0], consumed.sealed[2]]
        consumed.remove(*gone)
        faulty = FaultyMetastore(consumed.store.session(), fault, at)
        with contextlib.suppress(ProcessDied, MerlotError):
            consumed.undelete(*gone, store=faulty)
        found = consumed.chain().keys() & {one.name for one in gone}
        assert len(found) in (0, len(gone))
        if not found:
            consumed.undelete(*gone)
        assert {name: timeless(one) for name, one in consumed.chain().items()} == before
        assert consumed.seal(400).start_offset == 300
        consumed.store.close()
        if faulty.num_writes <= at:
            break
    assert at >= 1


def test_lists_of_older_releases_are_read(consumed: Consumed) -> None:
    data = TrashRecord(deleted_ms=NOW_MS + 1, urls=(consumed.sealed[0].url,)).to_bytes()
    consumed.remove(consumed.sealed[0])
    (node,) = consumed.store.children(paths.trash(TABLE))
    path = paths.child(paths.trash(TABLE), node)
    found = consumed.store.get(path)
    assert found is not None
    consumed.store.put(path, data, found.version)
    with pytest.raises(InvalidInputError, match="does not say which offsets"):
        consumed.undelete(consumed.sealed[0])
