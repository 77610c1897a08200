"""Reconcile one Table: write its config to shared state, run its batches as Jobs, and write its status."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from merlot.cluster import homes
from merlot.cluster.manifests import row_rules
from merlot.cluster.manifests import tables as shared_tables
from merlot.cluster.manifests import upserts as shared_upserts
from merlot.cluster.records import TableRecord
from merlot.errors import ConflictError, InvalidInputError, MerlotError, UnavailableError
from merlot.metastore.protocol import Metastore
from merlot.spec import manifest
from merlot.spec.manifest.upsert_checks import against_table, settings_of
from merlot.spec.table import Table
from merlot.spec.upsert import UpsertConfig
from merlot_operator import restrictions
from merlot_operator.accepted import spec_of, text_of, with_accepted_spec
from merlot_operator.allowed_places import NotAllowedError, check_places, places_problem
from merlot_operator.config import Config
from merlot_operator.context import FailedAttempt, ReconcileContext
from merlot_operator.desired import batch_runs
from merlot_operator.desired import demand as demands
from merlot_operator.kube.kinds import (
    COMPONENT,
    DEPLOYMENTS,
    JOBS,
    PODS,
    POOL,
    TABLE,
    TABLES,
    UPSERTS,
    Object,
    config_ref,
    is_deleting,
    labels_of,
    name_of,
)
from merlot_operator.kube.pods import STUCK_MS
from merlot_operator.manifests.batch import BatchPod, job
from merlot_operator.manifests.parts import BROKER, CONTROLLER
from merlot_operator.reconcilers.deletion import delete_table
from merlot_operator.reconcilers.finalizers import ensure_finalizer
from merlot_operator.reconcilers.refusals import complete, next_attempt, refusal
from merlot_operator.status.conditions import Condition
from merlot_operator.status.reporting import write_status
from merlot_operator.status.table import table_conditions, table_status
from merlot_operator.status.table_facts import Refusal, SpecVerdict, TableStatusFacts
from merlot_operator.status.table_problems import UNCONFIRMED
from merlot_operator.status.upsert_links import table_condition, upsert_of

_LOG = logging.getLogger(__name__)

SOON_S = 1.0
BUSY_S = 5.0
"""Seconds until the next look at something that may change without an event."""
UNSTARTED = ("Waiting", "Pending")
MAX_MESSAGE = 2000
COUNTS = ("segments", "totalDocs", "sizeBytes", "size")


async def reconcile_table(context: ReconcileContext, namespace: str, name: str) -> float | None:
    """Run one pass. Return in how many seconds to look again, or None if the Table is gone."""
    body = context.store.get(TABLES, namespace, name)
    if body is None:
        return None
    if is_deleting(body):
        return await delete_table(context, with_accepted_spec(body))
    if not _has_first_passes(context, body):
        return SOON_S
    body = await ensure_finalizer(context, body)
    table, refusal = _judge(body, context.config)
    revision, problem = body.get("status", {}).get("revision"), None
    if table is not None:
        declared = upsert_of(context.store.get(UPSERTS, namespace, config_ref(body) or ""))
        revision, refusal, problem = await _publish_config(context, namespace, table, revision, declared)
    is_accepted = table is not None and refusal is None and problem is None
    accepted = text_of(body["spec"]) if is_accepted else body.get("status", {}).get("accepted")
    running = table if is_accepted else _table_to_run(body, table, refusal)
    plan = await _plan_batches(context, body, running, revision)
    if not _has_first_passes(context, body):
        return SOON_S  # Meanwhile a pass over the cluster, which nobody wanted for a moment, has torn it down.
    facts = _facts(context, body, SpecVerdict(refusal, problem, revision, accepted), running, plan.runs)
    body = await _write_status(context, body, facts)
    refused = {} if running is None else await _run_batches(context, body, running, plan)
    if refused:
        runs = [run | {"message": refused[run["job"]]} if run["job"] in refused else run for run in facts.runs]
        facts = dataclasses.replace(facts, runs=runs)
        await _write_status(context, body, facts)
    return _again_s(context, facts, plan)


def _has_first_passes(context: ReconcileContext, body: Object) -> bool:
    """Return True if the Table's cluster and pool have had their first pass, whose results are part of the status."""
    namespace = body["metadata"]["namespace"]
    has_notes = namespace in context.clusters and (namespace, demands.pool_of(body)) in context.pools
    return has_notes and context.statuses.was_asked(namespace)


def _table_to_run(body: Object, declared: Table | None, refusal: Refusal | None) -> Table | None:
    """Return the table as it was accepted last. A new table that waits for shared state is planned as declared."""
    if spec_of(body) is None:
        return declared if refusal is None else None
    return accept(with_accepted_spec(body))[0]


def _judge(body: Object, config: Config) -> tuple[Table | None, Refusal | None]:
    """Return the declared Table, or why it is not accepted. A spec that was accepted before is judged again, since the
    chart's restrictions may have changed; `_table_to_run` does not apply them."""
    table, refusal = accept(body)
    violations = "; ".join(map(str, restrictions.problems(body["spec"], config)))
    if not violations:
        return table, refusal
    return None, Refusal("Invalid", violations if refusal is None else f"{refusal.message}; {violations}")


def accept(body: Object) -> tuple[Table | None, Refusal | None]:
    """Return the Table as servers get it, or why it is not accepted."""
    document = {key: copy.deepcopy(body[key]) for key in ("apiVersion", "kind", "spec")}
    document["metadata"] = {"name": name_of(body), "namespace": body["metadata"]["namespace"]}
    document["spec"] = restrictions.without_templates(document["spec"])
    tenants = document["spec"]["tenants"]
    tenants["server"] = {**tenants.get("server", {}), "name": demands.tenant_of(body)}
    try:
        table = manifest.load_document(document)
    except manifest.ManifestError as error:
        return None, Refusal("Invalid", "; ".join(str(problem) for problem in error.problems))
    declared = table.spec.upsert
    unfit = [] if declared is None or declared.config is None else against_table(declared.config, table.spec)
    return (None, Refusal("Invalid", "; ".join(map(str, unfit)))) if unfit else (table, None)


async def _publish_config(
    context: ReconcileContext,
    namespace: str,
    table: Table,
    last_revision: int | None,
    declared: UpsertConfig | None = None,
) -> tuple[int | None, Refusal | None, str | None]:
    """Write the desired config. Return its revision, why it is refused, and why it could not be written.

    `last_revision` is returned if nothing was written. `declared` is the UpsertConfig that the table names.
    """
    try:
        record = await context.metastores.call(
            namespace, lambda store: _put(store, table, namespace, context.config, declared)
        )
    except NotAllowedError as error:
        return last_revision, Refusal("NotAllowed", str(error)), None
    except InvalidInputError as error:
        return last_revision, Refusal("ChangeRefused", str(error)), None
    except MerlotError as error:
        return last_revision, None, f"{error}; see that ZooKeeper runs at {context.config.metastore_of(namespace)}"
    return record.revision, None, None


def _put(
    metastore: Metastore, table: Table, namespace: str, config: Config, upsert: UpsertConfig | None
) -> TableRecord:
    check_places(table, config, namespace)  # The namespace's home, which decides, is known only from here on.
    owner = homes.other_owner(metastore, table.name, namespace)
    if owner is not None:
        raise InvalidInputError(f"namespace {owner} has a table of that name in the shared state of both")
    problems = rule_problems(metastore, table, upsert)
    if problems:
        raise InvalidInputError("; ".join(map(str, problems)))
    return shared_tables.put_table(metastore, table)


def rule_problems(metastore: Metastore, table: Table, declared: UpsertConfig | None) -> list[manifest.ManifestProblem]:
    """List why the Table's upsert settings are refused: they would change which of the existing rows count, or do not
    fit a table that consumes a stream. `declared` is the UpsertConfig that the Table names. It counts while shared
    state has none of that name, since it may itself be refused."""
    settings = settings_of(table, [shared_upserts.named_by(metastore, table.spec), declared])
    if settings is None:
        return []
    changed = row_rules.changed(metastore, table.name, table.spec, settings.spec, settings.path)
    return [*row_rules.stopped(metastore, table, settings), *changed]


async def _plan_batches(
    context: ReconcileContext, body: Object, table: Table | None, revision: int | None
) -> batch_runs.BatchPlan:
    """Plan the batch runs. `table` is the Table as it is run; None if it is not run."""
    namespace, name = body["metadata"]["namespace"], name_of(body)
    runs = list(body.get("status", {}).get("batches") or ())
    if table is None:
        return batch_runs.BatchPlan(tuple(runs), (), (), None)
    cluster = context.statuses.of(namespace)
    obstacle = None
    if revision is None:
        obstacle = "waits until the table's config is in ZooKeeper"
    elif namespace not in context.config.homes:
        obstacle = "waits until it is known where the namespace's files are"
    elif (problem := places_problem(table, context.config, namespace)) is not None:
        obstacle = problem
    elif name in cluster.unreadable:
        obstacle = f"waits until the controller can read the table: {cluster.unreadable[name]}"
    elif not cluster.is_known or name not in cluster.tables:
        obstacle = f"waits for the controller: {cluster.problem or 'it does not know the table yet'}"
    elif lost := cluster.tables[name].get("metastoreLost"):
        obstacle = f"waits until the table is recovered: {lost}"
    elif cluster.tables[name].get("unconfirmed"):
        obstacle = f"waits for the controller: {UNCONFIRMED}"
    jobs = {name_of(job): job for job in context.store.with_label(JOBS, namespace, TABLE, name)}
    pods = context.store.with_label(PODS, namespace, TABLE, name)
    facts = batch_runs.BatchFacts(
        uid=body["metadata"]["uid"],
        table=name,
        created_ms=int(datetime.fromisoformat(body["metadata"]["creationTimestamp"]).timestamp() * 1000),
        batches=table.spec.ingestion.batch,
        runs=runs,
        jobs=jobs,
        pods=pods,
        refused=await _refused(context, jobs.values(), pods),
        is_suspended=table.spec.suspend,
        obstacle=obstacle,
        now_ms=context.clock.now_ms(),
    )
    return batch_runs.plan(facts)


async def _refused(context: ReconcileContext, jobs: Iterable[Object], pods: Sequence[Object]) -> dict[str, str]:
    """Return the Jobs that get no pod, each with the reason."""
    reasons = {}
    for body in jobs:
        if not batch_runs.lacks_pods(body, pods):
            complete(context, body)
        elif (text := await refusal(context, body)) is not None:
            reasons[name_of(body)] = text
    return reasons


async def _run_batches(
    context: ReconcileContext, body: Object, table: Table, plan: batch_runs.BatchPlan
) -> dict[str, str]:
    """Create the Jobs of active runs, and delete those of runs that were replaced. Return why some Jobs cannot be
    created."""
    refused = {}
    namespace = body["metadata"]["namespace"]
    for name in plan.obsolete:
        context.failed_attempts.pop(f"{namespace}/{name}", None)
        obsolete = context.store.get(JOBS, namespace, name)
        if obsolete is not None and not is_deleting(obsolete):
            await context.writer.delete(obsolete)
    for batch, name in plan.started:
        run = BatchPod(
            namespace=namespace,
            job=name,
            table=table.raw_name,
            owner=demands.owner_reference(body),
            manifest=manifest.dump(table),
            batch=batch,
            deep_store=table.spec.deep_store_uri or context.config.deep_store_of(namespace),
            secrets=_secrets(table),
            is_suspended=table.spec.suspend or batch.job.suspend,
        )
        attempt = await _try_job(context, body, table, run)
        if attempt is not None:
            refused[name] = attempt.message
    return refused


async def _try_job(context: ReconcileContext, body: Object, table: Table, run: BatchPod) -> FailedAttempt | None:
    """Create the Job if its next attempt is due; return the attempt if it failed, or None if the Job exists."""
    key, now_s = f"{run.namespace}/{run.job}", context.clock.monotonic()
    before = context.failed_attempts.get(key)
    if before is not None and now_s < before.next_s:
        return before
    try:
        check_places(table, context.config, run.namespace)  # They may have been allowed when the run was planned.
        await _ensure_job(context, body, run)
    except (InvalidInputError, ConflictError, UnavailableError) as error:
        _LOG.warning("job cannot be written job=%s namespace=%s cause=%s", run.job, run.namespace, error)
        message = f"Job {run.job} cannot be written: {error}"[:MAX_MESSAGE]
        context.failed_attempts[key] = next_attempt(before, message, now_s)
        return context.failed_attempts[key]
    context.failed_attempts.pop(key, None)
    return None


def _secrets(table: Table) -> list[str]:
    store = table.spec.deep_store
    return [] if store is None or store.secret_ref is None else [store.secret_ref]


async def _ensure_job(context: ReconcileContext, body: Object, run: BatchPod) -> None:
    """Create the Job once; afterwards only suspend and resume it, since its template cannot change."""
    live = context.store.get(JOBS, run.namespace, run.job)
    if live is None:
        context.store.keep(await context.kube.apply(job(run, context.config)))
        message = f"batch {run.batch.name} of table {run.table} runs as Job {run.job}"
        await context.events.normal(body, "BatchStarted", message)
    elif bool(live["spec"].get("suspend")) != run.is_suspended and not is_deleting(live):
        patch = {"spec": {"suspend": run.is_suspended}}
        context.store.keep(await context.kube.patch(JOBS, run.namespace, run.job, patch))


def _facts(
    context: ReconcileContext,
    body: Object,
    verdict: SpecVerdict,
    running: Table | None,
    runs: Sequence[dict[str, Any]],
) -> TableStatusFacts:
    namespace, name = body["metadata"]["namespace"], name_of(body)
    pool_name = demands.pool_of(body)
    status = body.get("status") or {}
    old = {condition["type"]: condition for condition in status.get("conditions") or ()}
    return TableStatusFacts(
        namespace=namespace,
        name=name,
        verdict=verdict,
        is_declared_run=verdict.accepted == text_of(body["spec"]),
        cluster=context.statuses.of(namespace),
        cluster_note=context.clusters[namespace],
        pool=pool_name,
        pool_note=context.pools[(namespace, pool_name)],
        controllers=context.store.with_label(PODS, namespace, COMPONENT, CONTROLLER),
        brokers=context.store.with_label(PODS, namespace, COMPONENT, BROKER),
        servers=context.store.with_label(PODS, namespace, POOL, pool_name),
        deployments=[
            deployment for deployment in context.store.of(DEPLOYMENTS, namespace) if COMPONENT in labels_of(deployment)
        ],
        ready_before=old.get("Ready", {}),
        was_told=COUNTS[0] in status,
        now_ms=context.clock.now_ms(),
        runs=runs,
        is_suspended=False if running is None else running.spec.suspend,
        has_stream=running is not None and running.spec.ingestion.stream is not None,
        asks_for_no_server=running is not None and running.spec.tenants.server.replicas == 0,
        upsert=_upsert(context, body),
    )


def _upsert(context: ReconcileContext, body: Object) -> Condition | None:
    name = config_ref(body)
    if name is None:
        return None
    config = context.store.get(UPSERTS, body["metadata"]["namespace"], name)
    return table_condition(name, config, accept(body)[0])


async def _write_status(context: ReconcileContext, body: Object, facts: TableStatusFacts) -> Object:
    """Write the status if it changed; return the Table with it. From then on the accepted spec in the status is run."""
    namespace, before_pool = facts.namespace, demands.pool_of(body)
    status = table_status(facts)
    if facts.table is None or facts.is_doubted:
        before = body.get("status") or {}
        status = {name: before[name] for name in COUNTS if name in before} | status
    accepted = body.get("status", {}).get("accepted")
    body = await write_status(context, body, table_conditions(facts), status)
    if facts.verdict.accepted != accepted:
        for pool in {before_pool, demands.pool_of(body)}:
            context.wake_pool(namespace, pool)
        context.wake_cluster(namespace)
    return body


def _again_s(context: ReconcileContext, facts: TableStatusFacts, plan: batch_runs.BatchPlan) -> float:
    again_s = context.config.resync_s
    if facts.verdict.problem is not None or any(run["state"] in UNSTARTED for run in facts.runs):
        again_s = min(again_s, BUSY_S)
    if any(map(is_deleting, (*facts.servers, *facts.brokers, *facts.controllers))):
        again_s = min(again_s, STUCK_MS / 1000)
    if plan.next_ms is not None:
        again_s = min(again_s, max(SOON_S, (plan.next_ms - context.clock.now_ms()) / 1000 + 1))
    return again_s
