"""Reconcile what a namespace's Tables share: controller, brokers, minions, service accounts, network
policies."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from merlot.errors import MerlotError
from merlot_operator.context import ClusterNote, ReconcileContext
from merlot_operator.desired.demand import ClusterDemand, cluster_demand
from merlot_operator.kube.kinds import (
    DEPLOYMENTS,
    INPUTS,
    TABLES,
    TEMPLATE_VERSION,
    WRITTEN,
    Object,
    labels_of,
    name_of,
)
from merlot_operator.kube.writer import WriteResult, title
from merlot_operator.manifests.cluster import CLUSTER, cluster_objects, name_of_role
from merlot_operator.manifests.parts import MINION
from merlot_operator.reconcilers.merge_jobs import reconcile_merge_jobs

MINIONS_LINGER_S = 60.0
"""Seconds for which minions stay after the last of their tasks."""


async def reconcile_cluster(context: ReconcileContext, namespace: str) -> float | None:
    """Run one pass. Return the seconds until the next one, or None if the namespace has no cluster any more."""
    demand = cluster_demand(namespace, context.store.of(TABLES, namespace), context.config)
    if demand is None:
        await _tear_down(context, namespace)
        return None
    await _find_home(context, namespace, demand.broker.replicas)
    minions = _num_minions(context, demand)
    objects = [_without_rollout(context, wanted) for wanted in cluster_objects(demand, context.config, minions)]
    written = await context.writer.apply_all(objects)
    written.problems |= (await _prune(context, namespace, objects)).problems
    written.problems |= (await reconcile_merge_jobs(context, demand)).problems
    problems = [f"{name}: {error}" for name, error in written.problems.items()]
    problem = "; ".join([*problems, *([demand.conflict] if demand.conflict else [])]) or None
    _note(
        context, namespace, ClusterNote(problem, demand.broker.replicas, await _sharing_namespaces(context, namespace))
    )
    written.check()
    is_busy = minions or context.statuses.of(namespace).spark_tasks
    return min(context.config.resync_s, MINIONS_LINGER_S / 2) if is_busy else context.config.resync_s


async def _find_home(context: ReconcileContext, namespace: str, num_brokers: int) -> None:
    """Find the namespace's home before any pod starts that needs it. While that fails, the Tables show the reason."""
    try:
        await context.metastores.home(namespace)
    except MerlotError as error:
        _note(context, namespace, ClusterNote(f"nobody can tell yet where its state is: {error}", num_brokers))
        raise


async def _sharing_namespaces(context: ReconcileContext, namespace: str) -> tuple[str, ...]:
    """Return the namespaces that share the state. While ZooKeeper is away, return those of the last pass; the Tables
    show that ZooKeeper is away anyway."""
    try:
        return tuple(sorted(await context.metastores.sharing(namespace)))
    except MerlotError:
        note = context.clusters.get(namespace)
        return () if note is None else note.shares_with


def _note(context: ReconcileContext, namespace: str, note: ClusterNote) -> None:
    if context.clusters.get(namespace) != note:
        context.clusters[namespace] = note
        context.wake_tables(namespace)


async def _tear_down(context: ReconcileContext, namespace: str) -> None:
    """Delete the cluster's objects after the last Table is gone. Ask the API server itself first, since the cache may
    not have the newest Table yet."""
    if await context.kube.list(TABLES, namespace):
        context.wake_cluster(namespace)
        return
    (await _prune(context, namespace, ())).check()
    context.clusters.pop(namespace, None)
    context.statuses.forget(namespace)
    context.metastores.leave(namespace)


async def _prune(context: ReconcileContext, namespace: str, wanted: Iterable[Mapping[str, Any]]) -> WriteResult:
    """Delete the cluster's objects that are no longer wanted."""
    titles = {title(body) for body in wanted}
    own = [body for kind in WRITTEN for body in context.store.of(kind, namespace) if _is_shared(body)]
    return await context.writer.delete_all(body for body in own if title(body) not in titles)


def _is_shared(body: Object) -> bool:
    return CLUSTER.items() <= dict(labels_of(body)).items()


def _without_rollout(context: ReconcileContext, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return `wanted`; keep the live template of a Deployment if only a new version of the operator would change it,
    so that no pod restarts for that."""
    if wanted["kind"] != DEPLOYMENTS.name:
        return wanted
    live = context.store.get(DEPLOYMENTS, wanted["metadata"]["namespace"], name_of(wanted))
    if live is None:
        return wanted
    old = live["spec"]["template"]["metadata"].get("annotations") or {}
    new = wanted["spec"]["template"]["metadata"]["annotations"]
    is_only_version_new = old.get(INPUTS) == new[INPUTS] and old.get(TEMPLATE_VERSION) != new[TEMPLATE_VERSION]
    if not is_only_version_new:
        return wanted
    unchanged = copy.deepcopy(wanted)
    unchanged["spec"]["template"] = copy.deepcopy(live["spec"]["template"])
    return unchanged


def _num_minions(context: ReconcileContext, demand: ClusterDemand) -> int:
    """Return the number of minions: one per open task, within bounds; tasks on Spark do not count.

    No minion is stopped while a task is left, since that minion may be running it, nor for MINIONS_LINGER_S after:
    between two tasks of a merge the queue is empty. None is stopped either while the tasks are unknown."""
    status = context.statuses.of(demand.namespace)
    open_tasks = status.tasks.get("queued", 0) + status.tasks.get("running", 0) - len(status.spark_tasks)
    live = context.store.get(DEPLOYMENTS, demand.namespace, name_of_role(MINION))
    current = 0 if live is None else int(live["spec"].get("replicas", 0))
    least, most = demand.minion.replicas, context.config.sizes.minion_max
    if open_tasks > 0 or any(rollup.get("state") == "Running" for rollup in status.rollups.values()):
        context.last_busy[demand.namespace] = context.clock.monotonic()
    idle_s = context.clock.monotonic() - context.last_busy.get(demand.namespace, float("-inf"))
    lingering = min(current, most) if idle_s < MINIONS_LINGER_S or not status.is_known else 0
    return max(lingering, least, min(open_tasks, most))
