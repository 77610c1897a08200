"""Upserts of one partition on a server: the index of its keys, which hears of every row, and what queries see of it.

The partition's thread feeds the index (`merlot.upsert`): first with the sealed segments in the order of the stream
(`sealed`), then with rows as they come. So every replica, also one that begins anew, comes to the same valid docs. Docs
of a segment keep their numbers when it is sealed, and so do their bits. Readers take an `UpsertView`, one reference to
the bits of all segments of the partition at one moment. The index is built anew if rows that it has are
given up, or were decided by other settings than their segment has. Readers see the former view meanwhile. If the index
cannot be built, nothing of the partition is answered until it can.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from merlot.cluster.consuming.merged import merged_sequences
from merlot.errors import MerlotError
from merlot.server.realtime.files import FileGoneError, NumberingFiles
from merlot.server.realtime.indexed import IndexDeps, IndexedRows, stored
from merlot.server.realtime.merger_retry import MergerRetry
from merlot.server.realtime.partition_log import LogPart, PartitionLog
from merlot.server.realtime.poller import RowBatch
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.sealed import SealedRows
from merlot.server.realtime.snapshots import Snapshots
from merlot.server.realtime.views import UpsertView
from merlot.spec.upserting import PruningStrategy
from merlot.upsert.index import SHARDS
from merlot.upsert.partition import PartitionUpserts, Stats

_LOG = logging.getLogger(__name__)


class UpsertListener:
    """Row listener of a partition of an upsert table. Any thread may read `view` and `stats`; the rest belongs to the
    consuming thread."""

    def __init__(self, deps: IndexDeps, records: Callable[[], Records]) -> None:
        self._deps = deps
        self._rows = IndexedRows(deps, records)
        self._sealed = SealedRows(self._rows, self._forget)
        self._next_scan = 0.0
        self._merger_retry = MergerRetry(deps.where)
        self.view: UpsertView | None = None
        """View that queries see. None if there is no index and no former view: nothing of the partition can be queried
        then."""
        self.is_building = False
        """True while what is shown is of an index that is about to be replaced."""
        self.num_misplaced = 0
        """Number of rows consumed here that belong to another partition, by what the table declares."""
        self._stats = Stats()
        """Counts of the moment that `view` shows: amid a batch the index knows keys whose rows nobody sees yet."""

    @property
    def stats(self) -> Stats:
        """Counts of keys and docs that are shown, and the memory that the index takes now."""
        index = self._rows.index
        return replace(self._stats, memory_bytes=0 if index is None else index.nbytes)

    @property
    def settings(self) -> str:
        """Settings that decide rows that come now, as they were pinned."""
        return self._rows.settings

    @property
    def waits_for(self) -> str:
        """Key of the sealed segment without which the index cannot be built."""
        return self._sealed.waits_for

    @property
    def files(self) -> NumberingFiles:
        """Files of sealed segments by which their docs are numbered."""
        return self._rows.files

    @property
    def snapshots(self) -> Snapshots | None:
        """Checkpoint of the partition."""
        return self._deps.snapshots

    @property
    def records(self) -> Records:
        """Segments of the partition by sequence."""
        return self._rows.records

    # Calls of the partition's thread; see `RowListener`.

    def may_begin(self) -> bool:
        """Return True once every sealed segment is in the index. A paused partition is called again and again: it
        follows the files of its segments like any other."""
        with self._all_or_nothing():
            is_built = self._sealed.add(None)
            if is_built and (self.is_building or self.view is None or self.view.numbers != self._rows.numbers):
                self._rows.take_cut()
                self._show()
        if is_built:
            self.settle()
        return is_built

    def append(self, part: LogPart, batch: RowBatch, now_ms: int) -> None:
        """Let the index decide, append the rows that are kept, and show both."""
        assert part.rows is not None
        if not len(batch):
            batch.append_to(part.rows, now_ms)
            return
        self._settle()
        index = self._rows.index
        assert index is not None
        self._merger_retry.check()
        with self._all_or_nothing(shown=self.view), self._merger_retry.noted(batch):
            outcome = index.add(batch.rows, self._rows.numbers[part.sequence], part.rows.num_docs)
            replace(batch, rows=outcome.rows, offsets=batch.offsets[outcome.is_kept]).append_to(part.rows, now_ms)
        self._rows.num_docs[part.sequence] = part.rows.num_docs
        self._rows.note_decided(part.sequence)
        index.publish()
        self._show()
        self.num_misplaced += self._deps.misplaced(batch.rows)

    def settle(self) -> None:
        """Build the index if it had to be given up. Raises UnavailableError while a sealed segment is not here."""
        self._settle()
        self._count()

    def _settle(self) -> None:
        if self._rows.index is None and self._rows.log.parts:
            self._rebuild(shown=self.view)
        if self._rows.index is None:
            return
        until = self._deps.clock.monotonic() + self._deps.tuning.tidy_s
        while self._rows.index.tidy() and self._deps.clock.monotonic() < until:
            pass
        if self._deps.snapshots is not None:
            self._deps.snapshots.tend(self.records, self._rows.kept_in)
        if self._sealed.are_keys_loaded:
            self._follow_files(self._rows.index)
        self._scan()

    def on_log_change(self, before: PartitionLog, after: PartitionLog) -> None:
        """Follow the parts of the log. If they cannot be followed now, the index is given up; `settle` builds it."""
        self._rows.log = after
        try:
            with self._all_or_nothing():
                self._follow(before, after)
        except MerlotError as error:
            where = self._deps.where
            _LOG.warning("upserts are not followed, nothing is answered until they are %s cause=%s", where, error)
        except BaseException:
            self._rows.log = before  # readers are still given this log
            raise

    def stop(self) -> None:
        """Give up the reading of sealed segments."""
        self._sealed.is_stopping = True

    def close(self) -> None:
        """Release everything."""
        if self._deps.snapshots is not None and self._rows.index is not None:
            self._deps.snapshots.close(self.records, self._rows.kept_in)
        self._forget()

    @contextmanager
    def _all_or_nothing(self, shown: UpsertView | None = None) -> Iterator[None]:
        """Give the index up if it has some rows of a batch only, or rows that nobody has; `settle` builds it anew.
        `shown` is the view that readers see until then."""
        try:
            yield
        except BaseException:
            self._forget(shown)
            raise

    def _follow(self, before: PartitionLog, after: PartitionLog) -> None:
        rows = self._rows
        if rows.index is None:
            self._rebuild()
            return
        undone = rows.undone(before, after)
        if undone or rows.has_followed_nobody() or rows.is_to_recover():
            self._rebuild(shown=self._without_files(undone))
            return
        for part in after.parts:
            old = before.part(part.sequence)
            if part.num_docs is not None and (old is None or old.num_docs is None):
                rows.capture(part.sequence, part.num_docs)
        for part in after.parts:
            if part.sequence not in rows.numbers:
                self._open(part, after)
        if after.open_part is not None:
            rows.follow_rules(after.open_part.sequence)  # an empty tail had no record with settings
        rows.remove_gone()
        if len(after.parts) != len(before.parts) or after.parts[-1:] != before.parts[-1:]:
            rows.take_cut()
        self._show()

    # The index.

    def _open(self, part: LogPart, log: PartitionLog) -> None:
        """Take up a new part: empty, or the tail of the part before."""
        previous, rows = log.part(part.sequence - 1), self._rows
        if part.rows is None:
            return
        if part.rows.num_docs and previous is not None and rows.is_told(previous, part.rows.num_docs):
            rows.move_tail(previous, part)
            return
        self._sealed.require(part.sequence)
        rows.follow_rules(part.sequence)
        rows.tell(part.sequence, part.rows.rows(stored(part)), 0)
        assert rows.index is not None
        rows.index.committed()

    def _scan(self) -> None:
        """Scan one shard for expired keys, if the settings say so and it is time to."""
        now, index = self._deps.clock.monotonic(), self._rows.index
        if index is not None and index.rules.pruning is PruningStrategy.SCAN and now >= self._next_scan:
            index.scan()
            self._next_scan = now + self._rows.scan_s / SHARDS

    def _follow_files(self, index: PartitionUpserts) -> None:
        """Number docs by the files that sealed segments have now, as soon as these are here."""
        rows, files, records = self._rows, self._rows.files, self.records
        if not files.is_due(records):
            return
        for sequence in sorted(rows.numbers):
            record = records.get(sequence)
            if record is None or record.is_open:
                continue
            files.note(record, rows.num_docs[sequence])
            if any(rows.log.part(source) is not None for source in (sequence, *merged_sequences(record))):
                continue  # brokers may ask by its beginning, and consumed rows answer them
            try:
                renumbered = files.renumbered(record, index, rows.numbers)
            except FileGoneError:
                self._rebuild(shown=self._without_files([sequence]))
                return
            if renumbered is not None:
                rows.renumber(record, renumbered)
        rows.remove_gone()
        files.settle(records)
        self._show()

    def _rebuild(self, shown: UpsertView | None = None) -> None:
        """Build the index anew from the log and the sealed segments. `shown` is the view that readers see meanwhile."""
        _LOG.info("index of keys is built anew %s", self._deps.where)
        self._forget(shown)
        with self._all_or_nothing():
            self._build(self._rows.log)
            self._show()

    def _build(self, log: PartitionLog) -> None:
        # A checkpoint may be newer than the first part: it then knows what was replaced by rows that retention removed.
        self._sealed.require(next((part.sequence for part in log.parts if not self._sealed.has(part)), None))
        self._rows.take_cut()
        for part in log.parts:
            if self._rows.has_decided(part):
                continue
            self._rows.follow_rules(part.sequence)
            if part.rows is not None:
                self._rows.tell(part.sequence, part.rows.rows(stored(part)), 0)
            else:
                self._sealed.require(part.sequence + 1)

    def _forget(self, shown: UpsertView | None = None) -> None:
        self.view, self.is_building = shown, True
        if shown is None:
            self._stats = Stats()
        self._rows.forget()
        self._sealed.forget()
        self._deps.on_change()

    def _without_files(self, sequences: Collection[int]) -> UpsertView | None:
        """Return what is shown without the files of these segments, whose docs may be others."""
        return None if self.view is None else self.view.without_files(sequences)

    def _count(self) -> None:
        if self._rows.index is not None:
            self._stats = self._rows.index.stats

    def _show(self) -> None:
        """Let readers see what the index has."""
        rows, before = self._rows, self.view
        assert rows.index is not None
        is_same = before is not None and before.numbers == rows.numbers
        numbers = before.numbers if before is not None and is_same else dict(rows.numbers)
        self.view = UpsertView(rows.log, rows.index.cut, numbers, *rows.files.shown(before))
        self.is_building = False
        self._count()
        if not is_same:
            self._deps.on_change()
