"""The operator's configuration, read once from its environment at the start; the chart sets the variables.

| variable | meaning | default |
|---|---|---|
| MERLOT_NAMESPACE | namespaces to serve, comma-separated; empty: all of them | empty |
| MERLOT_RELEASE | whose operator this is, as NAMESPACE/NAME: it marks the namespaces that it serves | merlot |
| MERLOT_TAKE_OVER | `true`: serve namespaces that bear the mark of another release | false |
| MERLOT_METASTORE | `zk://host:2181/chroot`; `{namespace}` stands for the namespace of the tables | required |
| MERLOT_DEEP_STORE | `s3://bucket/prefix?…` or `file:///folder`; `{namespace}` as above | required |
| MERLOT_DEEP_STORE_PREFIXES | URIs, separated by spaces, below which a Table may name a deep store of its own | empty |
| MERLOT_SOURCE_PREFIXES | URIs, separated by spaces, below which batches may read what is no object storage | empty |
| MERLOT_STREAM_HOSTS | patterns of host or host:port, comma-separated, that streams of Tables may name | none |
| MERLOT_RUNTIME_IMAGE | image of controller, broker, server and minion pods | required |
| MERLOT_SPARK_IMAGE | image of batch jobs, driver and executors | required |
| MERLOT_IMAGE_PULL_POLICY | of every pod | IfNotPresent |
| MERLOT_IMAGE_PULL_SECRETS | names of Secrets, comma-separated | empty |
| MERLOT_DEEP_STORE_SECRET | Secret in the tables' namespace: its keys become environment of every pod | empty |
| MERLOT_DEEP_STORE_CLAIM | PersistentVolumeClaim there, mounted at the path of a `file:///` deep store | empty |
| MERLOT_ENVIRONMENT | JSON object: environment of every pod, such as AWS_ENDPOINT_URL | {} |
| MERLOT_CLUSTER_DEFAULTS | JSON object: sizes, see `Sizes` | {} |
| MERLOT_STORAGE_CLASS | class of the servers' volumes; empty: the cluster's default | empty |
| MERLOT_SPARK_DRIVER_ROLE | `ClusterRole/name` or `Role/name`: a driver may start executors; empty: never | empty |
| MERLOT_POD_TEMPLATES | `unrestricted`: Tables may say of their pods whatever Kubernetes takes | restricted |
| MERLOT_TABLE_SECRETS | patterns of the Secrets that Tables may name, comma-separated; `none`: none | merlot-* |
| MERLOT_NETWORK_POLICIES | `true` or `false`: write NetworkPolicies | true |
| MERLOT_CONTROLLER_URL | how to reach a namespace's controller | http://merlot-controller.{namespace}.svc:9000 |
| MERLOT_WORKERS | objects reconciled at the same time | 8 |
| MERLOT_RESYNC_SECONDS | longest time until an object is looked at again | 120 |
| MERLOT_LIVENESS_PORT | port of `/healthz`, `/readyz` and `/metrics` | 8080 |
| MERLOT_LOG_LEVEL, MERLOT_LOG_FORMAT | as of `merlot` (`line` or `json`) | INFO, json |

Each namespace has a chroot and a folder of its own: `{namespace}` is appended to a URL that does not contain it. An
installation of one namespace once did without; `homes` lets a namespace that began like that stay where it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from merlot.errors import InvalidInputError
from merlot.spec.tenancy import Resources
from merlot.streams.allowed import AllowedStreams
from merlot.uris import credentials_problem, place_of, redact

NAMESPACE = "{namespace}"
CONTROLLER_URL = "http://merlot-controller.{namespace}.svc:9000"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSize:
    """Number and size of one role's pods."""

    replicas: int = 1
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """MERLOT_CLUSTER_DEFAULTS: what a pod gets whose table says nothing.

    {"controller": {"replicas": 1, "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {…}}},
     "broker": {…}, "server": {"resources": {…, "storage": "10Gi"}}, "minion": {"resources": {…}, "maxReplicas": 2},
     "driver": {"resources": {…}}, "executor": {"resources": {…}}}
    """

    controller: RoleSize = RoleSize()
    broker: RoleSize = RoleSize()
    server: RoleSize = RoleSize()
    minion: RoleSize = RoleSize(replicas=0)
    """`replicas`: minions that run even without a task."""
    minion_max: int = 2
    driver: RoleSize = RoleSize()
    executor: RoleSize = RoleSize()


@dataclass(frozen=True, slots=True)
class Home:
    """URLs of a namespace's shared state and of its files."""

    metastore: str
    deep_store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The checked environment of the operator."""

    namespaces: tuple[str, ...] = ()
    release: str = "merlot"
    takes_over: bool = False
    """True if namespaces that another release has marked as its own are served too."""
    metastore: str
    deep_store: str
    runtime_image: str
    spark_image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    deep_store_prefixes: tuple[str, ...] = ()
    """URIs below which Tables may name deep stores of their own, besides the namespace's."""
    source_prefixes: tuple[str, ...] = ()
    stream_hosts: tuple[str, ...] = ()
    """Patterns of brokers and registries that streams of Tables may name."""
    deep_store_secret: str = ""
    deep_store_claim: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    sizes: Sizes = Sizes()
    storage_class: str = ""
    spark_driver_role: str = ""
    has_unrestricted_templates: bool = False
    """True if a Table's podTemplates may set every field that Kubernetes takes."""
    table_secrets: tuple[str, ...] = ("merlot-*",)
    """Patterns of the Secrets that Tables may name for their deep stores and streams."""
    has_network_policies: bool = True
    controller_url: str = CONTROLLER_URL
    workers: int = 8
    resync_s: float = 120.0
    liveness_port: int = 8080
    log_level: str = "INFO"
    log_format: str = "json"
    homes: dict[str, Home] = field(default_factory=dict)
    """Home of each namespace whose home is known; `metastores.Metastores` alone writes here."""

    @property
    def is_cluster_wide(self) -> bool:
        """True if every namespace is served."""
        return not self.namespaces

    def metastore_of(self, namespace: str) -> str:
        """Return the URL of the namespace's metastore."""
        return self._home(namespace).metastore

    def deep_store_of(self, namespace: str) -> str:
        """Return the URI of the namespace's deep store; a query string stays last."""
        return self._home(namespace).deep_store

    def deep_store_prefixes_of(self, namespace: str) -> tuple[str, ...]:
        """Return the URIs below which Tables of a namespace may name deep stores of their own."""
        return tuple(uri.replace(NAMESPACE, namespace) for uri in self.deep_store_prefixes)

    def source_prefixes_of(self, namespace: str) -> tuple[str, ...]:
        """Return the URIs below which batches and file streams of a namespace may read, besides object storage."""
        return tuple(uri.replace(NAMESPACE, namespace) for uri in self.source_prefixes)

    def stream_folders_of(self, namespace: str) -> tuple[str, ...]:
        """Return the folders that file streams of a namespace may read: its sources that are folders. The list is
        separated by commas, so folders with a comma in their path are left out."""
        places = [place_of(uri) for uri in self.source_prefixes_of(namespace)]
        paths = ["/" + "/".join(place.parts) for place in places if place.scheme == "file" and not place.authority]
        return tuple(path for path in paths if "," not in path)

    def stream_hosts_of(self, namespace: str) -> tuple[str, ...]:
        """Return the patterns of the brokers and registries that streams of a namespace may name."""
        return tuple(pattern.replace(NAMESPACE, namespace) for pattern in self.stream_hosts)

    def own_home(self, namespace: str) -> Home:
        """Return a home for this namespace alone, apart from all others."""
        uri, mark, query = self.deep_store.partition("?")
        return Home(_apart(self.metastore, namespace), _apart(uri, namespace) + mark + query)

    def root_home(self, namespace: str) -> Home:
        """Return the home at the root of the metastore and deep store, where an installation of one namespace once kept
        everything."""
        return Home(self.metastore.replace(NAMESPACE, namespace), self.deep_store.replace(NAMESPACE, namespace))

    def controller_of(self, namespace: str) -> str:
        """Return the URL of the namespace's controller, without a slash at the end."""
        return self.controller_url.replace(NAMESPACE, namespace).rstrip("/")

    def _home(self, namespace: str) -> Home:
        return self.homes.get(namespace) or self.own_home(namespace)


def _apart(text: str, namespace: str) -> str:
    if NAMESPACE in text or text.startswith("sqlite:"):
        return text.replace(NAMESPACE, namespace)
    return f"{text.rstrip('/')}/{namespace}"


def namespaces_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the namespaces to serve; an empty tuple means all."""
    return _names(environment.get("MERLOT_NAMESPACE", ""))


def from_environment(environment: Mapping[str, str]) -> Config:
    """Read MERLOT_… variables. Raise InvalidInputError, naming the variable, if one is wrong."""
    get = environment.get
    return Config(
        namespaces=namespaces_in(environment),
        release=get("MERLOT_RELEASE") or "merlot",
        takes_over=(get("MERLOT_TAKE_OVER") or "false").lower() == "true",
        metastore=_required(environment, "MERLOT_METASTORE"),
        deep_store=_without_credentials("MERLOT_DEEP_STORE", _required(environment, "MERLOT_DEEP_STORE")),
        deep_store_prefixes=_uris(environment, "MERLOT_DEEP_STORE_PREFIXES"),
        source_prefixes=_uris(environment, "MERLOT_SOURCE_PREFIXES"),
        stream_hosts=_hosts(environment),
        runtime_image=_required(environment, "MERLOT_RUNTIME_IMAGE"),
        spark_image=_required(environment, "MERLOT_SPARK_IMAGE"),
        pull_policy=get("MERLOT_IMAGE_PULL_POLICY") or "IfNotPresent",
        pull_secrets=_names(get("MERLOT_IMAGE_PULL_SECRETS", "")),
        deep_store_secret=get("MERLOT_DEEP_STORE_SECRET", ""),
        deep_store_claim=get("MERLOT_DEEP_STORE_CLAIM", ""),
        environment={key: str(value) for key, value in _json(environment, "MERLOT_ENVIRONMENT").items()},
        sizes=_sizes(_json(environment, "MERLOT_CLUSTER_DEFAULTS")),
        storage_class=get("MERLOT_STORAGE_CLASS", ""),
        spark_driver_role=get("MERLOT_SPARK_DRIVER_ROLE", ""),
        has_unrestricted_templates=has_unrestricted_templates(environment),
        table_secrets=_patterns(get("MERLOT_TABLE_SECRETS") or "merlot-*"),
        has_network_policies=(get("MERLOT_NETWORK_POLICIES") or "true").lower() != "false",
        controller_url=get("MERLOT_CONTROLLER_URL") or CONTROLLER_URL,
        workers=_number(environment, "MERLOT_WORKERS", 8),
        resync_s=_number(environment, "MERLOT_RESYNC_SECONDS", 120),
        liveness_port=_number(environment, "MERLOT_LIVENESS_PORT", 8080),
        log_level=get("MERLOT_LOG_LEVEL") or "INFO",
        log_format=get("MERLOT_LOG_FORMAT") or "json",
    )


def has_unrestricted_templates(environment: Mapping[str, str]) -> bool:
    """Return True if authors of Tables may make any pod. Raise InvalidInputError if the variable has another value."""
    policy = environment.get("MERLOT_POD_TEMPLATES") or "restricted"
    if policy not in ("restricted", "unrestricted"):
        raise InvalidInputError(f"MERLOT_POD_TEMPLATES must be restricted or unrestricted got={policy!r}")
    return policy == "unrestricted"


def _patterns(text: str) -> tuple[str, ...]:
    return () if text == "none" else _names(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _hosts(environment: Mapping[str, str]) -> tuple[str, ...]:
    patterns = _patterns(environment.get("MERLOT_STREAM_HOSTS", ""))
    AllowedStreams(tuple(pattern.replace(NAMESPACE, "namespace") for pattern in patterns))
    return patterns


def _uris(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    uris = tuple(environment.get(name, "").split())
    for uri in uris:
        place_of(_without_credentials(name, uri))
    return uris


def _without_credentials(name: str, uri: str) -> str:
    """Return `uri`. Raise InvalidInputError if it holds credentials: many may read the arguments of pods."""
    if (problem := credentials_problem(uri)) is not None:
        raise InvalidInputError(f"{name} must not hold {problem} uri={redact(uri)}")
    return uri


def _required(environment: Mapping[str, str], name: str) -> str:
    if not (value := environment.get(name)):
        raise InvalidInputError(f"the environment lacks {name}")
    return value


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isdecimal() or int(text) == 0:
        raise InvalidInputError(f"{name} must be a positive number got={text!r}")
    return int(text)


def _json(environment: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        value = json.loads(environment.get(name) or "{}")
    except ValueError as error:
        raise InvalidInputError(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{name} must be a JSON object")
    return value


def _sizes(document: Mapping[str, Any]) -> Sizes:
    roles = ("controller", "broker", "server", "minion", "driver", "executor")
    if wrong := [role for role, given in document.items() if role not in roles or not isinstance(given, dict)]:
        raise InvalidInputError(f"MERLOT_CLUSTER_DEFAULTS must have a JSON object for each of {roles} got={wrong}")
    sizes = {role: _role(role, document.get(role, {})) for role in roles}
    minion_max = _setting("minion", "maxReplicas", int, document.get("minion", {}).get("maxReplicas", 2))
    return Sizes(**sizes, minion_max=minion_max)


def _role(role: str, document: Mapping[str, Any]) -> RoleSize:
    replicas = _setting(role, "replicas", int, document.get("replicas", 0 if role == "minion" else 1))
    resources = _setting(role, "resources", Resources.model_validate, document.get("resources", {}))
    return RoleSize(replicas=replicas, resources=resources)


def _setting(role: str, name: str, parse: Callable[[Any], Any], value: object) -> Any:
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"MERLOT_CLUSTER_DEFAULTS.{role}.{name} is wrong got={value!r}: {error}") from error
