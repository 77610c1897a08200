"""CustomResourceDefinition of MergeRollupTask."""

from merlot.spec.crd.structural import Column, JsonSchema, KindNames, add_rules, condition, definition, object_schema
from merlot.spec.rules.rollup import RULES
from merlot.spec.task_status import MergeRollupTaskStatus
from merlot.spec.tasks import MergeRollupTask

NAMES = KindNames(
    kind="MergeRollupTask", plural="mergerolluptasks", singular="mergerolluptask", short=("rollup", "rollups")
)
COLUMNS: tuple[Column, ...] = (
    ("Table", "string", ".spec.table", 0),
    ("Level", "string", ".status.level", 0),
    ("Watermark", "string", ".status.watermark", 0),
    ("Delay", "integer", ".status.delay", 0),
    ("State", "string", ".status.state", 0),
    ("Last-Run", "date", ".status.lastRun", 0),
    ("Ready", "string", condition("Ready"), 1),
    ("Reason", "string", condition("Ready", "reason"), 1),
    ("Progress", "string", ".status.progress", 1),
    ("Next-Run", "string", ".status.nextRun", 1),
    ("Schedule", "string", ".spec.schedule", 1),
    ("Last-Error", "string", ".status.lastError", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
"""Columns of `kubectl get mergerolluptasks`."""


def rollup_crd() -> JsonSchema:
    """Return the CustomResourceDefinition of MergeRollupTask."""
    schema = object_schema(MergeRollupTask, MergeRollupTaskStatus)
    add_rules(schema, RULES)
    spec_level = schema["properties"]["spec"]["properties"]["levels"]["items"]
    spec_level["properties"]["eraseDimensionValues"]["x-kubernetes-list-type"] = "set"
    status = schema["properties"]["status"]["properties"]
    status["levels"]["x-kubernetes-list-type"] = "atomic"
    status["running"]["x-kubernetes-list-type"] = "atomic"
    return definition(NAMES, schema, COLUMNS)
