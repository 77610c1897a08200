"""Moves never leave a segment with nobody to serve it, and end."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.segments.transaction import apply
from merlot.cluster.segments.view import Bucket, TableView
from merlot.controller.placement.assignment import Servers
from merlot.controller.placement.moves import Situation
from merlot.controller.placement.reconcile import decide, is_moving
from merlot.ids import InstanceId, TableName
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

SERVERS = [InstanceId(f"Server_host_{port}") for port in range(5)]
NUM_SEGMENTS = 24
HOUR_MS = 3_600_000


def spec(replication: int = 1, retention: str | None = None, *, suspend: bool = False) -> TableSpec:
    schema = TableSchema(fields=(FieldSpec(name="a", type=TypeName.INT),))
    return TableSpec(table_schema=schema, replication=replication, retention=retention, suspend=suspend)


def view_of(assignment: dict[str, tuple[InstanceId, ...]]) -> TableView:
    segments = {
        name: SegmentRecord(name=name, crc=1, size_bytes=1, url=name, total_docs=1, end_time_ms=number * HOUR_MS)
        for number, name in enumerate(f"s{number}" for number in range(NUM_SEGMENTS))
    }
    root = RootRecord(epoch=1, num_buckets=1, buckets={0: "1.x"})
    return TableView(TableName("t_OFFLINE"), root, 1, {0: Bucket("1.x", segments, assignment)})


def after(view: TableView, situation: Situation) -> TableView:
    changed = apply(view, decide(view, situation))
    if changed is None:
        return view
    return TableView(view.table, view.root, view.version + 1, dict(changed.buckets))


def everything(view: TableView) -> dict[InstanceId, frozenset[str]]:
    return {
        server: frozenset(f"{name}@1" for name, servers in view.assignment.items() if server in servers)
        for server in SERVERS
    }


@settings(max_examples=examples(60), deadline=None)
@given(
    data=st.data(),
    before=st.frozensets(st.sampled_from(SERVERS), min_size=1),
    then=st.frozensets(st.sampled_from(SERVERS), min_size=1),
    replication=st.integers(1, 3),
    later=st.integers(1, 3),
    leaving=st.booleans(),
)
def test_a_move_keeps_a_loaded_replica_at_every_step_and_settles(
    data: st.DataObject,
    before: frozenset[InstanceId],
    then: frozenset[InstanceId],
    replication: int,
    later: int,
    *,
    leaving: bool,
) -> None:
    view = after(view_of({}), Situation(spec=spec(replication), servers=Servers(live=before), now_ms=0))
    loaded = everything(view)
    away = before - then
    kept = before if leaving else before & then
    servers = Servers(live=then, leaving=away) if leaving else Servers(live=then, gone=away)
    for _ in range(40):
        situation = Situation(spec=spec(later), servers=servers, now_ms=0, loaded=loaded)
        stepped = after(view, situation)
        for name, assigned in stepped.assignment.items():
            had = [server for server in view.servers_of(name) if server in kept and f"{name}@1" in loaded[server]]
            has = [server for server in assigned if f"{name}@1" in loaded[server]]
            assert len(has) >= min(later, len(had), len(then)), (
                "replicas that serve are dropped only for others that serve"
            )
        wanted = everything(stepped)
        is_settled = stepped is view and wanted == loaded
        view = stepped
        if is_settled:
            break
        pending = sorted({(server, key) for server in SERVERS for key in wanted[server] - loaded[server]})
        arrived = data.draw(st.lists(st.sampled_from(pending), min_size=1, unique=True)) if pending else []
        if len(pending) <= 3 or data.draw(st.booleans()):
            arrived = pending
        fresh = {server: frozenset(key for one, key in arrived if one == server) for server in SERVERS}
        loaded = {server: (loaded[server] & wanted[server]) | fresh[server] for server in SERVERS}
    assert not is_moving(view, later, away)
    loads = [sum(server in assigned for assigned in view.assignment.values()) for server in then]
    assert max(loads) - min(loads) <= 1
    assert all(len(assigned) == min(later, len(then)) for assigned in view.assignment.values())


def test_a_joining_server_serves_before_the_old_one_stops() -> None:
    old, new = SERVERS[:2]
    view = view_of({f"s{number}": (old,) for number in range(NUM_SEGMENTS)})
    servers = Servers(live=frozenset({old, new}))
    both = after(view, Situation(spec=spec(), servers=servers, now_ms=0))
    assert sum(set(replicas) == {old, new} for replicas in both.assignment.values()) == NUM_SEGMENTS // 2
    assert after(both, Situation(spec=spec(), servers=servers, now_ms=0)) is both
    done = after(both, Situation(spec=spec(), servers=servers, now_ms=0, loaded=everything(both)))
    assert sorted(done.assignment.values()) == [(old,)] * 12 + [(new,)] * 12


def test_a_server_that_leaves_serves_until_those_that_stay_have_loaded() -> None:
    stays, leaves = SERVERS[:2]
    view = view_of({f"s{number}": (leaves,) for number in range(NUM_SEGMENTS)})
    servers = Servers(live=frozenset({stays}), leaving=frozenset({leaves}))
    both = after(view, Situation(spec=spec(), servers=servers, now_ms=0))
    assert set(both.assignment.values()) == {(stays, leaves)}
    assert is_moving(both, 1, servers.leaving)
    done = after(both, Situation(spec=spec(), servers=servers, now_ms=0, loaded=everything(both)))
    assert set(done.assignment.values()) == {(stays,)}


def test_one_replica_less_is_enough_where_a_server_leaves_and_nobody_can_take_over() -> None:
    stays, leaves = SERVERS[:2]
    view = view_of({f"s{number}": (stays, leaves) for number in range(NUM_SEGMENTS)})
    servers = Servers(live=frozenset({stays}), leaving=frozenset({leaves}))
    assert is_moving(view, 2, servers.leaving), "somebody has to look at what the other one has loaded"
    situation = Situation(spec=spec(2), servers=servers, now_ms=0, loaded=everything(view))
    assert set(after(view, situation).assignment.values()) == {(stays,)}


def test_a_server_that_has_loaded_nothing_yet_gives_up_its_surplus_at_once() -> None:
    first, second = SERVERS[:2]
    view = view_of({f"s{number}": (first,) for number in range(NUM_SEGMENTS)})
    situation = Situation(
        spec=spec(), servers=Servers(live=frozenset({first, second})), now_ms=0, loaded={first: {"s1@1", "s2@1"}}
    )
    split = after(view, situation)
    assert all(len(replicas) == 1 for name, replicas in split.assignment.items() if name not in {"s1", "s2"})
    assert all(first in split.servers_of(name) for name in ("s1", "s2"))


def test_old_segments_are_removed_and_not_assigned() -> None:
    situation = Situation(
        spec=spec(retention="10h"), servers=Servers(live=frozenset(SERVERS)), sure_ms=20 * HOUR_MS, now_ms=0
    )
    view = after(view_of({}), situation)
    assert len(view.segments) == NUM_SEGMENTS - 10
    assert view.assignment.keys() == view.segments.keys()


def test_a_suspended_table_is_left_alone() -> None:
    view = view_of({})
    situation = Situation(
        spec=spec(retention="1h", suspend=True),
        servers=Servers(live=frozenset(SERVERS)),
        now_ms=0,
        sure_ms=99 * HOUR_MS,
    )
    assert decide(view, situation) == []
