"""Partitions are begun, spread, paused, renewed and repaired, each by decisions that end in nothing to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.cluster.consuming.handover import MOST_REPLAYED
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.progress import PartitionProgress, ProgressRecord
from merlot.cluster.consuming.transactions import End, SealedSegment, commit, propose_end
from merlot.cluster.records import AskedEnd, ConsumingStatus, PositionRecord, RootRecord, SegmentRecord
from merlot.cluster.segments.mutations import Mutation
from merlot.cluster.segments.transaction import apply
from merlot.cluster.segments.view import TableView
from merlot.controller.placement import reconcile
from merlot.controller.placement.assignment import Servers
from merlot.controller.placement.moves import Situation
from merlot.controller.realtime.decisions import StreamSituation, decide
from merlot.ids import InstanceId, TableName
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

SERVERS = [InstanceId(f"Server_host_{port}") for port in range(4)]
EMPTY = TableView(TableName("t_OFFLINE"), RootRecord(epoch=1, num_buckets=1), 1, {})
SPEC = TableSpec(table_schema=TableSchema(fields=(FieldSpec(name="a", type=TypeName.INT),)), replication=2)
Loaded = dict[InstanceId, frozenset[str]]


def situation(
    num_partitions: int = 4,
    live: int = 3,
    *,
    gone: frozenset[InstanceId] = frozenset(),
    loaded: Loaded | None = None,
    **fields: object,
) -> StreamSituation:
    servers = Servers(live=frozenset(SERVERS[:live]) - gone, gone=gone)
    table = Situation(spec=SPEC, servers=servers, now_ms=1, loaded=loaded)
    made = StreamSituation(table=table, pinned="p", starts={number: 10 * number for number in range(num_partitions)})
    return replace(made, **fields)  # type: ignore[arg-type]


def after(view: TableView, mutations: list[Mutation]) -> TableView:
    changed = apply(view, mutations)
    if changed is None:
        return view
    root = view.root.model_copy(update={"epoch": view.epoch + 1})
    return TableView(view.table, root, view.version + 1, dict(changed.buckets))


def settled(view: TableView, asked: StreamSituation) -> TableView:
    """Decide until nothing is left to do."""
    for _ in range(20):
        mutations = list(decide(view, asked))
        if not mutations:
            return view
        view = after(view, mutations)
    raise AssertionError("decisions do not end")


def seal(view: TableView, partition: int, end: int) -> TableView:
    one = open_segments(view)[partition]
    view = after(view, propose_end(view, End(segment=one.name, offset=end, sealer=SERVERS[0], now_ms=1)))
    file = SegmentRecord(name=one.name, crc=3, size_bytes=1, url=one.name, total_docs=1, end_time_ms=1)
    sealed = SealedSegment(
        segment=one.name, start_offset=one.start_offset, end_offset=end, file=file, sealer=SERVERS[0], now_ms=1
    )
    return after(view, commit(view, sealed))


def consumed_by(view: TableView) -> Counter[InstanceId]:
    return Counter(server for one in open_segments(view).values() for server in view.servers_of(one.name))


def test_partitions_begin_at_their_starts_spread_over_the_servers() -> None:
    view = settled(EMPTY, situation(6))
    assert {number: one.start_offset for number, one in open_segments(view).items()} == {n: 10 * n for n in range(6)}
    assert consumed_by(view) == Counter(dict.fromkeys(SERVERS[:3], 4))


def test_new_partitions_begin_where_the_fewest_are_consumed() -> None:
    view = settled(settled(EMPTY, situation(3)), situation(6))
    assert consumed_by(view) == Counter(dict.fromkeys(SERVERS[:3], 4))
    assert all(one.sequence == 0 for one in open_segments(view).values()), "those that were there stay"


def test_without_servers_nothing_begins_and_a_suspended_table_is_left_alone() -> None:
    assert not decide(EMPTY, situation(live=0))
    suspended = SPEC.model_copy(update={"suspend": True})
    asked = situation()
    assert not decide(EMPTY, replace(asked, table=replace(asked.table, spec=suspended)))


def test_a_server_that_joins_takes_partitions_and_none_is_without_a_consumer_meanwhile() -> None:
    view = settled(EMPTY, situation(4, live=2))
    keys = frozenset(one.key_text for one in open_segments(view).values())
    loaded: Loaded = dict.fromkeys(SERVERS[:2], keys)
    moving = settled(view, situation(4, live=4, loaded=loaded))
    for one in open_segments(moving).values():
        assert set(view.servers_of(one.name)) <= set(moving.servers_of(one.name)), "the old ones consume on"
    moved = settled(moving, situation(4, live=4, loaded=dict.fromkeys(SERVERS, keys)))
    assert consumed_by(moved) == Counter(dict.fromkeys(SERVERS, 2))


def test_partitions_of_a_server_that_is_gone_are_consumed_by_others() -> None:
    view = settled(EMPTY, situation(4))
    left = settled(view, situation(4, gone=frozenset({SERVERS[0]})))
    assert consumed_by(left) == Counter(dict.fromkeys(SERVERS[1:3], 4))


def test_a_pause_reaches_all_partitions_new_ones_too_and_a_resume_undoes_it() -> None:
    view = settled(EMPTY, situation(2))
    paused = settled(view, situation(3, is_paused=True))
    assert [one.asked_end for one in open_segments(paused).values()] == [AskedEnd.PAUSE, AskedEnd.PAUSE, AskedEnd.NO]
    assert open_segments(paused)[2].status == ConsumingStatus.PAUSED
    ended = settled(seal(paused, 0, 5), situation(3, is_paused=True))
    assert open_segments(ended)[0].status == ConsumingStatus.PAUSED
    resumed = settled(ended, situation(3))
    assert {one.status for one in open_segments(resumed).values()} == {ConsumingStatus.CONSUMING}
    assert open_segments(resumed)[1].asked_end is AskedEnd.FORCE, "it may have been about to end"


def test_changed_settings_end_the_open_segments_and_hold_in_the_next() -> None:
    view = settled(EMPTY, situation(1))
    asked = settled(view, situation(1, pinned="q"))
    one = open_segments(asked)[0]
    assert (one.pinned, one.next_pinned, one.asked_end) == ("p", "q", AskedEnd.FORCE)
    back = settled(asked, situation(1, pinned="p"))
    assert open_segments(back)[0].next_pinned == "p"
    assert open_segments(settled(seal(asked, 0, 5), situation(1, pinned="q")))[0].pinned == "q"


def test_an_end_that_nobody_can_reach_is_given_up_only_when_all_servers_that_are_left_say_so() -> None:
    view = settled(EMPTY, situation(1, live=2))
    name = open_segments(view)[0].name
    view = after(view, propose_end(view, End(segment=name, offset=50, sealer=SERVERS[0], now_ms=1)))

    def lost(server: InstanceId, offset: int) -> PositionRecord:
        return PositionRecord(segment=name, instance=server, offset=offset, reason="LOST", resume=40)

    def decided(*positions: PositionRecord, gone: frozenset[InstanceId] = frozenset()) -> int | None:
        found = {name: {one.instance: one for one in positions}}
        asked = situation(1, live=2, positions=found)
        servers = Servers(live=frozenset(SERVERS[:2]) - gone, gone=gone)
        changed = settled(view, replace(asked, table=replace(asked.table, servers=servers)))
        return open_segments(changed)[0].end_offset

    assert decided() == 50
    assert decided(lost(SERVERS[0], 10)) == 50, "the other one is silent"
    assert decided(lost(SERVERS[0], 10), lost(SERVERS[1], 50).model_copy(update={"reason": "AGE"})) == 50
    assert decided(lost(SERVERS[0], 10), lost(SERVERS[1], 20)) == 20


def test_retention_takes_committed_segments_and_leaves_open_ones() -> None:
    view = settled(EMPTY, situation(2))
    view = seal(view, 0, 5)
    spec = SPEC.model_copy(update={"retention": "1d"})
    table = replace(situation().table, spec=spec, sure_ms=10**12)
    for mutation in reconcile.decide(view, table):
        view = after(view, [mutation])
    assert [one.is_open for one in view.stream_segments] == [True, True]


@settings(max_examples=examples(50), deadline=None)
@given(
    num_partitions=st.integers(1, 12),
    lives=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    paused=st.booleans(),
)
def test_decisions_end_and_leave_the_partitions_even(num_partitions: int, lives: list[int], paused: bool) -> None:
    view = EMPTY
    for live in lives:
        keys = {one.key_text for one in open_segments(view).values()}
        gone = frozenset(SERVERS[live:])
        loaded: Loaded = dict.fromkeys(SERVERS, frozenset(keys))
        view = settled(view, situation(num_partitions, live, gone=gone, loaded=loaded, is_paused=paused))
        counts = consumed_by(view)
        assert len(open_segments(view)) == num_partitions
        assert set(counts) <= set(SERVERS[:live])


def told(view: TableView, behind: int) -> dict[InstanceId, ProgressRecord]:
    """Every server has come so far in what it consumes."""
    parts: dict[InstanceId, list[PartitionProgress]] = {}
    for one in open_segments(view).values():
        for server in view.servers_of(one.name):
            progress = PartitionProgress(
                partition=one.partition, segment=one.name, offset=one.start_offset + behind, state="CONSUMING"
            )
            parts.setdefault(server, []).append(progress)
    return {
        server: ProgressRecord(instance=server, at_ms=1, partitions=tuple(found)) for server, found in parts.items()
    }


def test_what_a_server_that_stops_has_consumed_for_long_is_committed_first() -> None:
    view = settled(EMPTY, situation(4, live=2))
    draining = frozenset({SERVERS[0]})
    short = situation(4, live=2, draining=draining, progress=told(view, MOST_REPLAYED))
    assert settled(view, short) is view, "it is read again in a moment"
    long = settled(view, situation(4, live=2, draining=draining, progress=told(view, MOST_REPLAYED + 1)))
    assert {one.asked_end for one in open_segments(long).values()} == {AskedEnd.FORCE}
    assert consumed_by(long) == consumed_by(view), "another server has each of them"


def test_what_only_a_server_that_stops_consumes_goes_to_another_one() -> None:
    alone = SPEC.model_copy(update={"replication": 1})
    asked = situation(4, live=2)
    asked = replace(asked, table=replace(asked.table, spec=alone))
    view = settled(EMPTY, asked)
    moving = settled(view, replace(asked, draining=frozenset({SERVERS[0]})))
    assert all(SERVERS[1] in moving.servers_of(one.name) for one in open_segments(moving).values())
    assert consumed_by(moving)[SERVERS[0]] == 2, "it goes on until the other one consumes them"
    reported = {SERVERS[1]: frozenset(f"{one.name}@0" for one in open_segments(moving).values())}
    seen = replace(asked, draining=frozenset({SERVERS[0]}), table=replace(asked.table, loaded=reported))
    assert consumed_by(settled(moving, seen)) == Counter({SERVERS[1]: 4})


def test_a_server_that_joins_reads_nothing_long_again() -> None:
    view = settled(EMPTY, situation(4, live=2))
    joined = situation(4, live=3, progress=told(view, MOST_REPLAYED + 1))
    asked = settled(view, joined)
    assert consumed_by(asked) == consumed_by(view), "nothing moves before it is committed"
    moved = {number for number, one in open_segments(asked).items() if one.asked_end is AskedEnd.FORCE}
    assert moved
    for number in moved:
        asked = seal(asked, number, 10 * number + MOST_REPLAYED + 1)
    assert consumed_by(settled(asked, joined))[SERVERS[2]] == len(moved)


def test_what_a_dead_server_has_consumed_moves_though_nobody_can_commit_it() -> None:
    view = settled(EMPTY, situation(2, live=2))
    both = frozenset(SERVERS[:2])
    moved = settled(view, situation(2, live=4, gone=both, progress=told(view, MOST_REPLAYED + 1)))
    assert consumed_by(moved) == Counter(dict.fromkeys(SERVERS[2:4], 2))
    assert all(one.asked_end is AskedEnd.NO for one in open_segments(moved).values())
