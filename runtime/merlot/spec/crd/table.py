"""CustomResourceDefinition of Table."""

from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from merlot.spec.crd.structural import Column, JsonSchema, KindNames, add_rules, condition, definition, object_schema
from merlot.spec.indexing import INDEX_KINDS
from merlot.spec.ingestion import UNNAMED
from merlot.spec.rules.table import RULES
from merlot.spec.status import TableStatus
from merlot.spec.table import Table

NAMES = KindNames(kind="Table", plural="tables", singular="table", short=("tbl",))
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
    """Return the CustomResourceDefinition of Table."""
    return definition(NAMES, _table_schema(), COLUMNS, SCALE)


def _table_schema() -> JsonSchema:
    schema = object_schema(Table, TableStatus)
    properties = schema["properties"]
    spec = properties["spec"]
    _declare_lists(spec)
    add_rules(schema, RULES)
    for role, template in _pod_templates(spec):
        template["properties"]["spec"]["properties"]["containers"]["items"]["properties"]["name"]["enum"] = [role]
    batches = properties["status"]["properties"]["batches"]
    batches |= {"x-kubernetes-list-type": "atomic"}
    for name in ("behind", "lost"):
        properties["status"]["properties"]["stream"]["properties"][name]["x-kubernetes-list-type"] = "atomic"
    return schema


def unrestrict(definition_: JsonSchema) -> None:
    """Let pod templates hold anything that Kubernetes accepts. Users who may write Tables may then create any pod."""
    for version in definition_["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for _, template in _pod_templates(spec):
            for name, part in template["properties"].items():
                description = {"description": part["description"]} if "description" in part else {}
                template["properties"][name] = {
                    **description,
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                }


def _pod_templates(spec: JsonSchema) -> Iterator[tuple[str, JsonSchema]]:
    """Yield each role with the schema of its pod template."""
    for role in ("server", "broker"):
        yield role, spec["properties"]["tenants"]["properties"][role]["properties"]["podTemplate"]


def _declare_lists(spec: JsonSchema) -> None:
    """Declare which lists are keyed and which are sets, so that two writers can own parts of them and an element can be
    compared."""
    properties = spec["properties"]
    for keyed in (
        properties["schema"]["properties"]["fields"],
        properties["ingestion"]["properties"]["batch"],
    ):
        keyed |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    # The key of a keyed list must have a value, so this field has a default although it is within a list.
    properties["ingestion"]["properties"]["batch"]["items"]["properties"]["name"]["default"] = UNNAMED
    for key in (*map(to_camel, INDEX_KINDS), "noDictionary"):
        properties["indexing"]["properties"][key]["x-kubernetes-list-type"] = "set"
    tree = properties["indexing"]["properties"]["starTreeIndexConfigs"]["items"]
    for key in ("dimensionsSplitOrder", "skipStarNodeCreationForDimensions"):
        tree["properties"][key]["x-kubernetes-list-type"] = "set"
