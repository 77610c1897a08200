"""Settings of the tasks of a MergeRollupTask's level, and the check whether a queued task still has them. Pure."""

from __future__ import annotations

from typing import Any

from merlot.cluster.tasks.records import AggregationRecord, MergeTaskConfig
from merlot.spec.tasks import MAX_SHARDS, MergeRollupSpec, MergeType


def level_settings(spec: MergeRollupSpec, rank: int, num_records: int) -> dict[str, Any]:
    """Return the fields of a task's config that follow from the manifest, for a task of the level that reads
    `num_records` rows."""
    level = spec.levels[rank]
    functions = spec.aggregations if level.merge_type is MergeType.ROLLUP else {}
    return {
        "level_index": rank,
        "merge_type": level.merge_type,
        "bucket_period": level.bucket_time_period,
        "round_period": level.round_bucket_time_period,
        "aggregations": {
            name: AggregationRecord(function=aggregation.aggregation_type, parameters=dict(aggregation.parameters))
            for name, aggregation in functions.items()
        },
        "erase_dimensions": level.erase_dimension_values,
        "max_records_per_segment": level.max_num_records_per_segment,
        "num_shards": min(MAX_SHARDS, -(-num_records // level.max_num_records_per_task)),
        "executor": spec.executor,
    }


def is_outdated(config: MergeTaskConfig, spec: MergeRollupSpec) -> bool:
    """Return True if the manifest has changed since: the level is gone, or has other settings."""
    rank = next((rank for rank, level in enumerate(spec.levels) if level.key == config.level.lower()), None)
    if rank is None:
        return True
    wanted = level_settings(spec, rank, config.num_records)
    return any(getattr(config, name) != value for name, value in wanted.items())
