"""MergeRollupTasks and UpsertConfigs for the endpoint: status, manual runs, deletion. Blocks; any thread may call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merlot.clock import Clock
from merlot.cluster.manifests import rollups, upserts
from merlot.cluster.tasks import queue as tasks
from merlot.cluster.tasks.queue import MERGE_ROLLUP
from merlot.controller.merges.facts import RollupFacts, RollupReader, View
from merlot.controller.merges.passes import retry_failed, run_pass
from merlot.controller.merges.status import Running, detail, summary, task_counts
from merlot.errors import InvalidInputError
from merlot.ids import raw_name
from merlot.metastore.protocol import Metastore
from merlot.pinot.cluster_json import Json
from merlot.values import schedules

RARE_MS = 600_000


class MergeService:
    """Operations on one cluster. Every controller can perform them, whether it leads or not."""

    def __init__(self, metastore: Metastore, clock: Clock, view: View | None = None) -> None:
        self._metastore = metastore
        self._clock = clock
        self.reader = RollupReader(metastore, clock, view)

    def rollups(self) -> list[Json]:
        """Return the status of all MergeRollupTasks, by name."""
        return [self._with_next_run(self._summary(facts, self._running(facts)), facts) for facts in self.reader.all()]

    def rollup(self, name: str) -> Json:
        """Return one MergeRollupTask with its tasks and the last ones that ended. Raise NotFoundError if there is
        none."""
        facts = self.reader.get(name)
        history = tasks.history(self._metastore, MERGE_ROLLUP, facts.record.table)
        running = self._running(facts)
        body = self._with_next_run(self._summary(facts, running), facts)
        return {**detail(body, facts, history, running), "manifest": facts.record.manifest}

    def table_of(self, rollup: str) -> str:
        """Return the table of a MergeRollupTask. Raise NotFoundError if there is none."""
        return raw_name(rollups.get_rollup(self._metastore, rollup).table)

    def run(self, name: str) -> Json:
        """Run a pass now, whatever the schedule says. Tasks that failed for good are retried."""
        facts = self.reader.get(name)
        if facts.problem is not None:
            raise InvalidInputError(f"nothing can be merged rollup={name} reason={facts.problem}")
        if facts.is_suspended:
            raise InvalidInputError(f"merges are suspended rollup={name}; set spec.suspend: false first")
        retried = retry_failed(self._metastore, facts)
        done = run_pass(self._metastore, self.reader, self.reader.get(name))
        return {"queued": list(done.created), "cancelled": list(done.cancelled), "retried": list(retried)}

    def delete_rollup(self, name: str) -> None:
        """Delete a MergeRollupTask; the leader cancels its tasks. Raise NotFoundError if there is none."""
        rollups.delete_rollup(self._metastore, name)

    def upserts(self) -> list[Json]:
        """Return all UpsertConfigs, by name."""
        return [_upsert(record) for _, record in sorted(upserts.list_upserts(self._metastore).items())]

    def upsert(self, name: str) -> Json:
        """Return an UpsertConfig. Raise NotFoundError if there is none."""
        record = upserts.get_upsert(self._metastore, name)
        return {**_upsert(record), "manifest": record.manifest}

    def delete_upsert(self, name: str) -> None:
        """Delete an UpsertConfig. Raise NotFoundError if there is none."""
        upserts.delete_upsert(self._metastore, name)

    def status(self) -> Mapping[str, Any]:
        """Return the members `rollups`, `tasks` and `sparkTasks` (those that need a minion with Spark) of the cluster's
        status."""
        all_facts = self.reader.all()
        queue = [task for facts in all_facts for task in facts.tasks]
        running = {facts.name: self._running(facts) for facts in all_facts}
        return {
            "rollups": {
                facts.name: {**self._summary(facts, running[facts.name]), "nextRunMs": self._rare_run_ms(facts)}
                for facts in all_facts
            },
            "tasks": task_counts(queue, sum(map(len, running.values()))),
            "sparkTasks": [
                {"id": task.id, "table": raw_name(task.queued.record.table)}
                for task in sorted(queue, key=lambda task: task.id)
                if tasks.needs_spark(task.queued.record)
            ],
        }

    def _running(self, facts: RollupFacts) -> Running:
        return {
            task.id: tasks.progress(self._metastore, MERGE_ROLLUP, task.id)
            for task in facts.tasks
            if tasks.owner_of(self._metastore, task.queued.record) is not None
        }

    def _summary(self, facts: RollupFacts, running: Running) -> Json:
        history = tasks.history(self._metastore, MERGE_ROLLUP, facts.record.table)
        is_sound = facts.problem is None
        return summary(facts, self.reader.decide(facts) if is_sound else None, history, running)

    def _with_next_run(self, body: Json, facts: RollupFacts) -> Json:
        """Add the time of the next run."""
        return {**body, "nextRunMs": self._next_run_ms(facts, self._clock.now_ms())}

    def _next_run_ms(self, facts: RollupFacts, after_ms: int) -> int | None:
        return None if facts.is_suspended else schedules.parse(facts.spec.schedule).next(after_ms)

    def _rare_run_ms(self, facts: RollupFacts) -> int | None:
        """Return the time of the next run for the cluster's status, which must not change all the time. None if runs
        are frequent."""
        next_ms = self._next_run_ms(facts, self._clock.now_ms())
        later_ms = None if next_ms is None else self._next_run_ms(facts, next_ms)
        return next_ms if next_ms is not None and later_ms is not None and later_ms - next_ms >= RARE_MS else None


def _upsert(record: upserts.UpsertRecord) -> Json:
    spec = upserts.spec_of(record).spec
    return {
        "name": record.name,
        "revision": record.revision,
        "createdMs": record.created_ms,
        "state": "Accepted",
        "message": "",
        "mode": spec.mode,
        "primaryKeyTtl": spec.primary_key_ttl,
        "deletedKeysTtl": spec.deleted_keys_ttl,
    }
