"""Changes of what runs, and how to tell that they are over."""

from pathlib import Path

import yaml
from tests.e2e.e2e_cluster import Cluster, Json
from tests.e2e.e2e_kafka import PARTITIONS

SERVERS, BROKERS = "server", "broker"


def restarts(cluster: Cluster, component: str) -> dict[str, str]:
    """Pods of a role by name, with what tells a pod from its successor."""
    return {name: one["metadata"]["uid"] for name, one in cluster.pods(component).items()}


def is_ready(pod: Json) -> bool:
    """Whether a pod is."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def servers_of(cluster: Cluster, table: str) -> dict[str, Json]:
    """Pods of a table's servers by name."""
    return {name: one for name, one in cluster.pods(SERVERS).items() if name.startswith(f"merlot-server-{table}-")}


def is_settled(cluster: Cluster, table: str, servers: int) -> bool:
    """Whether a table has that many servers, they hold and consume what they shall, and the table says so."""
    pods = servers_of(cluster, table)
    are_ready = len(pods) == servers and all(map(is_ready, pods.values()))
    says_so = cluster.holds("table", table, "Ready") and not cluster.holds("table", table, "Progressing")
    found = cluster.get("table", table)
    is_stream = "stream" in found["spec"].get("ingestion", {})
    consumed = found.get("status", {}).get("stream", {}).get("consumed")
    return are_ready and says_so and (consumed == PARTITIONS or not is_stream)


def upgrade(cluster: Cluster, package: Path, values: Json, name: str) -> None:
    """Give the release other values."""
    file = package.with_name(f"{name}.yaml")
    file.write_text(yaml.safe_dump(values))
    cluster.helm("upgrade", "merlot", str(package), "--values", str(file), "--wait", "--timeout=6m")


def with_runtime(values: Json, image: str) -> Json:
    """Values with another image of the runtime."""
    repository, _, tag = image.rpartition(":")
    return {**values, "images": {**values["images"], "runtime": {"repository": repository, "tag": tag}}}


def change_image(cluster: Cluster, package: Path, values: Json, image: str) -> None:
    """Have every pod run another image of the runtime."""
    upgrade(cluster, package, with_runtime(values, cluster.images[image]), image)


def runs(cluster: Cluster, image: str) -> bool:
    """Whether all that answers queries runs that image."""
    pods = [one for role in (SERVERS, BROKERS) for one in cluster.pods(role).values()]
    return {one["spec"]["containers"][0]["image"] for one in pods} == {cluster.images[image]}
