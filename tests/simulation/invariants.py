"""What must hold in every history, whatever befalls the cluster.

- I1 Rows are a prefix of the stream: a committed segment has each row of its stretch once, in order, and each chain is
  without a gap (`check_write`).
- I2 No row is in two segments: stretches do not overlap (`check_write`).
- I3 What is answered is the same before, while and after a segment is swapped for its file: no row is taken back
  (`check_answer`).
- I4 In the end records, deep store and servers' files agree (`check_end`).
- I5 Replicas agree: all copies of a segment hold the same rows (`check_end`).
- I6 What is committed is durable, is what its checksum says, and never changes (`check_write`).
- I7 All that was produced is committed within a bound after the last fault (`World.run`, `RECOVERY_MS`).
- I8 One writer acts: a write that comes late, or that another one was quicker with, changes nothing (`check_write`: the
  epoch grows by one, a partition has one open segment, and its agreed end changes only where the stream has lost rows).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tests.simulation.rows import Row, content_crc, is_row

from merlot.cluster.consuming.machine import Replica
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId

Files = Mapping[str, tuple[Row, ...]]


class Holder(Protocol):
    """A server, as far as it holds files."""

    name: InstanceId
    sealed: dict[str, tuple[Row, ...]]


class Invariants:
    """Checked at every write and every step of a replica; a failure is an AssertionError that says what and where."""

    def __init__(self, num_partitions: int) -> None:
        self._num_partitions = num_partitions
        self._view: TableView | None = None
        self._chains: Mapping[int, Sequence[StreamSegmentRecord]] = {}
        self._answered: dict[tuple[InstanceId, int], tuple[int, str, int]] = {}
        self.num_commits = 0
        self.num_lost = 0

    def check_write(self, before: TableView, after: TableView, files: Files, earliest: Mapping[int, int]) -> None:
        """A committed segment is durable and never changes, holds each row of its stretch once, and the next one
        starts where it ends."""
        assert after.epoch == before.epoch + 1
        for name, old in before.segments.items():
            assert isinstance(old, StreamSegmentRecord)
            new = after.segment(name)
            if not old.is_open:
                assert new is old or new == old, f"a committed segment changed: {old} {new}"
            elif new is None:
                assert old.end_offset is None or not _expected(old), f"a segment with rows went: {old}"
            elif new is not old:
                assert isinstance(new, StreamSegmentRecord)
                self._check_step(old, new, files, earliest[old.partition])
        for partition in range(self._num_partitions):
            chain = [one for one in after.stream_segments if one.partition == partition]
            _check_chain(chain, earliest[partition])

    def _check_step(self, old: StreamSegmentRecord, new: StreamSegmentRecord, files: Files, earliest: int) -> None:
        assert new.start_offset == old.start_offset, f"a segment's start changed: {old} {new}"
        if old.end_offset is not None and new.end_offset != old.end_offset:
            is_out_of_reach = new.next_offset is not None and new.next_offset <= earliest
            assert is_out_of_reach, f"an agreed end changed though the stream has its rows: {old} {new}"
        if not new.is_open:
            self._check_commit(old, new, files)

    def _check_commit(self, old: StreamSegmentRecord, new: StreamSegmentRecord, files: Files) -> None:
        self.num_commits += 1
        assert old.status == ConsumingStatus.SEALING, f"committed before its end was agreed: {old}"
        assert (old.start_offset, old.end_offset) == (new.start_offset, new.end_offset)
        rows = files[new.url]
        assert content_crc(rows) == new.crc, f"the file is not what its record says: {new}"
        assert len(rows) == new.total_docs
        assert list(rows) == _expected(old), f"not each row of its stretch once: {new} {rows}"

    def check_answer(
        self,
        server: InstanceId,
        replica: Replica,
        rows: Sequence[Row],
        sealed: Mapping[str, object],
        view: TableView,
    ) -> None:
        """No row that a replica has answered is taken back, but when settings that decide rows have changed, or may
        have: a segment that had no rows by its own settings is gone when the replica comes to the one after it."""
        place = (server, replica.record.partition)
        total = len(rows)
        for one in self._chains_of(view).get(replica.record.partition, ()):
            if one.sequence >= replica.record.sequence:
                break
            if one.is_open or one.name not in sealed:
                return  # brokers ask somebody else
            total += one.total_docs
        sequence = replica.record.sequence
        before, settings, answered = self._answered.get(place, (sequence, replica.settings_id, 0))
        if settings == replica.settings_id and sequence <= before + 1:
            assert total >= answered, f"answered rows were taken back: {place} {answered} -> {total} {replica.record}"
        self._answered[place] = (sequence, replica.settings_id, total)

    def _chains_of(self, view: TableView) -> Mapping[int, Sequence[StreamSegmentRecord]]:
        if self._view is not view:
            found = chains(view.stream_segments)
            self._view = view
            self._chains = {number: [line[at] for at in sorted(line)] for number, line in found.items()}
        return self._chains

    def forget(self, server: InstanceId) -> None:
        """It died, or gave partitions up: brokers ask others."""
        self._answered = {place: told for place, told in self._answered.items() if place[0] != server}

    def check_end(self, view: TableView, files: Files, produced: Mapping[int, int], servers: Iterable[Holder]) -> None:
        """All that was produced is committed, but what the stream had lost; all copies of a segment are alike."""
        for partition, end in produced.items():
            last = [one for one in view.stream_segments if one.partition == partition][-1]
            assert last.is_open
            assert last.start_offset >= end, f"not all is committed: {last}"
        for server in servers:
            for name, rows in server.sealed.items():
                record = view.segment(name)
                assert record is not None
                assert rows == files[record.url], f"copies of a segment differ: {server.name} {name}"


def _check_chain(chain: Sequence[StreamSegmentRecord], earliest: int) -> None:
    """Without a gap, but for what the stream had lost, without an overlap, and with one open segment, the last."""
    assert [one.is_open for one in chain] == [False] * (len(chain) - 1) + [True] * bool(chain), chain
    for one, following in itertools.pairwise(chain):
        if one.sequence + 1 == following.sequence and following.lost_from is None:
            assert one.end_offset == following.start_offset, f"{one} {following}"
    for one in chain:
        if one.lost_from is not None:
            assert one.lost_from < one.start_offset <= earliest, f"given up though the stream has it: {one}"
    for one, following in itertools.pairwise(chain):
        assert one.end_offset is not None
        assert one.end_offset <= following.start_offset, f"rows twice: {one} {following}"


def _expected(record: StreamSegmentRecord) -> list[Row]:
    assert record.end_offset is not None
    return [(at, record.pinned) for at in range(record.start_offset, record.end_offset) if is_row(record.pinned, at)]
