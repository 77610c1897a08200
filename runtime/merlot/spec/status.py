"""What the cluster tells about a Table object: written by the operator, read with `kubectl get tables`."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from merlot.spec.model import SpecModel

Count = Annotated[int, Field(ge=0)]


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(SpecModel):
    """One aspect of an object's state, in Kubernetes' standard form."""

    type: str = Field(min_length=1, max_length=316)
    """Which aspect: Accepted, Ready, Progressing, Degraded, ConfigInSync or SegmentsAvailable."""
    status: ConditionStatus
    """Whether it holds."""
    observed_generation: Count | None = None
    """The metadata.generation that this was judged by."""
    last_transition_time: str
    """When the status last changed, RFC 3339."""
    reason: str = Field(min_length=1, max_length=1024)
    """Why, in one CamelCase word."""
    message: str = Field("", max_length=32768)
    """Why, for people."""


class TableStatus(SpecModel):
    """State of a table."""

    observed_generation: Count | None = None
    """The metadata.generation that this status is about."""
    conditions: tuple[Condition, ...] = ()
    """Aspects of the state."""
    segments: Count | None = None
    """Number of segments."""
    total_docs: Count | None = None
    """Rows in all segments."""
    size_bytes: Count | None = None
    """Bytes of all segments, one copy of each."""
    size: str | None = None
    """The same for people, such as 1.5 GiB."""
    brokers: str | None = None
    """Brokers that are ready, of those wanted, such as 2/2."""
    servers: str | None = None
    """Servers that are ready, of those wanted, such as 3/3."""
    broker_url: str | None = None
    """Where to send queries."""
