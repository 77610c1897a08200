"""Executor side of a merge: divide each input into shards by its rows' keys; merge the pieces of each shard; upload.

Rows travel as small segment files, one per input and shard, so that both halves are the merge that minions run.
Functions here become mapInArrow functions.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from merlot.catalog.transfer import fetch_segments, upload_segments
from merlot.clock import SystemClock
from merlot.cluster.records import SegmentRecord
from merlot.cluster.tasks.records import MergeTaskConfig
from merlot.merge import shuffle as merge_shuffle
from merlot.merge import task as merge_task
from merlot.merge.plan import MergePlan
from merlot.minion import merge_plans
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot_spark.preparing import read_table

SHARD = "shard"
REST = -1
"""Shard of the rows that are not in the task's windows."""
PIECE_SCHEMA = pa.schema([(SHARD, pa.int32()), ("piece", pa.binary())])
RECORD_SCHEMA = pa.schema([("record", pa.string())])
MEMORY_BYTES = 1 << 30
BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, kw_only=True)
class MergeOrder:
    """A merge task: plain data, since it travels to executors."""

    manifest_text: str
    config_text: str
    deep_store: str
    inputs: tuple[str, ...] = ()
    """Records of the inputs, as JSON."""

    @property
    def table(self) -> Table:
        """Return the table."""
        return read_table(self.manifest_text)

    @property
    def config(self) -> MergeTaskConfig:
        """Return the task's config."""
        return _config(self.config_text)

    def plan(self, shard: int) -> MergePlan:
        """Return the plan for the rows of a shard."""
        if shard == REST:
            return merge_plans.rest_plan(self.table, self.config, SystemClock())
        return merge_plans.merge_plan(self.table, self.config.model_copy(update={"shard": shard}), SystemClock())


@functools.lru_cache(maxsize=4)
def _config(text: str) -> MergeTaskConfig:
    return MergeTaskConfig.model_validate_json(text)


def divide(order: MergeOrder) -> BatchFunction:
    """Return a function from inputs' numbers to pieces: (shard, segment file)."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                record = SegmentRecord.model_validate_json(order.inputs[number])
                with tempfile.TemporaryDirectory(prefix="merlot-merge-") as folder:
                    for shard, path in _pieces(order, record, Path(folder)):
                        yield pa.RecordBatch.from_arrays(
                            [pa.array([shard], pa.int32()), pa.array([path.read_bytes()], pa.binary())],
                            schema=PIECE_SCHEMA,
                        )

    return run


def build(order: MergeOrder) -> BatchFunction:
    """Return a function from pieces, grouped by shard, to the records of the outputs, which it uploads."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, pieces in _by_shard(batches):
            with tempfile.TemporaryDirectory(prefix="merlot-merge-") as folder:
                records = _merge(order, shard, pieces, Path(folder))
            rows = [record.model_dump_json(by_alias=True, exclude_defaults=True) for record in records]
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], schema=RECORD_SCHEMA)

    return run


def _pieces(order: MergeOrder, record: SegmentRecord, folder: Path) -> Iterator[tuple[int, Path]]:
    (path,) = fetch_segments(DeepStore(order.deep_store, keeps_copies=False), [record], folder / "in")
    (folder / "out").mkdir()
    shards = merge_shuffle.shuffle(order.plan(0), [path], folder / "out", order.config.num_shards, _silent, _never)
    yield from ((number, segment.path) for number, segment in enumerate(shards) if segment.metadata.num_docs)
    if order.config.rest and merge_plans.reaches(record, order.config.rest):
        (folder / "rest").mkdir()
        rest = merge_task.run(order.plan(REST), [path], folder / "rest", _silent, _never, MEMORY_BYTES)
        yield from ((REST, segment.path) for segment in rest)


def _by_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[bytes]]]:
    current, pieces = 0, list[bytes]()
    for batch in batches:
        for shard, piece in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if pieces and shard != current:
                yield current, pieces
                pieces = []
            current = shard
            pieces.append(piece)
    if pieces:
        yield current, pieces


def _merge(order: MergeOrder, shard: int, pieces: Sequence[bytes], folder: Path) -> list[SegmentRecord]:
    inputs = []
    for number, piece in enumerate(pieces):
        path = folder / f"piece-{number}.mseg"
        path.write_bytes(piece)
        inputs.append(path)
    (folder / "out").mkdir()
    built = merge_task.run(order.plan(shard), inputs, folder / "out", _silent, _never, MEMORY_BYTES)
    return upload_segments(DeepStore(order.deep_store), built, order.table.name)


def _silent(*_: Any) -> None:
    """Ignore progress: nobody listens on an executor."""


def _never() -> bool:
    """Never stop by itself: Spark kills a job that is no longer wanted."""
    return False
