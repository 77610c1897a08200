"""Processes that serve a table, their number and size, and the place of its segments."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from merlot.schemes import DEEP_STORES, examples
from merlot.spec.model import SpecModel
from merlot.spec.pod_template import PodTemplate

QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
MAX_URI = 2048

Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Field(pattern=QUANTITY),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY}),
]
"""Quantity of Kubernetes: 2, 500m, 4Gi."""


class Resources(SpecModel):
    """Resources of a process, as of a Kubernetes container."""

    requests: Mapping[str, Quantity] = {}
    """Guaranteed amounts: cpu, memory."""
    limits: Mapping[str, Quantity] = {}
    """Upper bounds: cpu, memory."""
    storage: Quantity | None = None
    """Size of a server's volume for segments."""


class TenantSpec(SpecModel):
    """Group of processes of one role."""

    name: str = Field("default", pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$", max_length=63)
    """Name of the tenant; tables that name the same tenant share it. In Kubernetes, a table whose server tenant is
    default has its own servers."""
    replicas: int | None = Field(None, ge=0)
    """Number of processes that Kubernetes runs; the largest demand of the tenant's tables wins. 0: none, data is
    kept."""
    resources: Resources | None = None
    """Resources of each process in Kubernetes."""
    storage_class: str | None = Field(None, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)
    """Class of the servers' volumes in Kubernetes; the operator's default if left out."""
    pod_template: PodTemplate | None = None
    """Template that is merged into the pods that the operator creates: objects are merged, lists of named things by
    name, all else is replaced. A volume named segments replaces the servers' own, such as an emptyDir. If several
    tables share the processes, the oldest table with a template decides. The template cannot grant pods any rights,
    unless the operator's installation leaves templates unrestricted."""


class ServerTenantSpec(TenantSpec):
    """Group of servers."""

    replicas: int | None = Field(1, ge=0)
    """Number of servers that Kubernetes runs; the largest demand of the tenant's tables wins. 1, the default, means as
    many as replication; it is set because autoscalers cannot start from nothing. 0: none, data is kept."""


class TenantsSpec(SpecModel):
    """Processes that serve the table."""

    broker: TenantSpec = TenantSpec()
    """Processes that answer queries. This is for Kubernetes, which runs them; any broker of a cluster answers for any
    table."""
    server: ServerTenantSpec = ServerTenantSpec()
    """Processes that hold segments."""


class DeepStoreSpec(SpecModel):
    """Object storage that owns the table's segment files."""

    uri: str = Field(max_length=MAX_URI, description=f"Folder of segment files: {examples(DEEP_STORES)}.")
    secret_ref: str | None = Field(None, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)
    """Secret in the table's namespace for an S3 store: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
    AWS_REGION, AWS_ENDPOINT_URL. Its name begins with merlot-, unless the operator's installation says otherwise. In
    Kubernetes it is given to all that read or delete the table's files: to controller, servers and minions for this URI
    alone, to batch jobs as environment variables."""

    @field_validator("uri")
    @classmethod
    def _names_a_place(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme == "file" and not parts.path.startswith("/"):
            raise ValueError(f"a file URI has an absolute path: file:///folder, not {value!r}")
        if parts.scheme != "file" and not parts.netloc and parts.scheme in {row.name for row in DEEP_STORES}:
            raise ValueError(f"{value!r} names no bucket or host")
        return value
