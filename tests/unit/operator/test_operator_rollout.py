"""A pool's next step: nothing that a query would notice."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.operator.pool_parts import CONFIG, DEMAND

from merlot.spec.tenancy import Resources
from merlot_operator.desired.demand import PoolDemand
from merlot_operator.manifests.pool import instance_of, stateful_set
from merlot_operator.reconcilers import rollout
from merlot_operator.reconcilers.rollout import PoolPlan, PoolState

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
CRASHING = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(
    number: int, demand: PoolDemand = DEMAND, *, is_ready: bool = True, state: Any = RUNNING, phase: str = "Running"
) -> dict[str, Any]:
    template = stateful_set(demand, CONFIG, 3)["spec"]["template"]
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        "containerStatuses": [{"name": "server", "state": state}] if state else [],
    }
    metadata = {"name": f"pool-{number}", **template["metadata"]}
    return {"metadata": metadata, "spec": template["spec"], "status": status}


def claim(number: int, size: str = "10Gi") -> dict[str, Any]:
    return {"metadata": {"name": f"segments-pool-{number}"}, "spec": {"resources": {"requests": {"storage": size}}}}


def server(number: int, **marks: Any) -> tuple[str, dict[str, Any]]:
    word = {"live": True, "assigned": 5, "draining": False, "leaving": False, "drained": False}
    return instance_of(f"pool-{number}"), word | marks


def plan(
    demand: PoolDemand = DEMAND,
    *,
    live: PoolDemand | None = DEMAND,
    pods: tuple[Any, ...] = (pod(0), pod(1), pod(2)),
    claims: tuple[Any, ...] = (),
    servers: tuple[tuple[str, Any], ...] | None = (),
    replication: int = 2,
    handing_over: dict[str, int] | None = None,
    is_deleted: bool = False,
) -> PoolPlan:
    """`handing_over`: of a table with a stream. `is_deleted`: the StatefulSet is, around its pods."""
    status = None if servers is None else {"flights": {"replication": replication, "servers": dict(servers)}}
    if status is not None and handing_over is not None:
        status["flights"]["stream"] = {"handingOver": handing_over}
    set_ = None if live is None else stateful_set(live, CONFIG, live.replicas)
    if set_ is not None and is_deleted:
        set_["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    state = PoolState(live=set_, pods=pods, claims=claims, statuses=status)
    return rollout.plan(demand, stateful_set(demand, CONFIG, demand.replicas), state)


def other(**changes: Any) -> PoolDemand:
    return dataclasses.replace(DEMAND, **changes)


RESTARTED = other(restarted_at="now")


def test_settled_pool_wants_nothing() -> None:
    assert plan(servers=(server(0), server(1), server(2))) == PoolPlan(3, "10Gi", "")


def test_pool_grows_at_once() -> None:
    assert plan(other(replicas=5, wanted_replicas=5)).replicas == 5


def test_servers_that_go_are_rid_of_their_segments_first() -> None:
    smaller = other(replicas=1, wanted_replicas=1)
    waiting = plan(smaller, servers=(server(0), server(1), server(2)))
    assert (waiting.replicas, waiting.drain) == (3, {instance_of("pool-2"): True, instance_of("pool-1"): True})
    assert "segments move" in waiting.steps[0]
    gone = {"draining": True, "leaving": True, "drained": True, "assigned": 0}
    one_less = plan(smaller, servers=(server(0), server(1, draining=True, leaving=True), server(2, **gone)))
    assert (one_less.replicas, one_less.drain) == (2, {})
    assert plan(smaller, servers=(server(0), server(1, **gone), server(2, **gone))).replicas == 1


def test_pool_does_not_shrink_while_the_controller_is_away() -> None:
    waiting = plan(other(replicas=1, wanted_replicas=1), servers=None)
    assert waiting.replicas == 3
    assert "controller does not answer" in waiting.steps[0]


def test_server_in_the_middle_keeps_those_above_it_from_being_cut_off() -> None:
    gone = {"draining": True, "leaving": True, "drained": True, "assigned": 0}
    smaller = other(replicas=1, wanted_replicas=1)
    assert plan(smaller, servers=(server(1, **gone), server(2, draining=True, leaving=True))).replicas == 3


def test_suspended_pool_stops_at_once_and_keeps_its_claims() -> None:
    stopped = plan(other(replicas=0), claims=(claim(0), claim(1), claim(2)))
    assert (stopped.replicas, stopped.drain, stopped.delete_claims) == (0, {}, [])
    settled = plan(other(replicas=0), live=other(replicas=0), pods=(), claims=(claim(0), claim(2)))
    assert settled.delete_claims == []


def test_pool_of_which_none_is_asked_for_stops_as_it_is() -> None:
    """Segments have nowhere to go: nobody is marked, no claim is deleted."""
    none = other(replicas=0, wanted_replicas=0)
    servers = (server(0), server(1), server(2))
    stopped = plan(none, servers=servers, claims=(claim(0), claim(1), claim(2)))
    assert (stopped.replicas, stopped.drain, stopped.delete_claims) == (0, {}, [])
    settled = plan(none, live=none, pods=(), servers=servers, claims=(claim(0), claim(2)))
    assert (settled.steps, settled.delete_claims) == ([], [])


def test_claims_of_servers_that_left_go_after_their_pods() -> None:
    smaller = other(replicas=1, wanted_replicas=1)
    left = plan(smaller, live=smaller, pods=(pod(0), pod(1)), claims=(claim(0), claim(1), claim(2)))
    assert [one["metadata"]["name"] for one in left.delete_claims] == ["segments-pool-2"]


def test_outdated_pod_is_marked_then_restarted_once_nobody_routes_to_it() -> None:
    before = plan(RESTARTED, servers=(server(0), server(1), server(2)))
    assert before.drain == {instance_of("pool-2"): False}
    assert (before.restart, before.num_outdated) == (None, 3)
    drained = plan(RESTARTED, servers=(server(0), server(1), server(2, draining=True, drained=True)))
    assert drained.restart is not None
    assert drained.restart.pod["metadata"]["name"] == "pool-2"
    assert drained.drain == {}
    assert drained.undrain == []


def test_a_server_that_consumes_is_restarted_when_it_has_handed_over_though_there_is_one_copy() -> None:
    def asked(mark: dict[str, Any], handing: dict[str, int]) -> PoolPlan:
        return plan(RESTARTED, servers=(server(0), server(1), server(2, **mark)), replication=1, handing_over=handing)

    leaver = instance_of("pool-2")
    unmarked = asked({}, {})
    assert (unmarked.restart, unmarked.drain) == (None, {leaver: False}), "nobody can tell before the mark is seen"
    waiting = asked({"draining": True}, {leaver: 3})
    assert waiting.restart is None
    assert "hands over what it consumes for table flights" in waiting.steps[0]
    assert asked({"draining": True}, {}).restart is not None


@pytest.mark.parametrize("pods", [(pod(0), pod(1), pod(2, RESTARTED, is_ready=False)), (pod(0), pod(1))])
def test_next_pod_waits_until_the_one_before_is_ready(pods: tuple[Any, ...]) -> None:
    waiting = plan(RESTARTED, pods=pods, servers=(server(0), server(1, draining=True, drained=True), server(2)))
    assert waiting.restart is None
    assert "waits until" in waiting.steps[0]


def test_pod_that_is_not_ready_and_serves_is_not_replaced_before_brokers_route_around_it() -> None:
    """It loads, or probes are slow: the controller says that it lives, and brokers ask it."""
    loading = tuple(pod(number, is_ready=False) for number in range(3))
    before = plan(RESTARTED, pods=loading, servers=(server(0), server(1), server(2)))
    assert (before.restart, before.drain) == (None, {instance_of("pool-2"): False})
    assert plan(RESTARTED, pods=loading, servers=None).restart is None
    drained = plan(RESTARTED, pods=loading, servers=(server(0), server(1), server(2, draining=True, drained=True)))
    assert drained.restart is not None
    assert drained.restart.pod["metadata"]["name"] == "pool-2"


@pytest.mark.parametrize(
    "broken",
    [
        pod(1, is_ready=False, state=CRASHING),
        pod(1, is_ready=False, state={"terminated": {"exitCode": 1}}),
        pod(1, is_ready=False, state={"waiting": {"reason": "ImagePullBackOff"}}, phase="Pending"),
        pod(1, is_ready=False, state=None, phase="Pending"),
    ],
)
def test_outdated_pod_that_does_not_run_is_replaced_at_once(broken: Any) -> None:
    """So that a broken image can be mended, though the controller does not answer and others are broken too."""
    others = (pod(0, is_ready=False), broken, pod(2, is_ready=False))
    replaced = plan(RESTARTED, pods=others, servers=None)
    assert replaced.restart is not None
    assert replaced.restart.pod["metadata"]["name"] == "pool-1"


def test_rollout_stops_at_the_first_pod_that_does_not_come_back() -> None:
    servers = (server(0), server(1, draining=True, drained=True), server(2, live=False))
    broken = plan(RESTARTED, pods=(pod(0), pod(1), pod(2, RESTARTED, is_ready=False, state=CRASHING)), servers=servers)
    assert broken.restart is None
    assert "waits until pool-2" in broken.steps[0]


def test_servers_that_hang_are_restarted_before_those_that_serve() -> None:
    hanging = {"live": False, "draining": True, "drained": True}
    servers = (server(0, **hanging), server(1, **hanging), server(2))
    hung = plan(RESTARTED, pods=(pod(0, is_ready=False), pod(1, is_ready=False), pod(2)), servers=servers)
    assert hung.restart is not None
    assert hung.restart.pod["metadata"]["name"] == "pool-1"


def test_restart_says_what_changed() -> None:
    def cause(changed: PoolDemand, config: Any = CONFIG) -> str:
        wanted = stateful_set(changed, config, 3)
        servers = dict([server(2, draining=True, drained=True), server(0), server(1)])
        statuses = {"flights": {"replication": 2, "servers": servers}}
        pods = (pod(0), pod(1), pod(2))
        restart = rollout.plan(changed, wanted, PoolState(live=wanted, pods=pods, claims=(), statuses=statuses)).restart
        assert restart is not None
        return restart.reason

    image = dataclasses.replace(CONFIG, runtime_image="r:2")
    assert cause(RESTARTED) == "the annotation merlot.dev/restarted-at asks for it"
    assert cause(DEMAND, image) == "its image changes from r:1 to r:2"
    assert cause(other(resources=Resources(limits={"memory": "2Gi"}))) == "its resources change"
    assert cause(other(stores={"s3://own": "keys"})) == "its environment, store or pod template changed"
    assert cause(RESTARTED, image).count(", ") == 1


def test_table_that_moved_away_is_asked_too() -> None:
    """It has segments here still, and asks for servers elsewhere."""
    statuses = {
        "flights": {"replication": 2, "servers": dict([server(0), server(1), server(2, draining=True, drained=True)])},
        "moved": {"replication": 2, "servers": dict([server(2, draining=True)])},
    }
    wanted = stateful_set(RESTARTED, CONFIG, 3)
    state = PoolState(live=wanted, pods=(pod(0), pod(1), pod(2)), claims=(), statuses=statuses)
    waiting = rollout.plan(RESTARTED, wanted, state)
    assert waiting.restart is None
    assert "for table moved" in waiting.steps[0]


def test_pod_of_tables_with_one_copy_is_restarted_though_brokers_need_it() -> None:
    servers = (server(0), server(1), server(2))
    assert plan(RESTARTED, servers=servers, replication=1).restart is not None
    assert plan(RESTARTED, servers=servers, replication=2).restart is None


@pytest.mark.parametrize("state", [RUNNING, CRASHING])
def test_restart_waits_for_the_set_that_makes_the_pod_anew(state: Any) -> None:
    """A set that is deleted around its pods makes none."""
    drained = (server(0), server(1), server(2, draining=True, drained=True))
    pods = (pod(0), pod(1), pod(2, state=state))
    assert plan(RESTARTED, pods=pods, servers=drained).restart is not None
    waiting = plan(RESTARTED, pods=pods, servers=drained, is_deleted=True)
    assert (waiting.restart, waiting.num_outdated) == (None, 3)
    assert "made anew" in waiting.steps[0]


def test_restart_waits_for_the_controller() -> None:
    assert plan(RESTARTED, servers=None).restart is None


def test_server_that_leaves_stays_marked_until_its_pod_is_gone() -> None:
    """The StatefulSet is smaller already, and its controller has not come to delete the pod."""
    smaller = other(replicas=2, wanted_replicas=2)
    servers = (server(0), server(1), server(2, draining=True, leaving=True, drained=True))
    left = plan(smaller, live=smaller, pods=(pod(0), pod(1), pod(2)), servers=servers)
    assert (left.replicas, left.drain, left.undrain) == (2, {}, [])


def test_mark_that_nothing_asks_for_any_more_is_taken_away() -> None:
    assert plan(servers=(server(0), server(1, draining=True), server(2))).undrain == [instance_of("pool-1")]
    back = plan(servers=(server(0), server(1), server(2, draining=True, leaving=True)))
    assert back.undrain == [instance_of("pool-2")]


def test_volumes_grow_and_never_shrink() -> None:
    larger = plan(other(storage="20Gi"), claims=(claim(0), claim(1, "20480Mi"), claim(2)))
    assert larger.recreate
    assert [one["metadata"]["name"] for one in larger.grow_claims] == ["segments-pool-0", "segments-pool-2"]
    smaller = plan(other(storage="5Gi"), claims=(claim(0),))
    assert (smaller.recreate, smaller.storage, smaller.grow_claims) == (False, "10Gi", [])
    assert "cannot shrink" in smaller.notes[0]
    assert not smaller.steps


def test_new_version_of_the_operator_restarts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = (pod(0), pod(1), pod(2))
    monkeypatch.setattr("merlot_operator.manifests.parts.VERSION", "next")
    assert plan(pods=pods).num_outdated == 0
