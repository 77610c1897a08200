"""A pool of servers: StatefulSet with a volume per server, headless Service, disruption budget.

Pods are deleted by the operator alone (OnDelete): a restart waits until the server's segments are served elsewhere.
"""

from __future__ import annotations

from typing import Any

from merlot.ids import InstanceId
from merlot_operator.config import Config
from merlot_operator.desired.demand import PoolDemand
from merlot_operator.kube.kinds import POOL, RESTARTED_AT
from merlot_operator.manifests.overlay import volume_names
from merlot_operator.manifests.parts import (
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

VOLUME = "segments"
DATA = "/var/lib/merlot"
STREAM_SECRETS = "/etc/merlot/streams"
"""Folder that holds a folder for each Secret with which streams are read."""


def pool_objects(demand: PoolDemand, config: Config, replicas: int) -> list[Json]:
    """Return all objects of a pool, in the order in which they are written. `replicas` may lag behind the demand."""
    return [
        _service(demand),
        stateful_set(demand, config, replicas),
        budget(demand.name, demand.namespace, demand.owner, pool_labels(demand.name)),
    ]


def pool_labels(pool: str) -> dict[str, str]:
    """Return the labels of a pool's objects and pods."""
    return labels(SERVER, **{POOL: pool})


def instance_of(pod: str) -> InstanceId:
    """Return the server's name in shared state, which is stable, as its volume is."""
    return InstanceId(f"Server_{pod}_{PORTS[SERVER]['query']}")


def pod_name(pool: str, ordinal: int) -> str:
    """Return the name of a StatefulSet's pod."""
    return f"{pool}-{ordinal}"


def claim_name(pool: str, ordinal: int) -> str:
    """Return the name of a pod's claim."""
    return f"{VOLUME}-{pool}-{ordinal}"


def is_numbered(name: str, pool: str) -> bool:
    """Return True if a pod's or a claim's name is one that the StatefulSet gives. Other objects may have the pool's
    labels too, such as a claim that was restored from a snapshot."""
    head, _, number = name.rpartition("-")
    return head in (pool, f"{VOLUME}-{pool}") and number.isdecimal()


def ordinal_of(pod: str) -> int:
    """Return the number of a StatefulSet's pod or claim."""
    return int(pod.rpartition("-")[2])


def stateful_set(demand: PoolDemand, config: Config, replicas: int) -> Json:
    """Return the StatefulSet of the servers."""
    set_labels = pool_labels(demand.name)
    pod = RolePod(
        role=SERVER,
        arguments=_arguments(demand, config),
        resources=demand.resources,
        labels=set_labels,
        inputs=_inputs(demand, config),
        overlay=demand.pod_template,
        stores=demand.stores,
        volumes=[
            {"name": name, "secret": {"secretName": secret, "optional": True}}
            for name, secret in _secret_volumes(demand).items()
        ],
        mounts=[
            {"name": VOLUME, "mountPath": DATA},
            *(
                {"name": name, "mountPath": f"{STREAM_SECRETS}/{secret}", "readOnly": True}
                for name, secret in _secret_volumes(demand).items()
            ),
        ],
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(demand.name, demand.namespace, set_labels, demand.owner),
        "spec": {
            "replicas": replicas,
            "serviceName": demand.name,
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 2,
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Delete" if demand.deletes_claims else "Retain",
                "whenScaled": "Retain",
            },
            "selector": {"matchLabels": selector(set_labels)},
            "template": _template(pod, demand, config),
            "volumeClaimTemplates": [] if has_own_volume(demand) else [_claim(demand)],
        },
    }


def _template(pod: RolePod, demand: PoolDemand, config: Config) -> Json:
    template = pod_template(pod, config)
    if demand.restarted_at:
        template["metadata"]["annotations"][RESTARTED_AT] = demand.restarted_at
    return template


def has_own_volume(demand: PoolDemand) -> bool:
    """Return True if the user's template says where segments are kept, so that no claim is made."""
    return demand.pod_template is not None and VOLUME in volume_names(demand.pod_template)


def _secret_volumes(demand: PoolDemand) -> dict[str, str]:
    """Return the Secrets with which streams are read, by the names of their volumes, which must be shorter."""
    return {f"stream-secret-{number}": secret for number, secret in enumerate(demand.stream_secrets)}


def _arguments(demand: PoolDemand, config: Config) -> list[str]:
    return [
        f"--zk={config.metastore_of(demand.namespace).removeprefix('zk://')}",
        *store_arguments(config, demand.namespace),
        f"--data-dir={DATA}",
        "--host=$(POD_IP)",
        "--bind=0.0.0.0",
        f"--http-port={PORTS[SERVER]['http']}",
        f"--query-port={PORTS[SERVER]['query']}",
        f"--instance={instance_of('$(POD_NAME)')}",
        f"--tenant={demand.tenant}",
        *([f"--secrets-dir={STREAM_SECRETS}"] if demand.stream_secrets else []),
        f"--stream-hosts={','.join(config.stream_hosts_of(demand.namespace)) or 'none'}",
        *stream_arguments(config, demand.namespace),
        "--log-format=json",
    ]


def _inputs(demand: PoolDemand, config: Config) -> Json:
    prefixes = config.deep_store_prefixes_of(demand.namespace)
    # Left out if empty: pods that were started before these settings existed must not restart.
    more = {
        "deepStorePrefixes": list(prefixes),
        "streamSecrets": list(demand.stream_secrets),
        "streamHosts": list(config.stream_hosts_of(demand.namespace)),
        "streamFolders": list(config.stream_folders_of(demand.namespace)),
    }
    return {name: values for name, values in more.items() if values} | {
        "image": config.runtime_image,
        "metastore": config.metastore_of(demand.namespace),
        "deepStore": config.deep_store_of(demand.namespace),
        "secrets": [config.deep_store_secret, *sorted(set(demand.stores.values()))],
        "claim": config.deep_store_claim,
        "environment": dict(config.environment),
        "resources": demand.resources.model_dump(mode="json", by_alias=True, exclude={"storage"}),
        "tenant": demand.tenant,
        "restartedAt": demand.restarted_at,
    }


def _service(demand: PoolDemand) -> Json:
    set_labels = pool_labels(demand.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(demand.name, demand.namespace, set_labels, demand.owner),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(set_labels),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                for name, port in PORTS[SERVER].items()
            ],
        },
    }


def _claim(demand: PoolDemand) -> dict[str, Any]:
    storage_class = {"storageClassName": demand.storage_class} if demand.storage_class else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": VOLUME, "labels": pool_labels(demand.name)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            **storage_class,
            "resources": {"requests": {"storage": demand.storage}},
        },
    }
