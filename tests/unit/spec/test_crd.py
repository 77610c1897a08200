"""The CRD is what the models say, in the subset of OpenAPI that Kubernetes takes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from merlot.spec.crd import definitions

DEFINITIONS = (definitions.table_crd(), definitions.rollup_crd(), definitions.upsert_crd())
CRDS = Path(__file__).resolve().parents[3] / "crds"


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
