"""Plan the next step for a pool of servers, so that no query notices. Pure.

- Replicas that go hand over their segments first, from the highest ordinal on.
- A pod with outdated inputs is restarted when all others live and no broker routes to it any more. That is so only when
  each of its segments has another replica that answers. A table that keeps one copy does not hold up the restart: its
  segments on that server are away meanwhile.
- The controller tells which servers serve, not readiness: a server that loads is not ready, and answers queries.
- An outdated pod whose container does not run (no image, no node, crashes) serves nobody and is replaced at once.
- Volumes grow claim by claim. The StatefulSet, whose claim template cannot change, is recreated around its pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merlot.ids import InstanceId
from merlot_operator.desired.demand import PoolDemand
from merlot_operator.kube.compare import holds, quantity
from merlot_operator.kube.kinds import INPUTS, RESTARTED_AT, Object, annotations_of, is_deleting, name_of
from merlot_operator.kube.pods import inputs_of, is_ready, may_run
from merlot_operator.manifests.parts import SERVER
from merlot_operator.manifests.pool import claim_name, has_own_volume, instance_of, ordinal_of, pod_name

SILENCE = "controller does not answer"
TableStatuses = Mapping[str, Mapping[str, Any]]
"""Tables of the controller's `GET /status`, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """Current state of a pool. `statuses` holds every table that may have segments here; None if the controller cannot
    say it, for the reason `silence`."""

    live: Object | None
    pods: Sequence[Object]
    claims: Sequence[Object]
    statuses: TableStatuses | None
    silence: str = SILENCE


@dataclass(frozen=True, slots=True)
class Restart:
    """A pod to evict so that it starts anew, and the reason."""

    pod: Object
    reason: str


@dataclass(slots=True)
class PoolPlan:
    """Steps to take now, in this order, and what remains."""

    replicas: int
    storage: str
    storage_class: str
    recreate: bool = False
    grow_claims: list[Object] = field(default_factory=list)
    drain: dict[InstanceId, bool] = field(default_factory=dict)
    """Servers to mark; True: the server leaves for good."""
    undrain: list[InstanceId] = field(default_factory=list)
    restart: Restart | None = None
    delete_claims: list[Object] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    """Texts for people: what is under way or waited for."""
    notes: list[str] = field(default_factory=list)
    """Texts for people: requests that are never carried out."""
    num_outdated: int = 0

    def keep_volumes(self, live: Object) -> None:
        """Keep the StatefulSet and its volume size, because claims cannot grow."""
        self.recreate = False
        for template in live["spec"].get("volumeClaimTemplates") or ():
            self.storage = template["spec"]["resources"]["requests"]["storage"]


def plan(demand: PoolDemand, wanted: Object, state: PoolState) -> PoolPlan:
    """Plan the next step. `wanted` is the StatefulSet for the whole demand."""
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
    result.grow_claims = [claim for claim in state.claims if quantity(_size_of(claim)) < quantity(demand.storage)]
    if result.grow_claims:
        result.steps.append(f"grow {len(result.grow_claims)} volumes from {size} to {demand.storage}")


def _size_of(claim: Object) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


def _plan_size(demand: PoolDemand, state: PoolState, result: PoolPlan) -> None:
    """Grow or stop at once; shrink by one server after the other, each when it holds nothing any more."""
    assert state.live is not None
    now = state.live["spec"]["replicas"]
    if demand.replicas == 0:
        # No server is left that could take segments over: they stay on their volumes.
        cause = "suspended" if demand.wanted_replicas else "none is asked for"
        result.steps.extend([f"stop all servers: {cause}"] if now else [])
        return
    _plan_orphaned_claims(demand, state, result, now)
    if now <= demand.replicas:
        return
    result.replicas = now
    for ordinal in reversed(range(demand.replicas, now)):
        result.drain[instance_of(pod_name(demand.name, ordinal))] = True
    while result.replicas > demand.replicas and _holds_nothing(demand, state, result.replicas - 1):
        result.replicas -= 1
    leaving = [pod_name(demand.name, ordinal) for ordinal in range(demand.replicas, result.replicas)]
    if leaving:
        cause = state.silence if state.statuses is None else "their segments move to the others"
        result.steps.append(f"scale from {now} to {demand.replicas}: {', '.join(leaving)} wait, {cause}")


def _plan_orphaned_claims(demand: PoolDemand, state: PoolState, result: PoolPlan, now: int) -> None:
    """Delete the claims of servers that left for good; a suspended pool keeps all claims."""
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
    assert state.live is not None
    template = wanted["spec"]["template"]
    staying = [pod for pod in state.pods if ordinal_of(name_of(pod)) < result.replicas]
    outdated = [pod for pod in staying if not is_deleting(pod) and _is_outdated(pod, template)]
    result.num_outdated = len(outdated)
    if not outdated:
        return
    if is_deleting(state.live):
        result.steps.append(f"restart {len(outdated)} servers: waits until their StatefulSet is made anew")
        return
    idle = [pod for pod in outdated if not may_run(pod, SERVER)]
    if idle:
        result.restart = Restart(idle[0], f"it does not run, and {_cause(idle[0], template)}")
        return
    # A pod that serves nobody goes first: the others would wait for it.
    pod = min(outdated, key=lambda candidate: (_is_live(candidate, state), -ordinal_of(name_of(candidate))))
    obstacle = next(_obstacles(demand, pod, template, state, result), None)
    if obstacle is None:
        result.restart = Restart(pod, _cause(pod, template))
    else:
        result.steps.append(f"restart {len(outdated)} servers: {obstacle}")


def _obstacles(
    demand: PoolDemand, pod: Object, template: Mapping[str, Any], state: PoolState, result: PoolPlan
) -> Iterator[str]:
    """Yield why a pod cannot be spared now. Mark its server once nothing but the brokers' routes speaks against it."""
    if state.statuses is None:
        yield f"{name_of(pod)} waits, {state.silence}"
        return
    awaited = _awaited(pod, template, state, result.replicas)
    if awaited:
        yield f"waits until {', '.join(awaited)} is ready"
        return
    if any(result.drain.values()):
        yield "after those that leave"
        return
    server = instance_of(name_of(pod))
    result.drain[server] = False
    for table, status in state.statuses.items():
        entry = status["servers"].get(server)
        if entry is not None and not entry["drained"] and _num_copies(demand, table, status) > 1:
            yield f"{name_of(pod)} waits, brokers still need it for table {table}"
        elif entry is not None and _hands_over(server, entry, status.get("stream")):
            yield f"{name_of(pod)} waits, it hands over what it consumes for table {table}"


def _hands_over(server: InstanceId, entry: Mapping[str, Any], stream: Mapping[str, Any] | None) -> bool:
    """Return True if rows that the server consumes have to be committed, or another server has to consume them, before
    it goes. Until the server is marked, nobody can tell, so it counts as handing over."""
    if stream is None or not entry["live"] or not entry["assigned"]:
        return False
    return not entry["draining"] or server in stream["handingOver"]


def _awaited(pod: Object, template: Mapping[str, Any], state: PoolState, replicas: int) -> list[str]:
    """Return the names of the servers that have to be back before another one goes."""
    others = {
        name_of(other): other for other in state.pods if other is not pod and ordinal_of(name_of(other)) < replicas
    }
    missing = replicas - 1 - len(others)
    away = [name for name, other in others.items() if not _is_back(other, template, state)]
    return sorted(away) or ["a server that is about to start"] * (missing > 0)


def _is_back(pod: Object, template: Mapping[str, Any], state: PoolState) -> bool:
    """Return True if another pod may go now. A pod that was restarted has to be seen again, and to have caught up with
    what it missed. A pod that is still outdated is no reason to wait: the restart may mend it."""
    if is_deleting(pod):
        return False
    return _is_outdated(pod, template) or (may_run(pod, SERVER) and _is_live(pod, state) and is_ready(pod))


def _is_live(pod: Object, state: PoolState) -> bool:
    """Return True if brokers see the server; where no table can tell, True if the pod is ready."""
    server = instance_of(name_of(pod))
    tables = [status["servers"] for status in (state.statuses or {}).values()]
    entries = [servers[server] for servers in tables if server in servers]
    return any(entry["live"] for entry in entries) if entries else is_ready(pod)


def _num_copies(demand: PoolDemand, table: str, status: Mapping[str, Any]) -> int:
    """Return the number of copies of each segment: no more than there shall be servers."""
    replication = int(status["replication"])
    return min(replication, demand.wanted_replicas) if table in demand.tables else replication


def _is_outdated(pod: Object, template: Mapping[str, Any]) -> bool:
    return inputs_of(pod) != str(template["metadata"]["annotations"][INPUTS])


def _cause(pod: Object, template: Mapping[str, Any]) -> str:
    """Return which inputs of the pod have changed."""
    [new] = [container for container in template["spec"]["containers"] if container["name"] == SERVER]
    spec = pod.get("spec", {"containers": [new]})
    old = next((container for container in spec["containers"] if container["name"] == SERVER), new)
    causes = []
    if old["image"] != new["image"]:
        causes.append(f"its image changes from {old['image']} to {new['image']}")
    if not holds(old.get("resources", {}), new.get("resources", {})):
        causes.append("its resources change")
    if annotations_of(pod).get(RESTARTED_AT, "") != template["metadata"]["annotations"].get(RESTARTED_AT, ""):
        causes.append(f"the annotation {RESTARTED_AT} asks for it")
    return ", ".join(causes) or "its environment, store or pod template changed"


def _plan_undrain(state: PoolState, result: PoolPlan) -> None:
    """Remove the marks of a restart or a departure that is no longer wanted. A server that leaves keeps its mark until
    its pod is gone: the StatefulSet may delete it late, and segments that it got meanwhile would have one copy less."""
    own = {instance_of(name_of(pod)): ordinal_of(name_of(pod)) for pod in state.pods if not is_deleting(pod)}
    marked = {
        server: bool(entry["leaving"])
        for status in (state.statuses or {}).values()
        for server, entry in status["servers"].items()
        if entry["draining"] and server in own
    }
    restarting = None if result.restart is None else instance_of(name_of(result.restart.pod))
    staying = [server for server in marked if own[server] < result.replicas]
    result.undrain = sorted(
        InstanceId(server) for server in staying if server not in result.drain and server != restarting
    )
    result.drain = {server: leaving for server, leaving in result.drain.items() if marked.get(server) is not leaving}
