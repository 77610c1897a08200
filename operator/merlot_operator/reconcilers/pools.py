"""Reconcile a pool of servers: carry out what `rollout` plans, in an order that a crash anywhere leaves safe."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Iterable
from typing import Any

from merlot.errors import InvalidInputError, MerlotError, UnavailableError
from merlot_operator import handlers
from merlot_operator.context import PoolNote, ReconcileContext
from merlot_operator.desired.demand import PoolDemand, own_pool, pool_demand, pool_of
from merlot_operator.kube.client import TooManyRequestsError
from merlot_operator.kube.kinds import (
    CLAIMS,
    PODS,
    POOL,
    STATEFUL_SETS,
    TABLES,
    WRITTEN,
    Object,
    ResourceKind,
    is_deleting,
    name_of,
)
from merlot_operator.manifests.pool import instance_of, is_numbered, pool_objects, stateful_set
from merlot_operator.reconcilers import rollout
from merlot_operator.reconcilers.refusals import complete, refusal

_LOG = logging.getLogger(__name__)

BUSY_S = 5.0
"""Seconds until the next look while something is under way that may end without an event."""
STUCK_S = 900.0
"""Seconds after which a rollout that still waits for the same thing needs somebody to look."""
IMMUTABLE = "updates to statefulset spec for fields other than"


async def reconcile_pool(context: ReconcileContext, namespace: str, pool: str) -> float | None:
    """Run one pass. Return in how many seconds to look again, or None if no Table wants the pool any more."""
    demand = pool_demand(namespace, pool, context.store.of(TABLES, namespace), context.config)
    if demand is None:
        if _is_named(pool, context.store.of(TABLES, namespace)):
            # A Table of the pool waits to be accepted: for the first time, or again if its status was lost.
            context.pools.setdefault((namespace, pool), PoolNote())
            return None
        if _is_still_needed(context, namespace, pool):
            return BUSY_S
        await _tear_down(context, namespace, pool)
        return None
    try:
        await context.metastores.home(namespace)
    except MerlotError as error:
        before = context.pools.get((namespace, pool), PoolNote())
        _note(context, demand, dataclasses.replace(before, problem=str(error), wanted=demand.replicas))
        raise
    plan, problems = await _advance(context, demand)
    steps = tuple(plan.steps)
    refused = await _refused(context, demand)
    note = PoolNote(
        steps=steps,
        num_outdated=plan.num_outdated,
        wanted=demand.replicas,
        replicas=plan.replicas,
        problem="; ".join(map(str, problems)) or None,
        is_stuck=_is_stuck(context, (namespace, pool), steps),
        notes=tuple(plan.notes),
        refused=refused,
        conflicts=demand.conflicts,
    )
    _note(context, demand, note)
    if problems:
        raise problems[0]
    is_busy = plan.steps or plan.restart or plan.drain or _lacks_pods(context, demand)
    return BUSY_S if is_busy else context.config.resync_s


def _is_named(pool: str, tables: Iterable[Object]) -> bool:
    """Return True if a Table that stays is in the pool, accepted or not."""
    return any(pool_of(table) == pool and not is_deleting(table) for table in tables)


def _lacks_pods(context: ReconcileContext, demand: PoolDemand) -> bool:
    live = context.store.get(STATEFUL_SETS, demand.namespace, demand.name)
    pods = context.store.with_label(PODS, demand.namespace, POOL, demand.name)
    return live is not None and len(pods) < int(live["spec"]["replicas"])


async def _refused(context: ReconcileContext, demand: PoolDemand) -> str | None:
    """Return why missing pods or claims are not created; None if nothing is missing or no reason is known."""
    live = context.store.get(STATEFUL_SETS, demand.namespace, demand.name)
    if live is None:
        return None
    if _lacks_pods(context, demand):
        return await refusal(context, live)
    complete(context, live)
    return None


def _is_stuck(context: ReconcileContext, pool: tuple[str, str], steps: tuple[str, ...]) -> bool:
    now = context.clock.monotonic()
    before, since = context.waiting.get(pool, ((), now))
    if before != steps:
        since = now
    context.waiting[pool] = (steps, since)
    return bool(steps) and now - since > STUCK_S


def _note(context: ReconcileContext, demand: PoolDemand, note: PoolNote) -> None:
    if context.pools.get((demand.namespace, demand.name)) != note:
        context.pools[(demand.namespace, demand.name)] = note
        context.wake_tables(demand.namespace, demand.name)


async def _advance(context: ReconcileContext, demand: PoolDemand) -> tuple[rollout.PoolPlan, list[MerlotError]]:
    """Take the next step of the plan; return the plan and what failed. An object that cannot be written holds up no
    other, but a pod is restarted only if the StatefulSet that recreates it was written."""
    wanted = stateful_set(demand, context.config, demand.replicas)
    plan = rollout.plan(demand, wanted, _state(context, demand))
    problems: list[MerlotError] = []
    await _grow_all(context, demand, plan, problems)
    chosen = dataclasses.replace(demand, storage=plan.storage, storage_class=plan.storage_class)
    applied: list[MerlotError] = []
    await _attempt(applied, _apply(context, chosen, plan.replicas, applied))
    marked: list[MerlotError] = []
    await _attempt(marked, _mark(context, demand.namespace, plan))
    if plan.restart is not None and not applied and not marked:
        await _attempt(marked, _restart(context, demand, wanted, plan))
    problems += [*applied, *marked]
    problems += (await context.writer.delete_all(plan.delete_claims)).problems.values()
    return plan, problems


async def _attempt(problems: list[MerlotError], step: Awaitable[None]) -> None:
    try:
        await step
    except MerlotError as error:
        problems.append(error)


async def _grow_all(
    context: ReconcileContext, demand: PoolDemand, plan: rollout.PoolPlan, problems: list[MerlotError]
) -> None:
    """Grow the claims before the StatefulSet. If they cannot grow, new claims are made as large as the existing
    ones."""
    live = context.store.get(STATEFUL_SETS, demand.namespace, demand.name)
    for claim in plan.grow_claims:
        await _attempt(problems, _grow(context, claim, plan.storage))
    if problems and live is not None:
        plan.keep_volumes(live)
    elif plan.recreate and live is not None:
        await _attempt(problems, _orphan(context, demand, live))


async def _mark(context: ReconcileContext, namespace: str, plan: rollout.PoolPlan) -> None:
    try:
        await _mark_servers(context, namespace, plan)
    except UnavailableError:
        # The error does not tell a silent controller from one that refuses a superseded fence.
        await context.metastores.check(namespace)
        raise


async def _mark_servers(context: ReconcileContext, namespace: str, plan: rollout.PoolPlan) -> None:
    for server, leaving in plan.drain.items():
        fence = await context.metastores.fence(namespace)
        await context.statuses.drain(namespace, server, fence, leaving=leaving)
    for server in plan.undrain:
        await context.statuses.undrain(namespace, server, await context.metastores.fence(namespace))


def _numbered(context: ReconcileContext, kind: ResourceKind, demand: PoolDemand) -> list[Object]:
    labelled = context.store.with_label(kind, demand.namespace, POOL, demand.name)
    return [body for body in labelled if is_numbered(name_of(body), demand.name)]


def _state(context: ReconcileContext, demand: PoolDemand) -> rollout.PoolState:
    namespace = demand.namespace
    cluster = context.statuses.of(namespace)
    pods, claims = (_numbered(context, kind, demand) for kind in (PODS, CLAIMS))
    servers = {instance_of(name_of(pod)) for pod in pods}
    unreadable = _unreadable(context, namespace, demand.name)
    # A table that moves to another pool or is being deleted has segments here, but asks for no servers.
    statuses = {
        name: status
        for name, status in cluster.tables.items()
        if name in demand.tables or not servers.isdisjoint(status["servers"])
    }
    return rollout.PoolState(
        live=context.store.get(STATEFUL_SETS, namespace, demand.name),
        pods=pods,
        claims=claims,
        statuses=statuses if cluster.is_known and not unreadable else None,
        silence=f"the controller cannot read {', '.join(unreadable)}" if unreadable else rollout.SILENCE,
    )


def _unreadable(context: ReconcileContext, namespace: str, pool: str) -> list[str]:
    """Return the Tables that may have segments on the pool, and that the controller cannot read."""
    names = context.statuses.of(namespace).unreadable
    tables = [table for table in context.store.of(TABLES, namespace) if name_of(table) in names]
    return sorted(name_of(table) for table in tables if _may_hold(pool, table))


def _may_hold(pool: str, table: Object) -> bool:
    """Return True if the Table may have segments on the pool, as far as the Table itself tells."""
    return pool in (pool_of(table), own_pool(name_of(table)), table.get("status", {}).get("pool"))


async def _apply(context: ReconcileContext, demand: PoolDemand, replicas: int, problems: list[MerlotError]) -> None:
    written = await context.writer.apply_all(pool_objects(demand, context.config, replicas))
    for error in written.problems.values():
        live = context.store.get(STATEFUL_SETS, demand.namespace, demand.name)
        if isinstance(error, InvalidInputError) and IMMUTABLE in str(error) and live is not None:
            await _orphan(context, demand, live)
    problems += written.problems.values()


async def _orphan(context: ReconcileContext, demand: PoolDemand, live: Object) -> None:
    """Delete the StatefulSet but not its pods and claims; the next StatefulSet of its name takes them over."""
    if is_deleting(live):
        return
    await context.writer.delete(live, propagation="Orphan")
    message = f"StatefulSet {demand.name} is made anew around its pods, since a fixed field of it changes"
    await _report_to_tables(context, demand, "PoolRecreated", message)


async def _grow(context: ReconcileContext, claim: Object, storage: str) -> None:
    body: dict[str, Any] = {"spec": {"resources": {"requests": {"storage": storage}}}}
    context.store.keep(await context.kube.patch(CLAIMS, claim["metadata"]["namespace"], name_of(claim), body))


async def _restart(context: ReconcileContext, demand: PoolDemand, wanted: Object, planned: rollout.PoolPlan) -> None:
    """Evict a pod, unless the controller's status of this moment speaks against it. The disruption budget covers pods
    that a drain of their node has taken meanwhile."""
    context.wake_changed(demand.namespace, await context.statuses.refresh(demand.namespace))
    restart = rollout.plan(demand, wanted, _state(context, demand)).restart
    if restart is None or planned.restart is None or name_of(restart.pod) != name_of(planned.restart.pod):
        planned.steps.append(f"restart {planned.num_outdated} servers: what the controller says has changed")
        return
    try:
        await context.kube.evict(restart.pod)
    except TooManyRequestsError as error:
        planned.steps.append(f"restart {planned.num_outdated} servers: {name_of(restart.pod)} waits, {error}")
        return
    _LOG.info("evicted pod=%s namespace=%s reason=%s", name_of(restart.pod), demand.namespace, restart.reason)
    await _report_to_tables(
        context, demand, "PodRestarted", f"pod {name_of(restart.pod)} is restarted: {restart.reason}"
    )


async def _report_to_tables(context: ReconcileContext, demand: PoolDemand, reason: str, message: str) -> None:
    for name in demand.tables[:5]:
        table = context.store.get(TABLES, demand.namespace, name)
        if table is not None:
            await context.events.normal(table, reason, message)


def _is_still_needed(context: ReconcileContext, namespace: str, pool: str) -> bool:
    """Return True if Tables that moved to another pool still have segments on this pool."""
    if context.store.get(STATEFUL_SETS, namespace, pool) is None:
        return False
    staying = [table for table in context.store.of(TABLES, namespace) if not is_deleting(table)]
    cluster = context.statuses.of(namespace)
    if not cluster.is_known:
        # The controller is silent: keep a pool that one of the Tables may have come from.
        return any(_may_hold(pool, table) for table in staying)
    if any(name_of(table) in cluster.unreadable and _may_hold(pool, table) for table in staying):
        return True
    servers = {instance_of(name_of(pod)) for pod in context.store.with_label(PODS, namespace, POOL, pool)}
    statuses = [cluster.tables[name_of(table)] for table in staying if name_of(table) in cluster.tables]
    return any(status["servers"].get(server, {}).get("assigned") for status in statuses for server in servers)


async def _tear_down(context: ReconcileContext, namespace: str, pool: str) -> None:
    """Delete a pool that no Table wants; its claims go with the StatefulSet if its retention policy says so. The API
    server itself is asked first: a cache must not decide that."""
    tables = await context.kube.list(TABLES, namespace)
    for table in tables:
        handlers.observe(context, TABLES, None, table)
    if _is_named(pool, tables):
        context.wake_pool(namespace, pool)
        return
    own = [body for kind in WRITTEN for body in context.store.with_label(kind, namespace, POOL, pool)]
    (await context.writer.delete_all(own)).check()
    context.pools.pop((namespace, pool), None)
    context.waiting.pop((namespace, pool), None)
