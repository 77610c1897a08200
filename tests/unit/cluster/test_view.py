"""Views built step by step equal views built at once, and both equal a plain dictionary."""

import base64
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.cluster import paths
from merlot.cluster.column_types import format_columns
from merlot.cluster.records import BucketRecord, RootRecord, SegmentRecord
from merlot.cluster.segments import commit
from merlot.cluster.segments.transaction import Assign, PreconditionError, PutSegments, RemoveSegments, mutate
from merlot.cluster.segments.view import Bucket, TableView, diff, load, share
from merlot.errors import CorruptionError, InvalidInputError, NotFoundError
from merlot.ids import InstanceId, SegmentKey, SegmentName, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.values.types import TypeName

TABLE = TableName("t_OFFLINE")
numbers = st.integers(0, 60)
operations = st.one_of(
    st.tuples(st.just("put"), st.sets(numbers, max_size=30), st.integers(1, 3)),
    st.tuples(st.just("remove"), st.sets(numbers, max_size=30), st.just(0)),
    st.tuples(st.just("assign"), st.sets(numbers, max_size=30), st.integers(0, 3)),
)


def segment(name: str, crc: int = 1) -> SegmentRecord:
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///d/{name}@{crc}", total_docs=2)


@pytest.fixture
def store(store: SqliteMetastore) -> SqliteMetastore:
    store.create(paths.segments_root(TABLE), RootRecord(num_buckets=4).to_bytes())
    return store


@settings(deadline=None, max_examples=examples(40))
@given(steps=st.lists(st.lists(operations, min_size=1, max_size=2), max_size=8), skipped=st.sets(st.integers(0, 8)))
def test_a_view_is_what_the_mutations_made(
    steps: list[list[tuple[str, set[int], int]]], skipped: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "MAX_BUCKET_BYTES", 900)
        store = SqliteMetastore(tmp_path_factory.mktemp("view") / "meta.db")
        store.create(paths.segments_root(TABLE), RootRecord(num_buckets=2).to_bytes())
        segments: dict[str, int] = {}
        assigned: dict[str, tuple[InstanceId, ...]] = {}
        reader: TableView | None = None
        for number, step in enumerate(steps):
            changes = [_mutation(kind, names, value, segments, assigned) for kind, names, value in step]
            written = mutate(store, TABLE, lambda _, changes=changes: changes)  # type: ignore[misc]
            full = load(store, TABLE)
            for view in (written, full):
                assert {name: one.crc for name, one in view.segments.items()} == segments
                assert dict(view.assignment) == assigned
                assert view.total_docs == 2 * len(segments)
            if number not in skipped:
                followed = load(store, TABLE, reader)
                found = diff(reader, followed)
                before = {} if reader is None else dict(reader.segments)
                assert found.removed == before.keys() - segments.keys()
                assert {name for name in segments if before.get(name) != full.segments[name]} <= found.changed
                assert followed.segments == full.segments
                reader = followed
        store.close()


def _mutation(
    kind: str, names: set[int], value: int, segments: dict[str, int], assigned: dict[str, tuple[InstanceId, ...]]
) -> PutSegments | RemoveSegments | Assign:
    """The mutation, and what it does to the dictionaries."""
    chosen = [f"s{number}" for number in sorted(names)]
    if kind == "put":
        segments.update(dict.fromkeys(chosen, value))
        return PutSegments(tuple(segment(name, value) for name in chosen))
    present = [name for name in chosen if name in segments]
    if kind == "remove":
        keys = tuple(SegmentKey(SegmentName(name), segments[name]) for name in present)
        for name in present:
            del segments[name]
            assigned.pop(name, None)
        return RemoveSegments(keys)
    servers = tuple(InstanceId(f"Server_{number}") for number in range(value))
    assigned.update({name: servers for name in present if servers or name in assigned})
    return Assign(dict.fromkeys(present, servers))


def test_preconditions_fail_for_who_decided_on_something_else(store: SqliteMetastore) -> None:
    mutate(store, TABLE, lambda _: [PutSegments((segment("s1", 1),))])
    wrong = [
        PutSegments((segment("s1", 2),), expected={"s1": 7}),
        PutSegments((segment("s2", 2),), expected={"s1": None}),
        RemoveSegments((SegmentKey(SegmentName("s1"), 9),)),
        Assign({"none": (InstanceId("x"),)}),
    ]
    for mutation in wrong:
        with pytest.raises(PreconditionError):
            mutate(store, TABLE, lambda _, mutation=mutation: [mutation])  # type: ignore[misc]
    assert load(store, TABLE).epoch == 1
    assert mutate(store, TABLE, lambda _: [RemoveSegments((SegmentKey(SegmentName("gone"), 1),))]).epoch == 1


@pytest.mark.parametrize("num_others", [0, 20])
def test_a_record_that_fits_into_no_bucket_is_refused(store: SqliteMetastore, num_others: int) -> None:
    mutate(store, TABLE, lambda _: [PutSegments(tuple(segment(f"s{number}") for number in range(num_others)))])
    before = load(store, TABLE)
    text = base64.b64encode(random.Random(7).randbytes(300_000)).decode()
    large = segment("large").model_copy(update={"custom_map": {"x": text}})
    with pytest.raises(InvalidInputError, match="segment=large"):
        mutate(store, TABLE, lambda _: [PutSegments((large,))])
    assert load(store, TABLE).segments == before.segments


def test_a_bucket_that_is_gone_for_good_is_corruption_and_a_missing_table_is_not_found(store: SqliteMetastore) -> None:
    view = mutate(store, TABLE, lambda _: [PutSegments((segment("s1"),))])
    ((number, content_id),) = view.root.buckets.items()
    del view  # readers of the session have what it has
    store.delete(paths.segment_bucket(TABLE, number, content_id))
    with pytest.raises(CorruptionError, match="bucket is missing"):
        load(store, TABLE)
    with pytest.raises(NotFoundError):
        load(store, TableName("none_OFFLINE"))


def test_fields_of_a_newer_version_are_kept_through_a_rewrite(store: SqliteMetastore) -> None:
    newer = SegmentRecord.model_validate({**segment("s1").model_dump(), "futureField": {"a": [1]}})
    view = mutate(store, TABLE, lambda _: [PutSegments((newer,))])
    root = store.get(paths.segments_root(TABLE))
    assert root is not None
    store.put(paths.segments_root(TABLE), root.data[:-1] + b',"futureRoot":7}', root.version)
    mutate(store, TABLE, lambda _: [Assign({"s1": (InstanceId("x"),)})])
    again = load(store, TABLE)
    assert again.segments["s1"].model_extra == {"futureField": {"a": [1]}}
    assert again.root.model_extra == {"futureRoot": 7}
    assert again.epoch == view.epoch + 1


def test_bytes_that_are_no_record_are_corruption_and_name_their_path() -> None:
    with pytest.raises(CorruptionError, match="path=/x"):
        BucketRecord.from_bytes(b"not zlib", "/x")
    with pytest.raises(CorruptionError, match="path=/y"):
        RootRecord.from_bytes(b'{"epoch": "many"}', "/y")


def test_columns_travel_as_one_text() -> None:
    columns = {"a": (TypeName.INT, False), "tags": (TypeName.STRING, True)}
    record = SegmentRecord.model_validate({**segment("s").model_dump(), "columns": format_columns(columns)})
    assert record.columns == "a:INT,tags:STRING[]"
    assert record.column_types == columns
    assert segment("s").column_types == {}
    odd = dict.fromkeys(("a,b", "%2C", "a:INT", "a:b,c:INT[]", "%25,"), (TypeName.LONG, False))
    assert SegmentRecord.model_validate({**record.model_dump(), "columns": format_columns(odd)}).column_types == odd


def test_readers_of_an_old_root_find_its_buckets_for_a_while(store: SqliteMetastore) -> None:
    """Retired buckets stay until twice as many as there are buckets have retired after them."""
    view = mutate(store, TABLE, lambda _: [PutSegments((segment("s1"),))])
    ((number, content_id),) = view.root.buckets.items()
    path = paths.segment_bucket(TABLE, number, content_id)
    for crc in range(2, 10):
        assert store.get(path) is not None
        mutate(store, TABLE, lambda _, crc=crc: [PutSegments((segment("s1", crc),))])  # type: ignore[misc]
    mutate(store, TABLE, lambda _: [PutSegments((segment("s1", 10),))])
    assert store.get(path) is None
    assert len(store.children(paths.segments_root(TABLE))) == 1 + 2 * 4


def test_readers_of_a_session_share_what_has_not_changed(store: SqliteMetastore) -> None:
    mutate(store, TABLE, lambda _: [PutSegments(tuple(segment(f"s{number}") for number in range(20)))])
    one, other = load(store, TABLE), load(store, TABLE)
    assert {number: id(bucket) for number, bucket in one.buckets.items()} == {
        number: id(bucket) for number, bucket in other.buckets.items()
    }
    mutate(store, TABLE, lambda _: [PutSegments((segment("s0", 2),))])
    changed = load(store, TABLE)
    same = [number for number, bucket in changed.buckets.items() if bucket is one.buckets[number]]
    assert len(same) == len(one.buckets) - 1
    assert (one.segments["s0"].crc, changed.segments["s0"].crc) == (1, 2)


def test_readers_of_a_session_have_what_its_writer_wrote_in_the_order_of_names(store: SqliteMetastore) -> None:
    written = mutate(store, TABLE, lambda _: [PutSegments(tuple(segment(f"s{number}") for number in range(20, 0, -1)))])
    assigned = mutate(store, TABLE, lambda _: [Assign({"s1": (InstanceId("x"),)})], previous=written)
    read = load(store, TABLE)
    assert {number: id(bucket) for number, bucket in read.buckets.items()} == {
        number: id(bucket) for number, bucket in assigned.buckets.items()
    }
    assert all(list(bucket.segments) == sorted(bucket.segments) for bucket in read.buckets.values())
    assert read.segments["s1"] is written.segments["s1"]


def test_a_writer_has_what_a_reader_of_its_session_read_first(store: SqliteMetastore) -> None:
    written = mutate(store, TABLE, lambda _: [PutSegments((segment("s1"),))])
    content_id = written.root.buckets[number := next(iter(written.buckets))]
    mine = Bucket(content_id, dict(written.segments), {})
    assert share(store, TABLE, {number: mine})[number] is written.buckets[number]
