"""CustomResourceDefinition of UpsertConfig."""

from merlot.spec.crd.structural import Column, JsonSchema, KindNames, add_rules, condition, definition, object_schema
from merlot.spec.rules.upsert import RULES
from merlot.spec.task_status import UpsertConfigStatus
from merlot.spec.upsert import UpsertConfig

NAMES = KindNames(kind="UpsertConfig", plural="upsertconfigs", singular="upsertconfig", short=("upsert", "upserts"))
COLUMNS: tuple[Column, ...] = (
    ("Tables", "string", ".status.tables", 0),
    ("Keys", "integer", ".status.keys", 0),
    ("TTL", "string", ".status.ttl", 0),
    ("Memory", "string", ".status.memory", 0),
    ("Snapshot", "date", ".status.snapshot", 0),
    ("State", "string", ".status.state", 0),
    ("Ready", "string", condition("Ready"), 0),
    ("Mode", "string", ".spec.mode", 1),
    ("Accepted", "string", condition("Accepted"), 1),
    ("Executed", "string", condition("Executed", "message"), 1),
    ("Backfill", "string", condition("BackfillProgressing", "message"), 1),
    ("Reason", "string", condition("Ready", "reason"), 1),
    ("Message", "string", condition("Ready", "message"), 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def upsert_crd() -> JsonSchema:
    """Return the CustomResourceDefinition of UpsertConfig."""
    schema = object_schema(UpsertConfig, UpsertConfigStatus)
    add_rules(schema, RULES)
    status = schema["properties"]["status"]["properties"]
    status["tables"]["x-kubernetes-list-type"] = "set"
    status["perTable"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["table"]}
    return definition(NAMES, schema, COLUMNS)
