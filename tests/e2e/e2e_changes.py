"""Changes of what runs, and how to tell that they are over."""

from pathlib import Path

import yaml
from e2e_cluster import Cluster, Json

SERVERS, BROKERS = "server", "broker"


def restarts(cluster: Cluster, component: str) -> dict[str, str]:
    """Pods of a role by name, with what tells a pod from its successor."""
    return {name: one["metadata"]["uid"] for name, one in cluster.pods(component).items()}


def is_ready(pod: Json) -> bool:
    """Whether a pod is."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def change_image(cluster: Cluster, package: Path, values: Json, image: str) -> None:
    """Have every pod run another image of the runtime."""
    repository, _, tag = cluster.images[image].rpartition(":")
    changed = {**values, "images": {**values["images"], "runtime": {"repository": repository, "tag": tag}}}
    file = package.with_name(f"{image}.yaml")
    file.write_text(yaml.safe_dump(changed))
    cluster.helm("upgrade", "merlot", str(package), "--values", str(file), "--wait", "--timeout=4m")


def runs(cluster: Cluster, image: str) -> bool:
    """Whether all that answers queries runs that image."""
    pods = [one for role in (SERVERS, BROKERS) for one in cluster.pods(role).values()]
    return {one["spec"]["containers"][0]["image"] for one in pods} == {cluster.images[image]}
