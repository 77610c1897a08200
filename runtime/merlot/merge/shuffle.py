"""Distribute inputs that are too large for one task to shards, which separate tasks merge: equal keys always meet in
one shard.

A shard is a segment with rows of all windows; the merge of the shard folds them. Rows of a rollup or dedup are
distributed by a hash of their key, rows of a concatenation by their position.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from merlot.errors import InvalidInputError
from merlot.merge import hashing
from merlot.merge.output import ProgressWatch
from merlot.merge.plan import MergeMode, MergePhase, MergePlan
from merlot.merge.source import MergeSource, Selection, num_rows, open_source, slice_selection, split_selection
from merlot.merge.windows import select_windows
from merlot.segment.build.builder import SegmentWriter
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.spec.indexing import IndexingSpec


def shuffle(
    plan: MergePlan,
    inputs: Sequence[Path],
    directory: Path,
    num_shards: int,
    progress: Callable[[MergePhase, int, int], None],
    cancelled: Callable[[], bool],
) -> list[BuiltSegment]:
    """Write `{prefix}_shard_{number}` for each shard, even an empty one; a failure leaves no file behind.

    Memory: a column of one shard and a few bytes per row. Raises the errors of `task.run`."""
    if num_shards < 1:
        raise InvalidInputError(f"a shuffle needs at least one shard got={num_shards}")
    watch = ProgressWatch(progress, cancelled)
    built: list[BuiltSegment] = []
    try:
        with open_source(plan, inputs) as source:
            selection = [part for window in select_windows(plan, source, watch) for part in window]
            for number, rows in enumerate(_shards(plan, source, selection, num_shards)):
                writer = SegmentWriter(_request(plan, number), num_rows(rows), directory)
                built.append(_write(plan, source, rows, writer, watch))
    except BaseException:
        for shard in built:
            shard.path.unlink(missing_ok=True)
        raise
    return built


def _shards(plan: MergePlan, source: MergeSource, selection: Selection, number: int) -> Iterator[Selection]:
    if plan.merge_type is MergeMode.CONCAT:
        rows = num_rows(selection)
        for shard in range(number):
            yield slice_selection(selection, rows * shard // number, rows * (shard + 1) // number)
        return
    shard_of = [(hashing.key_hashes(plan, source, [part]) % np.uint64(number)).astype(np.uint32) for part in selection]
    yield from split_selection(selection, shard_of, number)


def _request(plan: MergePlan, number: int) -> BuildRequest:
    return BuildRequest(
        name=f"{plan.segment_name_prefix}_shard_{number}",
        table=plan.table,
        schema=plan.schema,
        indexing=IndexingSpec(),
        time_column=plan.time_column,
        creation=plan.creation,
    )


def _write(
    plan: MergePlan, source: MergeSource, rows: Selection, writer: SegmentWriter, watch: ProgressWatch
) -> BuiltSegment:
    with writer:
        for field in plan.schema.fields:
            watch.tell(MergePhase.SHUFFLE)
            writer.add(source.column(field, rows).for_build())
        segment = writer.commit()
    watch.rows += num_rows(rows)
    watch.bytes += segment.size_bytes
    watch.tell(MergePhase.SHUFFLE)
    return segment
