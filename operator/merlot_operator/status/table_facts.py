"""Facts from which a Table's status is derived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merlot_operator.context import ClusterNote, PoolNote
from merlot_operator.controllers.statuses import ClusterStatus
from merlot_operator.desired.batch_runs import Run
from merlot_operator.kube.kinds import Object
from merlot_operator.status.conditions import Condition

UNKNOWN_TABLE = "the controller does not know the table yet"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason and message for an object that is not accepted."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SpecVerdict:
    """Result of judging and writing the declared spec."""

    refusal: Refusal | None = None
    problem: str | None = None
    """Reason why the config could not be written."""
    revision: int | None = None
    """Revision of the config in shared state; None if it is not there, or unknown."""
    accepted: str | None = None
    """The spec that was accepted last, as the text that the status keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatusFacts:
    """Facts from which a Table's status is derived."""

    namespace: str
    name: str
    verdict: SpecVerdict
    is_declared_run: bool
    """True if the declared spec is the accepted one."""
    cluster: ClusterStatus
    cluster_note: ClusterNote
    pool: str
    pool_note: PoolNote
    controllers: Sequence[Object]
    brokers: Sequence[Object]
    servers: Sequence[Object]
    deployments: Sequence[Object]
    """Deployments of the namespace's cluster."""
    runs: Sequence[Run]
    ready_before: Mapping[str, Any]
    """Condition Ready of the current status; empty if there is none."""
    was_told: bool
    """True if a controller has ever reported on the table."""
    now_ms: int
    asks_for_no_server: bool
    """True if the table asks for 0 servers; other tables of its tenant may want some."""
    is_suspended: bool
    has_stream: bool
    upsert: Condition | None
    """Condition UpsertConfigured, if the table names an UpsertConfig."""

    @property
    def table(self) -> Mapping[str, Any] | None:
        """Return the controller's answer about the table; None if there is none."""
        return self.cluster.tables.get(self.name)

    @property
    def unreadable(self) -> str | None:
        """Return why the controller cannot read the table; None if it can."""
        error = self.cluster.unreadable.get(self.name)
        return None if error is None else f"the controller cannot read the table: {error}"

    @property
    def silence(self) -> tuple[str, str]:
        """Return reason and message of why there is no answer about the table."""
        if self.unreadable is not None:
            return "TableUnreadable", self.unreadable
        return "ControllerUnavailable", self.cluster.problem or UNKNOWN_TABLE

    @property
    def is_doubted(self) -> bool:
        """Return True if the controller lacks segments of the table, or has not compared it with its deep store yet."""
        return self.table is not None and bool(self.table.get("metastoreLost") or self.table.get("unconfirmed"))
