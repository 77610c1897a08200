"""Job of a batch run: its pod is the driver of a Spark application in client mode; executors are pods of their own.

A single object holds everything (the manifest and the executors' template are annotations that the pod sees as files),
so a run is there as a whole or not at all. The Job's name says what it builds: creating it twice is creating it
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from merlot.spec.ingestion import BatchIngestion
from merlot.spec.tenancy import Resources
from merlot.values.durations import duration_ms
from merlot_operator.config import Config
from merlot_operator.desired.sizes import over
from merlot_operator.kube.compare import quantity
from merlot_operator.kube.kinds import BATCH as BATCH_LABEL
from merlot_operator.kube.kinds import TABLE
from merlot_operator.manifests.parts import (
    ACCOUNT,
    BATCH,
    DRIVER_ACCOUNT,
    EXECUTOR_ACCOUNT,
    Json,
    container_security,
    environment,
    environment_from,
    field_variable,
    labels,
    metadata,
    pod_security,
    pull_secrets,
    store_mounts,
    store_volumes,
    temporary,
)

MANIFEST = "merlot.dev/manifest"
EXECUTOR_TEMPLATE = "merlot.dev/executor-template"
FILES = "/etc/merlot"
WRONG_INPUT = 2
"""Exit code of a driver whose input no retry can mend."""
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
DEFAULT_MEMORY = "2Gi"
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPod:
    """Settings of a batch run's Job."""

    namespace: str
    job: str
    table: str
    owner: Mapping[str, Any]
    manifest: Mapping[str, Any]
    """The Table, as the driver reads it."""
    batch: BatchIngestion
    deep_store: str
    secrets: Sequence[str]
    is_suspended: bool


def job(run: BatchPod, config: Config) -> Json:
    """Return the Job of a run."""
    settings = run.batch.job
    run_labels = labels(BATCH, **{TABLE: run.table, BATCH_LABEL: run.batch.name})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(run.job, run.namespace, run_labels, run.owner),
        "spec": {
            "suspend": run.is_suspended,
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": settings.retries,
            "activeDeadlineSeconds": duration_ms(settings.deadline) // 1000,
            "ttlSecondsAfterFinished": duration_ms(settings.keep) // 1000,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "driver", "operator": "In", "values": [WRONG_INPUT]},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": _driver(run, run_labels, config),
        },
    }


def has_executors(batch: BatchIngestion, config: Config) -> bool:
    """Return True if the driver starts executor pods; without a role for it, it works alone."""
    return batch.job.executors > 0 and bool(config.spark_driver_role)


def _driver(run: BatchPod, run_labels: Mapping[str, str], config: Config) -> Json:
    is_distributed = has_executors(run.batch, config)
    annotations = {MANIFEST: yaml.safe_dump(dict(run.manifest), sort_keys=False, allow_unicode=True)}
    if is_distributed:
        annotations[EXECUTOR_TEMPLATE] = yaml.safe_dump(_executor(run, run_labels, config), sort_keys=False)
    files = [{"path": "table.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{MANIFEST}']"}}]
    if is_distributed:
        field = f"metadata.annotations['{EXECUTOR_TEMPLATE}']"
        files.append({"path": "executor.yaml", "fieldRef": {"fieldPath": field}})
    return {
        "metadata": {"labels": dict(run_labels), "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": DRIVER_ACCOUNT if is_distributed else ACCOUNT,
            "automountServiceAccountToken": is_distributed,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "terminationGracePeriodSeconds": 30,
            **pull_secrets(config),
            "containers": [_driver_container(run, config)],
            "volumes": [temporary(), *store_volumes(config), {"name": "files", "downwardAPI": {"items": files}}],
        },
    }


def _driver_container(run: BatchPod, config: Config) -> Json:
    settings = run.batch.job
    sizes = sized(settings.driver, config.sizes.driver.resources)
    secrets = environment_from(config, run.secrets)
    return {
        "name": "driver",
        "image": config.spark_image,
        "imagePullPolicy": config.pull_policy,
        "args": _arguments(run, config),
        "env": [
            field_variable("POD_NAME", "metadata.name"),
            field_variable("POD_IP", "status.podIP"),
            *environment(config),
        ],
        **({"envFrom": secrets} if secrets else {}),
        "resources": sizes,
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "files", "mountPath": FILES, "readOnly": True},
            *store_mounts(config),
        ],
    }


def _arguments(run: BatchPod, config: Config) -> list[str]:
    settings = run.batch.job
    is_distributed = has_executors(run.batch, config)
    master = "k8s://https://kubernetes.default.svc" if is_distributed else f"local[{settings.cores}]"
    arguments = [
        *("python", "-m", "merlot_spark.build_segments"),
        f"--table={FILES}/table.yaml",
        f"--ingestion={run.batch.name}",
        f"--controller={config.controller_of(run.namespace)}",
        f"--deep-store={run.deep_store}",
        f"--master={master}",
        f"--custom=job={run.job}",
        "--report=/dev/termination-log",
    ]
    return [*arguments, *(f"--conf={name}={value}" for name, value in spark_settings(run, config).items())]


def spark_settings(run: BatchPod, config: Config) -> dict[str, str]:
    """Return Spark's settings. Kubernetes fills in `$(POD_IP)` and `$(POD_NAME)`."""
    settings = run.batch.job
    memory = memory_mib(sized(settings.driver, config.sizes.driver.resources))
    chosen = {"spark.driver.memory": f"{memory // 2}m", "spark.ui.enabled": "false"}
    if not has_executors(run.batch, config):
        return chosen
    sizes = sized(settings.executor, config.sizes.executor.resources)
    memory = memory_mib(sizes)
    heap = memory * 6 // 10
    return chosen | {
        "spark.kubernetes.namespace": run.namespace,
        "spark.kubernetes.container.image": config.spark_image,
        "spark.kubernetes.container.image.pullPolicy": config.pull_policy,
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.executor.podNamePrefix": "$(POD_NAME)",
        "spark.kubernetes.authenticate.executor.serviceAccountName": EXECUTOR_ACCOUNT,
        "spark.kubernetes.executor.podTemplateFile": f"{FILES}/executor.yaml",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        "spark.kubernetes.executor.request.cores": sizes.get("requests", {}).get("cpu", str(settings.cores)),
        **({"spark.kubernetes.executor.limit.cores": cpu} if (cpu := sizes["limits"].get("cpu")) else {}),
        "spark.executor.instances": str(settings.executors),
        "spark.executor.cores": str(settings.cores),
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{memory - heap}m",
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
    }


def _executor(run: BatchPod, run_labels: Mapping[str, str], config: Config) -> Json:
    """Return the fields that Spark's own template of an executor pod lacks."""
    secrets = environment_from(config, run.secrets)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": dict(run_labels)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            **pull_secrets(config),
            "containers": [
                {
                    "name": "executor",
                    "env": environment(config),
                    **({"envFrom": secrets} if secrets else {}),
                    "securityContext": container_security(),
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *store_mounts(config)],
                }
            ],
            "volumes": [temporary(), *store_volumes(config)],
        },
    }


def sized(asked: Resources | None, default: Resources) -> Json:
    """Return requests and limits, with a limit of memory in any case: Spark's heap is derived from it."""
    least = Resources(requests=default.requests, limits={"memory": DEFAULT_MEMORY, **default.limits})
    chosen = over(least, asked or Resources())
    return {"limits": dict(chosen.limits)} | ({"requests": dict(chosen.requests)} if chosen.requests else {})


def memory_mib(sizes: Mapping[str, Any]) -> int:
    """Return the limit of memory in MiB."""
    return int(quantity(sizes["limits"]["memory"])) // _MIB
