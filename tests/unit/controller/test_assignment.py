"""Assignment: replication, balance, stability, and no movement without need."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from merlot.controller.assignment import Servers, assign
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


@given(before=server_sets, after=server_sets, replication=st.integers(1, 3), later=st.integers(1, 3))
def test_replicas_move_only_when_they_must(
    before: frozenset[InstanceId], after: frozenset[InstanceId], replication: int, later: int
) -> None:
    current = assign(names(30), {}, Servers(live=before), replication)
    gone = before - after
    changes = assign(names(30), current, Servers(live=after, gone=gone), later)
    for name in names(30):
        old = [server for server in current.get(name, ()) if server not in gone]
        new = changes.get(name, current.get(name, ()))
        assert len(new) == min(later, len(after | set(old)))
        assert len(set(old) & set(new)) == min(len(old), later), "a replica that may stay stays"
    settled = {**current, **changes}
    assert assign(names(30), settled, Servers(live=after, gone=gone), later) == {}


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
