"""Makes the file of a segment whose end is agreed: sealed, uploaded under a name of its own, committed in one swap.

Any replica may do so, whoever was to: equal rows make equal files, and the first commit counts. Whatever fails leaves
nothing that anybody sees, and is tried again. Blocks; runs in a thread for that.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from merlot import telemetry
from merlot.catalog.publish import record_of
from merlot.clock import Clock
from merlot.cluster.consuming.commits import CommitOutcome, Committed, commit_segment
from merlot.cluster.consuming.transactions import Sealed
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.ids import InstanceId, SegmentKey, SegmentName, TableName
from merlot.metastore.protocol import Metastore
from merlot.segment.build.request import BuiltSegment
from merlot.segment.metadata import CreationFacts
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.files import SegmentFiles
from merlot.store.deepstore import DeepStore

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """What a server's sealing needs, the same for all partitions of a table."""

    metastore: Metastore
    table: TableName
    instance: InstanceId
    files: SegmentFiles
    store: Callable[[], DeepStore]
    clock: Clock
    folder: Path
    """For files that are being made."""

    def seal(self, record: StreamSegmentRecord, rows: ConsumingSegment, num_docs: int) -> Committed:
        """Make the segment of the first rows, and commit it up to the record's end. Raises MerlotError."""
        started = time.monotonic()
        rows.request = replace(rows.request, name=record.name)
        file = None
        if num_docs:
            file = self._uploaded(record, rows, num_docs)
        assert record.end_offset is not None
        sealed = Sealed(
            segment=record.name,
            start_offset=record.start_offset,
            end_offset=record.end_offset,
            file=file,
            sealer=self.instance,
            now_ms=self.clock.now_ms(),
        )
        committed = commit_segment(self.metastore, self.table, sealed)
        self._clean_up(file, committed)
        telemetry.STREAM_COMMITS.labels(self.table, committed.outcome.value.lower()).inc()
        seconds = time.monotonic() - started
        telemetry.STREAM_COMMIT_SECONDS.observe(seconds)
        text = "segment committed table=%s segment=%s outcome=%s num_docs=%d end_offset=%d seconds=%.3f"
        _LOG.info(text, self.table, record.name, committed.outcome, num_docs, record.end_offset, seconds)
        return committed

    def _uploaded(self, record: StreamSegmentRecord, rows: ConsumingSegment, num_docs: int) -> SegmentRecord:
        folder = self.folder / record.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            built = rows.seal(folder, num_docs, CreationFacts(time_ms=self.clock.now_ms(), host=str(self.instance)))
            return self._put(built)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _put(self, built: BuiltSegment) -> SegmentRecord:
        """The file in the deep store, and where this server looks for its own."""
        store = self.store()
        url = store.url_of(self.table, built.metadata.key)
        store.put(built.path, url)
        self.files.adopt(self.table, built.metadata.key, built.path)
        return record_of(built.metadata, url, built.size_bytes, built.blooms)

    def _clean_up(self, file: SegmentRecord | None, committed: Committed) -> None:
        """A file that another one was preferred to is of no use here; the deep store's is deleted with what no record
        names."""
        if file is None or committed.outcome is CommitOutcome.COMMITTED:
            return
        key = SegmentKey(SegmentName(file.name), file.crc)
        self.files.remove(self.table, [str(key)])
