"""Choice of what to merge next: from a table's segments, watermarks and clock to tasks. Pure.

Levels are handled one by one, the finest first. At each, the buckets from the watermark on that hold segments below the
level are merged, oldest first, as many as may run at once. A bucket is merged when it is older than the buffer and all
of it is done at the finer level. A segment that spills over a bucket's edge is taken whole. Buckets of one pass that
share a segment become one task, and rows of other buckets are written beside the result, aligned, to be merged in their
turn. So every task finishes at least one bucket, however the segments lie, and it writes no more than one segment's
part of a bucket twice.

The watermark is the start of the bucket that was begun last. It moves when tasks are made, over buckets that are empty
or done, and never back. Buckets behind it are merged again only if a backfill marked their segments. Mode processAll
has no watermark: a level begins at the first segment each time, and a coarser bucket waits only for its own finer ones.

Segments of batches and segments of a stream are merged apart (`parts`), each with their own watermarks, since a batch
arrives when the stream is days ahead. So no segment ever holds rows of both.

(Pinot class MergeRollupTaskGenerator. Unlike it: times before 1970 round down, a bucket is never split by its list of
segments, a level's last bucket does not hold up the next level, and a bucket whose task failed for good is set
aside.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from merlot.cluster.records import SegmentRecord
from merlot.cluster.tasks.queue import TaskRecord
from merlot.controller.merges.buckets import BucketRuns
from merlot.controller.merges.candidates import Candidates, MergeCandidate, candidates, is_too_wide
from merlot.controller.merges.outlook import LevelOutlook, joined_outlook
from merlot.controller.merges.parts import OF_BATCHES, parts_of
from merlot.controller.merges.tasks import MergeUnit, TaskMaker
from merlot.ids import TableName
from merlot.spec.tasks import MergeRollupSpec, Mode

Window = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSituation:
    """Input of a decision."""

    rollup: str
    """Name of the MergeRollupTask."""
    revision: int
    table: TableName
    spec: MergeRollupSpec
    visible: Mapping[str, SegmentRecord]
    watermarks: Mapping[str, int]
    """Watermarks by the level's name in lower case. A part of the stream is appended to the name."""
    now_ms: int
    retention_ms: int | None = None
    unfinished: Collection[str] = ()
    """Levels, in lower case, with a task that has not ended. They wait."""
    busy: Collection[str] = ()
    """Names of segments that a task or another replacement is about to replace."""
    set_aside: Collection[str] = ()
    """Ids of tasks that failed for good. The same work is not begun again."""
    room: int = 1 << 30
    """Number of replacements that the table can take up now. Further tasks wait."""
    by_partition: bool = False
    """True if partitions of the stream are merged apart too, since a query asks one server for a whole partition."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Tasks to queue, the watermarks that go with them, and how far each level is."""

    tasks: tuple[TaskRecord, ...]
    watermarks: Mapping[str, int]
    levels: tuple[LevelOutlook, ...]
    without_time: int = 0
    """Number of segments that are left alone because their times are unknown."""
    waits_for_room: bool = False
    """True if buckets are due, but wait until the table keeps fewer replacements."""


def generate(situation: MergeSituation) -> Generated:
    """Decide for all parts and levels. If there is nothing to do, there are no tasks and the watermarks do not
    change."""
    tasks: list[TaskRecord] = []
    watermarks = dict(situation.watermarks)
    outlooks: list[Sequence[LevelOutlook]] = []
    without_time, waits_for_room = 0, False
    for part, visible in parts_of(situation.visible, by_partition=situation.by_partition).items():
        room = situation.room - len(tasks)
        generated = _generate(replace(situation, visible=visible, watermarks=watermarks, room=room), part)
        tasks += generated.tasks
        watermarks |= generated.watermarks
        outlooks.append(generated.levels)
        without_time += generated.without_time
        waits_for_room |= generated.waits_for_room
    levels = tuple(map(joined_outlook, zip(*outlooks, strict=True)))
    return Generated(tuple(tasks), watermarks, levels, without_time, waits_for_room)


def _generate(situation: MergeSituation, part: str) -> Generated:
    """Decide for one part."""
    spec = situation.spec
    oldest_ms = None if situation.retention_ms is None else situation.now_ms - situation.retention_ms
    everything = candidates(situation.visible, spec.levels, oldest_ms=oldest_ms)
    tasks: list[TaskRecord] = []
    watermarks: dict[str, int] = {}
    outlooks = []
    busy = set(situation.busy)
    finer: _LevelPlanner | None = None
    room = situation.room
    waits_for_room = False
    for rank, level in enumerate(spec.levels):
        state = _LevelPlanner(situation, everything, rank, finer, part)
        outlook = state.outlook()
        if level.key not in situation.unfinished:
            due = state.select(busy)
            units = due[:room]
            room -= len(units)
            waits_for_room |= len(units) < len(due)
            tasks += [state.maker.task(unit, situation.now_ms) for unit in units]
            busy.update(segment.name for unit in units for segment in unit.inputs)
            if units and state.watermark_ms is not None and spec.mode is Mode.PROCESS_FROM_WATERMARK:
                watermarks[level.key + part] = state.advanced_ms(units)
        outlooks.append(outlook)
        finer = state
    return Generated(tuple(tasks), watermarks, tuple(outlooks), everything.without_time, waits_for_room)


@dataclass(slots=True)
class _Selection:
    """Buckets that one pass takes, and the segments of each."""

    windows: list[Window] = field(default_factory=list)
    inputs: list[list[MergeCandidate]] = field(default_factory=list)


class _LevelPlanner:
    """A level within one decision."""

    def __init__(
        self,
        situation: MergeSituation,
        everything: Candidates,
        rank: int,
        finer: _LevelPlanner | None = None,
        part: str = OF_BATCHES,
    ) -> None:
        self._situation = situation
        self._part = part
        self._rank = rank
        self._level = level = situation.spec.levels[rank]
        self._finer = finer
        self._wide = [segment for segment in everything.all if is_too_wide(segment, level)]
        wide = {segment.name for segment in self._wide}
        self._everything = (
            Candidates(segment for segment in everything.all if segment.name not in wide) if wide else everything
        )
        self._below = [segment for segment in self._everything.all if segment.rank < rank]
        self.maker = TaskMaker(situation.rollup, situation.revision, situation.table, situation.spec, rank)
        self.watermark_ms = self._watermark()
        self._ahead = BucketRuns.of(level.bucket, self._below, from_ms=self.watermark_ms)
        marked = [segment for segment in self._below if segment.is_backfilled]
        self._behind = BucketRuns.of(level.bucket, marked, to_ms=self.watermark_ms)

    def _watermark(self) -> int | None:
        bucket = self._level.bucket
        stored = self._situation.watermarks.get(self._level.key + self._part)
        if stored is not None and not self._is_everything_due:
            return bucket.floor(stored)
        return bucket.floor(self._everything.start_ms) if self._everything else None

    @property
    def _is_everything_due(self) -> bool:
        return self._situation.spec.mode is Mode.PROCESS_ALL

    @property
    def frontier_ms(self) -> int | None:
        """Return the time up to which this level is done, except for backfilled buckets; None if all of it is done."""
        return self._ahead.start_ms if self._ahead else None

    def is_due_again(self, start_ms: int, end_ms: int) -> bool:
        """Return whether this level, or a finer one, begins again inside the window: by a backfill, or in mode
        processAll."""
        if self._behind.overlaps(start_ms, end_ms):
            return True
        if self._is_everything_due and self._ahead.overlaps(start_ms, end_ms):
            return True
        return self._finer is not None and self._finer.is_due_again(start_ms, end_ms)

    def advanced_ms(self, units: Sequence[MergeUnit]) -> int:
        """Return the watermark after these tasks are made: the first bucket to do, unless all buckets are behind."""
        assert self.watermark_ms is not None
        is_ahead = any(window[0] >= self.watermark_ms for unit in units for window in unit.windows)
        return max(self.watermark_ms, self._ahead.start_ms) if is_ahead and self._ahead else self.watermark_ms

    def _limit_ms(self) -> int:
        """Return the time by which a bucket must end to be old enough and done at the finer level."""
        limit_ms = self._level.buffer.before(self._situation.now_ms)
        if self._finer is None or self._is_everything_due:
            return limit_ms
        frontier_ms = self._finer.frontier_ms
        return limit_ms if frontier_ms is None else min(limit_ms, frontier_ms)

    def outlook(self) -> LevelOutlook:
        """Return how far the level is, before any task is made."""
        bucket, limit_ms = self._level.bucket, self._limit_ms()
        mine = [segment for segment in self._everything.all if segment.rank == self._rank]
        late = [] if self.watermark_ms is None else [segment for segment in self._below if self._is_late(segment)]
        to_do = self._ahead.count(limit_ms) + self._behind.count(limit_ms)
        undone = BucketRuns.of(bucket, self._below).count(limit_ms)
        delay = 0
        if self._ahead and self._everything:
            last_ms = min(limit_ms, bucket.next(self._everything.end_ms))
            delay = to_do if self._is_everything_due else bucket.count(self._ahead.start_ms, last_ms)
        return LevelOutlook(
            level=self._level,
            watermark_ms=None if self._is_everything_due else self.watermark_ms,
            delay=delay,
            buckets_done=max(0, BucketRuns.of(bucket, self._everything.all).count(limit_ms) - undone),
            buckets_to_do=to_do,
            num_segments=len(mine),
            num_bytes=sum(segment.num_bytes for segment in mine),
            late_segments=len(late),
            late_docs=sum(segment.num_docs for segment in late),
            too_wide=len(self._wide),
        )

    def _is_late(self, segment: MergeCandidate) -> bool:
        return self.watermark_ms is not None and segment.start_ms < self.watermark_ms and not segment.is_backfilled

    def select(self, busy: Collection[str]) -> list[MergeUnit]:
        """Return the tasks of this pass. Tasks that failed for good make way for later ones."""
        skipped: set[int] = set()
        while True:
            units = self._units(self._selected(busy, skipped))
            failed = [unit for unit in units if self.maker.id_of(unit) in self._situation.set_aside]
            if not failed:
                return units
            skipped |= {start_ms for unit in failed for start_ms, _ in unit.windows}

    def _selected(self, busy: Collection[str], skipped: Collection[int]) -> _Selection:
        selection = _Selection()
        for window in self._due():
            if len(selection.windows) >= self._level.max_num_parallel_buckets:
                break
            inputs = self._inputs(window)
            if window[0] not in skipped and not any(segment.name in busy for segment in inputs):
                selection.windows.append(window)
                selection.inputs.append(inputs)
        return selection

    def _due(self) -> Iterator[Window]:
        """Yield the buckets that may be merged now: backfilled ones, then those from the watermark on, oldest first."""
        limit_ms = self._limit_ms()
        for start_ms, end_ms in self._behind.buckets():
            if end_ms <= limit_ms and not self._waits_for_finer(start_ms, end_ms):
                yield start_ms, end_ms
        for start_ms, end_ms in self._ahead.buckets():
            if end_ms > limit_ms:
                return
            if not self._waits_for_finer(start_ms, end_ms):
                yield start_ms, end_ms

    def _waits_for_finer(self, start_ms: int, end_ms: int) -> bool:
        return self._finer is not None and self._finer.is_due_again(start_ms, end_ms)

    def _inputs(self, window: Window) -> list[MergeCandidate]:
        return [segment for segment in self._everything.overlapping(*window) if segment.rank <= self._rank]

    def _units(self, selection: _Selection) -> list[MergeUnit]:
        """Group buckets that share a segment. Return a unit for each group, with the buckets that it spills into."""
        groups = _connected(selection.inputs)
        units = []
        for indexes in groups:
            windows = sorted(selection.windows[index] for index in indexes)
            inputs = {segment.key: segment for index in indexes for segment in selection.inputs[index]}
            units.append(self._unit(windows, list(inputs.values())))
        return units

    def _unit(self, windows: list[Window], inputs: list[MergeCandidate]) -> MergeUnit:
        """Return the unit of these buckets. Another bucket that the inputs reach into joins it if it needs no other
        segment and is old enough."""
        own, names = set(windows), {segment.name for segment in inputs}
        merged = list(windows)
        rest: list[Window] = []
        limit_ms = self._limit_ms()
        for window in BucketRuns.of(self._level.bucket, inputs).buckets():
            if window in own:
                continue
            is_old = window[1] <= limit_ms and not self._waits_for_finer(*window)
            is_closed = is_old and all(segment.name in names for segment in self._inputs(window))
            (merged if is_closed else rest).append(window)
        ordered = sorted(inputs, key=lambda segment: (segment.start_ms, segment.end_ms, segment.name))
        return MergeUnit(windows=tuple(sorted(merged)), rest=tuple(rest), inputs=tuple(ordered))


def _connected(groups: Sequence[Sequence[MergeCandidate]]) -> list[list[int]]:
    """Return the indexes of the groups, connected by the candidates that they share, in order."""
    parents = list(range(len(groups)))

    def root(index: int) -> int:
        while parents[index] != index:
            index = parents[index]
        return index

    first_with: dict[str, int] = {}
    for index, group in enumerate(groups):
        for segment in group:
            other = root(first_with.setdefault(segment.name, index))
            low, high = sorted((other, root(index)))
            parents[high] = low
    joined: dict[int, list[int]] = {}
    for index in range(len(groups)):
        joined.setdefault(root(index), []).append(index)
    return list(joined.values())
