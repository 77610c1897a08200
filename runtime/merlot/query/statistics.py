"""Statistics of a leaf that was executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from merlot.query.answer.result import QueryStats
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.columns import SegmentColumns
from merlot.query.targets import LeafTarget, LeafTargets, Task, TaskResult
from merlot.segment.reader import Segment


def statistics(
    work: LeafWork,
    segments: Sequence[Segment],
    targets: LeafTargets,
    tasks: Sequence[Task],
    results: Sequence[TaskResult],
    time_ns: int,
) -> QueryStats:
    """Return the statistics of a leaf's tasks over these segments, which took the calling thread `time_ns`."""
    processed = sum([target.num_segments for target in targets.alive])
    with_docs = sum([target.num_segments for target in targets.every])
    num_docs = sum([result.num_docs for result in results])
    matched = _matched(tasks, results)
    consuming = _consuming(targets.alive) if segments and not segments[-1].key.crc else ()
    return QueryStats(
        num_docs_scanned=num_docs,
        num_entries_scanned_in_filter=sum([result.num_entries for result in results]),
        num_entries_scanned_post_filter=num_docs * len(work.columns_after_filter),
        num_segments_matched=_num_matched(matched.values()),
        num_consuming_segments_processed=len(consuming),
        num_consuming_segments_matched=_num_matched([matched.get(id(target), False) for target in consuming]),
        num_segments_queried=len(segments),
        num_segments_processed=processed,
        num_segments_pruned_by_server=len(segments) - processed,
        num_segments_pruned_by_value=with_docs - processed,
        total_docs=sum([segment.num_docs for segment in segments]),
        thread_cpu_time_ns=time_ns,
    )


def _consuming(targets: Sequence[LeafTarget]) -> Sequence[LeafTarget]:
    """Return the targets that are rows of a stream without a file. Callers put them behind all other segments."""
    return [
        target
        for target in targets
        if isinstance(target.columns, SegmentColumns) and not target.columns.segment.key.crc
    ]


def _matched(tasks: Sequence[Task], results: Sequence[TaskResult]) -> Mapping[int, NDArray[np.bool_] | bool]:
    """Return which segments of each target have a matching doc, by the target's id. A target may have several tasks."""
    matched: dict[int, NDArray[np.bool_] | bool] = {}
    for task, result in zip(tasks, results, strict=False):
        matched[id(task.target)] = matched.get(id(task.target), False) | result.matched
    return matched


def _num_matched(matched: Iterable[NDArray[np.bool_] | bool]) -> int:
    return sum([int(np.count_nonzero(segments)) for segments in matched])
