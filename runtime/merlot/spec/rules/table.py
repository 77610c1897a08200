"""Rules of a Table."""

from __future__ import annotations

from typing import Final

from merlot.schemes import DEEP_STORES, SECRET_TAKERS, SECRET_USERS, examples
from merlot.spec.pruners import SEGMENT_PRUNERS
from merlot.spec.rules import pods, star_tree, stream, upsert
from merlot.spec.rules.language import (
    ITEM,
    OLD,
    OLD_ITEM,
    SELF,
    Operand,
    RuleCondition,
    any_of,
    every,
    has,
    is_empty,
    some,
    unchanged,
    unique,
)
from merlot.spec.rules.rule import Rule, Rules
from merlot.spec.schema import COLUMN_TYPES, WIDER_TYPES, FieldRole
from merlot.spec.table import PushType
from merlot.values.scalars import DATE_TIME_TYPES, METRIC_TYPES

_INGESTION, _SCHEMA = SELF.part("ingestion"), SELF.part("schema")
_SERVER: Final = SELF.part("tenants").part("server")
_TIME: Final = SELF.field("timeColumn")
_RETENTION: Final = SELF.field("retention")
_PUSH_TYPE: Final = SELF.field("pushType", default="APPEND", allowed=tuple(PushType))
_IS_APPENDED: Final = _PUSH_TYPE.equals("APPEND")
_STREAM: Final = _INGESTION.field("stream")
_UPSERT: Final = SELF.field("upsert")
_KEY: Final = _SCHEMA.field("primaryKey")
_PRUNERS: Final = SELF.part("routing").field("segmentPruners")
_URI: Final = SELF.field("deepStore.uri")
_SERVERS: Final = _SERVER.field("replicas", default=1)
_BOUNDARY: Final = _INGESTION.field("timeBoundary")
_NEW_TABLE: Final = "create a table under another name and ingest again"


def has_no_credentials(uri: Operand) -> RuleCondition:
    """Return the condition that a URI holds nothing that is certainly a secret. `merlot.uris` knows more that may be
    secret."""
    before_host = uri.matches("^[A-Za-z0-9+.-]+://[^/?]*:[^/?]*@") | uri.matches(
        f"(?i)^({'|'.join(SECRET_USERS)})://[^/?]*@"
    )
    return ~(before_host | uri.matches("[?&](access|secret|session)_(key|token)="))


def _is_time(column: Operand) -> RuleCondition:
    return column.field("name").equals(_TIME) & _role(column).equals("dateTime")


def _role(column: Operand) -> Operand:
    return column.field("role", default="dimension", allowed=tuple(FieldRole))


def _type(column: Operand) -> Operand:
    return column.field("type", allowed=COLUMN_TYPES)


HAS_NO_CREDENTIALS: Final = has_no_credentials(SELF)
_CHANGES: Final = (
    Rule("timeColumn", unchanged(_TIME, OLD.field("timeColumn")), f"timeColumn cannot change; {_NEW_TABLE}"),
    Rule(
        "pushType", _PUSH_TYPE.equals(OLD.field("pushType", default="APPEND")), f"pushType cannot change; {_NEW_TABLE}"
    ),
    Rule(
        "schema.primaryKey",
        unchanged(_KEY, OLD.part("schema").field("primaryKey")),
        f"primaryKey cannot change; {_NEW_TABLE}",
    ),
    Rule(
        "ingestion.stream",
        has(OLD.part("ingestion").field("stream")) >> has(_STREAM),
        "a table keeps its stream, since segments go on where they ended; pause it to consume no more",
    ),
    Rule(
        "upsert",
        has(_UPSERT) >> has(OLD.field("upsert")),
        "a table cannot become an upsert table; create another",
    ),
    Rule(
        "upsert",
        has(OLD.field("upsert")) >> has(_UPSERT),
        "an upsert table stays one: rows that were replaced would come back",
    ),
)
_OF_TIME: Final = (
    Rule(
        "timeColumn",
        has(_TIME) >> some(_SCHEMA.field("fields"), "f", _is_time),
        "timeColumn must be one of schema.fields, with role: dateTime",
    ),
    Rule("retention", has(_RETENTION) >> has(_TIME), "retention needs timeColumn, which tells how old a segment is"),
    Rule(
        "retention",
        has(_RETENTION) >> _IS_APPENDED,
        "a REFRESH table is replaced as a whole; remove retention or use APPEND",
    ),
    Rule(
        "ingestion.daysPerSegment",
        _INGESTION.field("daysPerSegment", default=1).equals(1) | has(_TIME),
        "daysPerSegment counts days of timeColumn, which is left out",
    ),
    Rule(
        "ingestion.timeBoundary",
        has(_BOUNDARY) >> has(_STREAM),
        "timeBoundary separates rows of batches from those of a stream; add ingestion.stream, or remove it",
    ),
    Rule(
        "ingestion.timeBoundary",
        ~(has(_BOUNDARY) & has(_UPSERT)),
        "an upsert table has no time boundary, since a later row may replace one of any time; remove it",
    ),
    Rule(
        "ingestion.timeBoundary",
        has(_BOUNDARY) >> has(_TIME),
        "timeBoundary needs timeColumn, which tells on which side of it a row is",
    ),
)
_OF_PLACE: Final = (
    Rule(
        "tenants.server.replicas",
        _SERVERS.at_most(1) | _SERVERS.at_least(SELF.field("replication", default=1)),
        "there must be at least as many servers as replication, or none; 1, the default, stands for as many",
        is_of_kubernetes=True,
    ),
    Rule(
        "tenants.server.name",
        ~_SERVER.field("name", default="default").starts_with("own-"),
        "own-… are the names of servers that belong to one table; choose another",
        is_of_kubernetes=True,
    ),
    Rule(
        "deepStore.uri",
        ~has(SELF.field("deepStore")) | any_of([_URI.starts_with(f"{row.name}://") for row in DEEP_STORES]),
        f"a deep store is {examples(DEEP_STORES)}",
    ),
    Rule(
        "deepStore.uri",
        ~has(SELF.field("deepStore")) | has_no_credentials(_URI),
        "a URI holds no credentials: name a Secret in deepStore.secretRef",
    ),
    Rule(
        "deepStore.secretRef",
        has(SELF.field("deepStore.secretRef")) >> any_of([_URI.starts_with(f"{name}://") for name in SECRET_TAKERS]),
        f"only a deep store of {' or '.join(SECRET_TAKERS)} takes a Secret; others have the credentials of their pods",
    ),
    Rule(
        "routing.segmentPruners",
        is_empty(_PRUNERS) | every(_PRUNERS, "p", lambda p: p.is_in(*SEGMENT_PRUNERS) | p.contains(".")),
        f"unknown segment pruner; one of {', '.join(SEGMENT_PRUNERS)}, or a package's, which has a dot in its name",
        choices=SEGMENT_PRUNERS,
    ),
    Rule(
        "routing.segmentPruners",
        (is_empty(_PRUNERS) | has(_TIME)) | every(_PRUNERS, "p", lambda p: ~p.equals("time")),
        "the pruner time needs timeColumn",
    ),
    Rule(
        "routing.segmentPruners",
        (is_empty(_PRUNERS) | has(SELF.field("partitioning"))) | every(_PRUNERS, "p", lambda p: ~p.equals("partition")),
        "the pruner partition needs spec.partitioning",
    ),
    Rule("routing.segmentPruners", is_empty(_PRUNERS) | unique(_PRUNERS), "a pruner is named twice; keep one"),
)
_OF_UPSERTS: Final = (
    Rule(
        "upsert",
        ~has(_UPSERT) | ~has(SELF.part("upsert").field("configRef")).same_as(has(SELF.part("upsert").field("config"))),
        "write configRef, or config: one of the two",
    ),
    Rule(
        "schema.primaryKey",
        ~has(_UPSERT) | ~is_empty(_KEY),
        "an upsert table needs schema.primaryKey, which tells which rows replace each other",
    ),
)
_OF_STREAMS: Final = (
    Rule(
        "pushType",
        ~has(_STREAM) | _IS_APPENDED,
        "a REFRESH table is replaced as a whole, and a stream adds to it; write APPEND",
    ),
)
_COLUMN: Final = (
    Rule(
        "type",
        _type(ITEM).equals(_type(OLD_ITEM))
        | any_of(
            [
                _type(OLD_ITEM).equals(str(old)) & _type(ITEM).is_in(*sorted(map(str, wider)))
                for old, wider in WIDER_TYPES.items()
            ]
        ),
        "the type of a column can only be widened without loss: "
        + ", ".join(f"{old} to {' or '.join(sorted(wider))}" for old, wider in WIDER_TYPES.items()),
    ),
    Rule("role", _role(ITEM).equals(_role(OLD_ITEM)), "the role of a column cannot change; add a column"),
    Rule(
        "multiValue",
        ITEM.field("multiValue", default=False).equals(OLD_ITEM.field("multiValue", default=False)),
        "multiValue cannot change; add a column under a new name",
    ),
    Rule(
        "type",
        _role(ITEM).equals("dateTime") >> _type(ITEM).is_in(*DATE_TIME_TYPES),
        f"a dateTime column is one of {', '.join(DATE_TIME_TYPES)}",
    ),
    Rule(
        "role",
        _role(ITEM).equals("metric") >> _type(ITEM).is_in(*METRIC_TYPES),
        f"a metric is one of {', '.join(METRIC_TYPES)}; make it a dimension",
    ),
    *(
        Rule(
            name,
            has(ITEM.field(name)) >> _role(ITEM).equals("dateTime"),
            f"only a dateTime column has a {name}; set role: dateTime or remove it",
        )
        for name in ("format", "granularity")
    ),
    Rule(
        "format",
        (_role(ITEM).equals("dateTime") & ~_type(ITEM).equals("TIMESTAMP")) >> has(ITEM.field("format")),
        "a dateTime column that is no TIMESTAMP needs a format, such as EPOCH|DAYS or SIMPLE_DATE_FORMAT|yyyyMMdd",
    ),
    Rule(
        "multiValue",
        _role(ITEM).equals("dimension") | ~ITEM.field("multiValue", default=False).is_true(),
        "only a dimension can be multi-valued",
    ),
    Rule(
        "maxLength",
        has(ITEM.field("maxLength")) >> _type(ITEM).is_in("STRING", "BYTES", "JSON"),
        "only STRING, BYTES and JSON have a length; remove it",
    ),
)
_URI_OF_BATCH: Final = ITEM.field("sourceUri")
_OVERWRITE: Final = ITEM.field("overwrite")
_BATCH: Final = (
    Rule(
        "sourceUri",
        has_no_credentials(_URI_OF_BATCH),
        "a URI holds no credentials: they belong into the job's environment",
    ),
    Rule(
        "csv",
        has(ITEM.field("csv")) >> ITEM.field("format", allowed=("PARQUET", "ORC", "CSV", "JSON")).equals("CSV"),
        "csv goes with format: CSV only; remove it, or write format: CSV",
    ),
    Rule(
        "overwrite",
        has(_OVERWRITE) >> _OVERWRITE.field("start").before(_OVERWRITE.field("end")),
        "overwrite.start must be before overwrite.end",
    ),
)


def _of_pods(role: str) -> Rules:
    template = f"spec.tenants.{role}.podTemplate"
    return {
        f"{template}.metadata.labels": [pods.KEYS],
        f"{template}.metadata.annotations": [pods.KEYS],
        f"{template}.spec.containers[].env[]": [pods.VARIABLE],
    }


RULES: Final[Rules] = {
    "spec": (*_CHANGES, *_OF_TIME, *_OF_PLACE, *_OF_UPSERTS, *_OF_STREAMS),
    "spec.schema.fields[]": _COLUMN,
    "spec.indexing.starTreeIndexConfigs[]": star_tree.TREE,
    "spec.ingestion.batch[]": _BATCH,
    "spec.ingestion.stream": stream.STREAM,
    "spec.upsert.config": upsert.SETTINGS,
    **_of_pods("server"),
    **_of_pods("broker"),
}
"""Rules of a Table."""
