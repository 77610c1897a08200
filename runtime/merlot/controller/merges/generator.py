"""What to merge next: from a table's segments, watermarks and clock to tasks. Pure.

Level by level, from the finest: the buckets from the watermark on that hold segments below the level, oldest first, as
many as may run at once. A bucket is merged when it is older than the buffer and all of it is done at the finer level.
A segment that spills over a bucket's edge is taken whole: buckets of one pass that share a segment become one task, and
what it has of other buckets is written beside the result, aligned, to be merged in their turn. So every task finishes
at least one bucket, however the segments lie, and what is written twice is one segment's part of a bucket.

The watermark is the start of the bucket that was begun last; it moves when tasks are made, over buckets that are empty
or done, and never back. Buckets behind it are merged again only where a backfill left its mark. In mode processAll
there is none: a level begins at the first segment each time, and a coarser bucket waits for its own finer ones only.

What batches published and what a stream brought are merged apart (`parts`), each with its own watermarks: a batch comes
when the stream is days ahead. So no segment ever holds rows of both.

(Pinot class MergeRollupTaskGenerator. Unlike it: times before 1970 round down, a bucket is never split by its list of
segments, a level's last bucket does not hold up the next level, and a bucket whose task failed for good is set aside.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from merlot.cluster.records import SegmentRecord
from merlot.cluster.tasks.queue import TaskRecord
from merlot.controller.merges.buckets import Runs
from merlot.controller.merges.candidates import Candidate, Candidates, candidates, is_too_wide
from merlot.controller.merges.outlook import LevelOutlook, joined_outlook
from merlot.controller.merges.parts import OF_BATCHES, parts_of
from merlot.controller.merges.tasks import TaskMaker, Unit
from merlot.ids import TableName
from merlot.spec.tasks import MergeRollupSpec, Mode

Window = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSituation:
    """What a decision looks at."""

    rollup: str
    """Name of the manifest."""
    revision: int
    table: TableName
    spec: MergeRollupSpec
    visible: Mapping[str, SegmentRecord]
    watermarks: Mapping[str, int]
    """By the level's name in lower case; those of a stream's part behind it."""
    now_ms: int
    retention_ms: int | None = None
    unfinished: Collection[str] = ()
    """Levels, in lower case, with a task that has not ended; they wait."""
    busy: Collection[str] = ()
    """Names of segments that a task or another replacement is about to replace."""
    set_aside: Collection[str] = ()
    """Ids of tasks that failed for good: the same work is not begun again."""
    room: int = 1 << 30
    """How many replacements the table can take up now; what is beyond waits."""
    by_partition: bool = False
    """Whether partitions of the stream are merged apart too, since each is asked of one server as a whole."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Tasks to queue, watermarks as they are then, and how far each level is."""

    tasks: tuple[TaskRecord, ...]
    watermarks: Mapping[str, int]
    levels: tuple[LevelOutlook, ...]
    without_time: int = 0
    """Segments that are left alone because nobody knows their times."""
    waits_for_room: bool = False
    """Whether buckets are due, and wait until the table keeps fewer replacements."""


def generate(situation: MergeSituation) -> Generated:
    """Decide for all parts and levels. With nothing to do the tasks are empty and the watermarks are what they were."""
    tasks: list[TaskRecord] = []
    watermarks = dict(situation.watermarks)
    outlooks: list[Sequence[LevelOutlook]] = []
    without_time, waits_for_room = 0, False
    for part, visible in parts_of(situation.visible, by_partition=situation.by_partition).items():
        room = situation.room - len(tasks)
        made = _generate(replace(situation, visible=visible, watermarks=watermarks, room=room), part)
        tasks += made.tasks
        watermarks |= made.watermarks
        outlooks.append(made.levels)
        without_time += made.without_time
        waits_for_room |= made.waits_for_room
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
    finer: _Level | None = None
    room = situation.room
    waits_for_room = False
    for rank, level in enumerate(spec.levels):
        state = _Level(situation, everything, rank, finer, part)
        outlook = state.outlook()
        if level.key not in situation.unfinished:
            due = state.select(busy)
            units = due[:room]
            room -= len(units)
            waits_for_room |= len(units) < len(due)
            tasks += [state.maker.task(unit, situation.now_ms) for unit in units]
            busy.update(one.name for unit in units for one in unit.inputs)
            if units and state.watermark_ms is not None and spec.mode is Mode.PROCESS_FROM_WATERMARK:
                watermarks[level.key + part] = state.advanced_ms(units)
        outlooks.append(outlook)
        finer = state
    return Generated(tuple(tasks), watermarks, tuple(outlooks), everything.without_time, waits_for_room)


@dataclass(slots=True)
class _Selection:
    """Buckets of one pass."""

    windows: list[Window] = field(default_factory=list)
    inputs: list[list[Candidate]] = field(default_factory=list)


class _Level:
    """One level of one decision."""

    def __init__(
        self,
        situation: MergeSituation,
        everything: Candidates,
        rank: int,
        finer: _Level | None = None,
        part: str = OF_BATCHES,
    ) -> None:
        self._situation = situation
        self._part = part
        self._rank = rank
        self._level = level = situation.spec.levels[rank]
        self._finer = finer
        self._wide = [one for one in everything.all if is_too_wide(one, level)]
        wide = {one.name for one in self._wide}
        self._everything = Candidates(one for one in everything.all if one.name not in wide) if wide else everything
        self._below = [one for one in self._everything.all if one.rank < rank]
        self.maker = TaskMaker(situation.rollup, situation.revision, situation.table, situation.spec, rank)
        self.watermark_ms = self._watermark()
        self._ahead = Runs.of(level.bucket, self._below, from_ms=self.watermark_ms)
        marked = [one for one in self._below if one.is_backfilled]
        self._behind = Runs.of(level.bucket, marked, to_ms=self.watermark_ms)

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
        """Up to here all is done at this level, but for backfilled buckets; None: all that there is."""
        return self._ahead.start_ms if self._ahead else None

    def is_due_again(self, start_ms: int, end_ms: int) -> bool:
        """Whether this level, or a finer one, begins again inside the window: by a backfill, or in mode processAll."""
        if self._behind.overlaps(start_ms, end_ms):
            return True
        if self._is_everything_due and self._ahead.overlaps(start_ms, end_ms):
            return True
        return self._finer is not None and self._finer.is_due_again(start_ms, end_ms)

    def advanced_ms(self, units: Sequence[Unit]) -> int:
        """The watermark once these tasks are made: the first bucket to do, unless all are behind."""
        assert self.watermark_ms is not None
        is_ahead = any(window[0] >= self.watermark_ms for unit in units for window in unit.windows)
        return max(self.watermark_ms, self._ahead.start_ms) if is_ahead and self._ahead else self.watermark_ms

    def _limit_ms(self) -> int:
        """Buckets that end by then are old enough, and done at the finer level."""
        limit_ms = self._level.buffer.before(self._situation.now_ms)
        if self._finer is None or self._is_everything_due:
            return limit_ms
        frontier_ms = self._finer.frontier_ms
        return limit_ms if frontier_ms is None else min(limit_ms, frontier_ms)

    def outlook(self) -> LevelOutlook:
        """How far the level is, before anything is begun."""
        bucket, limit_ms = self._level.bucket, self._limit_ms()
        mine = [one for one in self._everything.all if one.rank == self._rank]
        late = [] if self.watermark_ms is None else [one for one in self._below if self._is_late(one)]
        to_do = self._ahead.count(limit_ms) + self._behind.count(limit_ms)
        undone = Runs.of(bucket, self._below).count(limit_ms)
        delay = 0
        if self._ahead and self._everything:
            last_ms = min(limit_ms, bucket.next(self._everything.end_ms))
            delay = to_do if self._is_everything_due else bucket.count(self._ahead.start_ms, last_ms)
        return LevelOutlook(
            level=self._level,
            watermark_ms=None if self._is_everything_due else self.watermark_ms,
            delay=delay,
            buckets_done=max(0, Runs.of(bucket, self._everything.all).count(limit_ms) - undone),
            buckets_to_do=to_do,
            num_segments=len(mine),
            num_bytes=sum(one.num_bytes for one in mine),
            late_segments=len(late),
            late_docs=sum(one.num_docs for one in late),
            too_wide=len(self._wide),
        )

    def _is_late(self, one: Candidate) -> bool:
        return self.watermark_ms is not None and one.start_ms < self.watermark_ms and not one.is_backfilled

    def select(self, busy: Collection[str]) -> list[Unit]:
        """The tasks of this pass; those that failed for good give their place to later ones."""
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
            if window[0] not in skipped and not any(one.name in busy for one in inputs):
                selection.windows.append(window)
                selection.inputs.append(inputs)
        return selection

    def _due(self) -> Iterator[Window]:
        """Buckets that may be merged now: backfilled ones, then those from the watermark on, oldest first."""
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

    def _inputs(self, window: Window) -> list[Candidate]:
        return [one for one in self._everything.overlapping(*window) if one.rank <= self._rank]

    def _units(self, selection: _Selection) -> list[Unit]:
        """The buckets, those that share a segment together, each with what it spills into."""
        groups = _connected(selection.inputs)
        units = []
        for places in groups:
            windows = sorted(selection.windows[place] for place in places)
            inputs = {one.key: one for place in places for one in selection.inputs[place]}
            units.append(self._unit(windows, list(inputs.values())))
        return units

    def _unit(self, windows: list[Window], inputs: list[Candidate]) -> Unit:
        """A bucket that the inputs reach into is merged along if it needs nothing else and is old enough."""
        own, names = set(windows), {one.name for one in inputs}
        merged = list(windows)
        rest: list[Window] = []
        limit_ms = self._limit_ms()
        for window in Runs.of(self._level.bucket, inputs).buckets():
            if window in own:
                continue
            is_old = window[1] <= limit_ms and not self._waits_for_finer(*window)
            is_closed = is_old and all(one.name in names for one in self._inputs(window))
            (merged if is_closed else rest).append(window)
        ordered = sorted(inputs, key=lambda one: (one.start_ms, one.end_ms, one.name))
        return Unit(windows=tuple(sorted(merged)), rest=tuple(rest), inputs=tuple(ordered))


def _connected(groups: Sequence[Sequence[Candidate]]) -> list[list[int]]:
    """Places of the groups, those with a candidate in common together, in order."""
    parents = list(range(len(groups)))

    def root(place: int) -> int:
        while parents[place] != place:
            place = parents[place]
        return place

    first_with: dict[str, int] = {}
    for place, group in enumerate(groups):
        for one in group:
            other = root(first_with.setdefault(one.name, place))
            low, high = sorted((other, root(place)))
            parents[high] = low
    joined: dict[int, list[int]] = {}
    for place in range(len(groups)):
        joined.setdefault(root(place), []).append(place)
    return list(joined.values())
