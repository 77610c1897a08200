"""Grace periods of unused files and records, and the part of a cleaning pass that goes table by table. Only the
leader's thread uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from merlot.clock import Clock
from merlot.cluster.consuming.positions import forget_positions
from merlot.cluster.segments.transaction import WriteContext
from merlot.cluster.segments.view import TableView
from merlot.controller.cleaning.lineage_retention import LineageGrace, SeenMarks, clean_lineage, correct_stamps
from merlot.controller.cleaning.orphans import collect_orphans
from merlot.controller.cleaning.trash import OpenFiles
from merlot.ids import TableName
from merlot.metastore.protocol import Check, Metastore
from merlot.spec.table import PushType, TableSpec

TRASH_S: Final = 7 * 24 * 3600.0
"""Seconds for which files of removed segments are kept: long enough for somebody to notice that they are missing."""


@dataclass(frozen=True, kw_only=True)
class CleaningConfig:
    """Grace periods in seconds."""

    replaced_s: float = 4 * 3600.0
    """Grace period of replaced segments, in which the replacement can be reverted."""
    replaced_refresh_s: float = 24 * 3600.0
    """The same for tables that every push replaces as a whole."""
    abandoned_s: float = 24 * 3600.0
    """Grace period of replacements that were reverted, or that were begun and never ended."""
    orphan_s: float = 24 * 3600.0
    """Grace period of files that no record names: longer than any job takes from its first upload to its
    publication."""
    orphan_scan_s: float = 3600.0
    """Time between two searches for such files. Each lists the table's part of the deep store."""

    def lineage(self, spec: TableSpec) -> LineageGrace:
        """Return the grace periods of a table's replacements."""
        replaced_s = self.replaced_refresh_s if spec.push_type is PushType.REFRESH else self.replaced_s
        return LineageGrace(completed_ms=round(replaced_s * 1000), abandoned_ms=round(self.abandoned_s * 1000))


class TableCleaner:
    """Cleaner of tables, one by one. It remembers when each is next searched for orphans."""

    def __init__(
        self,
        metastore: Metastore,
        config: CleaningConfig,
        open_files: OpenFiles | None,
        clock: Clock,
        sure: Clock,
    ) -> None:
        self._metastore = metastore
        self._config = config
        self._open_files = open_files
        self._clock = clock
        self._sure = sure
        self._next_scan: dict[TableName, float] = {}
        self._seen: dict[TableName, SeenMarks] = {}

    def clean(self, view: TableView, spec: TableSpec, fence: Check) -> TableView:
        """Remove old replacements from the lineage and the positions of ended segments, and move orphaned files to the
        trash. A suspended table is left as it is."""
        if spec.suspend:
            return view
        view = self._clean_lineage(view, spec, fence)
        open_segments = {segment.name for segment in view.stream_segments if segment.is_open}
        forget_positions(self._metastore, view.table, open_segments)
        if view.segments:  # a table without segments may have lost them
            self._scan(view.table, fence)
        return view

    def _clean_lineage(self, view: TableView, spec: TableSpec, fence: Check) -> TableView:
        sure_ms, wall_ms = self._sure.now_ms(), self._clock.now_ms()
        view = correct_stamps(self._metastore, view, self._seen.get(view.table), max(sure_ms, wall_ms), fence)
        context = WriteContext(clock=self._clock)
        view = clean_lineage(self._metastore, view, self._config.lineage(spec), fence, context, self._sure)
        self._seen[view.table] = SeenMarks(min(sure_ms, wall_ms), frozenset(view.lineage.items()))
        return view

    def _scan(self, table: TableName, fence: Check) -> None:
        now = self._clock.monotonic()
        if self._open_files is None or now < self._next_scan.setdefault(table, now):
            return
        self._next_scan[table] = now + self._config.orphan_scan_s
        grace_ms = round(self._config.orphan_s * 1000)
        collect_orphans(self._metastore, table, self._open_files, self._sure, grace_ms=grace_ms, fence=fence)
