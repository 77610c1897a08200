"""What a level of a MergeRollupTask has its tasks do, and whether a queued task still does that. Pure."""

from __future__ import annotations

from typing import Any

from merlot.cluster.tasks.records import AggregationRecord, MergeTaskConfig
from merlot.spec.tasks import MAX_SHARDS, MergeRollupSpec, MergeType


def level_settings(spec: MergeRollupSpec, rank: int, num_records: int) -> dict[str, Any]:
    """The fields of a task's config that follow from the manifest, for a task of the level that reads so many rows."""
    level = spec.levels[rank]
    functions = spec.aggregations if level.merge_type is MergeType.ROLLUP else {}
    return {
        "level_index": rank,
        "merge_type": level.merge_type,
        "bucket_period": level.bucket_time_period,
        "round_period": level.round_bucket_time_period,
        "aggregations": {
            name: AggregationRecord(function=one.aggregation_type, parameters=dict(one.parameters))
            for name, one in functions.items()
        },
        "erase_dimensions": level.erase_dimension_values,
        "max_records_per_segment": level.max_num_records_per_segment,
        "num_shards": min(MAX_SHARDS, -(-num_records // level.max_num_records_per_task)),
        "executor": spec.executor,
    }


def is_outdated(config: MergeTaskConfig, spec: MergeRollupSpec) -> bool:
    """Whether the manifest says otherwise by now: the level is gone, or it does something else."""
    rank = next((rank for rank, level in enumerate(spec.levels) if level.key == config.level.lower()), None)
    if rank is None:
        return True
    wanted = level_settings(spec, rank, config.num_records)
    return any(getattr(config, name) != value for name, value in wanted.items())
