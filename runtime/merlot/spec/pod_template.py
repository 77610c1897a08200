"""What a Table may say of its pods: where they run, how large they are, with which volumes. Not who they are.

An allow-list: what is not a field here is refused, since whoever writes a Table may have no right to make pods. A
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
"""An object that Kubernetes itself checks."""

MOUNT_PATH = r"^/mnt(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
"""Where nothing of the image is, nor anything that a library reads by itself."""
MOST_KEYS, MOST_VARIABLES, MOST_NAME = 64, 100, 253


def _is_free(key: str) -> str:
    if not KEYS.condition.holds({"self": {key: ""}}):
        raise ValueError(KEYS.message)
    return key


Key = Annotated[str, AfterValidator(_is_free)]
"""Of a label or an annotation."""


class PodMetadata(SpecModel):
    """What pods are marked with."""

    labels: Mapping[Key, str] = Field({}, max_length=MOST_KEYS)
    """Labels besides those of the operator."""
    annotations: Mapping[Key, str] = Field({}, max_length=MOST_KEYS)
    """Annotations besides those of the operator."""


class Variable(SpecModel):
    """A variable of the environment, in plain text."""

    name: str = Field(max_length=MOST_NAME)
    """Its name."""
    value: str = ""
    """Its value."""

    @field_validator("name")
    @classmethod
    def _is_free(cls, value: str) -> str:
        if not VARIABLE.condition.holds({"self": {"name": value}}):
            raise ValueError(VARIABLE.message)
        return value


class ContainerResources(SpecModel):
    """What a container asks for."""

    requests: Open | None = None
    """Guaranteed amounts."""
    limits: Open | None = None
    """Upper bounds."""


class VolumeMount(SpecModel):
    """Where a volume of the template is seen."""

    name: str
    """Name of the volume."""
    mount_path: str = Field(pattern=MOUNT_PATH)
    """A folder below /mnt."""
    sub_path: str | None = None
    """A folder of the volume instead of its root."""
    read_only: bool | None = None
    """Whether nothing is written."""


class ProbeTimes(SpecModel):
    """How patient a probe is; what it asks is the operator's."""

    initial_delay_seconds: int | None = Field(None, ge=0)
    """Before the first one."""
    period_seconds: int | None = Field(None, ge=1)
    """From one to the next."""
    timeout_seconds: int | None = Field(None, ge=1)
    """For an answer."""
    success_threshold: int | None = Field(None, ge=1)
    """Good answers that are needed."""
    failure_threshold: int | None = Field(None, ge=1)
    """Bad answers that are needed."""


class Container(SpecModel):
    """The container that the operator makes."""

    name: Literal["server", "broker"]
    """The role."""
    resources: ContainerResources | None = None
    """What it asks for besides `resources` of the tenant."""
    env: tuple[Variable, ...] = Field((), max_length=MOST_VARIABLES)
    """More environment."""
    volume_mounts: tuple[VolumeMount, ...] = ()
    """More volumes to see."""
    startup_probe: ProbeTimes | None = None
    """Patience while it starts."""
    liveness_probe: ProbeTimes | None = None
    """Patience before it is started again."""
    readiness_probe: ProbeTimes | None = None
    """Patience before it gets no more requests."""


class Volume(SpecModel):
    """A volume: scratch space, a claim, or a ConfigMap."""

    name: str
    """By which mounts name it; `tmp` and `segments` are those of the operator."""
    empty_dir: Open | None = None
    """Space of the node, as long as the pod lives."""
    ephemeral: Open | None = None
    """A claim that comes and goes with the pod."""
    persistent_volume_claim: Open | None = None
    """A claim of the namespace."""
    config_map: Open | None = None
    """Files of a ConfigMap of the namespace."""


class PodSpec(SpecModel):
    """The part of a PodSpec that a Table may have."""

    node_selector: Mapping[str, str] | None = None
    """Labels of nodes."""
    tolerations: tuple[Open, ...] | None = None
    """Taints of nodes that do no harm."""
    affinity: Open | None = None
    """Which nodes and neighbours are liked."""
    topology_spread_constraints: tuple[Open, ...] | None = None
    """Spread over zones and nodes, instead of the operator's."""
    priority_class_name: str | None = None
    """Which pods are given up first."""
    preemption_policy: Literal["Never", "PreemptLowerPriority"] | None = None
    """Whether others are given up for them."""
    scheduler_name: str | None = None
    """Another scheduler."""
    termination_grace_period_seconds: int | None = Field(None, ge=1)
    """Time to end."""
    containers: tuple[Container, ...] | None = Field(None, max_length=1)
    """The role's container; there is no other."""
    volumes: tuple[Volume, ...] | None = None
    """Volumes, by name."""


class PodTemplate(SpecModel):
    """Part of a Kubernetes PodTemplateSpec."""

    metadata: PodMetadata = PodMetadata()
    """What pods are marked with."""
    spec: PodSpec = PodSpec()
    """The part of a PodSpec that says where pods run, how large they are and with which volumes."""
