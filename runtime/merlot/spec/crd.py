"""The Table's CustomResourceDefinition, generated from the models: `python -m merlot.spec.crd [--check] DIRECTORY`.

Kubernetes wants a *structural* schema: no `$ref`, no unions, no keyword outside its list. Fields that may be left out
are not `nullable`: the API server then drops an explicit null before it applies defaults, as `manifest` does.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from merlot.spec.evolution import WIDER_TYPES
from merlot.spec.model import SpecModel
from merlot.spec.pruners import SEGMENT_PRUNERS
from merlot.spec.status import TableStatus
from merlot.spec.table import Table

HEADER = "# Generated from the models in runtime/merlot/spec by `make crds`; do not edit.\n"
GROUP, VERSION, PLURAL = "merlot.dev", "v1alpha1", "tables"
KEYWORDS = frozenset(
    {
        *("type", "description", "default", "enum", "format", "pattern", "nullable", "properties", "required"),
        *("additionalProperties", "items", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"),
        *("minProperties", "maxProperties", "uniqueItems"),
    }
)
"""Keywords of JSON schema that a CRD may use; `x-kubernetes-…` besides."""

JsonSchema = dict[str, Any]


def table_crd() -> dict[str, Any]:
    """The CustomResourceDefinition of Table."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "Table",
                "listKind": "TableList",
                "plural": PLURAL,
                "singular": "table",
                "shortNames": ["tbl"],
                "categories": ["merlot"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.tenants.server.replicas",
                            "statusReplicasPath": ".status.serverReplicas",
                            "labelSelectorPath": ".status.serverSelector",
                        },
                    },
                    "additionalPrinterColumns": list(_printer_columns()),
                    "schema": {"openAPIV3Schema": _table_schema()},
                }
            ],
        },
    }


def render(definition: Mapping[str, Any]) -> str:
    """The YAML text of a definition."""
    return HEADER + yaml.safe_dump(definition, sort_keys=False, width=120, allow_unicode=True)


def files() -> dict[str, str]:
    """Text of every generated file, by name."""
    return {"table.yaml": render(table_crd())}


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with --check say which differ; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m merlot.spec.crd", description="Write CRDs from the models.")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if a file is not what the models say"
    )
    options = parser.parse_args(arguments)
    stale = [name for name, text in files().items() if _read(options.directory / name) != text]
    if options.check:
        for name in stale:
            sys.stderr.write(f"{options.directory / name} differs from the models: run `make crds`\n")
        return 1 if stale else 0
    options.directory.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (options.directory / name).write_text(files()[name])
    return 0


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _printer_columns() -> Iterator[dict[str, Any]]:
    """What `kubectl get` shows; those of priority 1 only with `-o wide`."""
    for name, kind, path, priority in (
        ("Ready", "string", _condition("Ready"), 0),
        ("Segments", "integer", ".status.segments", 0),
        ("Docs", "integer", ".status.totalDocs", 0),
        ("Size", "string", ".status.size", 0),
        ("Brokers", "string", ".status.brokers", 0),
        ("Servers", "string", ".status.servers", 0),
        ("Reason", "string", _condition("Ready", "reason"), 1),
        ("In-Sync", "string", _condition("ConfigInSync"), 1),
        ("Restart", "string", _condition("RestartPending"), 1),
        ("Degraded", "string", _condition("Degraded", "reason"), 1),
        ("Last-Batch", "string", ".status.lastBatch", 1),
        ("Revision", "integer", ".status.revision", 1),
        ("URL", "string", ".status.brokerUrl", 1),
        ("Age", "date", ".metadata.creationTimestamp", 0),
    ):
        yield {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})


def _condition(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def _table_schema() -> JsonSchema:
    schema = structural(Table)
    properties = schema["properties"]
    name = properties["metadata"]["properties"]["name"]
    properties["metadata"] = {
        "type": "object",
        "properties": {"name": {key: name[key] for key in ("type", "pattern", "maxLength")}},
    }
    for key in ("apiVersion", "kind"):
        del properties[key]["enum"]
    schema["required"] = ["spec"]
    spec = properties["spec"]
    _declare_lists(spec)
    spec["x-kubernetes-validations"] = _SPEC_RULES
    field = spec["properties"]["schema"]["properties"]["fields"]["items"]
    field["x-kubernetes-validations"] = _FIELD_RULES
    spec["properties"]["ingestion"]["properties"]["batch"]["items"]["x-kubernetes-validations"] = _BATCH_RULES
    properties["status"] = structural(TableStatus)
    conditions = properties["status"]["properties"]["conditions"]
    conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    properties["status"]["properties"]["conditions"]["items"]["properties"]["lastTransitionTime"]["format"] = (
        "date-time"
    )
    batches = properties["status"]["properties"]["batches"]
    batches |= {"x-kubernetes-list-type": "atomic"}
    return schema


def _declare_lists(spec: JsonSchema) -> None:
    """Say which lists are keyed or sets, so that two writers can own parts of them and an element can be compared."""
    properties = spec["properties"]
    for keyed in (
        properties["schema"]["properties"]["fields"],
        properties["ingestion"]["properties"]["batch"],
    ):
        keyed |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    for key in ("inverted", "bloom", "noDictionary"):
        properties["indexing"]["properties"][key]["x-kubernetes-list-type"] = "set"


def _rule(rule: str, message: str, path: str = "") -> JsonSchema:
    return {"rule": rule, "message": message} | ({"fieldPath": path} if path else {})


def _unchanged(name: str) -> str:
    """A CEL rule: an optional field is what it was."""
    return f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"


_SPEC_RULES = [
    _rule(_unchanged("timeColumn"), "timeColumn cannot change", ".timeColumn"),
    _rule("self.pushType == oldSelf.pushType", "pushType cannot change", ".pushType"),
    _rule(_unchanged("schema.primaryKey"), "primaryKey cannot change", ".schema.primaryKey"),
    _rule(
        "!has(self.timeColumn) || self.schema.fields.exists(f, f.name == self.timeColumn && f.role == 'dateTime')",
        "timeColumn must be one of schema.fields, with role: dateTime",
        ".timeColumn",
    ),
    _rule("!has(self.retention) || has(self.timeColumn)", "retention needs timeColumn", ".retention"),
    _rule(
        "!has(self.retention) || self.pushType == 'APPEND'",
        "a REFRESH table is replaced as a whole; remove retention or use APPEND",
        ".retention",
    ),
    _rule(
        "!has(self.tenants.server.replicas) || self.tenants.server.replicas == 0"
        " || self.tenants.server.replicas >= self.replication",
        "there must be at least as many servers as replication, or none",
        ".tenants.server.replicas",
    ),
    _rule(
        "!self.tenants.server.name.startsWith('own-')",
        "own-… are the names of servers that belong to one table; choose another",
        ".tenants.server.name",
    ),
    _rule(
        "!has(self.deepStore) || ['file', 's3', 'gs', 'hdfs'].exists(s, self.deepStore.uri.startsWith(s + '://'))",
        "a deep store is s3://bucket/path, gs://bucket/path, hdfs://host/path or file:///path",
        ".deepStore.uri",
    ),
    _rule(
        "!has(self.upsert) || has(self.schema.primaryKey) && size(self.schema.primaryKey) > 0",
        "an upsert table needs schema.primaryKey",
        ".schema.primaryKey",
    ),
    _rule(
        "!has(self.routing.segmentPruners) || self.routing.segmentPruners.all(p, "
        f"p in [{', '.join(repr(name) for name in SEGMENT_PRUNERS)}] || p.contains('.'))",
        f"unknown segment pruner; one of {', '.join(SEGMENT_PRUNERS)}, or a package's, which has a dot in its name",
        ".routing.segmentPruners",
    ),
]
_WIDENINGS = " || ".join(
    f"(oldSelf.type == '{old}' && self.type in [{', '.join(repr(str(new)) for new in sorted(wider))}])"
    for old, wider in WIDER_TYPES.items()
)
_FIELD_RULES = [
    _rule(
        f"self.type == oldSelf.type || {_WIDENINGS}",
        "the type of a column can only be widened without loss: "
        + ", ".join(f"{old} to {' or '.join(sorted(wider))}" for old, wider in WIDER_TYPES.items()),
        ".type",
    ),
    _rule("self.role == oldSelf.role", "the role of a column cannot change", ".role"),
    _rule("self.multiValue == oldSelf.multiValue", "multiValue cannot change; add a column", ".multiValue"),
    _rule(
        "self.role == 'dateTime' ? self.type in ['INT', 'LONG', 'TIMESTAMP', 'STRING'] : !has(self.format)",
        "a dateTime column is INT, LONG, TIMESTAMP or STRING; only a dateTime column has a format",
    ),
    _rule(
        "self.role != 'dateTime' || self.type == 'TIMESTAMP' || has(self.format)",
        "a dateTime column that is no TIMESTAMP needs a format, such as EPOCH|DAYS or SIMPLE_DATE_FORMAT|yyyyMMdd",
        ".format",
    ),
    _rule("self.role == 'dimension' || !self.multiValue", "only a dimension can be multi-valued", ".multiValue"),
]


_BATCH_RULES = [
    _rule("!has(self.csv) || self.format == 'CSV'", "csv goes with format: CSV only", ".csv"),
    _rule(
        "!has(self.overwrite) || self.overwrite.start < self.overwrite.end",
        "overwrite.start must be before overwrite.end",
        ".overwrite",
    ),
]


def structural(model: type[SpecModel]) -> JsonSchema:
    """A model's schema in the form that Kubernetes takes."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: JsonSchema, definitions: Mapping[str, JsonSchema]) -> JsonSchema:
    schema = _resolved(schema, definitions)
    result = {key: value for key, value in schema.items() if key in KEYWORDS or key.startswith("x-kubernetes-")}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in result:
        result["properties"] = {name: _structural(one, definitions) for name, one in result["properties"].items()}
    if "items" in result:
        result["items"] = _structural(result["items"], definitions)
    values = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    result.pop("additionalProperties", None)
    if isinstance(values, dict):
        result["additionalProperties"] = _structural(values, definitions)
    return _with_useful_default(result)


def _resolved(schema: JsonSchema, definitions: Mapping[str, JsonSchema]) -> JsonSchema:
    """The schema without `$ref`, and without the null of an optional field; what stands beside them wins."""
    while "$ref" in schema or "anyOf" in schema:
        beside = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf")}
        if "$ref" in schema:
            inner = definitions[schema["$ref"].removeprefix("#/$defs/")]
        else:
            inner, *others = (one for one in schema["anyOf"] if one.get("type") != "null")
            if others:
                raise TypeError(f"a union has no place in a CRD: {schema['anyOf']}")
        schema = {**inner, **beside}
    return schema


def _with_useful_default(schema: JsonSchema) -> JsonSchema:
    """An object is filled from its parts' defaults; empty lists and mappings are left out of stored objects."""
    default = schema.pop("default", None)
    if "properties" in schema and default is not None:
        if any("default" in one for one in schema["properties"].values()):
            schema["default"] = {}
    elif default not in (None, [], {}, ""):
        schema["default"] = default
    return schema


if __name__ == "__main__":
    sys.exit(main())
