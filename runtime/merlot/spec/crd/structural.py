"""Convert models to structural schemas, and wrap these in a CustomResourceDefinition.

Kubernetes requires a *structural* schema: no `$ref`, no unions, no keyword outside its list. Optional fields are not
`nullable`: the API server then drops an explicit null before it applies defaults, as `manifest` does.

Fields within lists have no defaults. `kubectl apply` replaces a list as a whole, and would see a difference each time
if the API server had filled in defaults. `manifest` fills them in.
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
"""Keywords of JSON schema that a CRD may use, besides `x-kubernetes-…`."""

JsonSchema = dict[str, Any]
Column = tuple[str, str, str, int]
"""Header, type, path and priority of a column of `kubectl get`; columns of priority 1 are shown with `-o wide`."""


@dataclass(frozen=True, kw_only=True)
class KindNames:
    """KindNames of a kind in a CustomResourceDefinition."""

    kind: str
    plural: str
    singular: str
    short: tuple[str, ...]


def definition(
    names: KindNames, schema: JsonSchema, columns: Iterable[Column], subresources: Mapping[str, Any] | None = None
) -> JsonSchema:
    """Return the CustomResourceDefinition of a kind."""
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
    """Return the schema of a whole object: what the user writes, and its status."""
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
    """Return the JSON path of a field of a condition."""
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def add_rules(schema: JsonSchema, rules: Rules) -> None:
    """Add the rules of a kind to the schema of its objects, in place."""
    for scope, each in rules.items():
        inner = schema
        for name in scope.split("."):
            inner = inner["properties"][name.removesuffix("[]")]
            inner = inner["items"] if name.endswith("[]") else inner
        inner["x-kubernetes-validations"] = [rule.as_validation() for rule in each]


def structural(model: type[SpecModel]) -> JsonSchema:
    """Return a model's schema in structural form."""
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
            name: _structural(property_schema, definitions, is_in_list=is_in_list)
            for name, property_schema in result["properties"].items()
        }
    if "items" in result:
        result["items"] = _structural(result["items"], definitions, is_in_list=True)
    values = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    result.pop("additionalProperties", None)
    if isinstance(values, dict):
        result["additionalProperties"] = _structural(values, definitions, is_in_list=is_in_list)
    return _with_default_in_description(result) if is_in_list else _with_useful_default(result)


def _resolved(schema: JsonSchema, definitions: Mapping[str, JsonSchema]) -> JsonSchema:
    """Return the schema without `$ref` and without the null of an optional field. Keywords beside a `$ref` or `anyOf`
    override those inside it."""
    while "$ref" in schema or "anyOf" in schema:
        beside = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf")}
        if "$ref" in schema:
            inner = definitions[schema["$ref"].removeprefix("#/$defs/")]
        else:
            inner, *others = (option for option in schema["anyOf"] if option.get("type") != "null")
            if others:
                raise TypeError(f"a union has no place in a CRD: {schema['anyOf']}")
        schema = {**inner, **beside}
    return schema


def _with_useful_default(schema: JsonSchema) -> JsonSchema:
    """Keep a default only if the API server needs it.

    An object whose fields have defaults gets `{}`, from which the API server fills it. Empty lists and mappings are not
    stored, so they need no default."""
    default = schema.pop("default", None)
    if "properties" in schema and default is not None:
        if any("default" in property_schema for property_schema in schema["properties"].values()):
            schema["default"] = {}
    elif default not in (None, [], {}, ""):
        schema["default"] = default
    return schema


def _with_default_in_description(schema: JsonSchema) -> JsonSchema:
    """Move the default into the description, for `kubectl explain`."""
    default = schema.pop("default", None)
    if default not in (None, [], {}, "") and "description" in schema and "properties" not in schema:
        text = default if isinstance(default, str) else json.dumps(default)
        schema["description"] = f"{schema['description']} Default: {text}"
    return schema


def _column(column: Column) -> JsonSchema:
    name, kind, path, priority = column
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})
