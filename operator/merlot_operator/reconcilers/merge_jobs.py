"""Jobs of merge tasks that run on Spark. A task in the queue gets a Job when fewer than the maximum run. If the Job
fails or the operator restarts, the task stays in the queue and gets another Job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merlot.errors import MerlotError
from merlot_operator.context import ReconcileContext
from merlot_operator.desired.batch_runs import is_end
from merlot_operator.desired.demand import ClusterDemand, owner_reference
from merlot_operator.kube.kinds import JOBS, TABLES, Object, annotations_of, is_deleting, name_of
from merlot_operator.kube.writer import WriteResult, title
from merlot_operator.manifests.merge import TASK, MergePod, merge_job, merge_job_name


@dataclass(frozen=True, slots=True)
class MergeJobPlan:
    """Jobs to create and to delete."""

    started: tuple[tuple[str, str], ...]
    """Task and table of each Job to create now."""
    obsolete: tuple[Object, ...]
    """Jobs whose task is over, and Jobs that ended before their task, which gets another Job."""


def plan(
    tasks: Sequence[tuple[str, str]], jobs: Sequence[Object], tables: Mapping[str, Object], most: int
) -> MergeJobPlan:
    """Plan the Jobs. `tasks` holds id and table of each task in the queue; `most`, but at least 1, is how many Jobs may
    run at a time. Pure."""
    wanted = {
        merge_job_name(tables[table]["metadata"]["uid"], table, task): (task, table)
        for task, table in tasks
        if table in tables and not is_deleting(tables[table])
    }
    obsolete = [job for job in jobs if name_of(job) not in wanted or _has_ended(job)]
    existing = {name_of(job) for job in jobs}
    num_active = len(existing & wanted.keys())
    missing = [task for name, task in wanted.items() if name not in existing]
    started = missing[: max(0, max(1, most) - num_active)]
    return MergeJobPlan(tuple(started), tuple(job for job in obsolete if not is_deleting(job)))


async def reconcile_merge_jobs(context: ReconcileContext, demand: ClusterDemand) -> WriteResult:
    """Create and delete Jobs. While the controller is silent the tasks are unknown, so nothing is done."""
    namespace, written = demand.namespace, WriteResult()
    status = context.statuses.of(namespace)
    if not status.is_known:
        return written
    jobs = [job for job in context.store.of(JOBS, namespace) if TASK in annotations_of(job)]
    tables = {name_of(table): table for table in context.store.of(TABLES, namespace)}
    job_plan = plan(status.spark_tasks, jobs, tables, context.config.sizes.minion_max)
    for task, table in job_plan.started:
        owner = owner_reference(tables[table])
        job = merge_job(
            MergePod(namespace=namespace, table=table, task=task, owner=owner, stores=demand.stores), context.config
        )
        try:
            context.store.keep(await context.kube.apply(job))
            await context.events.normal(tables[table], "MergeStarted", f"merge {task} runs as Job {name_of(job)}")
        except MerlotError as error:
            written.problems[title(job)] = error
    written.problems |= (await context.writer.delete_all(job_plan.obsolete)).problems
    return written


def _has_ended(job: Object) -> bool:
    return any(map(is_end, job.get("status", {}).get("conditions") or ()))
