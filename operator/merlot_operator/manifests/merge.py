"""Job of a merge that runs on Spark: a minion of the Spark image for a single task.

The lease in ZooKeeper says who works on the task, so a pod that is lost, or exists twice, does no harm. The pod has no
rights in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from merlot_operator.config import Config
from merlot_operator.kube.kinds import TABLE, digest, fit
from merlot_operator.manifests.batch import memory_mib, sized
from merlot_operator.manifests.parts import (
    MINION,
    PORTS,
    Json,
    RolePod,
    labels,
    metadata,
    pod_template,
    store_arguments,
)

TASK = "merlot.dev/task"
"""Annotation of a Job: id of its task."""
RETRIES = 6
MAX_NAME = 41
"""Longest name of a Job. Names of its pods are a dash and five characters longer, and the instance's is longer
still."""
KEPT_S = 600
LEAST_HEAP_MIB = 512
"""Smallest heap: Spark does not start with less than 450 MiB."""
WORKER_MIB = 2048
"""Memory of the pod for each of Spark's cores: a merge takes up to half of it in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePod:
    """Settings of a merge task's Job."""

    namespace: str
    table: str
    task: str
    owner: Mapping[str, Any]
    """Owner reference to the Table."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """Secrets by the URI of their deep store, for stores that have one of their own."""


def merge_job_name(uid: str, table: str, task: str) -> str:
    """Return the name of a task's Job: the same for the same task of the same Table."""
    hash_ = digest([uid, task])
    return f"{fit(f'merge-{table}', MAX_NAME - len(hash_) - 1)}-{hash_}"


def merge_job(run: MergePod, config: Config) -> Json:
    """Return the Job of a task."""
    run_labels = labels(MINION, **{TABLE: run.table})
    name = merge_job_name(run.owner["uid"], run.table, run.task)
    body = metadata(name, run.namespace, run_labels, run.owner)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**body, "annotations": {TASK: run.task}},
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": RETRIES,
            "ttlSecondsAfterFinished": KEPT_S,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": _template(run, run_labels, config),
        },
    }


def _template(run: MergePod, run_labels: Mapping[str, str], config: Config) -> Json:
    sizes = sized(None, config.sizes.driver.resources)
    memory = memory_mib(sizes)
    pod = RolePod(
        role=MINION,
        arguments=[
            f"--zk={config.metastore_of(run.namespace).removeprefix('zk://')}",
            *("--host=$(POD_IP)", "--bind=0.0.0.0", f"--http-port={PORTS[MINION]['http']}"),
            "--instance=Minion_$(POD_NAME)",
            *store_arguments(config, run.namespace),
            "--data-dir=/tmp/minion",
            f"--only-task={run.task}",
            f"--spark-master=local[{max(1, memory // WORKER_MIB)}]",
            f"--spark-conf=spark.driver.memory={max(LEAST_HEAP_MIB, memory * 3 // 10)}m",
            "--log-format=json",
        ],
        resources=config.sizes.driver.resources,
        labels=run_labels,
        inputs={},
        stores=run.stores,
    )
    template = pod_template(pod, config)
    container = template["spec"]["containers"][0]
    container |= {"image": config.spark_image, "resources": sizes}
    template["spec"]["restartPolicy"] = "Never"
    return template
