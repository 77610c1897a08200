"""What a Table may not do unless the chart lets it: say what its pods are allowed to, and take any Secret. Pure.

By the CRD the API server refuses such templates already, unless that is older or another release's. Rendering goes by
`allowed` in any case: what was accepted once may be more than a Table may say now.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from merlot.spec.manifest import problems as manifest_problems
from merlot.spec.manifest.problems import Problem
from merlot.spec.pod_template import PodTemplate
from merlot_operator.config import Config

ROLES = ("server", "broker")
TEMPLATE = "podTemplate"

Json = Mapping[str, Any]


def problems(spec: Json, config: Config) -> Iterator[Problem]:
    """What a declared Table may not say, with the chart's value that would let it."""
    for role in ROLES:
        template = _template(spec, role)
        if template is not None and not config.has_unrestricted_templates:
            yield from _template_problems(template, role)
    name = (spec.get("deepStore") or {}).get("secretRef")
    if name != config.deep_store_secret:
        yield from _secret_problems("spec.deepStore.secretRef", name, config)
    stream = (spec.get("ingestion") or {}).get("stream") or {}
    yield from _secret_problems("spec.ingestion.stream.secretRef", stream.get("secretRef"), config)


def _secret_problems(path: str, name: str | None, config: Config) -> Iterator[Problem]:
    if name and not any(fnmatchcase(name, pattern) for pattern in config.table_secrets):
        names = " or ".join(config.table_secrets) or "none"
        text = f'Tables may name Secrets called {names}, not "{name}"; deepStore.tableSecrets of the chart says so'
        yield Problem(path, text)


def allowed(template: Json | None, role: str, config: Config) -> Json | None:
    """The parts of a template of a role's pods that a Table may say."""
    if template is None or config.has_unrestricted_templates:
        return template
    kept = copy.deepcopy(dict(template))
    while (path := next(_refused(kept, role), None)) is not None:
        _remove(kept, path)
    return kept


def without_templates(spec: Json) -> dict[str, Any]:
    """A Table's spec as its servers shall know it: they have no use for what their pods are like."""
    tenants = {
        role: {key: value for key, value in tenant.items() if key != TEMPLATE} if isinstance(tenant, dict) else tenant
        for role, tenant in (spec.get("tenants") or {}).items()
    }
    return {**spec, "tenants": tenants}


def _template(spec: Json, role: str) -> Json | None:
    template: Json | None = ((spec.get("tenants") or {}).get(role) or {}).get(TEMPLATE)
    return template


def _template_problems(template: Json, role: str) -> Iterator[Problem]:
    """The whole first, which tells what would let it: a condition's message may be cut."""
    found = [(f".{one.path}", one.message) for one in _unsound(template)]
    if not found:
        text = f"the container of these pods is {role}; there is no other"
        found = [(f".{manifest_problems.path_of(path)}", text) for path in _foreign_containers(template, role)]
    if found:
        found.insert(0, ("", "Tables may say this only with podTemplates.unrestricted of the chart"))
    yield from (Problem(f"spec.tenants.{role}.{TEMPLATE}{path}", text) for path, text in found)


def _unsound(template: Json) -> list[Problem]:
    try:
        PodTemplate.model_validate(template, by_alias=True, by_name=False)
    except ValidationError as error:
        return manifest_problems.from_pydantic(error, template, PodTemplate)
    return []


def _refused(template: Json, role: str) -> Iterator[tuple[int | str, ...]]:
    """Where the template says what it may not."""
    try:
        PodTemplate.model_validate(template, by_alias=True, by_name=False)
    except ValidationError as error:
        yield from (one["loc"] for one in error.errors(include_url=False, include_context=False))
        return
    yield from _foreign_containers(template, role)


def _foreign_containers(template: Json, role: str) -> Iterator[tuple[int | str, ...]]:
    """Where a sound template has the container of another role."""
    for position, container in enumerate((template.get("spec") or {}).get("containers") or ()):
        if container["name"] != role:
            yield "spec", "containers", position


def _remove(document: Any, path: tuple[int | str, ...]) -> None:
    """Take away what is there of the path: the whole element, if what it lacks is what is wrong with it."""
    parent, key = document, path[0]
    for step in path[1:]:
        inner = parent[key]
        is_there = step in inner if isinstance(inner, dict) else isinstance(inner, list) and isinstance(step, int)
        if not is_there:
            break
        parent, key = inner, step
    del parent[key]
