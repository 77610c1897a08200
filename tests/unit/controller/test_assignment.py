"""Assignment: replication, balance, stability, and no movement without need."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from merlot.controller.placement.assignment import Servers, assign
from merlot.ids import InstanceId

SERVERS = [InstanceId(f"Server_host_{port}") for port in range(6)]
server_sets = st.frozensets(st.sampled_from(SERVERS))


def names(count: int) -> list[str]:
    return [f"flights_{number}" for number in range(count)]


def loads_of(assignment: dict[str, tuple[InstanceId, ...]]) -> Counter[InstanceId]:
    return Counter(server for replicas in assignment.values() for server in replicas)


@given(count=st.integers(0, 60), live=server_sets, replication=st.integers(1, 4))
def test_a_new_table_is_replicated_and_balanced(count: int, live: frozenset[InstanceId], replication: int) -> None:
    assignment = assign(names(count), {}, Servers(live=live), replication)
    wanted = min(replication, len(live))
    assert all(len(set(replicas)) == wanted for replicas in assignment.values())
    if wanted:
        assert set(assignment) == set(names(count))
        loads = [loads_of(assignment)[server] for server in live]
        assert max(loads) - min(loads) <= 1


@given(
    before=server_sets,
    after=server_sets.filter(bool),
    replication=st.integers(1, 3),
    later=st.integers(1, 3),
)
def test_a_change_of_servers_is_balanced_by_the_fewest_moves_and_then_stable(
    before: frozenset[InstanceId], after: frozenset[InstanceId], replication: int, later: int
) -> None:
    current = assign(names(30), {}, Servers(live=before), replication)
    servers = Servers(live=after, gone=before - after)
    settled = {**current, **assign(names(30), current, servers, later)}
    assert all(len(set(settled.get(name, ()))) == min(later, len(after)) for name in names(30))
    loads = loads_of(settled)
    assert max(loads[server] for server in after) - min(loads[server] for server in after) <= 1
    assert assign(names(30), settled, servers, later) == {}
    if later == replication and before <= after:
        moved = sum(len(set(settled[name]) - set(current[name])) for name in current)
        old = loads_of(current)
        most = -(-30 * min(later, len(after)) // len(after))
        new_replicas = 30 * min(later, len(after)) - 30 * min(replication, len(before))
        assert moved <= new_replicas + sum(max(0, old[server] - (most - 1)) for server in before)


zones_of_servers = st.fixed_dictionaries({server: st.sampled_from("abc") for server in SERVERS})


@given(
    zones=zones_of_servers,
    before=server_sets,
    after=server_sets.filter(bool),
    replication=st.integers(1, 3),
    later=st.integers(1, 3),
)
def test_replicas_are_in_as_many_zones_as_can_be_and_then_even(
    zones: dict[InstanceId, str],
    before: frozenset[InstanceId],
    after: frozenset[InstanceId],
    replication: int,
    later: int,
) -> None:
    current = assign(names(20), {}, Servers(live=before, zones=zones), replication)
    servers = Servers(live=after, gone=before - after, zones=zones)
    settled = {**current, **assign(names(20), current, servers, later)}
    for _ in range(3):
        settled |= assign(names(20), settled, servers, later)
    assert assign(names(20), settled, servers, later) == {}
    most = min(later, servers.num_zones(after))
    for name in names(20):
        assert len(set(settled[name])) == min(later, len(after))
        assert servers.num_zones(settled[name]) == most
    loads = loads_of(settled)
    for zone in set(zones.values()):
        within = [loads[server] for server in after if zones[server] == zone]
        assert max(within, default=0) - min(within, default=0) <= 1


def test_segments_that_share_a_zone_are_spread_when_another_zone_gets_a_server() -> None:
    current = dict.fromkeys(names(10), (SERVERS[0], SERVERS[1]))
    zones = {SERVERS[0]: "a", SERVERS[1]: "a", SERVERS[2]: "b"}
    servers = Servers(live=frozenset(SERVERS[:3]), zones=zones)
    settled = {**current, **assign(names(10), current, servers, 2)}
    assert loads_of(settled) == {SERVERS[0]: 5, SERVERS[1]: 5, SERVERS[2]: 10}
    lost = Servers(live=frozenset(SERVERS[:2]), gone=frozenset(SERVERS[2:3]), zones=zones)
    assert loads_of({**settled, **assign(names(10), settled, lost, 2)}) == {SERVERS[0]: 10, SERVERS[1]: 10}


class Compared(str):
    """A server's id that counts its comparisons."""

    num_times = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.num_times += 1
        return str.__eq__(self, other)


def test_work_to_fill_a_server_that_joins_grows_with_the_number_of_segments_only() -> None:
    first, second, joining = (InstanceId(Compared(f"Server_host_{port}")) for port in range(3))

    def work(count: int) -> int:
        before = Compared.num_times
        current = dict.fromkeys(names(count), (first, second))
        moved = assign(names(count), current, Servers(live=frozenset({first, second, joining})), 2)
        assert len(moved) == 2 * count // 3
        return Compared.num_times - before

    assert work(2_400) < 3 * work(1_200)


@given(data=st.data(), replication=st.integers(1, 3))
def test_replicas_stay_where_they_are_if_loads_are_even(data: st.DataObject, replication: int) -> None:
    live = data.draw(st.frozensets(st.sampled_from(SERVERS), min_size=1))
    current = assign(names(30), {}, Servers(live=live), replication)
    fewer = data.draw(st.frozensets(st.sampled_from(names(30))))
    left = {name: current[name] for name in names(30) if name not in fewer}
    changes = assign(list(left), left, Servers(live=live), replication)
    loads = loads_of(left)
    excess = max(loads[server] for server in live) - min(loads[server] for server in live)
    assert bool(changes) == (excess > 1)


def test_a_silent_server_keeps_its_segments() -> None:
    current = assign(names(10), {}, Servers(live=frozenset(SERVERS[:2])), 2)
    assert assign(names(10), current, Servers(live=frozenset(SERVERS[:1])), 2) == {}


def test_a_gone_server_loses_its_segments_to_the_least_loaded() -> None:
    current = assign(names(12), {}, Servers(live=frozenset(SERVERS[:3])), 1)
    changes = assign(names(12), current, Servers(live=frozenset(SERVERS[1:4]), gone=frozenset(SERVERS[:1])), 1)
    assert len(changes) == 4
    assert set(changes.values()) == {(SERVERS[3],)}


def test_a_silent_server_gives_up_a_surplus_replica_first() -> None:
    current = assign(names(4), {}, Servers(live=frozenset(SERVERS[:2])), 2)
    changes = assign(names(4), current, Servers(live=frozenset(SERVERS[1:2])), 1)
    assert changes == dict.fromkeys(names(4), (SERVERS[1],))


@given(replication=st.integers(1, 3), gone=st.booleans())
def test_nothing_is_taken_from_servers_while_there_is_no_other(replication: int, *, gone: bool) -> None:
    current = assign(names(10), {}, Servers(live=frozenset(SERVERS[:3])), replication)
    away = frozenset(SERVERS[:3])
    servers = Servers(live=frozenset(), gone=away) if gone else Servers(live=frozenset(), leaving=away)
    assert assign(names(10), current, servers, replication) == {}


@given(num_leaving=st.integers(1, 2), replication=st.integers(1, 2))
def test_a_server_that_leaves_gives_its_segments_to_those_that_stay(num_leaving: int, replication: int) -> None:
    current = assign(names(30), {}, Servers(live=frozenset(SERVERS[:4])), replication)
    leaving = frozenset(SERVERS[:num_leaving])
    servers = Servers(live=frozenset(SERVERS[:4]) - leaving, leaving=leaving)
    settled = {**current, **assign(names(30), current, servers, replication)}
    assert all(len(set(replicas)) == replication for replicas in settled.values())
    assert leaving.isdisjoint(loads_of(settled))
    loads = [loads_of(settled)[server] for server in servers.live]
    assert max(loads) - min(loads) <= 1


def test_uneven_loads_stay_where_only_repair_is_asked_for() -> None:
    current = dict.fromkeys(names(10), (SERVERS[0],))
    servers = Servers(live=frozenset(SERVERS[:2]))
    assert assign(names(10), current, servers, 1, balance=False) == {}
    repaired = assign(names(10), current, servers, 2, balance=False)
    assert repaired == dict.fromkeys(names(10), (SERVERS[0], SERVERS[1]))
