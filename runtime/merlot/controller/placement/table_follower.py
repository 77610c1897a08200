"""State that the controller's loop keeps of a table between rounds. Used by one thread at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from merlot.cluster import paths
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.manifests.tables import spec_of
from merlot.cluster.manifests.upserts import UpsertWatch
from merlot.cluster.records import TableRecord
from merlot.cluster.segments.view import TableView, load
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.table import TableSpec


class TableFollower:
    """A table's latest view, its parsed spec, and its servers' reports for as long as segments move."""

    def __init__(self, metastore: Metastore, name: TableName, wake: Callable[[], None]) -> None:
        self.name = name
        self.view: TableView | None = None
        self._metastore = metastore
        self._wake = wake
        self._spec: tuple[tuple[int, int], TableSpec] | None = None
        self._reader: ReportReader | None = None
        self._watches_stream = False
        self.upsert_watch = UpsertWatch(metastore, wake)
        self.is_backfilled = False
        """True if the table is looked at all the time: there is no watch on what servers report about a backfill."""
        self._watches = [
            metastore.watch(paths.segments_root(name), wake),
            metastore.watch(paths.table_config(name), wake),
        ]

    def watch_stream(self) -> None:
        """Also wake when a server has found partitions, or a user asks something of the stream."""
        if not self._watches_stream:
            for path in (paths.stream(self.name), paths.stream_control(self.name), paths.backfill(self.name)):
                self._watches.append(self._metastore.watch(path, self._wake))
            self._watches_stream = True

    @property
    def has_stream(self) -> bool:
        """Return whether the table consumes a stream."""
        return self._watches_stream

    @property
    def is_moving(self) -> bool:
        """Return whether reports decide when old replicas may go."""
        return self._reader is not None

    def spec(self, record: TableRecord) -> TableSpec:
        """Return the record's spec, parsed once per version."""
        if self._spec is None or self._spec[0] != record.version:
            self._spec = (record.version, spec_of(record).spec)
        return self._spec[1]

    def refresh(self) -> TableView:
        """Load and return the current view."""
        self.view = load(self._metastore, self.name, self.view)
        return self.view

    def loaded(self) -> Mapping[InstanceId, frozenset[str]] | None:
        """Return the keys that servers report while segments move; None otherwise."""
        if self._reader is None:
            return None
        return {instance: report.loaded for instance, report in self._reader.read().items()}

    def follow_reports(self, is_moving: bool) -> None:
        """Read reports, and wake when they change, only while segments move: they change with every loaded segment."""
        if is_moving and self._reader is None:
            reader = ReportReader(self._metastore, self.name)
            reader.watch(self._wake)
            self._reader = reader
            self._wake()
        elif not is_moving and self._reader is not None:
            self._reader.close()
            self._reader = None

    def close(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.cancel()
        self.upsert_watch.follow(None)
        self.follow_reports(is_moving=False)
