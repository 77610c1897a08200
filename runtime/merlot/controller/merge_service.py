"""MergeRollupTasks and UpsertConfigs for the endpoint: how they are, a run by hand, deletion. Blocks; any thread."""

from __future__ import annotations

from collections.abc import Mapping

from merlot.clock import Clock
from merlot.cluster import rollups, tasks, upserts
from merlot.cluster.metastore import Metastore
from merlot.cluster.tasks import MERGE_ROLLUP
from merlot.controller.merge_facts import RollupFacts, RollupReader, View
from merlot.controller.merge_pass import retry_failed, run_pass
from merlot.controller.merge_status import detail, summary, task_counts
from merlot.controller.pinot_json import Json
from merlot.errors import InvalidInputError
from merlot.spec import schedules


class MergeService:
    """Operations on one cluster; every controller can do them, leading or not."""

    def __init__(self, metastore: Metastore, clock: Clock, view: View | None = None) -> None:
        self._metastore = metastore
        self._clock = clock
        self.reader = RollupReader(metastore, clock, view)

    def rollups(self) -> list[Json]:
        """All, by name."""
        return [self._with_next_run(self._summary(facts), facts) for facts in self.reader.all()]

    def rollup(self, name: str) -> Json:
        """One, with its tasks and the last ones that ended; NotFoundError if there is none."""
        facts = self.reader.one(name)
        history = tasks.history(self._metastore, MERGE_ROLLUP, facts.record.table)
        running = {
            task.id: tasks.progress(self._metastore, MERGE_ROLLUP, task.id)
            for task in facts.tasks
            if tasks.owner_of(self._metastore, task.queued.record) is not None
        }
        body = self._with_next_run(self._summary(facts), facts)
        return {**detail(body, facts, history, running), "manifest": facts.record.manifest}

    def run(self, name: str) -> Json:
        """Look for work now, whatever the schedule; tasks that were set aside get another chance."""
        facts = self.reader.one(name)
        if facts.problem is not None:
            raise InvalidInputError(f"nothing can be merged rollup={name} reason={facts.problem}")
        if facts.is_suspended:
            raise InvalidInputError(f"merges are suspended rollup={name}; set spec.suspend: false first")
        retried = retry_failed(self._metastore, facts)
        done = run_pass(self._metastore, self.reader, self.reader.one(name))
        return {"queued": list(done.created), "cancelled": list(done.cancelled), "retried": list(retried)}

    def delete_rollup(self, name: str) -> None:
        """NotFoundError if there is none. Its tasks are cancelled by the leader."""
        rollups.delete_rollup(self._metastore, name)

    def upserts(self) -> list[Json]:
        """All, by name."""
        return [_upsert(record) for _, record in sorted(upserts.list_upserts(self._metastore).items())]

    def upsert(self, name: str) -> Json:
        """NotFoundError if there is none."""
        record = upserts.get_upsert(self._metastore, name)
        return {**_upsert(record), "manifest": record.manifest}

    def delete_upsert(self, name: str) -> None:
        """NotFoundError if there is none."""
        upserts.delete_upsert(self._metastore, name)

    def status(self) -> Mapping[str, Json]:
        """The `rollups` and `tasks` members of the cluster's status."""
        found = self.reader.all()
        queue = [task for facts in found for task in facts.tasks]
        running = sum(tasks.owner_of(self._metastore, task.queued.record) is not None for task in queue)
        return {
            "rollups": {facts.name: self._summary(facts) for facts in found},
            "tasks": task_counts(queue, running),
        }

    def _summary(self, facts: RollupFacts) -> Json:
        history = tasks.history(self._metastore, MERGE_ROLLUP, facts.record.table)
        is_sound = facts.problem is None
        return summary(facts, self.reader.decide(facts) if is_sound else None, history)

    def _with_next_run(self, body: Json, facts: RollupFacts) -> Json:
        """When the schedule calls next; not in the status, which must not change while nothing happens."""
        next_ms = None if facts.is_suspended else schedules.parse(facts.spec.schedule).next(self._clock.now_ms())
        return {**body, "nextRunMs": next_ms}


def _upsert(record: upserts.UpsertRecord) -> Json:
    spec = record.manifest.get("spec", {})
    return {
        "name": record.name,
        "revision": record.revision,
        "createdMs": record.created_ms,
        "state": "Accepted",
        "message": record.note,
        "mode": spec.get("mode"),
        "primaryKeyTtl": spec.get("primaryKeyTtl"),
        "deletedKeysTtl": spec.get("deletedKeysTtl"),
    }
