"""Rights that the operator needs of the API server in a namespace that it serves. Its watches are made from this list,
and tests/kube/test_chart.py compares the chart's rules with it, so that nothing is watched without the right to do
so.
"""

from __future__ import annotations

from collections.abc import Mapping

from merlot_operator.config import Config
from merlot_operator.kube.kinds import (
    CLAIMS,
    DECLARED,
    EVENTS,
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    WATCHED,
    WRITTEN,
    ResourceKind,
)

_READ = frozenset({"get", "list", "watch"})


def watched(config: Config) -> tuple[ResourceKind, ...]:
    """Return the kinds of which the operator watches its own objects. Without executors no role is bound."""
    return tuple(kind for kind in WATCHED if kind is not ROLE_BINDINGS or config.spark_driver_role)


def listed(config: Config) -> tuple[ResourceKind, ...]:
    """Return all kinds whose objects the operator lists."""
    return (*watched(config), *DECLARED)


def rules(config: Config) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the verbs for each group and resource."""
    rights: dict[tuple[str, str], frozenset[str]] = {}
    for kind in DECLARED:
        rights[kind.group, kind.plural] = _READ | {"patch"}
        rights[kind.group, f"{kind.plural}/status"] = frozenset({"get", "patch"})
        # Where OwnerReferencesPermissionEnforcement is on, an owner reference that blocks deletion needs this right.
        rights[kind.group, f"{kind.plural}/finalizers"] = frozenset({"update"})
    for kind in watched(config):
        if kind in WRITTEN:
            rights[kind.group, kind.plural] = _READ | {"create", "patch", "delete"}
    rights[PODS.group, PODS.plural] = _READ
    rights[PODS.group, f"{PODS.plural}/eviction"] = frozenset({"create"})
    rights[CLAIMS.group, CLAIMS.plural] = _READ | {"patch", "delete"}
    rights[EVENTS.group, EVENTS.plural] = frozenset({"list", "create", "patch"})
    rights[NAMESPACES.group, NAMESPACES.plural] = frozenset({"get"})
    if config.spark_driver_role:
        rights[ROLE_BINDINGS.group, "clusterroles"] = frozenset({"bind"})
    return rights
