"""The UpsertConfig's CustomResourceDefinition: the rules of `upsert_checks` as far as CEL can say them."""

from merlot.spec.crd.structural import Column, JsonSchema, Names, condition, definition, object_schema, rule
from merlot.spec.task_status import UpsertConfigStatus
from merlot.spec.upsert import UpsertConfig

NAMES = Names(kind="UpsertConfig", plural="upsertconfigs", singular="upsertconfig", short=("upsert", "upserts"))
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
    """The CustomResourceDefinition of UpsertConfig."""
    schema = object_schema(UpsertConfig, UpsertConfigStatus)
    schema["properties"]["spec"]["x-kubernetes-validations"] = _SPEC_RULES
    status = schema["properties"]["status"]["properties"]
    status["tables"]["x-kubernetes-list-type"] = "set"
    status["perTable"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["table"]}
    return definition(NAMES, schema, COLUMNS)


_ZERO = "'^0+[a-z]?$'"
_HAS_TTL = "(has(self.primaryKeyTtl) || has(self.ttl) || has(self.TtlValue))"
_SPEC_RULES = [
    rule(
        f"!has(self.primaryKeyTtl) || !self.primaryKeyTtl.matches({_ZERO})",
        "a TTL is more than 0; remove it to keep keys for ever",
        ".primaryKeyTtl",
    ),
    rule(
        "has(self.TtlUnit) == has(self.TtlValue)"
        " && [has(self.primaryKeyTtl), has(self.ttl), has(self.TtlValue)].filter(is_given, is_given).size() <= 1",
        "the TTL is said in one way: primaryKeyTtl, or ttl, or TtlUnit with TtlValue",
    ),
    rule(
        f"!has(self.maxFutureSkew) || {_HAS_TTL}",
        "maxFutureSkew needs primaryKeyTtl; without it no key expires",
        ".maxFutureSkew",
    ),
    rule(
        f"!has(self.deletedKeysTtl) || !self.deletedKeysTtl.matches({_ZERO})",
        "a TTL is more than 0; remove it to remember deleted keys for ever",
        ".deletedKeysTtl",
    ),
    rule(
        f"!{_HAS_TTL} || !has(self.comparisonColumns) || size(self.comparisonColumns) <= 1",
        "primaryKeyTtl needs one comparison column, a number or a time",
        ".primaryKeyTtl",
    ),
    rule(
        "self.snapshot == 'ENABLE' || self.preload != 'ENABLE'",
        "preload needs snapshot: ENABLE, which are what keys are taken from",
        ".preload",
    ),
    rule(
        "!has(self.deletedKeysTtl) || has(self.deleteRecordColumn)",
        "deletedKeysTtl needs deleteRecordColumn, which tells what is deleted",
        ".deletedKeysTtl",
    ),
    rule(
        f"!(self.skipLateEvents || self.isSkipLateEvents) || {_HAS_TTL}",
        "skipLateEvents needs primaryKeyTtl, which tells what is late",
        ".skipLateEvents",
    ),
    rule(
        f"self.pruning == 'COMMIT' || {_HAS_TTL}",
        "pruning needs primaryKeyTtl; without it no key expires",
        ".pruning",
    ),
    rule(
        "!has(self.pruningInterval) || self.pruning == 'SCAN'",
        "only pruning: SCAN has an interval",
        ".pruningInterval",
    ),
    rule(
        "!self.dropOutOfOrderRecord || !has(self.outOfOrderRecordColumn)",
        "dropOutOfOrderRecord and outOfOrderRecordColumn exclude each other",
        ".outOfOrderRecordColumn",
    ),
    rule(
        "self.mode == 'PARTIAL' || !has(self.partialUpsertStrategies) || size(self.partialUpsertStrategies) == 0",
        "only mode: PARTIAL merges columns; write it, or remove partialUpsertStrategies",
        ".partialUpsertStrategies",
    ),
    rule(
        "self.mode == 'PARTIAL' || self.defaultPartialUpsertStrategy == 'OVERWRITE'",
        "only mode: PARTIAL merges columns; write it, or remove defaultPartialUpsertStrategy",
        ".defaultPartialUpsertStrategy",
    ),
    rule(
        "self.mode != 'DEDUP' || (!has(self.deleteRecordColumn) && !has(self.outOfOrderRecordColumn)"
        " && !self.dropOutOfOrderRecord && (!has(self.comparisonColumns) || size(self.comparisonColumns) <= 1))",
        "mode DEDUP keeps the first row of a key, whatever comes: it goes with one comparison column at most, and with"
        " neither deleteRecordColumn, outOfOrderRecordColumn nor dropOutOfOrderRecord",
        ".mode",
    ),
    rule(
        "!has(self.hashFunction) || self.hashFunction == 'NONE'",
        "short keys are kept whole, others as 128 bits of a hash that nobody chooses; remove hashFunction",
        ".hashFunction",
    ),
    rule(
        "has(self.maxFutureSkew) == has(self.messageTimeColumn)",
        "maxFutureSkew and messageTimeColumn go together: one says how far ahead, the other of what",
        ".maxFutureSkew",
    ),
    rule(
        "!has(self.maxFutureSkew) || !self.dropOutOfOrderRecord",
        "maxFutureSkew does not go with dropOutOfOrderRecord: rows that are dropped could make keys expire",
        ".maxFutureSkew",
    ),
    rule(
        "!has(self.compaction) || (self.mode != 'DEDUP' && !has(self.maxFutureSkew))",
        "compaction goes neither with mode DEDUP nor with maxFutureSkew: rows that it removes would decide others",
        ".compaction",
    ),
    rule(
        f"!has(self.compaction) || !({_HAS_TTL} || has(self.deletedKeysTtl))"
        " || (self.snapshot == 'ENABLE' && self.snapshotStore == 'DEEP_STORE')",
        "compaction with a time to live needs snapshot: ENABLE, in the DEEP_STORE",
        ".compaction",
    ),
    rule(
        f"!has(self.compaction) || !has(self.compaction.merge) || !({_HAS_TTL} || has(self.deletedKeysTtl))",
        "compaction.merge does not go with a time to live in this version: segments stay apart",
        ".compaction",
    ),
    rule(
        "!has(self.comparisonColumns) || !has(self.partialUpsertStrategies)"
        " || self.comparisonColumns.all(c, !(c in self.partialUpsertStrategies))",
        "a comparison column is never merged; take it out of partialUpsertStrategies",
        ".partialUpsertStrategies",
    ),
    rule(
        "self.consistencyMode == 'NONE' || (!self.dropOutOfOrderRecord && !has(self.outOfOrderRecordColumn)"
        " && self.newSegmentTrackingTimeMs > 0)",
        "consistencyMode SYNC and SNAPSHOT go with newSegmentTrackingTimeMs above 0, and with neither"
        " dropOutOfOrderRecord nor outOfOrderRecordColumn",
        ".consistencyMode",
    ),
]
