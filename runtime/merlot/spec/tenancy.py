"""Which processes serve a table, how many and how large; where its segments are kept."""

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
"""A Kubernetes quantity: 2, 500m, 4Gi."""


class Resources(SpecModel):
    """What a process asks for, as in a Kubernetes container."""

    requests: Mapping[str, Quantity] = {}
    """Guaranteed amounts: cpu, memory."""
    limits: Mapping[str, Quantity] = {}
    """Upper bounds: cpu, memory."""
    storage: Quantity | None = None
    """Size of a server's volume for segments."""


class TenantSpec(SpecModel):
    """A group of processes of one role."""

    name: str = Field("default", pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$", max_length=63)
    """Name of the tenant; tables that name the same one share it. In Kubernetes, a table whose server tenant is default
    has servers of its own."""
    replicas: int | None = Field(None, ge=0)
    """How many processes Kubernetes runs; the largest demand of the tenant's tables wins. 0: none, data is kept."""
    resources: Resources | None = None
    """What each process asks for in Kubernetes."""
    storage_class: str | None = Field(None, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)
    """Class of the servers' volumes in Kubernetes; the operator's default if left out."""
    pod_template: PodTemplate | None = None
    """Laid over the pods that the operator makes: objects are merged, lists of named things by name, all else is
    replaced. A volume named segments takes the place of the servers' own, such as an emptyDir. Of tables that share the
    processes, the oldest that has one decides. What a pod may do is not for a Table to say, unless the operator's
    installation leaves templates unrestricted."""


class ServerTenantSpec(TenantSpec):
    """A group of servers."""

    replicas: int | None = Field(1, ge=0)
    """How many servers Kubernetes runs; the largest demand of the tenant's tables wins. 1, the default, stands for as
    many as replication; it is there since autoscalers cannot begin from nothing. 0: none, data is kept."""


class TenantsSpec(SpecModel):
    """Which processes serve the table."""

    broker: TenantSpec = TenantSpec()
    """Processes that answer queries, for Kubernetes, which runs them; any broker of a cluster answers for any table."""
    server: ServerTenantSpec = ServerTenantSpec()
    """Processes that hold segments."""


class DeepStoreSpec(SpecModel):
    """Object storage that owns the table's segment files."""

    uri: str = Field(max_length=MAX_URI, description=f"Folder of segment files: {examples(DEEP_STORES)}.")
    secret_ref: str | None = Field(None, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)
    """Secret in the table's namespace for an S3 store: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
    AWS_REGION, AWS_ENDPOINT_URL. Its name begins with merlot-, unless the operator's installation says otherwise. In
    Kubernetes whoever reads or deletes the table's files gets it: controller, servers and minions for this URI alone,
    batch jobs as environment variables."""

    @field_validator("uri")
    @classmethod
    def _names_a_place(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme == "file" and not parts.path.startswith("/"):
            raise ValueError(f"a file URI has an absolute path: file:///folder, not {value!r}")
        if parts.scheme != "file" and not parts.netloc and parts.scheme in {row.name for row in DEEP_STORES}:
            raise ValueError(f"{value!r} names no bucket or host")
        return value
