"""An upsert table of the rows that the Kafka pod has, its UpsertConfig, and the pod that asks."""

import json
from typing import Any

from tests.e2e.e2e_cluster import Cluster, Json, pod
from tests.e2e.e2e_kafka import PARTITIONS, client_properties, table, with_stream

NAME, CONFIG = "latest", "latest-rows"
TTL = "800"
"""Rows of a partition, in a few seconds: all others expire."""


def config(**spec: Any) -> Json:
    """Of the table, but for what `spec` says."""
    return {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "UpsertConfig",
        "metadata": {"name": CONFIG},
        "spec": {"mode": "FULL", "comparisonColumns": ["seq"], **spec},
    }


def upserted(cluster: Cluster) -> Json:
    """The table: every row has a key of its own."""
    document = with_stream(table(), client_properties(cluster))
    document["metadata"]["name"] = NAME
    spec = document["spec"]
    spec["schema"] = {**spec["schema"], "primaryKey": ["part", "seq"]}
    columns = {"part": {"functionName": "Modulo", "numPartitions": PARTITIONS}}
    spec |= {"partitioning": {"columns": columns}, "upsert": {"configRef": CONFIG}}
    return document


class Asked:
    """The pod that asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start(self) -> None:
        """Until it tells something."""
        brokers = self._cluster.get("service", "merlot-broker")["spec"]["clusterIP"]
        arguments = ["python", "/opt/merlot/e2e/upsert_client.py", brokers, "8099", NAME, str(PARTITIONS)]
        self._cluster.apply(pod("upserts", self._cluster.images["e2e"], arguments))
        self._cluster.kubectl("wait", "--for=condition=Ready", "pod/upserts", "--timeout=300s")

    def last(self) -> dict[str, Any]:
        """The sums so far."""
        found = [json.loads(line) for line in self._cluster.api.log("upserts", 3) if line.startswith("{")]
        return found[-1] if found else {"queries": 0, "visible": 0, "wrong": 0, "failed": 0, "samples": []}
