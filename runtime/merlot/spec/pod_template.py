"""Pod templates of a Table: where pods run, how large they are, and their volumes.

This is an allow-list. Every other field is refused, since authors of Tables may have no right to create pods. A
security context, another account, image, command or container, the node's network, files or names, and contents of
Secrets would each give the author of a Table more than the rights to Tables.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator

from merlot.spec.model import SpecModel
from merlot.spec.rules.pods import KEYS, VARIABLE

_OPEN_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
Open = Annotated[Mapping[str, Any], WithJsonSchema(_OPEN_SCHEMA)]
"""Object that Kubernetes itself validates."""

MOUNT_PATH = r"^/mnt(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
"""Pattern of mount paths. Neither the image nor any library keeps files there."""
MOST_KEYS, MOST_VARIABLES, MOST_NAME = 64, 100, 253


def _is_free(key: str) -> str:
    if not KEYS.condition.holds({"self": {key: ""}}):
        raise ValueError(KEYS.message)
    return key


Key = Annotated[str, AfterValidator(_is_free)]
"""Key of a label or an annotation."""


class PodMetadata(SpecModel):
    """Labels and annotations of pods."""

    labels: Mapping[Key, str] = Field({}, max_length=MOST_KEYS)
    """Labels besides those of the operator."""
    annotations: Mapping[Key, str] = Field({}, max_length=MOST_KEYS)
    """Annotations besides those of the operator."""


class Variable(SpecModel):
    """Environment variable, in plain text."""

    name: str = Field(max_length=MOST_NAME)
    """Name of the variable."""
    value: str = ""
    """Value of the variable."""

    @field_validator("name")
    @classmethod
    def _is_free(cls, value: str) -> str:
        if not VARIABLE.condition.holds({"self": {"name": value}}):
            raise ValueError(VARIABLE.message)
        return value


class ContainerResources(SpecModel):
    """Resources of a container."""

    requests: Open | None = None
    """Guaranteed amounts."""
    limits: Open | None = None
    """Upper bounds."""


class VolumeMount(SpecModel):
    """Path at which a container sees a volume of the template."""

    name: str
    """Name of the volume."""
    mount_path: str = Field(pattern=MOUNT_PATH)
    """Folder below /mnt."""
    sub_path: str | None = None
    """Folder of the volume that is mounted instead of its root."""
    read_only: bool | None = None
    """True if the container only reads the volume."""


class ProbeTimes(SpecModel):
    """Times and thresholds of a probe; the operator decides what it probes."""

    initial_delay_seconds: int | None = Field(None, ge=0)
    """Seconds before the first probe."""
    period_seconds: int | None = Field(None, ge=1)
    """Seconds between two probes."""
    timeout_seconds: int | None = Field(None, ge=1)
    """Seconds that a probe waits for an answer."""
    success_threshold: int | None = Field(None, ge=1)
    """Consecutive good answers that count as success."""
    failure_threshold: int | None = Field(None, ge=1)
    """Consecutive bad answers that count as failure."""


class Container(SpecModel):
    """Container that the operator creates."""

    name: Literal["server", "broker"]
    """Role of the pod."""
    resources: ContainerResources | None = None
    """Resources in addition to `resources` of the tenant."""
    env: tuple[Variable, ...] = Field((), max_length=MOST_VARIABLES)
    """Additional environment variables."""
    volume_mounts: tuple[VolumeMount, ...] = ()
    """Additional volumes to mount."""
    startup_probe: ProbeTimes | None = None
    """Times for the container to start."""
    liveness_probe: ProbeTimes | None = None
    """Times before the container is restarted."""
    readiness_probe: ProbeTimes | None = None
    """Times before the container gets no more requests."""


class Volume(SpecModel):
    """Volume: scratch space, a claim, or a ConfigMap."""

    name: str
    """Name by which mounts refer to it; `tmp` and `segments` are those of the operator."""
    empty_dir: Open | None = None
    """Space on the node that exists as long as the pod."""
    ephemeral: Open | None = None
    """Claim that is created and deleted with the pod."""
    persistent_volume_claim: Open | None = None
    """Claim of the namespace."""
    config_map: Open | None = None
    """Files of a ConfigMap of the namespace."""


class PodSpec(SpecModel):
    """Fields of a PodSpec that a Table may set."""

    node_selector: Mapping[str, str] | None = None
    """Labels that a node must have."""
    tolerations: tuple[Open, ...] | None = None
    """Taints of nodes that pods tolerate."""
    affinity: Open | None = None
    """Nodes and neighbours that pods require or prefer."""
    topology_spread_constraints: tuple[Open, ...] | None = None
    """Spread over zones and nodes, instead of the operator's."""
    priority_class_name: str | None = None
    """Name of the pods' PriorityClass, which decides which pods are evicted first."""
    preemption_policy: Literal["Never", "PreemptLowerPriority"] | None = None
    """Never: other pods are not evicted for these. PreemptLowerPriority: pods of lower priority are."""
    scheduler_name: str | None = None
    """Name of a scheduler other than the default."""
    termination_grace_period_seconds: int | None = Field(None, ge=1)
    """Seconds that a pod has to stop."""
    containers: tuple[Container, ...] | None = Field(None, max_length=1)
    """Container of the role; there is no other."""
    volumes: tuple[Volume, ...] | None = None
    """Volumes, by name."""


class PodTemplate(SpecModel):
    """Part of a Kubernetes PodTemplateSpec."""

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations of pods."""
    spec: PodSpec = PodSpec()
    """Fields of a PodSpec that decide where pods run, how large they are and which volumes they have."""
