"""Parts that all objects share: labels, the restricted pod, probes, environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from merlot.spec.tenancy import Resources
from merlot.store import credentials
from merlot_operator.config import Config
from merlot_operator.kube.kinds import COMPONENT, FIELD_MANAGER, INPUTS, MANAGED_BY, TEMPLATE_VERSION, digest
from merlot_operator.manifests.overlay import overlaid

VERSION = "4"
"""Version of the pod templates below. A new version changes what new pods are like; it restarts none."""

USER = 10001
CONTROLLER, BROKER, SERVER, MINION, BATCH = "controller", "broker", "server", "minion", "batch"
READING_FILES = (CONTROLLER, SERVER, MINION)
"""Roles that open the deep store."""
STORES = "/etc/merlot/stores"
PORTS: Mapping[str, Mapping[str, int]] = {
    CONTROLLER: {"http": 9000},
    BROKER: {"http": 8099},
    SERVER: {"http": 8097, "query": 8098},
    MINION: {"http": 9514},
}
ACCOUNT = "merlot"
ZONE = "topology.kubernetes.io/zone"
"""Label of nodes, which Kubernetes gives to their pods too since 1.35."""
DRIVER_ACCOUNT = "merlot-spark-driver"
EXECUTOR_ACCOUNT = "merlot-spark-executor"

STOP_DELAY_S = 5
"""Seconds for which a terminating pod goes on serving: clients of a Service learn of its end with a delay."""
BEHIND_SERVICES = (CONTROLLER, BROKER)
"""Roles that clients reach by a Service. Brokers learn from the metastore that a server stops; nobody calls minions."""
GRACE_S = {CONTROLLER: 30, BROKER: 45, SERVER: 60, MINION: 120}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePod:
    """A pod of a role."""

    role: str
    arguments: Sequence[str]
    resources: Resources
    labels: Mapping[str, str]
    inputs: Mapping[str, Any]
    """Everything that users chose: pods restart when this changes."""
    overlay: Mapping[str, Any] | None = None
    """Overlay of users over the template."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """Secrets by the URI of their deep store, for stores that have one of their own."""
    volumes: Sequence[Json] = ()
    mounts: Sequence[Json] = ()
    claims: Sequence[Json] = field(default_factory=tuple)


def labels(component: str, **more: str) -> dict[str, str]:
    """Return the labels of an object of a component."""
    return {
        MANAGED_BY: FIELD_MANAGER,
        "app.kubernetes.io/name": "merlot",
        "app.kubernetes.io/component": component,
        COMPONENT: component,
        **more,
    }


def metadata(name: str, namespace: str, labels_: Mapping[str, str], owner: Mapping[str, Any] | None = None) -> Json:
    """Return an object's metadata."""
    owners = {} if owner is None else {"ownerReferences": [dict(owner)]}
    return {"name": name, "namespace": namespace, "labels": dict(labels_), **owners}


def pod_template(pod: RolePod, config: Config) -> Json:
    """Return the template of a role's pods."""
    # Left out without an overlay: pods that were started before overlays existed must not restart.
    inputs = pod.inputs if pod.overlay is None else {**pod.inputs, "overlay": pod.overlay}
    template = {
        "metadata": {
            "labels": dict(pod.labels),
            "annotations": {INPUTS: digest(inputs), TEMPLATE_VERSION: VERSION},
        },
        "spec": {
            "serviceAccountName": ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "terminationGracePeriodSeconds": GRACE_S[pod.role],
            **pull_secrets(config),
            "topologySpreadConstraints": _spread(pod.labels),
            "containers": [_container(pod, config)],
            "volumes": [temporary(), *_files_volumes(pod, config), *pod.volumes],
        },
    }
    return template if pod.overlay is None else overlaid(template, pod.overlay)


def pod_security() -> Json:
    """Return the pod's part of the restricted profile."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Json:
    """Return the container's part of the restricted profile, and a read-only root besides."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pull_secrets(config: Config) -> Json:
    """Return the Secrets with which images are pulled."""
    return {"imagePullSecrets": [{"name": name} for name in config.pull_secrets]} if config.pull_secrets else {}


def temporary() -> Json:
    """Return the volume of the only folder that every pod may write to."""
    return {"name": "tmp", "emptyDir": {}}


def store_volumes(config: Config) -> list[Json]:
    """Return the shared volume of a `file:///` deep store."""
    if not config.deep_store_claim:
        return []
    return [{"name": "deep-store", "persistentVolumeClaim": {"claimName": config.deep_store_claim}}]


def store_mounts(config: Config) -> list[Json]:
    """Return the mount of that volume: at the first folder of the deep store's path."""
    if not config.deep_store_claim:
        return []
    root = "/" + urlsplit(config.deep_store).path.lstrip("/").split("/")[0]
    return [{"name": "deep-store", "mountPath": root}]


def store_arguments(config: Config, namespace: str) -> list[str]:
    """Return the arguments of roles that open deep stores: the namespace's, and where Tables may have others."""
    prefixes = config.deep_store_prefixes_of(namespace)
    return [f"--deep-store={config.deep_store_of(namespace)}", *(f"--deep-store-prefix={uri}" for uri in prefixes)]


def stream_arguments(config: Config, namespace: str) -> list[str]:
    """Return the folders of streams, for roles that judge or read them; nothing if there are none, which is the
    default of these roles."""
    folders = config.stream_folders_of(namespace)
    return [f"--stream-folders={','.join(folders)}"] if folders else []


def environment(config: Config, own: Mapping[str, str] | None = None) -> list[Json]:
    """Return the variables of every container, with its own ones."""
    fixed = {"HOME": "/tmp", **(own or {})}
    return [{"name": name, "value": value} for name, value in sorted((fixed | dict(config.environment)).items())]


def environment_from(config: Config, secrets: Sequence[str]) -> list[Json]:
    """Return the Secrets whose keys become variables."""
    names = [*([config.deep_store_secret] if config.deep_store_secret else []), *secrets]
    return [{"secretRef": {"name": name}} for name in dict.fromkeys(names)]


def field_variable(name: str, path: str) -> Json:
    """Return a variable that holds a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def resources(asked: Resources) -> Json:
    """Return a container's resources in canonical form."""
    document = {key: dict(value) for key in ("requests", "limits") if (value := getattr(asked, key))}
    return {"resources": document} if document else {}


def budget(name: str, namespace: str, owner: Mapping[str, Any] | None, labels_: Mapping[str, str]) -> Json:
    """Return a disruption budget of one pod at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(name, namespace, labels_, owner),
        "spec": {
            "maxUnavailable": 1,
            # A pod that cannot start must not keep its node from being drained, nor itself from being replaced.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(labels_)},
        },
    }


def selector(labels_: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that select a component's pods: they never change."""
    return {key: value for key, value in labels_.items() if key.startswith(("merlot.dev/", MANAGED_BY))}


def _container(pod: RolePod, config: Config) -> Json:
    ports = PORTS[pod.role]
    secrets = environment_from(config, ()) if pod.role in READING_FILES else []
    return {
        "name": pod.role,
        "image": config.runtime_image,
        "imagePullPolicy": config.pull_policy,
        "args": ["merlot", pod.role, *pod.arguments],
        "env": [
            field_variable("POD_NAME", "metadata.name"),
            field_variable("POD_IP", "status.podIP"),
            field_variable("MERLOT_ZONE", f"metadata.labels['{ZONE}']"),
            *environment(config, _url_variable(pod.role)),
            *_store_variable(pod.stores),
        ],
        **({"envFrom": secrets} if secrets else {}),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        **resources(pod.resources),
        "securityContext": container_security(),
        "startupProbe": _probe("/health/liveness", period_s=2, failures=150),
        "livenessProbe": _probe("/health/liveness", period_s=10, failures=6),
        "readinessProbe": _probe("/health/readiness", period_s=2, failures=2),
        **_pause_before_stop(pod.role),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *_files_mounts(pod, config), *pod.mounts],
    }


def _url_variable(role: str) -> dict[str, str]:
    """Return the URL for the command line in the controller's container, which would talk to a broker by default."""
    return {"MERLOT_URL": f"http://localhost:{PORTS[role]['http']}"} if role == CONTROLLER else {}


def _pause_before_stop(role: str) -> Json:
    return {"lifecycle": {"preStop": {"sleep": {"seconds": STOP_DELAY_S}}}} if role in BEHIND_SERVICES else {}


def _store_variable(stores: Mapping[str, str]) -> list[Json]:
    """Return the variable that names the folder of each store's Secret. Keys are files, since those of two stores have
    the same names."""
    if not stores:
        return []
    folders = {uri: f"{STORES}/{secret}" for uri, secret in stores.items()}
    return [{"name": credentials.VARIABLE, "value": json.dumps(folders, sort_keys=True)}]


def _files_volumes(pod: RolePod, config: Config) -> list[Json]:
    """Return the volumes for reading and deleting segment files. A missing Secret keeps no pod from starting, since
    tables of others would wait for it; the table that names it reports it."""
    if pod.role not in READING_FILES:
        return []
    secrets = sorted(set(pod.stores.values()))
    volumes = [{"name": _volume_of(secret), "secret": {"secretName": secret, "optional": True}} for secret in secrets]
    return [*store_volumes(config), *volumes]


def _files_mounts(pod: RolePod, config: Config) -> list[Json]:
    if pod.role not in READING_FILES:
        return []
    secrets = sorted(set(pod.stores.values()))
    mounts = [{"name": _volume_of(secret), "mountPath": f"{STORES}/{secret}", "readOnly": True} for secret in secrets]
    return [*store_mounts(config), *mounts]


def _volume_of(secret: str) -> str:
    return f"store-{digest(secret)}"


def _probe(path: str, *, period_s: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _spread(labels_: Mapping[str, str]) -> list[Json]:
    """Return constraints that spread pods over zones and nodes as far as possible; a cluster of one node runs all of
    them."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(labels_)},
        }
        for key in (ZONE, "kubernetes.io/hostname")
    ]
