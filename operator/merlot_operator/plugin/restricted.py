"""Check what the operator of a namespace would refuse of a Table though the API server accepts it. The operator's
settings, which come from the chart's values, are read from the environment of its Deployment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from merlot.cli.errors import CommandError
from merlot.errors import InvalidInputError
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot_operator import config, restrictions
from merlot_operator.allowed_places import places_problems
from merlot_operator.config import Config
from merlot_operator.kube.kinds import namespace_of
from merlot_operator.plugin.changes import table_of
from merlot_operator.plugin.kubectl import Kubectl

OPERATORS = "app.kubernetes.io/name=merlot,app.kubernetes.io/component=operator"


def refused_by_operator(kubectl: Kubectl, table: Mapping[str, Any]) -> dict[str, str]:
    """Return the refused fields by path below `spec`, with reasons. Raise CommandError if the settings of the
    namespace's operator cannot be read."""
    settings = _settings(kubectl, namespace_of(table))
    problems = {problem.path: problem.message for problem in restrictions.problems(table["spec"], settings)}
    with contextlib.suppress(manifest.ManifestError):  # the API server refuses it, or the operator by other rules
        problems |= _places_problems(table_of(table), settings, namespace_of(table))
    return {path.removeprefix("spec."): message for path, message in problems.items()}


def _places_problems(table: Table, settings: Config, namespace: str) -> dict[str, str]:
    """Return refused places. Only the operator knows which of two homes the namespace has, so a place that either
    allows is not refused."""
    apart = dict(places_problems(table, settings, namespace))
    shared = dataclasses.replace(settings, homes={namespace: settings.root_home(namespace)})
    return {path: apart[path] for path, _ in places_problems(table, shared, namespace) if path in apart}


def _settings(kubectl: Kubectl, namespace: str) -> Config:
    text = kubectl.run("get", "deployments", "--all-namespaces", "-l", OPERATORS, "-o", "json")
    for deployment in json.loads(text)["items"]:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        environment = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        if config.namespaces_in(environment) and namespace not in config.namespaces_in(environment):
            continue
        try:
            return config.from_environment(environment)
        except InvalidInputError as error:
            raise CommandError(f"the operator's settings cannot be read: {error}") from error
    raise CommandError(f"no operator serves the namespace namespace={namespace}")
