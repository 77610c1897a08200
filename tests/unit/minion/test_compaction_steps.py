"""A minion that dies at any step of a compaction leaves a segment that is whole, and whoever comes after it ends it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.faults import ProcessDied

from merlot.catalog.transfer import fetch_segments, upload_segments
from merlot.clock import SystemClock
from merlot.cluster.consuming import checkpoints, merges, transactions
from merlot.cluster.consuming.checkpoints import SNAPSHOT_FOLDER, StoredCheckpoint, needed, write_checkpoint
from merlot.cluster.consuming.commits import commit_segment, propose_end
from merlot.cluster.consuming.merged import merged_keys
from merlot.cluster.consuming.partitions import chains, open_segments
from merlot.cluster.consuming.transactions import Begin, End, SealedSegment
from merlot.cluster.instances.leases import Lease
from merlot.cluster.instances.reports import ReportWriter
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import CheckpointRecord, StreamSegmentRecord
from merlot.cluster.segments.mutations import PutSegments, RemoveSegments
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.cluster.tasks.compactions import report_valid_docs, task_of
from merlot.cluster.tasks.records import CompactionConfig, TaskRecord
from merlot.errors import UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.minion.compaction import UpsertCompaction
from merlot.minion.control import TaskControl
from merlot.minion.execution import ObsoleteError
from merlot.minion.settings import MergeSettings
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.spec.manifest import load_tables
from merlot.store.deepstore import DeepStore
from merlot.upsert.checkpoint import SegmentSnapshot
from merlot.upsert.snapshots import decode, encode, file_name
from merlot.upsert.valid_docs import Bits, SegmentDocs

TABLE = TableName("t_OFFLINE")
SERVER = InstanceId("Server_a_1")
MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {schema: {fields: [{name: id, type: LONG}, {name: at, type: LONG}], primaryKey: [id]}}
""")[0]
PLAIN = '{"mode":"FULL","comparisonColumns":["at"]}'
EXPIRING = '{"mode":"FULL","comparisonColumns":["at"],"primaryKeyTtl":"5","snapshot":"ENABLE"}'
IDS = (0, 1, 0, 3, 4, 1, 6, 7, 0, 9)
"""Keys of the rows of the segment that is compacted."""
STATE = CheckpointRecord(largest=9, alive_from=-1, deleted_from=-1, column="at", at_ms=1)


@dataclass(frozen=True)
class Case:
    """Which docs are valid, and which rows stay."""

    upsert: str
    live: tuple[int, ...]
    tombstones: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


CASES = {
    "no key expires": Case(PLAIN, (3, 7), kept=(3, 7)),
    "nothing is valid": Case(PLAIN, ()),
    "keys expire": Case(EXPIRING, (3, 7), (9,), kept=(3, 7, 9)),
    "a key has two rows": Case(EXPIRING, (0, 2, 7), kept=(0, 2, 7, 8)),
    "keys expire and nothing is valid": Case(EXPIRING, ()),
}


class World:
    """Three sealed segments, the first of which has rows that were replaced."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.case = folder, case
        self.metastore = SqliteMetastore(folder / "meta.db")
        self.store = DeepStore((folder / "deep").as_uri())
        put_table(self.metastore, MANIFEST)
        begin = Begin(partition=0, offset=0, servers=(SERVER,))
        mutate(self.metastore, TABLE, lambda view: transactions.begin(view, [begin], "{}", 1))
        for number in range(3):
            self._seal(number)
        changed = tuple(one.model_copy(update={"upsert": case.upsert}) for one in self.line.values())
        mutate(self.metastore, TABLE, lambda _: [PutSegments(changed, {one.name: one.crc for one in changed})])
        self.task = self._task()
        if case.upsert == EXPIRING:
            self.take_checkpoint(1, case.live)
        else:
            bits = Bits().changed(pa.array(case.live, pa.int64()).to_numpy(), to=True).serialized()
            report_valid_docs(self.metastore, self.task.id, self.line[0].key_text, len(IDS), bits, SERVER)

    @property
    def line(self) -> dict[int, StreamSegmentRecord]:
        return dict(chains(load(self.metastore, TABLE).stream_segments)[0])

    def _seal(self, number: int) -> None:
        record = open_segments(load(self.metastore, TABLE))[0]
        end = record.start_offset + len(IDS)
        propose_end(self.metastore, TABLE, End(segment=record.name, offset=end, sealer=SERVER, now_ms=1))
        request = BuildRequest(name=record.name, table="t", schema=MANIFEST.spec.table_schema)
        (self.folder / f"built{number}").mkdir()
        rows = pa.table({"id": IDS, "at": [100 * number + place for place in range(len(IDS))]})
        [file] = upload_segments(self.store, [build_segment(request, rows, self.folder / f"built{number}")], TABLE)
        sealed = SealedSegment(
            segment=record.name, start_offset=record.start_offset, end_offset=end, file=file, sealer=SERVER, now_ms=1
        )
        commit_segment(self.metastore, TABLE, sealed)

    def _task(self) -> TaskRecord:
        config = CompactionConfig(segment=self.line[0].key_text, partition=0, num_records=len(IDS))
        return task_of(TABLE, config, 1)

    def take_checkpoint(self, sequence: int, live: tuple[int, ...]) -> None:
        """As a server does at a commit, of whatever file the first segment has."""
        until = checkpoints.sealed_until(self.line, sequence)
        urls = {}
        for record in until:
            if record.snapshot_url and record.total_docs != len(IDS):
                urls[record.key_text] = record.snapshot_url
                continue
            found = (live, self.case.tombstones) if record.sequence == 0 else (range(len(IDS)), ())
            bits = SegmentDocs(*(Bits().changed(pa.array(some, pa.int64()).to_numpy(), to=True) for some in found))
            data = encode(record.key_text, SegmentSnapshot.of(bits, record.total_docs))
            path = self.folder / file_name(record.key_text, data)
            path.write_bytes(data)
            urls[record.key_text] = self.store.url_below(TABLE, SNAPSHOT_FOLDER, path.name)
            self.store.put(path, urls[record.key_text])
        taken = StoredCheckpoint(partition=0, sequence=sequence, key=until[-1].key_text, state=STATE, urls=urls)
        assert write_checkpoint(self.metastore, TABLE, taken)[0]

    def run(self, reached: Callable[[str], None]) -> None:
        """One run of a minion."""
        lease = Lease.acquire(self.metastore, "task", "minion", SystemClock())
        assert lease is not None
        settings = MergeSettings(folder=self.folder / "minion", open_store=lambda _: self.store)
        kind = UpsertCompaction(self.metastore, SystemClock(), settings)
        kind.run(self.task, TaskControl(lease, reached=reached))

    def rows(self, sequence: int = 0) -> list[int]:
        """Values of `at` in the segment's file; of the first one they are its docs."""
        record = self.line.get(sequence)
        if record is None:
            return []
        [path] = fetch_segments(self.store, [record], self.folder / "looked")
        [field] = [one for one in MANIFEST.spec.table_schema.fields if one.name == "at"]
        with ImmutableSegment.open(path) as segment:
            docs = pa.array(range(segment.num_docs), pa.uint32()).to_numpy()
            found: list[int] = taken_column(column_under(segment, field), docs).to_pylist()
            return found

    def is_whole(self) -> None:
        """What the records name is there, is of one another, and has every valid row."""
        rows = self.rows()
        assert set(rows) >= {*self.case.live, *self.case.tombstones}
        if self.case.upsert == PLAIN or 0 not in self.line:
            return
        record = self.line[0]
        docs = self.store.read(record.snapshot_url, partial(decode, record.key_text)).docs()
        assert {rows[doc] for doc in docs.tombstones.docs()} == set(self.case.tombstones)
        assert {rows[doc] for doc in docs.live.docs()} <= set(self.case.live)
        assert checkpoints.newest(self.line) is not None


def dies_at(place: int) -> Callable[[str], None]:
    """Return a `reached` that ends the run at a step, counted from 0."""
    steps = itertools.count()

    def reached(_: str) -> None:
        if next(steps) == place:
            raise ProcessDied

    return reached


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[str(request.param)]


@pytest.fixture
def worlds(tmp_path: Path, case: Case) -> Iterator[Callable[[], World]]:
    made: list[World] = []

    def make() -> World:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(World(folder, case))
        return made[-1]

    yield make
    for world in made:
        world.metastore.close()


def test_a_minion_may_die_at_any_step(worlds: Callable[[], World], case: Case) -> None:
    steps: list[str] = []
    worlds().run(steps.append)
    assert steps[0] == "docs told"
    assert "segment swapped" in steps
    for place in range(len(steps)):
        world = worlds()
        with pytest.raises(ProcessDied):
            world.run(dies_at(place))
        world.is_whole()
        is_removed = 0 not in world.line  # and the end of the task is not written down
        with pytest.raises(ObsoleteError) if is_removed else nullcontext():
            world.run(lambda _: None)
        world.is_whole()
        assert world.rows() == list(case.kept)
        is_by_age = case.upsert == EXPIRING
        assert (needed(world.line) is not None) == is_by_age, steps[place]


@pytest.mark.parametrize("case", ["keys expire", "a key has two rows"], indirect=True)
@pytest.mark.parametrize("step", ["docs told", "segment built", "segment uploaded", "snapshot uploaded"])
def test_a_checkpoint_that_is_named_meanwhile_is_what_the_new_snapshot_is_made_of(
    worlds: Callable[[], World], case: Case, step: str
) -> None:
    """A row that it does not count is in the file, and does not count there."""
    world = worlds()
    replaced = case.live[-1]
    seen: list[str] = []

    def reached(name: str) -> None:
        if name == step and name not in seen:
            world.take_checkpoint(2, case.live[:-1])
        seen.append(name)

    world.run(reached)
    world.is_whole()
    assert world.rows() == list(case.kept)
    record = world.line[0]
    docs = world.store.read(record.snapshot_url, partial(decode, record.key_text)).docs()
    assert replaced not in [world.rows()[doc] for doc in docs.live.docs()]
    assert needed(world.line) == 2
    assert seen.count("snapshot uploaded") == (2 if step == "snapshot uploaded" else 1)
    assert seen.count("segment uploaded") == 1, "the file is made once"


MERGED_DOCS = (3, 7, 9, 10, 12, 19)
MERGED_ROWS = [3, 7, 9, 100, 102, 109]
"""Values of `at` of these docs, of the two segments one after the other."""


def is_told(world: World, docs: Sequence[int] = MERGED_DOCS) -> TaskRecord:
    """A merge of the first two segments, of which a server has told which docs are valid."""
    config = CompactionConfig(
        segment=world.line[1].key_text, merged=(world.line[0].key_text,), partition=0, num_records=2 * len(IDS)
    )
    task = task_of(TABLE, config, 1)
    bits = Bits().changed(pa.array(docs, pa.int64()).to_numpy(), to=True).serialized()
    report_valid_docs(world.metastore, task.id, config.segment, 2 * len(IDS), bits, SERVER)
    return task


@pytest.mark.parametrize("case", ["no key expires"], indirect=True)
def test_a_minion_may_die_at_any_step_of_a_merge(worlds: Callable[[], World]) -> None:
    steps: list[str] = []
    world = worlds()
    world.task = is_told(world)
    world.run(steps.append)
    assert steps == [
        "docs told",
        "segment fetched",
        "segment built",
        "segment uploaded",
        "segment swapped",
        "docs forgotten",
    ]
    for place in range(len(steps)):
        world = worlds()
        world.task = is_told(world)
        keys = [record.key_text for record in world.line.values()]
        with pytest.raises(ProcessDied):
            world.run(dies_at(place))
        is_swapped = steps[place] in ("segment swapped", "docs forgotten")
        assert ([record.key_text for record in world.line.values()] == keys) != is_swapped
        world.run(lambda _: None)
        assert sorted(world.line) == [0, 1, 2, 3], "the others stay beside it"
        assert world.rows(1) == MERGED_ROWS
        assert merged_keys(world.line[1]) == tuple(keys[:2])
        first = world.line[0].start_offset
        for _ in range(2):
            mutate(world.metastore, TABLE, partial(merges.finish, key=world.line[1].key))
            assert sorted(world.line) == [1, 2, 3]
            assert world.line[1].start_offset == first
        assert world.rows(1) == MERGED_ROWS


@pytest.mark.parametrize("case", ["no key expires"], indirect=True)
@pytest.mark.parametrize(
    ("docs", "removed"),
    [((), [0, 1]), (range(10), [1]), ((3,), [1]), (range(10, 20), [0]), ((12, 17), [0])],
    ids=["neither has one", "the first is whole", "the first has one", "the last is whole", "the last has two"],
)
def test_segments_to_merge_without_a_valid_row_are_removed(
    worlds: Callable[[], World], docs: Sequence[int], removed: list[int]
) -> None:
    steps: list[str] = []
    world = worlds()
    world.task = is_told(world, docs)
    world.run(steps.append)
    assert steps == ["docs told", *["segment swapped"] * len(removed), "docs forgotten"]
    remaining = [number for number in range(4) if number not in removed]
    assert sorted(world.line) == remaining
    for place in range(len(steps)):
        world = worlds()
        world.task = is_told(world, docs)
        with pytest.raises(ProcessDied):
            world.run(dies_at(place))
        assert sorted(world.line) == sorted({*remaining, *removed[place:]})
        # Another task gets the segments that remain.
        with pytest.raises(ObsoleteError) if place else nullcontext():
            world.run(lambda _: None)


@pytest.mark.parametrize("case", ["no key expires"], indirect=True)
def test_what_happens_to_segments_meanwhile_ends_a_merge(worlds: Callable[[], World]) -> None:
    world = worlds()
    world.task = is_told(world)

    def reached(step: str) -> None:
        if step == "segment uploaded":
            mutate(world.metastore, TABLE, lambda view: [RemoveSegments((world.line[0].key,))])

    with pytest.raises(ObsoleteError, match="replaced or removed"):
        world.run(reached)
    assert sorted(world.line) == [1, 2, 3]
    assert not merged_keys(world.line[1])


@pytest.mark.parametrize("case", ["no key expires"], indirect=True)
def test_segments_wait_while_a_server_answers_by_the_rows_that_it_consumed(worlds: Callable[[], World]) -> None:
    world = worlds()
    world.task = is_told(world)
    report = ReportWriter(world.metastore, TABLE, SERVER)
    report.write([f"{world.line[1].name}@0"], {})
    with pytest.raises(UnavailableError, match="still answers by rows"):
        world.run(lambda _: None)
    assert not merged_keys(world.line[1])
    report.write([f"{world.line[2].name}@0"], {})
    world.run(lambda _: None)
    assert merged_keys(world.line[1])


@pytest.mark.parametrize("case", ["no key expires"], indirect=True)
def test_nothing_else_happens_to_segments_of_a_merge_that_is_not_over(worlds: Callable[[], World]) -> None:
    world = worlds()
    plain = world.task
    world.task = is_told(world)
    world.run(lambda _: None)
    world.task = plain
    with pytest.raises(ObsoleteError, match="is being merged"):
        world.run(lambda _: None)
