"""A partition is a chain of segments without a gap or an overlap, whoever writes, wherever a writer dies."""

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.unit.cluster.stream_table import (
    MANIFEST,
    NOW_MS,
    PINNED,
    SERVERS,
    TABLE,
    begin,
    end_of,
    make_store,
    opened,
    sealed,
)

from merlot.cluster.consuming import stream_facts, transactions
from merlot.cluster.consuming.commits import CommitOutcome, commit_segment, propose_end
from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.consuming.partitions import lost_ranges, open_segments, stream_segment
from merlot.cluster.consuming.positions import forget_positions, publish_position, read_positions
from merlot.cluster.consuming.progress import ProgressRecord, StreamProblem, read_progress, write_progress
from merlot.cluster.lineage.replacements import Replacement, start_replacement
from merlot.cluster.manifests import tables
from merlot.cluster.records import (
    AskedEnd,
    ConsumingStatus,
    PositionRecord,
    SegmentRecord,
    StreamSegmentRecord,
    StreamStateRecord,
)
from merlot.cluster.segments.publish import PublishRequest, publish_request
from merlot.cluster.segments.transaction import PreconditionError, RemoveSegments, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.errors import MerlotError, NotFoundError
from merlot.ids import InstanceId, RawTableName
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore

LATER_MS = NOW_MS + 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMetastore]:
    made = make_store(tmp_path)
    yield made
    made.close()


def ask(store: Metastore, asked: AskedEnd = AskedEnd.FORCE, pinned: str = "", **offsets: int) -> TableView:
    starts = {int(number.removeprefix("p")): offset for number, offset in offsets.items()}
    return mutate(
        store,
        TABLE,
        lambda view: transactions.ask_to_end(view, None, asked, LATER_MS, next_pinned=pinned, next_offsets=starts),
    )


def chain(store: Metastore, partition: int = 0) -> list[StreamSegmentRecord]:
    return [one for one in load(store, TABLE).stream_segments if one.partition == partition]


def seal(store: Metastore, end: int, partition: int = 0, crc: int = 7) -> StreamSegmentRecord:
    """Commit the open segment with this end; returns the next one."""
    record = opened(store, partition)
    propose_end(store, TABLE, end_of(record, end))
    commit_segment(store, TABLE, sealed(record, end, crc=crc))
    return opened(store, partition)


@given(
    table=st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True),
    partition=st.integers(0, 10**6),
    sequence=st.integers(0, 10**9),
    minute=st.integers(0, 130_000_000),
)
def test_a_name_tells_its_parts(table: str, partition: int, sequence: int, minute: int) -> None:
    name = StreamSegmentName(RawTableName(table), partition, sequence, minute * 60_000)
    assert StreamSegmentName.parse(str(name)) == name


@pytest.mark.parametrize(
    "name", ["flights", "a__b__c__d", "t__0__1__20240101", "__0__1__20240101T0000Z", "t__-1__1__20240101T0000Z"]
)
def test_other_names_are_none(name: str) -> None:
    assert StreamSegmentName.parse(name) is None


def test_a_name_is_as_pinot_has_it() -> None:
    assert str(StreamSegmentName(RawTableName("flights"), 3, 12, NOW_MS)) == "flights__3__12__20231114T2213Z"


def test_partitions_begin_once_with_their_servers(store: SqliteMetastore) -> None:
    view = begin(store, 5, 0)
    assert [(one.partition, one.sequence, one.start_offset, one.pinned) for one in view.stream_segments] == [
        (0, 0, 5, PINNED),
        (1, 0, 0, PINNED),
    ]
    assert {view.servers_of(one.name) for one in view.stream_segments} == {SERVERS}
    assert begin(store, 7, 7, 7).epoch == view.epoch + 1, "only the third is new"
    assert begin(store, 7, 7, 7).epoch == view.epoch + 1
    assert opened(store, 0).start_offset == 5


def test_a_commit_ends_one_segment_and_opens_the_next_in_one_swap(store: SqliteMetastore) -> None:
    before = begin(store, 100)
    record = opened(store)
    propose_end(store, TABLE, end_of(record, 130))
    done = commit_segment(store, TABLE, sealed(record, 130))
    assert done.outcome is CommitOutcome.COMMITTED
    assert done.view.epoch == before.epoch + 2
    first, second = done.view.stream_segments
    assert (first.status, first.end_offset, first.total_docs, first.crc) == (ConsumingStatus.DONE, 130, 30, 7)
    assert (first.pinned, first.is_open, first.key_text) == ("", False, f"{record.name}@7")
    assert (second.sequence, second.start_offset, second.status) == (1, 130, ConsumingStatus.CONSUMING)
    assert (second.pinned, second.key_text, done.view.servers_of(second.name)) == (PINNED, f"{second.name}@0", SERVERS)
    assert done.took(first.url)


def test_only_the_first_proposal_and_the_first_commit_hold(store: SqliteMetastore) -> None:
    begin(store, 0)
    record = opened(store)
    first = stream_segment(propose_end(store, TABLE, end_of(record, 30)), record.name)
    second = stream_segment(propose_end(store, TABLE, end_of(record, 40, SERVERS[1])), record.name)
    assert first == second
    assert second is not None
    assert (second.end_offset, second.sealer) == (30, SERVERS[0])
    with pytest.raises(PreconditionError, match="another end"):
        commit_segment(store, TABLE, sealed(record, 40))
    assert commit_segment(store, TABLE, sealed(record, 30, upload="a")).outcome is CommitOutcome.COMMITTED
    again = commit_segment(store, TABLE, sealed(record, 30, upload="b"))
    assert again.outcome is CommitOutcome.COMMITTED
    assert again.record is not None
    assert not again.took(again.record.url.replace(".a.", ".b."))
    assert commit_segment(store, TABLE, sealed(record, 30, crc=8)).outcome is CommitOutcome.OTHER
    assert stream_segment(propose_end(store, TABLE, end_of(record, 50)), record.name) == again.record


def test_a_segment_is_not_committed_before_its_end_is_agreed(store: SqliteMetastore) -> None:
    begin(store, 0)
    with pytest.raises(PreconditionError, match="status=CONSUMING"):
        commit_segment(store, TABLE, sealed(opened(store), 10))
    with pytest.raises(PreconditionError, match="before it starts"):
        propose_end(store, TABLE, end_of(opened(store), -1))


def test_another_sealer_takes_over_only_from_the_one_it_knows(store: SqliteMetastore) -> None:
    begin(store, 0)
    record = opened(store)
    propose_end(store, TABLE, end_of(record, 10))

    def replace(old: InstanceId, new: InstanceId) -> str:
        view = mutate(
            store,
            TABLE,
            lambda view: transactions.replace_sealer(view, record.name, old=old, new=new, now_ms=LATER_MS),
        )
        now = stream_segment(view, record.name)
        return "" if now is None else now.sealer

    assert replace(SERVERS[1], InstanceId("x")) == SERVERS[0]
    assert replace(SERVERS[0], SERVERS[1]) == SERVERS[1]
    assert replace(SERVERS[0], InstanceId("x")) == SERVERS[1], "it lost its task"


def test_a_segment_without_rows_leaves_no_record(store: SqliteMetastore) -> None:
    begin(store, 10)
    record = opened(store)
    following = seal(store, 10)
    assert [one.name for one in chain(store)] == [following.name]
    assert (following.sequence, following.start_offset) == (1, 10)
    assert commit_segment(store, TABLE, sealed(record, 10)).outcome is CommitOutcome.GONE


def test_settings_and_starts_take_effect_at_the_next_segment(store: SqliteMetastore) -> None:
    begin(store, 0, 0)
    ask(store, pinned="new", p1=500)
    asked = opened(store, 1)
    assert (asked.pinned, asked.asked_end, asked.next_pinned) == (PINNED, AskedEnd.FORCE, "new")
    first, second = seal(store, 10, 0), seal(store, 20, 1)
    assert (first.pinned, first.start_offset, first.asked_end, first.lost_from) == ("new", 10, AskedEnd.NO, None)
    assert (second.start_offset, second.lost_from) == (500, 20)
    assert lost_ranges(load(store, TABLE)) == {1: ((20, 500),)}


def test_a_start_before_the_end_reads_again_and_loses_nothing(store: SqliteMetastore) -> None:
    begin(store, 100)
    ask(store, p0=50)
    assert (seal(store, 120).start_offset, opened(store).lost_from) == (50, None)


def test_what_the_stream_has_lost_is_recorded(store: SqliteMetastore) -> None:
    begin(store, 100)
    propose_end(store, TABLE, end_of(opened(store), 110, next_offset=180))
    commit_segment(store, TABLE, sealed(opened(store), 110))
    assert lost_ranges(load(store, TABLE)) == {0: ((110, 180),)}


@pytest.mark.parametrize(
    ("next_offset", "lost"),
    [(None, {0: ((110, 180),)}), (200, {0: ((110, 200),)}), (150, {0: ((110, 150),)}), (50, {})],
)
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_segment_without_rows_hands_on_what_the_stream_has_lost(
    store: SqliteMetastore, next_offset: int | None, lost: dict[int, object], is_paused: bool
) -> None:
    begin(store, 100)
    ask(store, AskedEnd.PAUSE if is_paused else AskedEnd.FORCE)
    propose_end(store, TABLE, end_of(opened(store), 110, next_offset=180))
    commit_segment(store, TABLE, sealed(opened(store), 110))
    assert lost_ranges(load(store, TABLE)) == {0: ((110, 180),)}
    ask(store, **({} if next_offset is None else {"p0": next_offset}))
    if not is_paused:
        seal(store, 180)
    assert lost_ranges(load(store, TABLE)) == lost


def test_a_pause_keeps_the_place_and_a_resume_goes_on_there(store: SqliteMetastore) -> None:
    begin(store, 0, 0)
    ask(store, AskedEnd.PAUSE)
    assert seal(store, 10, 0).status == ConsumingStatus.PAUSED
    view = mutate(store, TABLE, lambda view: transactions.resume(view, LATER_MS))
    assert [(one.status, one.asked_end) for one in open_segments(view).values()] == [
        (ConsumingStatus.CONSUMING, AskedEnd.NO),
        (ConsumingStatus.CONSUMING, AskedEnd.FORCE),
    ]
    assert seal(store, 4, 1).status == ConsumingStatus.CONSUMING
    assert opened(store, 0).start_offset == 10


def test_a_paused_partition_is_moved_and_takes_new_settings_at_once(store: SqliteMetastore) -> None:
    begin(store, 0, 0, paused=True)
    ask(store, pinned="new", p1=80)
    kept, moved = opened(store, 0), opened(store, 1)
    assert (kept.sequence, kept.start_offset, kept.pinned, kept.status) == (1, 0, "new", ConsumingStatus.PAUSED)
    assert (moved.sequence, moved.start_offset, moved.lost_from, moved.pinned) == (1, 80, 0, "new")
    assert load(store, TABLE).servers_of(moved.name) == SERVERS


def test_a_broken_chain_goes_on_where_its_last_segment_ends(store: SqliteMetastore) -> None:
    begin(store, 0)
    record = seal(store, 30)
    mutate(store, TABLE, lambda view: [RemoveSegments((record.key,), even_open=True)])
    begin(store, 999)
    assert (opened(store).start_offset, opened(store).sequence) == (30, 1)


def test_open_segments_are_not_removed_published_over_replaced_or_refreshed_away(store: SqliteMetastore) -> None:
    begin(store, 0)
    record = opened(store)
    batch = SegmentRecord(name=record.name, crc=3, size_bytes=1, url="file:///d/x.mseg", total_docs=1)
    with pytest.raises(PreconditionError, match="open"):
        mutate(store, TABLE, lambda view: [RemoveSegments((record.key,))])
    with pytest.raises(PreconditionError, match="open"):
        publish_request(store, TABLE, PublishRequest(records=(batch,), replace_rows=True))
    with pytest.raises(PreconditionError, match="open"):
        publish_request(store, TABLE, PublishRequest(records=(), replace=(record.name,), replace_rows=True))
    with pytest.raises(PreconditionError, match="open"):
        start_replacement(store, TABLE, Replacement(segments_from=(record.name,), segments_to=("o",)))
    other = batch.model_copy(update={"name": "b"})
    publish_request(store, TABLE, PublishRequest(records=(other,), replace_all=True))
    assert load(store, TABLE).segments.keys() == {"b", record.name}


def test_records_of_batches_and_streams_survive_the_metastore(store: SqliteMetastore, tmp_path: Path) -> None:
    begin(store, 0)
    seal(store, 3)
    batch = SegmentRecord(name="b", crc=3, size_bytes=1, url="file:///d/b.mseg", total_docs=1)
    publish_request(store, TABLE, PublishRequest(records=(batch,)))
    written = load(store, TABLE)
    store.close()
    with contextlib.closing(SqliteMetastore(tmp_path / "meta.db")) as other:
        read = load(other, TABLE)
    assert read.segments == written.segments
    assert {type(one) for one in read.segments.values()} == {SegmentRecord, StreamSegmentRecord}


def test_of_many_writers_one_proposes_and_one_commits(store: SqliteMetastore) -> None:
    begin(store, 0)
    record = opened(store)
    barrier = threading.Barrier(8)
    outcomes: list[tuple[int, str]] = []

    def race(number: int) -> None:
        barrier.wait()
        view = propose_end(store, TABLE, end_of(record, 10 + number, InstanceId(f"s{number}")))
        agreed = stream_segment(view, record.name)
        assert agreed is not None
        assert agreed.end_offset is not None
        one = sealed(record, agreed.end_offset, upload=f"u{number}")
        committed = commit_segment(store, TABLE, one)
        assert one.file is not None
        outcomes.append((agreed.end_offset, one.file.url if committed.took(one.file.url) else ""))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({end for end, _ in outcomes}) == 1
    assert sum(bool(url) for _, url in outcomes) == 1
    assert len(chain(store)) == 2


def _begin(store: Metastore) -> None:
    begin(store, 0, 0, 0)


def _propose(store: Metastore) -> None:
    propose_end(store, TABLE, end_of(chain(store)[0], 20))


def _commit(store: Metastore) -> None:
    commit_segment(store, TABLE, sealed(chain(store)[0], 20))


def _ask(store: Metastore) -> None:
    ask(store, AskedEnd.PAUSE, pinned="new")


ACTS: list[tuple[str, list[Callable[[Metastore], None]], Callable[[Metastore], None]]] = [
    ("begin", [], _begin),
    ("propose", [_begin], _propose),
    ("commit", [_begin, _propose], _commit),
    ("ask", [_begin], _ask),
]


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
@pytest.mark.parametrize(
    ("before", "act"), [(before, act) for _, before, act in ACTS], ids=[name for name, _, _ in ACTS]
)
def test_a_transaction_that_breaks_off_is_done_or_not_done_and_a_rerun_does_it(
    before: list[Callable[[Metastore], None]], act: Callable[[Metastore], None], fault: Fault, tmp_path: Path
) -> None:
    for step in itertools.count():
        folder = tmp_path / str(step)
        folder.mkdir()
        with contextlib.closing(make_store(folder)) as store:
            for one in before:
                one(store)
            was = dict(load(store, TABLE).segments)
            faulty = FaultyMetastore(store, fault, step)
            with contextlib.suppress(ProcessDied, MerlotError):
                act(faulty)
            broken_off = dict(load(store, TABLE).segments)
            act(store)
            done = load(store, TABLE)
            assert broken_off in (was, done.segments)
            assert was != done.segments
            act(store)
            assert load(store, TABLE).epoch == done.epoch
            if faulty.num_writes <= step:
                assert faulty.num_writes >= 1
                break


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_any_writes_leaves_chains_without_gap_or_overlap(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    with contextlib.closing(make_store(tmp_path)) as store:
        begin(store, *(dice.randrange(100) for _ in range(3)))
        known: list[StreamSegmentRecord] = []
        for _ in range(60):
            records = list(open_segments(load(store, TABLE)).values())
            known += records
            record = dice.choice([*records, dice.choice(known)])
            offset = record.start_offset + dice.randrange(5)
            with contextlib.suppress(PreconditionError):
                match dice.randrange(5):
                    case 0:
                        propose_end(store, TABLE, end_of(record, offset))
                    case 1:
                        now = stream_segment(load(store, TABLE), record.name) or record
                        commit_segment(store, TABLE, sealed(record, now.end_offset or offset, crc=dice.randrange(1, 3)))
                    case 2:
                        ask(store, dice.choice([AskedEnd.FORCE, AskedEnd.PAUSE]), dice.choice(["", "new"]))
                    case 3:
                        mutate(store, TABLE, lambda view: transactions.resume(view, LATER_MS))
                    case _:
                        begin(store, 0, 0, 0)
            _check_chains(load(store, TABLE))


def _check_chains(view: TableView) -> None:
    for partition in range(3):
        segments = [one for one in view.stream_segments if one.partition == partition]
        assert [one.is_open for one in segments] == [False] * (len(segments) - 1) + [True]
        for one, following in itertools.pairwise(segments):
            assert one.end_offset is not None
            assert one.end_offset == following.start_offset
            assert one.total_docs == one.end_offset - one.start_offset > 0
        assert all(view.servers_of(one.name) == SERVERS for one in segments)


def test_positions_are_read_by_segment_and_forgotten_with_it(store: SqliteMetastore) -> None:
    a, b = SERVERS
    publish_position(store, TABLE, PositionRecord(segment="s", instance=a, offset=5))
    publish_position(store, TABLE, PositionRecord(segment="s", instance=b, offset=7))
    publish_position(store, TABLE, PositionRecord(segment="s", instance=a, offset=6, reason="AGE"))
    publish_position(store, TABLE, PositionRecord(segment="r", instance=a, offset=1))
    assert {name: one.offset for name, one in read_positions(store, TABLE)["s"].items()} == {a: 6, b: 7}
    assert forget_positions(store, TABLE, {"r"}) == 2
    assert read_positions(store, TABLE).keys() == {"r"}


def test_partitions_are_added_and_keep_the_start_they_were_found_with(store: SqliteMetastore) -> None:
    stream_facts.record_stream(store, TABLE, {0: 5}, SERVERS[0], NOW_MS)
    stream_facts.record_stream(store, TABLE, {0: 9, 1: 2}, SERVERS[1], NOW_MS + 1)
    stream_facts.record_stream(store, TABLE, {}, SERVERS[1], NOW_MS + 2, (StreamProblem.UNREACHABLE, "stream is away"))
    now = stream_facts.find_stream(store, TABLE)
    assert now is not None
    assert (now.starts, now.error, now.looked_ms) == ({0: 5, 1: 2}, "stream is away", NOW_MS + 2)


def test_the_first_server_looks_and_the_second_when_it_misses_its_turn(store: SqliteMetastore) -> None:
    assert stream_facts.is_due(None, SERVERS[1], SERVERS, NOW_MS)
    recorded = stream_facts.record_stream(store, TABLE, {0: 5}, SERVERS[0], NOW_MS)

    def due(server: InstanceId, after_ms: int) -> bool:
        return stream_facts.is_due(recorded, server, SERVERS, NOW_MS + after_ms)

    assert [due(SERVERS[0], stream_facts.LOOK_MS - 1), due(SERVERS[0], stream_facts.LOOK_MS)] == [False, True]
    assert [due(SERVERS[1], stream_facts.LOOK_MS), due(SERVERS[1], 2 * stream_facts.LOOK_MS)] == [False, True]
    assert due(SERVERS[1], -1), "a clock was put back"


def test_a_pause_is_asked_for_once(store: SqliteMetastore) -> None:
    assert not stream_facts.find_control(store, TABLE).is_paused
    stream_facts.set_paused(store, TABLE, paused=True, now_ms=1)
    stream_facts.set_paused(store, TABLE, paused=True, now_ms=2)
    assert (stream_facts.find_control(store, TABLE).is_paused, stream_facts.find_control(store, TABLE).since_ms) == (
        True,
        1,
    )


def test_a_table_made_anew_knows_nothing_of_the_stream_of_the_one_before(store: SqliteMetastore) -> None:
    begin(store, 0)
    told = PositionRecord(segment=opened(store).name, instance=SERVERS[0], offset=5)
    for _ in range(2):  # of a table that is there, and of one that is gone, by a server that does not know yet
        publish_position(store, TABLE, told)
        write_progress(store, TABLE, ProgressRecord(instance=SERVERS[0], at_ms=NOW_MS))
        stream_facts.record_stream(store, TABLE, {0: 5}, SERVERS[0], NOW_MS)
        stream_facts.set_paused(store, TABLE, paused=True, now_ms=NOW_MS)
        with contextlib.suppress(NotFoundError):
            tables.delete_table(store, "t")
    tables.put_table(store, MANIFEST)
    assert stream_facts.find_stream(store, TABLE) is None
    assert not stream_facts.find_control(store, TABLE).is_paused
    assert not read_positions(store, TABLE)
    assert not read_progress(store, TABLE)
    assert begin(store, 7).epoch > 0
    assert opened(store).start_offset == 7


def test_a_retained_table_goes_on_where_its_stream_was(store: SqliteMetastore) -> None:
    begin(store, 0)
    seal(store, 30)
    tables.delete_table(store, "t", files=tables.Files.KEEP)
    tables.put_table(store, MANIFEST)
    begin(store, 0)
    assert [(one.start_offset, one.end_offset) for one in chain(store)] == [(0, 30), (30, None)]


def retain(store: Metastore) -> None:
    if tables.find_table(store, "t") is not None:
        tables.delete_table(store, "t", files=tables.Files.KEEP)


def adopt(store: Metastore) -> None:
    tables.put_table(store, MANIFEST)


@pytest.mark.parametrize("paused", [False, True], ids=["consuming", "paused"])
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_a_retained_table_keeps_what_its_offsets_belong_to(tmp_path: Path, fault: Fault, paused: bool) -> None:
    for at in itertools.count():
        folder = tmp_path / str(at)
        folder.mkdir()
        store = make_store(folder)
        begin(store, 0)
        stream_facts.record_stream(store, TABLE, {0: 0, 1: 70}, SERVERS[0], NOW_MS)
        stream_facts.record_topic_id(store, TABLE, "the old topic")
        stream_facts.set_paused(store, TABLE, paused=paused, now_ms=NOW_MS)
        before = stream_facts.find_state(store, TABLE)
        assert before.topic_id
        faulty = FaultyMetastore(store, fault, at)
        for act in (retain, adopt):
            with contextlib.suppress(ProcessDied, MerlotError):
                act(faulty)
            if act is retain:
                # A server that does not know yet looks at the topic, which is another one now.
                act(store)
                stream_facts.record_stream(store, TABLE, {0: 900, 2: 900}, SERVERS[0], NOW_MS)
                stream_facts.record_topic_id(store, TABLE, "the new topic")
            act(store)
        assert stream_facts.find_state(store, TABLE) == before
        tables.delete_table(store, "t")
        adopt(store)
        assert stream_facts.find_state(store, TABLE) == StreamStateRecord(), "its files are gone, and its offsets"
        store.close()
        if faulty.num_writes <= at:
            break
    assert at >= 3
