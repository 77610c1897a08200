"""Record of a backfill of an upsert table: its request and the step that it has reached."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from merlot.cluster.record import Record


class Step(StrEnum):
    """Steps of a backfill in their order."""

    DISABLE_TTL = "DISABLE_TTL"
    """No key expires from the next segments on."""
    SCALE = "SCALE"
    """Waits for servers that have memory for all keys that are stored."""
    RECOVER = "RECOVER"
    """Every replica decides all stored rows anew, so that it knows keys again that had expired."""
    LOAD = "LOAD"
    """Rows are read, until all that shall be are committed."""
    ENABLE_TTL = "ENABLE_TTL"
    """Keys expire again, from the next segments on."""
    PRUNE = "PRUNE"
    """Every replica goes by that, and lets expired keys go."""
    DONE = "DONE"


ORDER = tuple(Step)


class BackfillRecord(Record):
    """The last backfill of a table."""

    name: str
    """Name that the client gave to the backfill; another name asks for another backfill."""
    step: Step = Step.DISABLE_TTL
    begun_ms: int
    since_ms: int
    """Time when the step began."""
    message: str = ""
    """Condition that the step waits for."""
    offsets: Mapping[int, int] | None = None
    """Offset by partition from which the stream is read again; None: rows are produced into the stream meanwhile."""
    is_declared: bool = False
    """By the UpsertConfig, which ends it when it names it no more."""
    ignores_memory: bool = False
    loaded_ms: int = 0
    """Since when somebody says that everything has been produced."""
    is_cancelled: bool = False
    recovered: int = 0
    """Number of the last recovery, this backfill's from RECOVER on; settings keep it from then on."""
    asked: Mapping[int, int] = {}
    """Segments that were asked to end so that the next one begins at its offset: sequence by partition."""
    restarted: Mapping[int, int] = {}
    """The ones that did: sequence by partition."""
    until: Mapping[int, int] = {}
    """Offset by partition up to which everything has to be committed."""

    @property
    def is_over(self) -> bool:
        """Return whether all steps are done."""
        return self.step is Step.DONE

    @property
    def keeps_keys(self) -> bool:
        """Return whether no key may expire."""
        return ORDER.index(self.step) < ORDER.index(Step.ENABLE_TTL)
