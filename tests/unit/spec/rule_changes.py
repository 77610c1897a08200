"""Manifests and changes of them, by kind: each rule that judges changes refuses one of them."""

from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]

STREAM = {"type": "kafka", "topic": "trips", "properties": {"bootstrap.servers": "a:9092"}}
OLD_TABLE = {
    "timeColumn": "at",
    "ingestion": {"stream": STREAM},
    "schema": {
        "primaryKey": ["id"],
        "fields": [
            {"name": "id", "type": "INT"},
            {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
            {"name": "fare", "type": "FLOAT", "role": "metric"},
            {"name": "tags", "type": "STRING", "multiValue": True},
        ],
    },
}
CHANGES: Mapping[str, tuple[Callable[[Json], object], ...]] = {
    "Table": (
        lambda spec: spec.pop("timeColumn"),
        lambda spec: spec.update(retention="3d"),
        lambda spec: spec.pop("ingestion"),
        lambda spec: spec["ingestion"]["stream"].update(type="files"),
        lambda spec: spec["ingestion"]["stream"].update(topic="rides"),
        lambda spec: spec["ingestion"]["stream"].update(start="latest"),
        lambda spec: spec["schema"].pop("primaryKey"),
        lambda spec: spec["schema"].update(primaryKey=["at"]),
        lambda spec: spec.update(pushType="REFRESH"),
        lambda spec: spec.update(upsert={"configRef": "latest"}),
        lambda spec: spec.pop("upsert", None),
        lambda spec: spec["schema"]["fields"][0].update(type="LONG"),
        lambda spec: spec["schema"]["fields"][0].update(type="STRING"),
        lambda spec: spec["schema"]["fields"][2].update(type="DOUBLE"),
        lambda spec: spec["schema"]["fields"][2].update(role="dimension"),
        lambda spec: spec["schema"]["fields"][3].pop("multiValue"),
        lambda spec: spec["schema"]["fields"].insert(0, {"name": "more", "type": "JSON"}),
    ),
    "MergeRollupTask": (
        lambda spec: spec.update(table="trips"),
        lambda spec: spec["levels"][0].update(bufferTimePeriod="2d"),
    ),
}
OLD: Mapping[str, tuple[Json, ...]] = {
    "Table": (OLD_TABLE, {**OLD_TABLE, "upsert": {"configRef": "latest"}}),
    "MergeRollupTask": (
        {"table": "orders", "levels": [{"name": "daily", "bucketTimePeriod": "1d", "bufferTimePeriod": "1d"}]},
    ),
}
