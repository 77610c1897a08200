"""The Table's CustomResourceDefinition."""

from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from merlot.schemes import DEEP_STORES, SECRET_USERS, examples
from merlot.spec.crd.structural import Column, JsonSchema, Names, condition, definition, object_schema, rule, unchanged
from merlot.spec.evolution import WIDER_TYPES
from merlot.spec.indexing import INDEX_KINDS
from merlot.spec.ingestion import UNNAMED
from merlot.spec.pod_template import RESERVED_KEYS, RESERVED_VARIABLES
from merlot.spec.pruners import SEGMENT_PRUNERS
from merlot.spec.status import TableStatus
from merlot.spec.stream import HOST_PROPERTIES, OWN_PROPERTIES, SECRET_PROPERTIES
from merlot.spec.table import Table

NAMES = Names(kind="Table", plural="tables", singular="table", short=("tbl",))
SCALE = {
    "scale": {
        "specReplicasPath": ".spec.tenants.server.replicas",
        "statusReplicasPath": ".status.serverReplicas",
        "labelSelectorPath": ".status.serverSelector",
    }
}
COLUMNS: tuple[Column, ...] = (
    ("Ready", "string", condition("Ready"), 0),
    ("Segments", "integer", ".status.segments", 0),
    ("Docs", "integer", ".status.totalDocs", 0),
    ("Size", "string", ".status.size", 0),
    ("Brokers", "string", ".status.brokers", 0),
    ("Servers", "string", ".status.servers", 0),
    ("Reason", "string", condition("Ready", "reason"), 1),
    ("In-Sync", "string", condition("ConfigInSync"), 1),
    ("Indexes", "string", ".status.indexes", 1),
    ("Restart", "string", condition("RestartPending"), 1),
    ("Degraded", "string", condition("Degraded", "reason"), 1),
    ("Last-Batch", "string", ".status.lastBatch", 1),
    ("Stream", "string", condition("Consuming", "reason"), 1),
    ("Lag", "string", ".status.stream.lag", 1),
    ("Revision", "integer", ".status.revision", 1),
    ("URL", "string", ".status.brokerUrl", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def table_crd() -> JsonSchema:
    """The CustomResourceDefinition of Table."""
    return definition(NAMES, _table_schema(), COLUMNS, SCALE)


def _table_schema() -> JsonSchema:
    schema = object_schema(Table, TableStatus)
    properties = schema["properties"]
    spec = properties["spec"]
    _declare_lists(spec)
    spec["x-kubernetes-validations"] = _SPEC_RULES
    field = spec["properties"]["schema"]["properties"]["fields"]["items"]
    field["x-kubernetes-validations"] = _FIELD_RULES
    spec["properties"]["ingestion"]["properties"]["batch"]["items"]["x-kubernetes-validations"] = _BATCH_RULES
    spec["properties"]["ingestion"]["properties"]["stream"]["x-kubernetes-validations"] = _STREAM_RULES
    for role, template in _pod_templates(spec):
        _restrict(role, template["properties"])
    batches = properties["status"]["properties"]["batches"]
    batches |= {"x-kubernetes-list-type": "atomic"}
    for name in ("behind", "lost"):
        properties["status"]["properties"]["stream"]["properties"][name]["x-kubernetes-list-type"] = "atomic"
    return schema


def unrestrict(definition_: JsonSchema) -> None:
    """Let templates of pods say whatever Kubernetes takes: then who may write Tables may make any pod."""
    for version in definition_["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for _, template in _pod_templates(spec):
            for name, part in template["properties"].items():
                kept = {"description": part["description"]} if "description" in part else {}
                template["properties"][name] = {**kept, "type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _pod_templates(spec: JsonSchema) -> Iterator[tuple[str, JsonSchema]]:
    """The schemas of templates, with the role whose pods they are laid over."""
    for role in ("server", "broker"):
        yield role, spec["properties"]["tenants"]["properties"][role]["properties"]["podTemplate"]


def _restrict(role: str, parts: JsonSchema) -> None:
    for name in ("labels", "annotations"):
        parts["metadata"]["properties"][name]["x-kubernetes-validations"] = _KEY_RULES
    container = parts["spec"]["properties"]["containers"]["items"]
    container["properties"]["name"]["enum"] = [role]
    container["properties"]["env"]["items"]["x-kubernetes-validations"] = _VARIABLE_RULES


def _declare_lists(spec: JsonSchema) -> None:
    """Say which lists are keyed or sets, so that two writers can own parts of them and an element can be compared."""
    properties = spec["properties"]
    for keyed in (
        properties["schema"]["properties"]["fields"],
        properties["ingestion"]["properties"]["batch"],
    ):
        keyed |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    # A key has to be there.
    properties["ingestion"]["properties"]["batch"]["items"]["properties"]["name"]["default"] = UNNAMED
    for key in (*map(to_camel, INDEX_KINDS), "noDictionary"):
        properties["indexing"]["properties"][key]["x-kubernetes-list-type"] = "set"
    tree = properties["indexing"]["properties"]["starTreeIndexConfigs"]["items"]
    for key in ("dimensionsSplitOrder", "skipStarNodeCreationForDimensions"):
        tree["properties"][key]["x-kubernetes-list-type"] = "set"
    tree["x-kubernetes-validations"] = _TREE_RULES


def _credentials(uri: str) -> str:
    """Whether a URI holds what `merlot.uris` knows for certain as a secret. A rule's message does not repeat it."""
    keys = f"(?i)^({'|'.join(SECRET_USERS)})://[^/?]*@"
    before_host = f"{uri}.matches('^[A-Za-z0-9+.-]+://[^/?]*:[^/?]*@') || {uri}.matches('{keys}')"
    return f"{before_host} || {uri}.matches('[?&](access|secret|session)_(key|token)=')"


_SPEC_RULES = [
    rule(unchanged("timeColumn"), "timeColumn cannot change", ".timeColumn"),
    rule("self.pushType == oldSelf.pushType", "pushType cannot change", ".pushType"),
    rule(unchanged("schema.primaryKey"), "primaryKey cannot change", ".schema.primaryKey"),
    rule(
        "!has(self.timeColumn) || "
        "self.schema.fields.exists(f, f.name == self.timeColumn && has(f.role) && f.role == 'dateTime')",
        "timeColumn must be one of schema.fields, with role: dateTime",
        ".timeColumn",
    ),
    rule("!has(self.retention) || has(self.timeColumn)", "retention needs timeColumn", ".retention"),
    rule(
        "!has(oldSelf.ingestion) || !has(oldSelf.ingestion.stream)"
        " || (has(self.ingestion) && has(self.ingestion.stream))",
        "a table keeps its stream; pause it to consume no more",
        ".ingestion",
    ),
    rule(
        "!has(self.retention) || self.pushType == 'APPEND'",
        "a REFRESH table is replaced as a whole; remove retention or use APPEND",
        ".retention",
    ),
    rule(
        "self.tenants.server.replicas <= 1 || self.tenants.server.replicas >= self.replication",
        "there must be at least as many servers as replication, or none; 1, the default, stands for as many",
        ".tenants.server.replicas",
    ),
    rule(
        "!self.tenants.server.name.startsWith('own-')",
        "own-… are the names of servers that belong to one table; choose another",
        ".tenants.server.name",
    ),
    rule(
        f"!has(self.deepStore) || {[row.name for row in DEEP_STORES]}"
        ".exists(s, self.deepStore.uri.startsWith(s + '://'))",
        f"a deep store is {examples(DEEP_STORES)}",
        ".deepStore.uri",
    ),
    rule(
        f"!has(self.deepStore) || !({_credentials('self.deepStore.uri')})",
        "a URI holds no credentials: name a Secret in deepStore.secretRef",
        ".deepStore.uri",
    ),
    rule(
        "has(oldSelf.upsert) || !has(self.upsert)",
        "a table cannot become an upsert table; create another",
        ".upsert",
    ),
    rule(
        "has(self.upsert) || !has(oldSelf.upsert)",
        "an upsert table stays one: rows that were replaced would come back",
        ".upsert",
    ),
    rule(
        "!has(self.upsert) || has(self.upsert.configRef) != has(self.upsert.config)",
        "write configRef, or config: one of the two",
        ".upsert",
    ),
    rule(
        "!has(self.upsert) || has(self.schema.primaryKey) && size(self.schema.primaryKey) > 0",
        "an upsert table needs schema.primaryKey",
        ".schema.primaryKey",
    ),
    rule(
        "!has(self.routing.segmentPruners) || self.routing.segmentPruners.all(p, "
        f"p in [{', '.join(repr(name) for name in SEGMENT_PRUNERS)}] || p.contains('.'))",
        f"unknown segment pruner; one of {', '.join(SEGMENT_PRUNERS)}, or a package's, which has a dot in its name",
        ".routing.segmentPruners",
    ),
]
_TREE_RULES = [
    rule(
        "!has(self.skipStarNodeCreationForDimensions)"
        " || self.skipStarNodeCreationForDimensions.all(d, d in self.dimensionsSplitOrder)",
        "a dimension that is skipped is not in dimensionsSplitOrder",
        ".skipStarNodeCreationForDimensions",
    ),
]
_WIDENINGS = " || ".join(
    f"(oldSelf.type == '{old}' && self.type in [{', '.join(repr(str(new)) for new in sorted(wider))}])"
    for old, wider in WIDER_TYPES.items()
)
_ROLE = "(has(self.role) ? self.role : 'dimension')"
_MULTI = "(has(self.multiValue) && self.multiValue)"
"""The value that a column declares, or has by default."""
_FIELD_RULES = [
    rule(
        f"self.type == oldSelf.type || {_WIDENINGS}",
        "the type of a column can only be widened without loss: "
        + ", ".join(f"{old} to {' or '.join(sorted(wider))}" for old, wider in WIDER_TYPES.items()),
        ".type",
    ),
    rule(f"{_ROLE} == {_ROLE.replace('self', 'oldSelf')}", "the role of a column cannot change", ".role"),
    rule(f"{_MULTI} == {_MULTI.replace('self', 'oldSelf')}", "multiValue cannot change; add a column", ".multiValue"),
    rule(
        f"{_ROLE} == 'dateTime' ? self.type in ['INT', 'LONG', 'TIMESTAMP', 'STRING'] : !has(self.format)",
        "a dateTime column is INT, LONG, TIMESTAMP or STRING; only a dateTime column has a format",
    ),
    rule(
        f"{_ROLE} != 'dateTime' || self.type == 'TIMESTAMP' || has(self.format)",
        "a dateTime column that is no TIMESTAMP needs a format, such as EPOCH|DAYS or SIMPLE_DATE_FORMAT|yyyyMMdd",
        ".format",
    ),
    rule(f"{_ROLE} == 'dimension' || !{_MULTI}", "only a dimension can be multi-valued", ".multiValue"),
]
_KEY_RULES = [
    rule(
        f"self.all(key, ![{', '.join(repr(prefix) for prefix in RESERVED_KEYS)}].exists(p, key.startsWith(p)))",
        f"keys of {', '.join(RESERVED_KEYS)} are not for a Table to set",
    )
]
_VARIABLE_RULES = [
    rule(
        f"!self.name.matches('{RESERVED_VARIABLES}')",
        "a variable that loads code, gives credentials, or is Merlot's own is not for a Table to set",
        ".name",
    )
]
_BATCH_RULES = [
    rule(
        f"!({_credentials('self.sourceUri')})",
        "a URI holds no credentials: they belong into the job's environment",
        ".sourceUri",
    ),
    rule("!has(self.csv) || self.format == 'CSV'", "csv goes with format: CSV only", ".csv"),
    rule(
        "!has(self.overwrite) || self.overwrite.start < self.overwrite.end",
        "overwrite.start must be before overwrite.end",
        ".overwrite",
    ),
]
_STREAM_RULES = [
    *(
        rule(unchanged(name), f"{name} cannot change, since segments hold offsets; create another table", f".{name}")
        for name in ("type", "topic", "start")
    ),
    rule(
        "self.type in ['kafka', 'files'] ? has(self.topic) : self.type.contains('.')",
        "a stream is kafka or files, with its topic, or a package's, which has a dot in its name",
        ".topic",
    ),
    rule(
        f"!has(self.properties) || !self.properties.exists(p, p in {sorted(SECRET_PROPERTIES)})",
        "secrets belong into the Secret that secretRef names",
        ".properties",
    ),
    rule(
        f"!has(self.properties) || !self.properties.exists(p, p in {sorted(OWN_PROPERTIES | HOST_PROPERTIES)})",
        "what is Merlot's to set, or names programs, libraries and files of a machine, is not for a table to set",
        ".properties",
    ),
]
