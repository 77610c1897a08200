"""Try candidates on a sample of a table's own segments and measure the logged queries with them.

A trial builds what a server would build: a sidecar of each segment or, for another sort order, the segment anew. All
files lie in a folder that the caller deletes; the segments' own files are only read. A time is the CPU time of a
server's part of a query on one thread: the minimum of several runs.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from merlot.advice.candidates import SORTED, Candidate
from merlot.advice.choice import Measured, Tried
from merlot.advice.workload import Question
from merlot.errors import MerlotError
from merlot.merge import task as merge_task
from merlot.merge.plan import MergePlan
from merlot.query.context import CancelToken, ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.nodes import Leaf
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.spec.indexing import IndexingSpec
from merlot.spec.table import Table

WARM_UPS: Final = 3
"""Runs before the first one that counts: caches are filled by then."""
MAX_RUNS: Final = 30
MIN_RUNS: Final = 3
RUN_S: Final = 0.1
"""Seconds after which a query is not run again."""
QUERY_S: Final = 60.0
"""Seconds after which a query is cancelled."""
REBUILD_BYTES: Final = 1 << 30

Check = Callable[[], None]
"""Function called between the steps of a trial; it raises an error to end the trial."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Segments of a table to try candidates on, as servers serve them now."""

    table: Table
    segments: tuple[ImmutableSegment, ...]
    """Segments with the sidecars that the table's present indexing asks for."""
    num_bytes: int

    @property
    def num_docs(self) -> int:
        return sum(segment.num_docs for segment in self.segments)


class Trial:
    """Measures questions on a sample."""

    def __init__(
        self, sample: Sample, questions: Sequence[Question], folder: Path, check: Check = lambda: None
    ) -> None:
        self._sample = sample
        self._questions = questions
        self._folder = folder
        self._check = check
        self._now: tuple[float, ...] = ()

    def as_it_is(self) -> Measured:
        """Measure the questions without any change."""
        sample = self._sample
        times = []
        for question in self._questions:
            self._check()
            runs = self._runs(question.leaf)
            _take_turns([runs])
            times.append(runs.least_ms)
        self._now = tuple(times)
        num_segments = len(sample.segments)
        weights = [
            question.count * (question.segments_each or num_segments) / max(1, num_segments)
            for question in self._questions
        ]
        return Measured(self._now, tuple(weights))

    def run(self, candidate: Candidate) -> Tried:
        """Try one candidate, after `as_it_is`. An index or a tree is measured with the questions that it may help: the
        others do not use it. Another sort order is measured with all questions."""
        is_order = candidate.kind == SORTED
        return self.together([candidate], range(len(self._questions)) if is_order else candidate.helps)

    def together(self, every: Sequence[Candidate], numbers: Sequence[int] | None = None) -> Tried:
        """Try several candidates at once, with the questions of these numbers or with all."""
        spec = self._sample.table.spec.indexing
        for candidate in every:
            spec = candidate.applied(spec)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            started = time.monotonic()
            segments = tuple(self._changed(segment, spec, Path(folder)) for segment in self._sample.segments)
            build_s = time.monotonic() - started
            num_bytes = sum(map(_bytes_of, segments)) - self._sample.num_bytes
            times = self._times(segments, spec, range(len(self._questions)) if numbers is None else numbers)
            sidecars = [segment.sidecar for segment in segments if segment.sidecar]
            reasons = dict.fromkeys(part.why for sidecar in sidecars for part in sidecar.left_out)
            return Tried(every[0], times, num_bytes, build_s, tuple(reasons))

    def _changed(self, segment: ImmutableSegment, indexing: IndexingSpec, folder: Path) -> ImmutableSegment:
        self._check()
        if indexing.sorted_columns != self._sample.table.spec.indexing.sorted_columns:
            segment = _sorted_anew(segment, self._sample.table, indexing, folder, self._check)
        return with_sidecar(segment, indexing, folder, self._check)

    def _times(
        self, segments: Sequence[ImmutableSegment], indexing: IndexingSpec, numbers: Sequence[int]
    ) -> tuple[float, ...]:
        """Return the time of each question: measured for the given numbers, unchanged for the others.

        Runs on the changed and on the unchanged segments take turns, since the machine may be faster or slower than it
        was in `as_it_is`."""
        times = list(self._now)
        for number in numbers:
            self._check()
            leaf = self._questions[number].leaf
            now, changed = self._runs(leaf), _Runs(leaf, segments, _context(self._sample.table, indexing))
            _take_turns([now, changed])
            times[number] = self._now[number] * changed.least_ms / max(now.least_ms, 1e-6)
        return tuple(times)

    def _runs(self, leaf: Leaf) -> _Runs:
        """Return runs on the unchanged segments."""
        table = self._sample.table
        return _Runs(leaf, self._sample.segments, _context(table, table.spec.indexing))


def with_sidecar(
    segment: ImmutableSegment, indexing: IndexingSpec, folder: Path, check: Check = lambda: None
) -> ImmutableSegment:
    """Return the segment with a sidecar of the indexes that it lacks, as a server serves it."""
    plan = plan_of(segment.metadata, indexing)
    if plan.is_empty:
        return segment.beside(None)
    path = build_sidecar(segment, plan, indexing, folder, check)
    return segment.beside(Sidecar.open(path, segment.metadata))


def sample_of(table: Table, segments: Sequence[ImmutableSegment], folder: Path, check: Check = lambda: None) -> Sample:
    """Return opened segments as a sample. Sidecars are built in the folder, which must outlive the sample."""
    now = tuple(with_sidecar(segment, table.spec.indexing, folder, check) for segment in segments)
    return Sample(table, now, sum(map(_bytes_of, now)))


def answers(table: Table, segments: Sequence[ImmutableSegment], question: Question) -> str | None:
    """Return why a question cannot be tried; None if it can."""
    try:
        execute(question.leaf, segments, _context(table, table.spec.indexing))
    except MerlotError as error:
        return str(error)
    return None


def _sorted_anew(
    segment: ImmutableSegment, table: Table, indexing: IndexingSpec, folder: Path, check: Check
) -> ImmutableSegment:
    spec = table.spec
    plan = MergePlan(
        table=table.raw_name,
        schema=spec.table_schema,
        indexing=indexing,
        segment_name_prefix=f"sorted_{segment.key.name}",
    )

    def report(*_: object) -> None:
        check()

    (built,) = merge_task.run(plan, [segment.path], folder, report, lambda: False, REBUILD_BYTES)
    return ImmutableSegment.open(built.path)


def _bytes_of(segment: ImmutableSegment) -> int:
    sidecar = segment.sidecar
    return segment.size_bytes + (0 if sidecar is None else sidecar.file.size_bytes)


def _context(table: Table, indexing: IndexingSpec) -> ExecutionContext:
    return ExecutionContext(schema=table.spec.table_schema, indexing=indexing, cancel=CancelToken.after(QUERY_S))


@dataclass(slots=True)
class _Runs:
    """Repeated runs of a query over several segments."""

    leaf: Leaf
    segments: Sequence[ImmutableSegment]
    context: ExecutionContext
    least_ms: float = math.inf

    def run(self, *, counts: bool) -> None:
        started = time.thread_time_ns()
        execute(self.leaf, self.segments, self.context)
        if counts:
            self.least_ms = min(self.least_ms, (time.thread_time_ns() - started) / 1e6)


def _take_turns(runs: Sequence[_Runs]) -> None:
    """Run the queries in turns until each was run often enough."""
    for query in runs:
        for _ in range(WARM_UPS):
            query.run(counts=False)
    until = time.monotonic() + RUN_S * len(runs)
    for number in range(MAX_RUNS):
        if number >= MIN_RUNS and time.monotonic() > until:
            break
        for query in runs:
            query.run(counts=True)
