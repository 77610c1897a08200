"""Objects that a namespace's tables share: controller, broker and minion Deployments, Services, accounts, policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from merlot_operator.config import Config, RoleSize
from merlot_operator.desired.demand import ClusterDemand
from merlot_operator.manifests.parts import (
    ACCOUNT,
    BATCH,
    BROKER,
    CONTROLLER,
    DRIVER_ACCOUNT,
    EXECUTOR_ACCOUNT,
    MINION,
    PORTS,
    SERVER,
    Json,
    RolePod,
    budget,
    labels,
    metadata,
    pod_template,
    selector,
    store_arguments,
    stream_arguments,
)

CLUSTER = {"merlot.dev/scope": "cluster"}
"""Label of objects that belong to no single table."""


def name_of_role(role: str) -> str:
    """Return the name of a role's Deployment and Service."""
    return f"merlot-{role}"


def broker_url(namespace: str) -> str:
    """Return the URL for a namespace's queries."""
    return f"http://{name_of_role(BROKER)}.{namespace}.svc:{PORTS[BROKER]['http']}"


def cluster_objects(demand: ClusterDemand, config: Config, num_minions: int) -> list[Json]:
    """Return all objects of a namespace's cluster, in the order in which they are written."""
    namespace = demand.namespace
    objects: list[Json] = [_account(ACCOUNT, namespace)]
    objects += _spark_accounts(namespace, config)
    if config.has_network_policies:
        objects += _network_policies(namespace)
    for role, size in ((CONTROLLER, demand.controller), (BROKER, demand.broker)):
        objects.append(_service(role, namespace))
        objects.append(_deployment(role, size, demand, config))
        objects.append(budget(name_of_role(role), namespace, None, _labels(role)))
    minion = RoleSize(replicas=num_minions, resources=demand.minion.resources)
    objects.append(_deployment(MINION, minion, demand, config))
    return objects


def _labels(component: str) -> dict[str, str]:
    return labels(component, **CLUSTER)


def _deployment(role: str, size: RoleSize, demand: ClusterDemand, config: Config) -> Json:
    pod_labels = _labels(role)
    arguments = _arguments(role, demand.namespace, config)
    pod = RolePod(
        role=role,
        arguments=arguments,
        resources=size.resources,
        labels=pod_labels,
        inputs=_inputs(role, size, demand, config),
        overlay=demand.broker_template if role == BROKER else None,
        stores={} if role == BROKER else demand.stores,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name_of_role(role), demand.namespace, pod_labels),
        "spec": {
            "replicas": size.replicas,
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": selector(pod_labels)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": pod_template(pod, config),
        },
    }


def _arguments(role: str, namespace: str, config: Config) -> list[str]:
    arguments = [f"--zk={config.metastore_of(namespace).removeprefix('zk://')}", "--host=$(POD_IP)", "--bind=0.0.0.0"]
    if role in (CONTROLLER, MINION):
        arguments += store_arguments(config, namespace)
    if role == CONTROLLER:
        arguments += stream_arguments(config, namespace)
    if role == MINION:
        arguments += ["--data-dir=/tmp/minion", "--leave-spark"]
    return [*arguments, f"--http-port={PORTS[role]['http']}", "--log-format=json"]


def _inputs(role: str, size: RoleSize, demand: ClusterDemand, config: Config) -> Json:
    """Return everything that users chose, and nothing that a version of the operator decides."""
    # Left out if empty: pods that were started before this setting existed must not restart.
    stores: Json = {"stores": dict(demand.stores)} if demand.stores and role != BROKER else {}
    prefixes = config.deep_store_prefixes_of(demand.namespace)
    if prefixes and role != BROKER:
        stores["deepStorePrefixes"] = list(prefixes)
    folders = config.stream_folders_of(demand.namespace)
    if folders and role == CONTROLLER:
        stores["streamFolders"] = list(folders)
    return stores | {
        "image": config.runtime_image,
        "metastore": config.metastore_of(demand.namespace),
        "deepStore": config.deep_store_of(demand.namespace),
        "secret": config.deep_store_secret,
        "claim": config.deep_store_claim,
        "environment": dict(config.environment),
        "resources": size.resources.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def _service(role: str, namespace: str) -> Json:
    role_labels = _labels(role)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name_of_role(role), namespace, role_labels),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(role_labels),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP", "appProtocol": "http"}
                for name, port in PORTS[role].items()
            ],
        },
    }


def _account(name: str, namespace: str, component: str = CONTROLLER) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(name, namespace, _labels(component)),
        "automountServiceAccountToken": False,
    }


def _spark_accounts(namespace: str, config: Config) -> list[Json]:
    """Return the accounts of driver and executors. The driver may start executors; executors have no rights."""
    if not config.spark_driver_role:
        return [_account(EXECUTOR_ACCOUNT, namespace, BATCH)]
    kind, _, role = config.spark_driver_role.partition("/")
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(DRIVER_ACCOUNT, namespace, _labels(BATCH)),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": DRIVER_ACCOUNT, "namespace": namespace}],
    }
    accounts = [_account(EXECUTOR_ACCOUNT, namespace, BATCH), _account(DRIVER_ACCOUNT, namespace, BATCH)]
    return [*accounts, binding]


def _network_policies(namespace: str) -> Iterator[Json]:
    """Yield the policies of who may call whom. Only brokers may call the query port of servers, and only pods of
    batches may call pods of batches. All other ports answer everybody; outgoing traffic is not limited."""
    yield _policy(namespace, CONTROLLER, [_from((), PORTS[CONTROLLER].values())])
    yield _policy(namespace, BROKER, [_from((), PORTS[BROKER].values())])
    http, query = PORTS[SERVER]["http"], PORTS[SERVER]["query"]
    yield _policy(namespace, SERVER, [_from((BROKER,), [query]), _from((), [http])])
    yield _policy(namespace, MINION, [_from((), PORTS[MINION].values())])
    yield _policy(namespace, BATCH, [_from((BATCH,), None)])


def _policy(namespace: str, component: str, ingress: Sequence[Json]) -> Json:
    component_labels = _labels(component)
    pods = {key: value for key, value in selector(component_labels).items() if key not in CLUSTER}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(f"merlot-{component}", namespace, component_labels),
        "spec": {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": list(ingress)},
    }


def _from(components: Sequence[str], ports: Any) -> Json:
    rule: Json = {}
    if components:
        rule["from"] = [{"podSelector": {"matchLabels": selector(labels(component))}} for component in components]
    if ports is not None:
        rule["ports"] = [{"protocol": "TCP", "port": port} for port in ports]
    return rule
