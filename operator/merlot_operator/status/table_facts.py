"""What a Table's status is derived from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merlot_operator.context import ClusterNote, PoolNote
from merlot_operator.controllers.statuses import ClusterStatus
from merlot_operator.desired.batch_runs import Run
from merlot_operator.kube.kinds import Object
from merlot_operator.status.conditions import Condition


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a Table is not accepted."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the declared spec."""

    refusal: Refusal | None = None
    problem: str | None = None
    """Why its config could not be written."""
    revision: int | None = None
    """Of the config in shared state; None if it is not there, or nobody knows."""
    accepted: str | None = None
    """The spec that was accepted last, as the status keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """All that a Table's status is derived from."""

    namespace: str
    name: str
    verdict: Verdict
    is_declared_run: bool
    """Whether the declared spec is the one that was accepted."""
    cluster: ClusterStatus
    cluster_note: ClusterNote
    pool: str
    pool_note: PoolNote
    controllers: Sequence[Object]
    brokers: Sequence[Object]
    servers: Sequence[Object]
    deployments: Sequence[Object]
    """Of the namespace's cluster."""
    runs: Sequence[Run]
    ready_before: Mapping[str, Any]
    """Condition Ready as it stands in the status; empty if it does not."""
    was_told: bool
    """Whether a controller has ever told of it."""
    now_ms: int
    asks_for_no_server: bool
    """Whether `replicas` of its servers is 0: the others of its tenant may want some."""
    is_suspended: bool
    has_stream: bool
    upsert: Condition | None
    """Condition UpsertConfigured, if it names an UpsertConfig."""

    @property
    def table(self) -> Mapping[str, Any] | None:
        """The controller's word on it."""
        return self.cluster.tables.get(self.name)

    @property
    def is_doubted(self) -> bool:
        """Whether the controller lacks segments of the table, or has not compared it with its deep store yet."""
        return self.table is not None and bool(self.table.get("metastoreLost") or self.table.get("unconfirmed"))
