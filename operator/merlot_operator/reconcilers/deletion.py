"""Delete a Table: its Jobs, its servers, its state in ZooKeeper, its files, then its finalizer.

Each step looks at what is there, so the next pass continues one that was cut short. The status shows what the deletion
waits for.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from merlot.cluster.homes import other_owner
from merlot.cluster.manifests import tables as shared_tables
from merlot.cluster.manifests.tables import FilesLeft
from merlot.errors import NotFoundError
from merlot.metastore.protocol import Metastore
from merlot_operator.context import ReconcileContext
from merlot_operator.desired import demand as demands
from merlot_operator.kube import pods as pod_facts
from merlot_operator.kube.kinds import COMPONENT, JOBS, PODS, STATEFUL_SETS, TABLE, Object, name_of, namespace_of
from merlot_operator.manifests.parts import CONTROLLER
from merlot_operator.reconcilers.finalizers import (
    clear_shared_state,
    drop_finalizer,
    has_finalizer,
    is_forced,
    is_namespace_going,
)
from merlot_operator.reconcilers.waiting import Obstacle, write_waiting

_LOG = logging.getLogger(__name__)

AGAIN_S = 2.0
MAX_NAMES = 3


async def delete_table(context: ReconcileContext, body: Object) -> float | None:
    """Run one pass. Return in how many seconds to look again, or None if the deletion is done."""
    if not has_finalizer(body):
        return None
    namespace, name = body["metadata"]["namespace"], name_of(body)
    jobs = context.store.with_label(JOBS, namespace, TABLE, name)
    (await context.writer.delete_all(jobs)).check()
    context.wake_pool(namespace, demands.pool_of(body))
    obstacles = _running_jobs(context.store.with_label(PODS, namespace, TABLE, name))
    if not obstacles or is_forced(body):
        left = await clear_shared_state(context, body, lambda store: forget_table(store, body), skipped=None)
        controllers = context.store.with_label(PODS, namespace, COMPONENT, CONTROLLER)
        obstacles += [*_files(left, controllers), *_pool(context, body)]
    cause = await _let_go(context, body, obstacles) if obstacles else ""
    if cause is None:
        await write_waiting(context, body, obstacles)
        return AGAIN_S
    for obstacle in obstacles:
        _LOG.warning("table goes though something is left table=%s/%s left=%s", namespace, name, obstacle.text)
        await context.events.warning(body, "LeftBehind", f"deleted {cause}: {obstacle.text}")
    await drop_finalizer(context, body)
    return None


async def _let_go(context: ReconcileContext, body: Object, obstacles: Sequence[Obstacle]) -> str | None:
    """Return why the Table is let go though something is left, or None if it waits. In a namespace that is being
    deleted nobody comes to mend a problem; obstacles that end by themselves still do."""
    if is_forced(body):
        return "by force"
    is_lasting = all(obstacle.is_problem for obstacle in obstacles)
    return "with its namespace" if is_lasting and await is_namespace_going(context, namespace_of(body)) else None


def forget_table(metastore: Metastore, body: Object) -> FilesLeft | None:
    """Remove the table from shared state; return the files that are left to delete. The controller, which runs as long
    as there is a Table, deletes them."""
    if other_owner(metastore, name_of(body), namespace_of(body)) is not None:
        return None  # The table of this name in the shared state belongs to another namespace.
    deletes = body["spec"].get("deletionPolicy") == "Delete"
    with contextlib.suppress(NotFoundError):
        files = shared_tables.Files.NOW if deletes else shared_tables.Files.KEEP
        shared_tables.delete_table(metastore, name_of(body), files=files)
    return shared_tables.files_left(metastore, name_of(body)) if deletes else None


def _running_jobs(pods: Sequence[Object]) -> list[Obstacle]:
    """Return an obstacle while pods of the table's Jobs run: what a batch uploads after the table is gone would belong
    to nobody."""
    running = [name_of(pod) for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    if not running:
        return []
    return [Obstacle(f"pods of its Jobs end: {', '.join(running[:MAX_NAMES])}", is_problem=False)]


def _files(left: FilesLeft | None, controllers: Sequence[Object]) -> list[Obstacle]:
    """Return an obstacle for files that the controller still has to delete, with what keeps it from doing so."""
    if left is None:
        return []
    text = f"the controller deletes {left.num_files} files" if left.num_files else "the controller looks for files"
    if not pod_facts.num_ready(controllers):
        problem = next(iter(pod_facts.problems(controllers)), None)
        why = "no controller pod is ready" if problem is None else f"no controller pod is ready: {problem.message}"
        return [Obstacle(f"{text}, but {why}", is_problem=True)]
    return [Obstacle(f"{text}: {left.error}" if left.error else text, is_problem=bool(left.error))]


def _pool(context: ReconcileContext, body: Object) -> list[Obstacle]:
    """Return an obstacle while the Table's own servers exist."""
    namespace, pool = body["metadata"]["namespace"], demands.pool_of(body)
    if demands.shared_tenant(body) is not None or context.store.get(STATEFUL_SETS, namespace, pool) is None:
        return []
    return [Obstacle(f"its StatefulSet {pool} goes", is_problem=False)]
