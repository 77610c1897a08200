"""Metrics of merges, which only the leader exports. They are removed with their table or level, and when the leader
stops.
"""

from __future__ import annotations

from collections.abc import Collection

from merlot import telemetry
from merlot.cluster.tasks.queue import TaskState
from merlot.controller.merges.facts import RollupFacts
from merlot.controller.merges.generator import Generated

GAUGES = (
    telemetry.CONTROLLER_MERGE_DELAY,
    telemetry.CONTROLLER_MERGE_TO_DO,
    telemetry.CONTROLLER_MERGE_WATERMARK,
    telemetry.CONTROLLER_MERGE_LATE,
)
"""Gauges by table and level. The gauge of queued tasks also has the task's state, so it is not among them."""


class MergeGauges:
    """Gauges of all tables. Used by one thread at a time."""

    def __init__(self) -> None:
        self._levels_by_table: dict[str, set[str]] = {}
        """Names of the merge levels that have gauges, by table."""

    def set(self, facts: RollupFacts, generated: Generated) -> None:
        """Set the gauges of one table."""
        table = str(facts.record.table)
        levels = {outlook.level.name for outlook in generated.levels}
        for removed in self._levels_by_table.get(table, set()) - levels:
            self._remove(table, removed)
        self._levels_by_table[table] = levels
        for outlook in generated.levels:
            labels = (table, outlook.level.name)
            telemetry.CONTROLLER_MERGE_DELAY.labels(*labels).set(outlook.delay)
            telemetry.CONTROLLER_MERGE_TO_DO.labels(*labels).set(outlook.buckets_to_do)
            telemetry.CONTROLLER_MERGE_LATE.labels(*labels).set(outlook.late_segments)
            if outlook.watermark_ms is None:
                telemetry.CONTROLLER_MERGE_WATERMARK.remove(*labels)
            else:
                telemetry.CONTROLLER_MERGE_WATERMARK.labels(*labels).set(outlook.watermark_ms / 1000)
            states = [task.state for task in facts.tasks if task.config.level.lower() == outlook.level.key]
            for state in TaskState:
                telemetry.CONTROLLER_MERGE_QUEUE.labels(*labels, state).set(states.count(state))

    def keep(self, tables: Collection[str]) -> None:
        """Remove the gauges of all other tables."""
        for table in self._levels_by_table.keys() - set(tables):
            for level in self._levels_by_table.pop(table):
                self._remove(table, level)

    def clear(self) -> None:
        """Remove all gauges."""
        self.keep(())

    def _remove(self, table: str, level: str) -> None:
        for gauge in GAUGES:
            gauge.remove(table, level)
        for state in TaskState:
            telemetry.CONTROLLER_MERGE_QUEUE.remove(table, level, state)
