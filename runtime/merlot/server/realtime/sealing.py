"""Make the file of a segment whose end is agreed, upload it, commit it, and keep it: the steps that block.

Equal rows make equal files on every replica, and the first commit counts. A step that fails leaves nothing that anybody
sees. A file that was made is kept until the segment is committed, so that only the failed step is repeated.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
import time
from dataclasses import dataclass, replace

from merlot import telemetry
from merlot.catalog.publish import record_of
from merlot.cluster.consuming.commits import commit_segment
from merlot.cluster.consuming.steps import Build, Commit, FileBuilt, Upload, Uploaded
from merlot.cluster.consuming.transactions import SealedSegment
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.errors import UnavailableError
from merlot.segment.build.request import BuiltSegment
from merlot.segment.metadata import CreationFacts
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.partition_deps import PartitionDeps

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """File that was made of a segment's rows."""

    segment: str
    end_offset: int
    built: BuiltSegment
    began: float
    is_kept: bool = False


class Sealing:
    """Files of one partition. Steps may run on any thread; one file is made at a time."""

    def __init__(self, partition: int, deps: PartitionDeps) -> None:
        self._deps = deps
        self._folder = deps.folder / str(partition)
        self._numbers = itertools.count()
        self._file: _File | None = None
        self._uploaded: SegmentRecord | None = None
        self._making = threading.Lock()
        self._is_closed = False

    def build(self, action: Build, rows: ConsumingSegment, num_docs: int) -> FileBuilt:
        """Make the file of the first `num_docs` rows, which are those before the agreed end. Raises as
        `build_segment`."""
        if not num_docs:
            return FileBuilt(action.segment, 0, 0)
        with self._making:
            file = self._find(action.segment)
            if file is None or file.end_offset != action.end_offset:
                self.forget()
                file = self._file = self._made(action, rows, num_docs)
            if self._is_closed:
                self.forget()
                raise UnavailableError(f"partition is consumed no more, its file is given up segment={action.segment}")
        return FileBuilt(action.segment, file.built.metadata.key.crc, num_docs)

    def upload(self, action: Upload) -> Uploaded:
        """Put the file into the deep store. Raises as `DeepStore.put`."""
        built, before = self._of(action.segment).built, self._uploaded
        store = self._deps.store()
        url = store.url_of(self._deps.table, built.metadata.key)
        if before is None or before.url != url or store.modified_ms(url) is None:
            store.put(built.path, url)
        self._uploaded = record_of(built.metadata, url, built.size_bytes, built.blooms)
        return Uploaded(action.segment, url)

    def commit(self, action: Commit) -> TableView:
        """Commit the segment and return the table, in which the segment is as this file has it, or as another replica's
        file that came first. Raises as `commit_segment`."""
        deps = self._deps
        file = None if action.url is None else self._uploaded
        if action.url is not None and (file is None or (file.name, file.crc) != (action.segment, action.crc)):
            raise UnavailableError(f"file of a segment is gone segment={action.segment}")
        sealed = SealedSegment(
            segment=action.segment,
            start_offset=action.start_offset,
            end_offset=action.end_offset,
            file=file,
            sealer=deps.instance,
            now_ms=deps.clock.now_ms(),
        )
        committed = commit_segment(deps.metastore, deps.table, sealed)
        telemetry.STREAM_COMMITS.labels(deps.table, committed.outcome.value.lower()).inc()
        made = self._find(action.segment)
        seconds = 0.0 if made is None else time.monotonic() - made.began
        telemetry.STREAM_COMMIT_SECONDS.observe(seconds)
        num_docs = 0 if file is None else file.total_docs
        text = "segment committed table=%s segment=%s outcome=%s num_docs=%d end_offset=%d seconds=%.3f"
        _LOG.info(text, deps.table, action.segment, committed.outcome, num_docs, action.end_offset, seconds)
        return committed.view

    def keep(self, segment: str) -> None:
        """Put the file, which is the committed one, where this server looks for segment files, unless it is there.
        Raises OutOfSpaceError and UnavailableError."""
        file = self._of(segment)
        if not file.is_kept:
            self._deps.files.adopt(self._deps.table, file.built.metadata.key, file.built.path)
            self._file = replace(file, is_kept=True)

    def sweep(self) -> None:
        """Delete what a former process has left behind."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Delete what was made. A file that is still being made is deleted when it is complete."""
        self._is_closed = True
        self.forget()

    def forget(self) -> None:
        """Delete what was made and is not kept."""
        file, self._file, self._uploaded = self._file, None, None
        if file is not None:
            shutil.rmtree(file.built.path.parent, ignore_errors=True)

    def _made(self, action: Build, rows: ConsumingSegment, num_docs: int) -> _File:
        began = time.monotonic()
        folder = self._folder / str(next(self._numbers))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        creation = CreationFacts(time_ms=self._deps.clock.now_ms(), host=str(self._deps.instance))
        try:
            built = rows.seal(folder, num_docs, creation)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return _File(segment=action.segment, end_offset=action.end_offset, built=built, began=began)

    def _find(self, segment: str) -> _File | None:
        return self._file if self._file is not None and self._file.segment == segment else None

    def _of(self, segment: str) -> _File:
        file = self._find(segment)
        if file is None:
            raise UnavailableError(f"file of a segment is gone segment={segment}")
        return file
