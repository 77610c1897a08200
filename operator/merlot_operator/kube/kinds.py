"""Kinds of objects that the operator reads and writes, and the labels that mark its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
"""A Kubernetes object as JSON."""

FIELD_MANAGER = "merlot-operator"
FINALIZER = "merlot.dev/cleanup"

MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "merlot.dev/component"
POOL = "merlot.dev/pool"
TABLE = "merlot.dev/table"
BATCH = "merlot.dev/batch"
SELECTOR = f"{MANAGED_BY}={FIELD_MANAGER}"

DESIRED = "merlot.dev/desired"
"""Annotation: hash of the applied object. It makes a field that is no longer wanted a difference, so that it is
removed."""
INPUTS = "merlot.dev/inputs"
"""Annotation: hash of what users chose. Pods are restarted when this changes, and only then."""
TEMPLATE_VERSION = "merlot.dev/template-version"
RESTARTED_AT = "merlot.dev/restarted-at"
"""Annotation of a Table: change it to restart its servers."""
RETRY = "merlot.dev/retry"
"""Annotation of a MergeRollupTask: change it to give tasks that failed for good another chance."""
FORCE_DELETE = "merlot.dev/force-delete"
"""Annotation of a declared object: "true" lets it go though something of it is left behind."""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of object; `group` is empty for the core."""

    group: str
    version: str
    plural: str
    name: str

    @property
    def api_version(self) -> str:
        """Return `apiVersion` as manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return a path of the API; without a namespace that of all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root, *(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        return "/".join(part for part in parts if part)


TABLES = ResourceKind("merlot.dev", "v1alpha1", "tables", "Table")
ROLLUPS = ResourceKind("merlot.dev", "v1alpha1", "mergerolluptasks", "MergeRollupTask")
UPSERTS = ResourceKind("merlot.dev", "v1alpha1", "upsertconfigs", "UpsertConfig")
DEPLOYMENTS = ResourceKind("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = ResourceKind("apps", "v1", "statefulsets", "StatefulSet")
SERVICES = ResourceKind("", "v1", "services", "Service")
SERVICE_ACCOUNTS = ResourceKind("", "v1", "serviceaccounts", "ServiceAccount")
PODS = ResourceKind("", "v1", "pods", "Pod")
CLAIMS = ResourceKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS = ResourceKind("", "v1", "events", "Event")
NAMESPACES = ResourceKind("", "v1", "namespaces", "Namespace")
JOBS = ResourceKind("batch", "v1", "jobs", "Job")
BUDGETS = ResourceKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES = ResourceKind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
LEASES = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease")
ROLE_BINDINGS = ResourceKind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")

DECLARED = (TABLES, ROLLUPS, UPSERTS)
"""Kinds that users write."""
WRITTEN = (
    *(DEPLOYMENTS, STATEFUL_SETS, SERVICES, SERVICE_ACCOUNTS, JOBS, BUDGETS, NETWORK_POLICIES),
    *(ROLE_BINDINGS, LEASES),
)
"""Kinds that the operator writes."""
WATCHED = (*WRITTEN, PODS, CLAIMS)
"""Kinds of which only objects with the operator's label are watched; `rights` says which of them are watched where."""

_BY_NAME = {kind.name: kind for kind in (*DECLARED, *WATCHED, EVENTS, NAMESPACES)}


def kind_of(body: Object) -> ResourceKind:
    """Return the kind of an object."""
    return _BY_NAME[body["kind"]]


def name_of(body: Object) -> str:
    """Return metadata.name."""
    return str(body["metadata"]["name"])


def namespace_of(body: Object) -> str:
    """Return metadata.namespace."""
    return str(body["metadata"]["namespace"])


def labels_of(body: Object) -> Mapping[str, str]:
    """Return metadata.labels, empty if there are none."""
    return body["metadata"].get("labels") or {}


def annotations_of(body: Object) -> Mapping[str, str]:
    """Return metadata.annotations, empty if there are none."""
    return body["metadata"].get("annotations") or {}


def is_deleting(body: Object) -> bool:
    """Return True if the object's deletion was requested."""
    return "deletionTimestamp" in body["metadata"]


def as_written(body: Object) -> dict[str, Any]:
    """Return the manifest as its user wrote it."""
    metadata = {"name": name_of(body), "namespace": namespace_of(body)}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata, "spec": body["spec"]}


def digest(value: object, length: int = 10) -> str:
    """Return a short stable hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def fit(name: str, limit: int) -> str:
    """Return the name; if it is longer than `limit`, its beginning and a hash."""
    return name if len(name) <= limit else f"{name[: limit - 9].rstrip('-')}-{digest(name, 8)}"


def config_ref(table: Object) -> str | None:
    """Return the name of the UpsertConfig that a Table names, or None."""
    return (table["spec"].get("upsert") or {}).get("configRef")
