"""Restrictions on Tables that the chart can lift: which fields of their pods they may set, and which Secrets they may
name. Pure.

The API server already refuses such templates by the CRD, unless the CRD is older or another release's. Rendering uses
`allowed` in any case: a spec that was accepted once may hold more than a Table may say now.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from merlot.spec.manifest import problems as manifest_problems
from merlot.spec.manifest.problems import ManifestProblem
from merlot.spec.pod_template import PodTemplate
from merlot_operator.config import Config

ROLES = ("server", "broker")
TEMPLATE = "podTemplate"

Json = Mapping[str, Any]


def problems(spec: Json, config: Config) -> Iterator[ManifestProblem]:
    """Yield the fields that a declared Table may not set, each with the chart's value that would allow it."""
    for role in ROLES:
        template = _template(spec, role)
        if template is not None and not config.has_unrestricted_templates:
            yield from _template_problems(template, role)
    name = (spec.get("deepStore") or {}).get("secretRef")
    if name != config.deep_store_secret:
        yield from _secret_problems("spec.deepStore.secretRef", name, config)
    stream = (spec.get("ingestion") or {}).get("stream") or {}
    yield from _secret_problems("spec.ingestion.stream.secretRef", stream.get("secretRef"), config)


def _secret_problems(path: str, name: str | None, config: Config) -> Iterator[ManifestProblem]:
    if name and not any(fnmatchcase(name, pattern) for pattern in config.table_secrets):
        names = " or ".join(config.table_secrets) or "none"
        text = f'Tables may name Secrets called {names}, not "{name}"; deepStore.tableSecrets of the chart says so'
        yield ManifestProblem(path, text)


def allowed(template: Json | None, role: str, config: Config) -> Json | None:
    """Return the parts of a pod template for a role that a Table may set."""
    if template is None or config.has_unrestricted_templates:
        return template
    result = copy.deepcopy(dict(template))
    while (path := next(_refused(result, role), None)) is not None:
        _remove(result, path)
    return result


def without_templates(spec: Json) -> dict[str, Any]:
    """Return a Table's spec as servers get it: without pod templates, for which they have no use."""
    tenants = {
        role: {key: value for key, value in tenant.items() if key != TEMPLATE} if isinstance(tenant, dict) else tenant
        for role, tenant in (spec.get("tenants") or {}).items()
    }
    return {**spec, "tenants": tenants}


def _template(spec: Json, role: str) -> Json | None:
    template: Json | None = ((spec.get("tenants") or {}).get(role) or {}).get(TEMPLATE)
    return template


def _template_problems(template: Json, role: str) -> Iterator[ManifestProblem]:
    """Yield the problem of the template as a whole first, which says what would allow it: a condition's message may be
    cut."""
    reasons = [(f".{problem.path}", problem.message) for problem in _unsound(template)]
    if not reasons:
        text = f"the container of these pods is {role}; there is no other"
        reasons = [(f".{manifest_problems.path_of(path)}", text) for path in _foreign_containers(template, role)]
    if reasons:
        reasons.insert(0, ("", "Tables may say this only with podTemplates.unrestricted of the chart"))
    yield from (ManifestProblem(f"spec.tenants.{role}.{TEMPLATE}{path}", text) for path, text in reasons)


def _unsound(template: Json) -> list[ManifestProblem]:
    try:
        PodTemplate.model_validate(template, by_alias=True, by_name=False)
    except ValidationError as error:
        return manifest_problems.from_pydantic(error, template, PodTemplate)
    return []


def _refused(template: Json, role: str) -> Iterator[tuple[int | str, ...]]:
    """Yield the paths in the template that a Table may not set."""
    try:
        PodTemplate.model_validate(template, by_alias=True, by_name=False)
    except ValidationError as error:
        yield from (detail["loc"] for detail in error.errors(include_url=False, include_context=False))
        return
    yield from _foreign_containers(template, role)


def _foreign_containers(template: Json, role: str) -> Iterator[tuple[int | str, ...]]:
    """Yield the paths of containers in a sound template that belong to another role."""
    for position, container in enumerate((template.get("spec") or {}).get("containers") or ()):
        if container["name"] != role:
            yield "spec", "containers", position


def _remove(document: Any, path: tuple[int | str, ...]) -> None:
    """Delete the deepest part of the path that exists: if an element lacks a field, the whole element."""
    parent, key = document, path[0]
    for step in path[1:]:
        inner = parent[key]
        is_there = step in inner if isinstance(inner, dict) else isinstance(inner, list) and isinstance(step, int)
        if not is_there:
            break
        parent, key = inner, step
    del parent[key]
