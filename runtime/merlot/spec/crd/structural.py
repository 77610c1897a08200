"""From models to the schemas that Kubernetes takes, and the frame of a CustomResourceDefinition around them.

Kubernetes wants a *structural* schema: no `$ref`, no unions, no keyword outside its list. Fields that may be left out
are not `nullable`: the API server then drops an explicit null before it applies defaults, as `manifest` does.

Within lists there are no defaults: `kubectl apply` replaces a list as a whole, and would find one that the API server
has filled in different from the manifest each time. `manifest` knows them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from merlot.spec.model import SpecModel
from merlot.spec.rules.rule import Rules

GROUP, VERSION = "merlot.dev", "v1alpha1"
KEYWORDS = frozenset(
    {
        *("type", "description", "default", "enum", "format", "pattern", "nullable", "properties", "required"),
        *("additionalProperties", "items", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"),
        *("minProperties", "maxProperties", "uniqueItems"),
    }
)
"""Keywords of JSON schema that a CRD may use; `x-kubernetes-…` besides."""

JsonSchema = dict[str, Any]
Column = tuple[str, str, str, int]
"""Header, type, path and priority of a column of `kubectl get`; those of priority 1 are shown with `-o wide`."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a kind is called."""

    kind: str
    plural: str
    singular: str
    short: tuple[str, ...]


def definition(
    names: Names, schema: JsonSchema, columns: Iterable[Column], subresources: Mapping[str, Any] | None = None
) -> JsonSchema:
    """The CustomResourceDefinition of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.kind,
                "listKind": f"{names.kind}List",
                "plural": names.plural,
                "singular": names.singular,
                "shortNames": list(names.short),
                "categories": ["merlot"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **(subresources or {})},
                    "additionalPrinterColumns": [_column(column) for column in columns],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def object_schema(model: type[SpecModel], status: type[SpecModel]) -> JsonSchema:
    """The schema of a whole object: what the user writes, and its status."""
    schema = structural(model)
    properties = schema["properties"]
    name = properties["metadata"]["properties"]["name"]
    properties["metadata"] = {
        "type": "object",
        "properties": {"name": {key: name[key] for key in ("type", "pattern", "maxLength")}},
    }
    for key in ("apiVersion", "kind"):
        del properties[key]["enum"]
    schema["required"] = ["spec"]
    properties["status"] = structural(status)
    conditions = properties["status"]["properties"]["conditions"]
    conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    conditions["items"]["properties"]["lastTransitionTime"]["format"] = "date-time"
    return schema


def condition(kind: str, field: str = "status") -> str:
    """The path of a condition's field."""
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def add_rules(schema: JsonSchema, rules: Rules) -> None:
    """Add the rules of a kind to the schema of its objects."""
    for scope, each in rules.items():
        inner = schema
        for name in scope.split("."):
            inner = inner["properties"][name.removesuffix("[]")]
            inner = inner["items"] if name.endswith("[]") else inner
        inner["x-kubernetes-validations"] = [rule.as_validation() for rule in each]


def structural(model: type[SpecModel]) -> JsonSchema:
    """A model's schema in the form that Kubernetes takes."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: JsonSchema, definitions: Mapping[str, JsonSchema], *, is_in_list: bool = False) -> JsonSchema:
    schema = _resolved(schema, definitions)
    result = {key: value for key, value in schema.items() if key in KEYWORDS or key.startswith("x-kubernetes-")}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in result:
        result["properties"] = {
            name: _structural(one, definitions, is_in_list=is_in_list) for name, one in result["properties"].items()
        }
    if "items" in result:
        result["items"] = _structural(result["items"], definitions, is_in_list=True)
    values = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    result.pop("additionalProperties", None)
    if isinstance(values, dict):
        result["additionalProperties"] = _structural(values, definitions, is_in_list=is_in_list)
    return _told(result) if is_in_list else _with_useful_default(result)


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


def _told(schema: JsonSchema) -> JsonSchema:
    """The default in words, for `kubectl explain`."""
    default = schema.pop("default", None)
    if default not in (None, [], {}, "") and "description" in schema and "properties" not in schema:
        text = default if isinstance(default, str) else json.dumps(default)
        schema["description"] = f"{schema['description']} Default: {text}"
    return schema


def _column(column: Column) -> JsonSchema:
    name, kind, path, priority = column
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})
