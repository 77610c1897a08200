"""Routing decides from shared state alone which replica answers for which segment."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import NEW_SEGMENT_MS, RoutingInputs, RoutingSnapshot, build, reroute
from merlot.cluster.records import RECOVERED, RootRecord, SegmentRecord
from merlot.cluster.segments.view import Bucket, TableView
from merlot.ids import InstanceId, TableName

TABLE = TableName("flights_OFFLINE")
NOW_MS = 1_700_000_000_000
A, B, C = (InstanceId(f"Server_host_{port}") for port in (1, 2, 3))


def record(name: str, crc: int = 1, docs: int = 10, pushed_ms: int = NOW_MS) -> SegmentRecord:
    return SegmentRecord(
        name=name, crc=crc, size_bytes=1, url=f"file:///{name}", total_docs=docs, push_time_ms=pushed_ms
    )


def view_of(*records: SegmentRecord, epoch: int = 1, servers: tuple[InstanceId, ...] = (A, B)) -> TableView:
    bucket = Bucket("x", {one.name: one for one in records}, {one.name: servers for one in records})
    return TableView(TABLE, RootRecord(epoch=epoch, num_buckets=1), epoch, {0: bucket})


def inputs(
    view: TableView,
    reports: Mapping[InstanceId, set[str]],
    standings: Mapping[InstanceId, ServerStanding] | None = None,
    now_ms: int = NOW_MS,
) -> RoutingInputs:
    everyone = dict.fromkeys(reports, ServerStanding.PREFERRED)
    return RoutingInputs(view=view, reports=reports, standings=standings or everyone, now_ms=now_ms)


def keys_of(snapshot: RoutingSnapshot, turn: int = 0) -> dict[InstanceId, set[str]]:
    return {route.instance: set(route.segments) for route in snapshot.select(turn)}


def test_replicas_share_the_segments_and_requests_take_turns() -> None:
    held = {f"s{number}@1" for number in range(4)}
    snapshot = build(inputs(view_of(*(record(f"s{number}") for number in range(4))), {A: held, B: held}))
    first, second, third = (keys_of(snapshot, turn) for turn in range(3))
    assert first[A] | first[B] == held
    assert len(first[A]) == len(first[B]) == 2
    assert (second[A], second[B]) == (first[B], first[A])
    assert third == first


def test_replica_is_not_routed_until_loaded() -> None:
    snapshot = build(inputs(view_of(record("s")), {A: set(), B: {"s@1"}}))
    assert keys_of(snapshot) == {B: {"s@1"}}


def test_new_segment_is_not_part_of_the_table_before_a_replica_is_up() -> None:
    empty = build(inputs(view_of(record("s")), {A: set()}))
    assert (empty.total_docs, empty.unavailable, empty.turns) == (0, (), ((),))
    loaded = build(inputs(view_of(record("s")), {A: {"s@1"}}), empty)
    assert (loaded.total_docs, keys_of(loaded)) == (10, {A: {"s@1"}})


def test_segment_that_nobody_manages_to_load_is_reported_after_a_while() -> None:
    first = build(inputs(view_of(record("s")), {A: set()}))
    assert first.stale_at_ms == NOW_MS + NEW_SEGMENT_MS
    late = build(inputs(view_of(record("s")), {A: set()}, now_ms=NOW_MS + NEW_SEGMENT_MS), first)
    assert late.unavailable == ("s@1",)
    assert late.absent == (A, B)


def test_a_broker_whose_clock_is_wrong_does_not_take_an_old_segment_for_new() -> None:
    view = view_of(record("s"), record("t"))
    for off_ms in (-20 * 365 * 86_400_000, -86_400_000, -NEW_SEGMENT_MS, NEW_SEGMENT_MS, 86_400_000):
        snapshot = build(inputs(view, {A: {"s@1"}}, now_ms=NOW_MS + off_ms))
        assert snapshot.unavailable == ("t@1",), off_ms


def test_served_segment_without_live_replica_is_unavailable() -> None:
    served = build(inputs(view_of(record("s")), {A: {"s@1"}}))
    lost = build(inputs(view_of(record("s")), {A: {"s@1"}}, {B: ServerStanding.PREFERRED}), served)
    assert lost.unavailable == ("s@1",)
    assert lost.total_docs == 10


def test_broker_that_just_started_knows_from_a_dead_servers_report_what_is_missing() -> None:
    snapshot = build(inputs(view_of(record("s")), {A: {"s@1"}}, {B: ServerStanding.PREFERRED}))
    assert snapshot.unavailable == ("s@1",)


def test_refresh_switches_record_and_route_together() -> None:
    old = build(inputs(view_of(record("s", crc=1, docs=10)), {A: {"s@1"}, B: {"s@1"}}))
    refreshed = view_of(record("s", crc=2, docs=99), epoch=2)
    during = build(inputs(refreshed, {A: {"s@1"}, B: {"s@1"}}), old)
    assert (during.total_docs, keys_of(during, 0) | keys_of(during, 1)) == (10, {A: {"s@1"}, B: {"s@1"}})
    after = build(inputs(refreshed, {A: {"s@1", "s@2"}, B: {"s@1"}}), during)
    assert (after.total_docs, keys_of(after)) == (99, {A: {"s@2"}})


def test_broker_that_starts_during_a_refresh_routes_the_version_that_is_served() -> None:
    first = build(inputs(view_of(record("s", crc=2)), {A: {"s@1"}}))
    assert keys_of(first) == {A: {"s@1"}}
    second = build(inputs(view_of(record("s", crc=2)), {A: {"s@1", "s@2"}}), first)
    assert keys_of(second) == {A: {"s@2"}}


def test_backup_servers_are_asked_only_for_what_nobody_else_has() -> None:
    reports = {A: {"s@1", "t@1"}, B: {"s@1"}}
    standings = {A: ServerStanding.BACKUP, B: ServerStanding.PREFERRED}
    snapshot = build(inputs(view_of(record("s"), record("t")), reports, standings))
    assert all(keys_of(snapshot, turn) == {A: {"t@1"}, B: {"s@1"}} for turn in range(4))
    assert snapshot.servers == {A, B}
    assert build(inputs(view_of(record("s")), reports, standings)).servers == {B}


def test_a_backup_server_is_asked_when_all_preferred_ones_turn_out_to_be_lost() -> None:
    view = view_of(record("s"))
    standings = {A: ServerStanding.BACKUP, B: ServerStanding.PREFERRED}
    snapshot = build(inputs(view, {A: {"s@1"}, B: {"s@1"}}, standings))
    again = reroute(snapshot, ("s@1",), {B}, set())
    assert ([route.instance for route in again.routes], again.lost) == ([A], ())


def test_replaced_segments_stay_until_all_their_successors_are_loaded() -> None:
    hours = {"h1@1", "h2@1"}
    before = build(inputs(view_of(record("h1"), record("h2")), {A: hours}))
    merged = view_of(record("d1", docs=15), record("d2", docs=5), epoch=2)
    published = build(inputs(merged, {A: hours}), before)
    half = build(inputs(merged, {A: hours | {"d1@1"}}), published)
    assert keys_of(published) == keys_of(half) == {A: hours}
    assert published.total_docs == half.total_docs == 20
    done = build(inputs(merged, {A: hours | {"d1@1", "d2@1"}}), half)
    assert (keys_of(done), done.total_docs, done.swaps) == ({A: {"d1@1", "d2@1"}}, 20, ())


def test_replacement_that_takes_too_long_ends_with_unavailable_segments() -> None:
    before = build(inputs(view_of(record("h")), {A: {"h@1"}}))
    merged = view_of(record("d"), epoch=2)
    published = build(inputs(merged, {A: {"h@1"}}), before)
    assert published.stale_at_ms is not None
    late = build(inputs(merged, {A: {"h@1"}}, now_ms=published.stale_at_ms), published)
    assert (late.unavailable, late.swaps) == (("d@1",), ())


def test_broker_that_starts_during_a_replacement_does_not_take_successors_for_new() -> None:
    snapshot = build(inputs(view_of(record("d")), {A: {"h@1"}}))
    assert snapshot.unavailable == ("d@1",)


def test_what_a_recovery_brings_back_is_missed_until_it_is_loaded_whatever_was_routed_before() -> None:
    old = {A: {"gone@1", "refreshed@1"}}
    restored = view_of(record("gone"), record("refreshed"))
    recovered = view_of(back("here"), back("refreshed", crc=2), epoch=2)
    running = build(inputs(recovered, old), build(inputs(restored, old)))
    started = build(inputs(recovered, old))
    exchanging = build(inputs(view_of(record("d"), epoch=2), old), build(inputs(restored, old)))
    in_an_exchange = build(inputs(recovered, old), exchanging)
    for snapshot in (running, started, in_an_exchange):
        assert (set(snapshot.unavailable), keys_of(snapshot)) == ({"here@1", "refreshed@2"}, {})


def back(name: str, crc: int = 1) -> SegmentRecord:
    return record(name, crc=crc).model_copy(update={"custom_map": {RECOVERED: str(NOW_MS)}})


def test_removed_segment_leaves_at_once() -> None:
    before = build(inputs(view_of(record("s"), record("t")), {A: {"s@1", "t@1"}}))
    after = build(inputs(view_of(record("t"), epoch=2), {A: {"s@1", "t@1"}}), before)
    assert keys_of(after) == {A: {"t@1"}}


def test_reroute_avoids_silent_servers_and_those_that_lack_the_segment() -> None:
    held = {"s@1", "t@1"}
    snapshot = build(inputs(view_of(record("s"), record("t")), {A: held, B: held, C: {"s@1"}}))
    again = reroute(snapshot, ("s@1", "t@1"), {A}, {(B, "t@1")})
    assert [(route.instance, route.segments) for route in again.routes] == [(B, ("s@1",))]
    assert again.lost == ("t@1",)


NAMES = ["a", "b", "c", "d"]
SERVERS = [A, B, C]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(1, 2)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
        st.tuples(st.just("replace"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("load"), st.sampled_from(NAMES), st.integers(1, 2), st.sampled_from(SERVERS)),
        st.tuples(st.just("unload"), st.sampled_from(NAMES), st.integers(1, 2), st.sampled_from(SERVERS)),
        st.tuples(st.just("stand"), st.sampled_from(SERVERS), st.sampled_from([*ServerStanding, None])),
        st.tuples(st.just("wait"), st.integers(0, 2 * NEW_SEGMENT_MS)),
    ),
    max_size=30,
)


class Cluster:
    """Shared state as the steps make it."""

    def __init__(self) -> None:
        self.records: dict[str, SegmentRecord] = {}
        self.reports: dict[InstanceId, set[str]] = {one: set() for one in SERVERS}
        self.standings: dict[InstanceId, ServerStanding] = dict.fromkeys(SERVERS, ServerStanding.PREFERRED)
        self.now_ms = NOW_MS

    def apply(self, step: tuple[object, ...]) -> None:
        match step:
            case ("put", str(name), int(crc)):
                self.records[name] = record(name, crc, pushed_ms=self.now_ms)
            case ("remove", str(name)):
                self.records.pop(name, None)
            case ("replace", str(name), str(other)):
                self.records.pop(name, None)
                self.records.setdefault(other, record(other, 1, pushed_ms=self.now_ms))
            case ("load", str(name), int(crc), str(server)):
                self.reports[InstanceId(server)].add(f"{name}@{crc}")
            case ("unload", str(name), int(crc), str(server)):
                self.reports[InstanceId(server)].discard(f"{name}@{crc}")
            case ("stand", str(server), ServerStanding() as standing):
                self.standings[InstanceId(server)] = standing
            case ("stand", str(server), None):
                self.standings.pop(InstanceId(server), None)
            case ("wait", int(passed_ms)):
                self.now_ms += passed_ms

    def snapshot(self, previous: RoutingSnapshot | None) -> RoutingSnapshot:
        reports = {one: frozenset(keys) for one, keys in self.reports.items()}
        view = view_of(*self.records.values())
        return build(
            RoutingInputs(view=view, reports=reports, standings=dict(self.standings), now_ms=self.now_ms), previous
        )


@given(STEPS)
@settings(max_examples=examples(300), deadline=None)
def test_no_sequence_of_events_makes_an_answer_short_in_silence(steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster()
    previous: RoutingSnapshot | None = None
    for step in steps:
        cluster.apply(step)
        snapshot = cluster.snapshot(previous)
        check_turns(snapshot, cluster)
        check_continuity(snapshot, previous, cluster)
        assert snapshot.total_docs == sum(one.record.total_docs for one in snapshot.segments.values())
        previous = snapshot


def check_turns(snapshot: RoutingSnapshot, cluster: Cluster) -> None:
    """Each turn asks once for everything that can be asked for, and only servers that hold it."""
    available = sorted(one.key for one in snapshot.segments.values() if one.replicas)
    assert sorted([*available, *snapshot.unavailable]) == sorted(one.key for one in snapshot.segments.values())
    for turn in snapshot.turns:
        assert sorted(key for route in turn for key in route.segments) == available
        for route in turn:
            assert route.instance in cluster.standings
            assert set(route.segments) <= cluster.reports[route.instance]


def check_continuity(snapshot: RoutingSnapshot, previous: RoutingSnapshot | None, cluster: Cluster) -> None:
    """A segment in service stays, or its record is gone and no successor is being waited for."""
    frozen = {name for swap in snapshot.swaps for name in swap.names}
    before = previous.segments if previous is not None else {}
    for name in before.keys() & frozen:
        assert snapshot.segments[name].key == before[name].key
    assert (frozen - before.keys()).isdisjoint(snapshot.segments)
    assert before.keys() - snapshot.segments.keys() <= before.keys() - cluster.records.keys()
