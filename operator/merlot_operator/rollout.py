"""What to do to a pool of servers next, so that no query notices. Pure.

- Replicas that go are first rid of their segments, from the highest ordinal on.
- A pod whose choices are outdated is restarted when all others are ready and brokers no longer route to it; that they
  do only when each of its segments has another replica. Tables that keep one copy (replication 1) cannot be spared.
- A pod that is not ready and outdated is replaced at once: it serves nobody.
- Volumes grow claim by claim; the StatefulSet, whose template of them cannot change, is made anew around its pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merlot.ids import InstanceId
from merlot_operator.compare import quantity
from merlot_operator.demand import PoolDemand
from merlot_operator.kinds import INPUTS, Object, is_deleting, name_of
from merlot_operator.manifests.pool import claim_name, has_own_volume, instance_of, ordinal_of, pod_name
from merlot_operator.pods import inputs_of, is_ready

TableStatuses = Mapping[str, Mapping[str, Any]]
"""The tables' parts of the controller's `GET /status`, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool as it is. `statuses` is None if the controller does not answer."""

    live: Object | None
    pods: Sequence[Object]
    claims: Sequence[Object]
    statuses: TableStatuses | None


@dataclass(frozen=True, slots=True)
class Restart:
    """A pod to delete so that it starts anew, and why."""

    pod: Object
    reason: str


@dataclass(slots=True)
class PoolPlan:
    """What to do now, in this order, and what remains."""

    replicas: int
    storage: str
    storage_class: str
    recreate: bool = False
    grow_claims: list[Object] = field(default_factory=list)
    drain: dict[InstanceId, bool] = field(default_factory=dict)
    """Servers to mark; True: for good."""
    undrain: list[InstanceId] = field(default_factory=list)
    restart: Restart | None = None
    delete_claims: list[Object] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    """For people: what is under way or waited for."""
    notes: list[str] = field(default_factory=list)
    """For people: what is asked for and never done."""
    num_outdated: int = 0


def plan(demand: PoolDemand, wanted: Object, state: PoolState) -> PoolPlan:
    """`wanted` is the StatefulSet as the demand has it."""
    result = PoolPlan(demand.replicas, demand.storage, demand.storage_class)
    if state.live is None:
        result.steps.append(f"create {demand.replicas} servers")
        return result
    _plan_volumes(demand, state, result)
    _plan_size(demand, state, result)
    _plan_restart(demand, wanted, state, result)
    _plan_undrain(state, result)
    return result


def _plan_volumes(demand: PoolDemand, state: PoolState, result: PoolPlan) -> None:
    assert state.live is not None
    templates = state.live["spec"].get("volumeClaimTemplates") or ()
    if has_own_volume(demand) or not templates:
        return
    [template] = templates
    size = template["spec"]["resources"]["requests"]["storage"]
    storage_class = template["spec"].get("storageClassName", "")
    if demand.storage_class and storage_class != demand.storage_class:
        result.notes.append(f"volumes stay in class {storage_class or 'default'}: a volume cannot change its class")
    result.storage_class = storage_class if storage_class and demand.storage_class else demand.storage_class
    if quantity(demand.storage) < quantity(size):
        result.storage = size
        result.notes.append(f"volumes stay at {size}: a volume cannot shrink to {demand.storage}")
        return
    result.recreate = quantity(demand.storage) > quantity(size)
    result.grow_claims = [one for one in state.claims if quantity(_size_of(one)) < quantity(demand.storage)]
    if result.grow_claims:
        result.steps.append(f"grow {len(result.grow_claims)} volumes from {size} to {demand.storage}")


def _size_of(claim: Object) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


def _plan_size(demand: PoolDemand, state: PoolState, result: PoolPlan) -> None:
    """Grow or suspend at once; shrink by one server after the other, each when it holds nothing any more."""
    assert state.live is not None
    now = state.live["spec"]["replicas"]
    if demand.replicas == 0 and demand.wanted_replicas > 0:
        result.steps.extend(["stop all servers: suspended"] if now else [])
        return
    _plan_claims_that_are_left(demand, state, result, now)
    if now <= demand.replicas:
        return
    result.replicas = now
    for ordinal in reversed(range(demand.replicas, now)):
        result.drain[instance_of(pod_name(demand.name, ordinal))] = True
    while result.replicas > demand.replicas and _holds_nothing(demand, state, result.replicas - 1):
        result.replicas -= 1
    leaving = [pod_name(demand.name, ordinal) for ordinal in range(demand.replicas, result.replicas)]
    if leaving:
        cause = "controller does not answer" if state.statuses is None else "their segments move to the others"
        result.steps.append(f"scale from {now} to {demand.replicas}: {', '.join(leaving)} wait, {cause}")


def _plan_claims_that_are_left(demand: PoolDemand, state: PoolState, result: PoolPlan, now: int) -> None:
    """Claims of servers that left for good; a suspended pool keeps all of them."""
    pods = {name_of(pod) for pod in state.pods}
    for claim in state.claims:
        ordinal = ordinal_of(name_of(claim))
        is_left = ordinal >= max(now, demand.replicas) and pod_name(demand.name, ordinal) not in pods
        if is_left and not is_deleting(claim) and name_of(claim) == claim_name(demand.name, ordinal):
            result.delete_claims.append(claim)


def _holds_nothing(demand: PoolDemand, state: PoolState, ordinal: int) -> bool:
    if state.statuses is None:
        return False
    name = pod_name(demand.name, ordinal)
    server = instance_of(name)
    entries = [status["servers"][server] for status in state.statuses.values() if server in status["servers"]]
    is_running = any(name_of(pod) == name and is_ready(pod) for pod in state.pods)
    if not is_running:
        return all(entry["assigned"] == 0 for entry in entries)
    return bool(entries) and all(entry["leaving"] and entry["drained"] for entry in entries)


def _plan_restart(demand: PoolDemand, wanted: Object, state: PoolState, result: PoolPlan) -> None:
    hash_ = wanted["spec"]["template"]["metadata"]["annotations"][INPUTS]
    kept = [pod for pod in state.pods if ordinal_of(name_of(pod)) < result.replicas]
    outdated = [pod for pod in kept if not is_deleting(pod) and inputs_of(pod) != hash_]
    result.num_outdated = len(outdated)
    if not outdated:
        return
    unready = [name_of(pod) for pod in kept if not is_ready(pod)]
    broken = [pod for pod in outdated if not is_ready(pod)]
    if broken:
        result.restart = Restart(broken[0], "it is not ready, and what it was started with is outdated")
        return
    if unready or len(kept) < min(result.replicas, state.live["spec"]["replicas"] if state.live else 0):
        names = ", ".join(unready) or "a server that is about to start"
        result.steps.append(f"restart {len(outdated)} servers: waits until {names} is ready")
        return
    if any(result.drain.values()):
        result.steps.append(f"restart {len(outdated)} servers: after those that leave")
        return
    pod = max(outdated, key=lambda one: ordinal_of(name_of(one)))
    result.drain[instance_of(name_of(pod))] = False
    obstacle = next(_obstacles(pod, state), None)
    if obstacle is None:
        result.restart = Restart(pod, "its image, resources or environment changed")
    else:
        result.steps.append(f"restart {len(outdated)} servers: {name_of(pod)} waits, {obstacle}")


def _obstacles(pod: Object, state: PoolState) -> Iterator[str]:
    """Why a pod cannot be spared now."""
    if state.statuses is None:
        yield "controller does not answer"
        return
    server = instance_of(name_of(pod))
    for table, status in state.statuses.items():
        entry = status["servers"].get(server)
        if entry is None or status["replication"] < 2:
            continue
        if not entry["drained"]:
            yield f"brokers still need it for table {table}"


def _plan_undrain(state: PoolState, result: PoolPlan) -> None:
    """Marks of a restart or a departure that is no longer wanted."""
    own = {instance_of(name_of(pod)) for pod in state.pods if not is_deleting(pod)}
    marked = {
        server: bool(entry["leaving"])
        for status in (state.statuses or {}).values()
        for server, entry in status["servers"].items()
        if entry["draining"] and server in own
    }
    restarting = None if result.restart is None else instance_of(name_of(result.restart.pod))
    result.undrain = sorted(InstanceId(one) for one in marked if one not in result.drain and one != restarting)
    result.drain = {one: leaving for one, leaving in result.drain.items() if marked.get(one) is not leaving}
