"""The CRD is what the models say, in the subset of OpenAPI that Kubernetes takes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from merlot.spec import manifest
from merlot.spec.crd import definitions

DEFINITIONS = (definitions.table_crd(), definitions.rollup_crd(), definitions.upsert_crd())
ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "crds"
EXAMPLES = [one for path in (ROOT / "examples").rglob("*.yaml") for one in yaml.safe_load_all(path.read_text())]
LEAST = (
    {"kind": "Table", "spec": {"schema": {"fields": [{"name": "carrier", "type": "STRING"}]}}},
    {
        "kind": "MergeRollupTask",
        "spec": {"table": "t", "levels": [{"name": "daily", "bucketTimePeriod": "1d", "bufferTimePeriod": "1d"}]},
    },
    {"kind": "UpsertConfig", "spec": {"mode": "FULL"}},
)


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, one in schema.get("properties", {}).items():
        yield from schemas(one, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from schemas(schema[key], f"{path}.{key}")


def all_schemas() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for definition in DEFINITIONS:
        [version] = definition["spec"]["versions"]
        found += list(schemas(version["schema"]["openAPIV3Schema"]))
    return found


def test_written_file_is_current() -> None:
    assert definitions.main(["--check", str(CRDS)]) == 0


def test_drift_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert definitions.main(["--check", str(tmp_path)]) == 1
    assert "run `make crds`" in capsys.readouterr().err
    assert definitions.main([str(tmp_path)]) == 0
    assert definitions.main(["--check", str(tmp_path)]) == 0


def test_schema_is_structural() -> None:
    for path, schema in all_schemas():
        unknown = {key for key in schema if key not in definitions.KEYWORDS and not key.startswith("x-kubernetes-")}
        assert unknown == set(), path
        is_open = "x-kubernetes-preserve-unknown-fields" in schema or "x-kubernetes-int-or-string" in schema
        assert "type" in schema or is_open, path


def test_every_field_is_described() -> None:
    silent = [
        path
        for path, schema in all_schemas()
        if not schema.get("description") and path and not path.endswith((".items", ".additionalProperties"))
    ]
    assert set(silent) == {".metadata", ".metadata.name"}


def test_client_side_apply_fits_into_its_annotation() -> None:
    # It holds the object as JSON.
    assert max(len(json.dumps(definition)) for definition in DEFINITIONS) < 262_144 / 3


def filled(schema: dict[str, Any], value: Any) -> Any:
    """A value with the defaults of its schema, as an API server stores it."""
    if isinstance(value, list):
        return [filled(schema["items"], one) for one in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    value = {name: one["default"] for name, one in properties.items() if "default" in one} | value
    return {name: filled(properties.get(name, {}), one) for name, one in value.items()}


@pytest.mark.parametrize("document", [*LEAST, *EXAMPLES], ids=lambda one: f"{one['kind']}-{'metadata' in one}")
def test_what_an_api_server_fills_in_is_no_contradiction(document: dict[str, Any]) -> None:
    """A check between fields asks what a field says, not whether it is there: a default is, as stored."""
    named = {"apiVersion": "merlot.dev/v1alpha1", "metadata": {"name": "t"}, **document}
    [schema] = [
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for definition in DEFINITIONS
        if definition["spec"]["names"]["kind"] == document["kind"]
    ]
    stored = filled(schema, named)
    assert manifest.load(yaml.safe_dump(stored)) == manifest.load(yaml.safe_dump(named))


def test_lists_have_no_defaults_but_of_their_keys() -> None:
    """`kubectl apply` compares a list as a whole, and would call an object changed each time."""

    def in_lists(schema: dict[str, Any], path: str, keys: frozenset[str] | None) -> Iterator[str]:
        for name, one in schema.get("properties", {}).items():
            if "default" in one and keys is not None and name not in keys:
                yield f"{path}.{name}"
            yield from in_lists(one, f"{path}.{name}", None if keys is None else frozenset())
        if "items" in schema:
            own = frozenset(schema.get("x-kubernetes-list-map-keys", ()))
            yield from in_lists(schema["items"], f"{path}[]", own)
        if "additionalProperties" in schema:
            yield from in_lists(schema["additionalProperties"], f"{path}{{}}", keys)

    for definition in DEFINITIONS:
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert list(in_lists(schema, definition["spec"]["names"]["kind"], None)) == []
