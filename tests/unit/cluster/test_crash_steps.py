"""A process that dies at any write leaves what was or what should be, and a rerun finishes the job."""

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.support.faults import METASTORE_WRITES, Fault, FaultyMetastore, Interrupted, ProcessDied

from merlot.cluster import paths
from merlot.cluster.consuming.stream_facts import find_control, find_stream, record_stream, set_paused
from merlot.cluster.instances.reports import ReportReader, write_report
from merlot.cluster.manifests import tables
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments import commit
from merlot.cluster.segments.publish import PublishRequest, publish_request
from merlot.cluster.segments.transaction import Assign, mutate, sweep
from merlot.cluster.segments.view import load
from merlot.errors import ConflictError, MerlotError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Check, Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load as load_manifest

TABLE = TableName("t_OFFLINE")
NUM_OLD = 40
SERVER = InstanceId("Server_a_1")
FEW = tuple(range(3))
KEYS = frozenset(f"s{number}@1" for number in FEW)
TEXT = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {schema: {fields: [{name: a, type: INT}]}}
"""
MANIFEST = load_manifest(TEXT)[0]
WIDER = load_manifest(TEXT.replace("type: INT", "type: LONG, defaultNullValue: -2147483648"))[0]


def segment(number: int, crc: int = 1) -> SegmentRecord:
    name = f"s{number}"
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///d/{name}@{crc}", total_docs=1)


def publish_new(store: Metastore) -> None:
    publish_request(store, TABLE, PublishRequest(records=tuple(segment(number) for number in range(60, 90))))


def refresh_and_replace(store: Metastore) -> None:
    records = tuple(segment(number, crc=2) for number in range(20))
    replaced = tuple(f"s{number}" for number in range(20, 40))
    publish_request(store, TABLE, PublishRequest(records=records, replace=replaced, publish_id="p"))


def assign_all(store: Metastore) -> None:
    mutate(store, TABLE, lambda view: [Assign(dict.fromkeys(view.segments, (SERVER,)))])


def outgrow_buckets(store: Metastore) -> None:
    publish_request(store, TABLE, PublishRequest(records=tuple(segment(number) for number in range(400))))


def change_table(store: Metastore) -> None:
    tables.put_table(store, WIDER)


def delete_table(store: Metastore) -> None:
    try:
        tables.delete_table(store, "t")
    except NotFoundError:
        return


@dataclass(frozen=True)
class State:
    """All that anybody can see of a table."""

    segments: frozenset[tuple[str, int]] | None
    assignment: frozenset[tuple[str, tuple[InstanceId, ...]]]
    revision: int

    @staticmethod
    def of(store: Metastore) -> "State":
        record = tables.find_table(store, "t")
        revision = 0 if record is None else record.revision
        try:
            view = load(store, TABLE)
        except NotFoundError:
            return State(None, frozenset(), revision)
        keys = frozenset((one.name, one.crc) for one in view.segments.values())
        return State(keys, frozenset(view.assignment.items()), revision)


def make_store(folder: Path) -> SqliteMetastore:
    store = SqliteMetastore(folder / "meta.db")
    tables.put_table(store, MANIFEST)
    publish_request(store, TABLE, PublishRequest(records=tuple(segment(number) for number in range(NUM_OLD))))
    return store


@pytest.fixture(params=["in one transaction", "staged"])
def _staging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits make every write a long one: many transactions, more buckets."""
    if request.param == "staged":
        monkeypatch.setattr(commit, "MAX_MULTI_BYTES", 1500)
    monkeypatch.setattr(commit, "MAX_BUCKET_BYTES", 1200)


@pytest.mark.usefixtures("_staging")
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
@pytest.mark.parametrize(
    "act", [publish_new, refresh_and_replace, assign_all, outgrow_buckets, change_table], ids=lambda act: act.__name__
)
def test_a_write_that_breaks_off_is_done_or_not_done_and_a_rerun_does_it(
    act: Callable[[Metastore], None], fault: Fault, tmp_path: Path
) -> None:
    before, after = _before_and_after(act, tmp_path / "reference")
    num_steps = 0
    for step in itertools.count():
        store = make_store(tmp_path / str(step))
        faulty = FaultyMetastore(store, fault, step)
        with contextlib.suppress(ProcessDied, MerlotError):
            act(faulty)
        num_steps = faulty.num_writes
        assert State.of(store) in {before, after}
        act(store)
        assert State.of(store) == after
        _assert_nothing_is_left_over(store)
        epoch = load(store, TABLE).epoch
        act(store)
        assert load(store, TABLE).epoch == epoch
        store.close()
        if faulty.num_writes <= step:
            break
    assert num_steps >= 1


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_a_deletion_that_breaks_off_is_finished_by_a_rerun(fault: Fault, tmp_path: Path) -> None:
    for step in itertools.count():
        store = make_store(tmp_path / str(step))
        faulty = FaultyMetastore(store, fault, step)
        with contextlib.suppress(ProcessDied, MerlotError):
            delete_table(faulty)
        state = State.of(store)
        assert state.segments in {None, frozenset((f"s{number}", 1) for number in range(NUM_OLD))}
        assert (state.revision == 0) == (state.segments is None), "config and segments go in one stroke"
        assert bool(store.children(paths.trash(TABLE))) == (state.segments is None)
        delete_table(store)
        assert store.children(paths.SEGMENTS) == []
        assert store.children(paths.TABLES) == []
        tables.put_table(store, MANIFEST)
        assert State.of(store) == State(frozenset(), frozenset(), 1)
        store.close()
        if faulty.num_writes <= step:
            break


def make_anew(store: Metastore) -> None:
    """Others finish the deletion, make the table again, give it rows and servers, and pause its stream."""
    delete_table(store)
    tables.put_table(store, MANIFEST)
    publish_request(store, TABLE, PublishRequest(records=tuple(segment(number) for number in FEW)))
    assign_all(store)
    write_report(store, TABLE, SERVER, KEYS, {})
    set_paused(store, TABLE, paused=True, now_ms=1)
    record_stream(store, TABLE, {0: 7}, SERVER, 1)


def is_whole(store: Metastore) -> bool:
    """Whether all of the table that was made anew is there."""
    view = load(store, TABLE)
    found = find_stream(store, TABLE)
    return (
        {record.key_text for record in view.segments.values()}
        == KEYS
        == ReportReader(store, TABLE).read()[SERVER].loaded
        and find_control(store, TABLE).is_paused
        and found is not None
        and found.starts == {0: 7}
    )


def test_a_deletion_that_wakes_late_takes_nothing_from_the_next_table_of_its_name(tmp_path: Path) -> None:
    """Before the stroke that hides the table it may still delete the next one, but then all of it."""
    woken = set()
    for call in itertools.count():
        store = SqliteMetastore(tmp_path / f"{call}.db")
        make_anew(store)
        late = Interrupted(store, (*METASTORE_WRITES, "get", "children"), call, partial(make_anew, store))
        with contextlib.suppress(ConflictError):
            delete_table(late)
        if late.num_calls <= call:
            break
        if tables.find_table(store, "t") is None:
            assert store.children(paths.SEGMENTS) == []
            woken.add("deletes it")
        else:
            assert is_whole(store), call
            woken.add("lets it be")
        store.close()
    assert woken == {"deletes it", "lets it be"}


def test_a_creation_that_wakes_late_takes_nothing_from_the_table_that_others_made(tmp_path: Path) -> None:
    for call in itertools.count():
        store = SqliteMetastore(tmp_path / f"{call}.db")
        make_anew(store)
        delete_table(store)
        late = Interrupted(store, (*METASTORE_WRITES, "get", "children"), call, partial(make_anew, store))
        tables.put_table(late, MANIFEST)
        if late.num_calls <= call:
            break
        assert is_whole(store), call
        store.close()
    assert call > 1


def test_every_replaced_or_removed_file_is_in_the_trash_exactly_if_its_record_is_gone(tmp_path: Path) -> None:
    for step in range(8):
        store = make_store(tmp_path / str(step))
        with contextlib.suppress(ProcessDied):
            refresh_and_replace(FaultyMetastore(store, Fault.DIE_AFTER, step))
        is_done = load(store, TABLE).segments["s0"].crc == 2
        assert bool(store.children(paths.trash(TABLE))) == is_done
        store.close()


def _before_and_after(act: Callable[[Metastore], None], folder: Path) -> tuple[State, State]:
    store = make_store(folder)
    before = State.of(store)
    act(store)
    after = State.of(store)
    store.close()
    assert before != after
    return before, after


def _assert_nothing_is_left_over(store: Metastore) -> None:
    sweep(store, TABLE)
    root = load(store, TABLE).root
    named = {f"{number}-{content_id}" for number, content_id in root.buckets.items()} | set(root.retired)
    left = set(store.children(paths.segments_root(TABLE))) - named
    # A bucket for the next epoch may belong to a writer under way; the next write makes it old.
    assert {name.partition("-")[2].partition(".")[0] for name in left} <= {str(root.epoch + 1)}


def test_a_lost_fence_writes_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.create("/fence", b"")
    fence = Check("/fence", 0)
    store.put("/fence", b"somebody else", 0)
    before = State.of(store)
    with pytest.raises(ConflictError, match="lease is lost"):
        mutate(store, TABLE, lambda view: [Assign(dict.fromkeys(view.segments, (InstanceId("x"),)))], fence)
    assert State.of(store) == before
    store.close()
