"""Derive the plans of a task's merges from its record."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path

from merlot.clock import Clock
from merlot.cluster.records import SegmentRecord
from merlot.cluster.tasks.records import MergeTaskConfig, Window
from merlot.merge import shuffle as merge_shuffle
from merlot.merge.plan import MergeMode, MergePlan, MetricAggregation
from merlot.minion.control import TaskControl
from merlot.segment.metadata import CreationFacts
from merlot.spec import time_rounding
from merlot.spec.table import Table
from merlot.values import periods

BUILDER = "merlot_minion"


def merge_plan(table: Table, config: MergeTaskConfig, clock: Clock) -> MergePlan:
    """Return the plan for the rows in the task's windows; `rest_plan` covers the other rows."""
    spec = table.spec
    return MergePlan(
        table=table.raw_name,
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=spec.time_column,
        partitioning=spec.partitioning,
        merge_type=MergeMode(config.merge_type.value),
        windows=config.windows,
        round_period=None if config.round_period is None else periods.parse(config.round_period),
        aggregations={
            name: MetricAggregation(function=aggregation.function.upper(), parameters=aggregation.parameters)
            for name, aggregation in config.aggregations.items()
        },
        erased=frozenset(config.erase_dimensions),
        max_records_per_segment=config.max_records_per_segment,
        segment_name_prefix=output_prefix(config),
        drops_outside=bool(config.rest),
        creation=CreationFacts(host=socket.gethostname(), time_ms=clock.now_ms(), builder=BUILDER),
    )


def rest_plan(table: Table, config: MergeTaskConfig, clock: Clock) -> MergePlan:
    """Return the plan for the rows beyond the windows: they are aligned to buckets and stay otherwise unchanged."""
    return dataclasses.replace(
        merge_plan(table, config, clock),
        merge_type=MergeMode.CONCAT,
        windows=config.rest,
        round_period=None,
        aggregations={},
        erased=frozenset(),
        segment_name_prefix=config.rest_prefix,
        drops_outside=True,
    )


def rounding_that_moves(table: Table, config: MergeTaskConfig) -> str | None:
    """Return the period that the task rounds times to; None if it rounds no times, or they are as coarse already."""
    spec = table.spec
    field = None if spec.time_column is None else spec.table_schema.field(spec.time_column)
    if field is None or config.round_period is None:
        return None
    return config.round_period if time_rounding.is_moving(field, periods.parse(config.round_period)) else None


def output_prefix(config: MergeTaskConfig) -> str:
    """Return the prefix of the names of the windows' outputs; each shard has its own."""
    return config.output_prefix if config.shard is None else f"{config.output_prefix}_s{config.shard}"


def reaches(record: SegmentRecord, windows: Sequence[Window]) -> bool:
    """Return whether a segment may have rows in one of the windows."""
    if record.start_time_ms is None or record.end_time_ms is None:
        return True
    return any(record.start_time_ms < end and start <= record.end_time_ms for start, end in windows)


def shuffle(plan: MergePlan, paths: Sequence[Path], folder: Path, num_shards: int, control: TaskControl) -> list[Path]:
    """Distribute the rows of the plan's windows to one file per shard, rows of equal keys to the same file."""
    built = merge_shuffle.shuffle(
        plan,
        paths,
        folder,
        num_shards,
        lambda phase, rows, num_bytes: control.tell(phase.value, rows=rows, num_bytes=num_bytes),
        control.is_stopped,
    )
    return [segment.path for segment in built]
