"""Record of a backfill of an upsert table: its request and the step that it has reached."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from merlot.cluster.record import Record


class BackfillStep(StrEnum):
    """Steps of a backfill in their order."""

    DISABLE_TTL = "DISABLE_TTL"
    """No key expires in the segments that begin from now on."""
    SCALE = "SCALE"
    """The servers get memory for all stored keys."""
    RECOVER = "RECOVER"
    """Every replica decides all stored rows anew, so that it knows expired keys again."""
    LOAD = "LOAD"
    """Rows are read until all rows of the backfill are committed."""
    ENABLE_TTL = "ENABLE_TTL"
    """Keys expire again, in the segments that begin from now on."""
    PRUNE = "PRUNE"
    """Every replica applies the settings with expiry, and drops expired keys."""
    DONE = "DONE"


ORDER = tuple(BackfillStep)


class BackfillRecord(Record):
    """The last backfill of a table."""

    name: str
    """Name that the client gave to the backfill; another name asks for another backfill."""
    step: BackfillStep = BackfillStep.DISABLE_TTL
    begun_ms: int
    since_ms: int
    """Time when the step began."""
    message: str = ""
    """Condition that the step waits for."""
    offsets: Mapping[int, int] | None = None
    """Offset by partition from which the stream is read again; None if rows are produced into the stream meanwhile."""
    is_declared: bool = False
    """True if the UpsertConfig declares the backfill, and ends it by no longer naming it."""
    ignores_memory: bool = False
    loaded_ms: int = 0
    """Time since which a client says that everything has been produced."""
    is_cancelled: bool = False
    recovered: int = 0
    """Number of the last recovery: from RECOVER on, that of this backfill. Pinned settings have it from then on."""
    asked: Mapping[int, int] = {}
    """Segments that must end, so that the next segment begins at the offset in `offsets`: sequence by partition."""
    restarted: Mapping[int, int] = {}
    """Segments that began at the offset in `offsets` after those of `asked` had ended, sequence by partition. Without
    offsets: the open segment of each partition whose stream's end was reported after `loaded_ms`."""
    until: Mapping[int, int] = {}
    """Offset by partition up to which everything has to be committed."""

    @property
    def is_over(self) -> bool:
        """Return whether all steps are done."""
        return self.step is BackfillStep.DONE

    @property
    def keeps_keys(self) -> bool:
        """Return whether no key may expire."""
        return ORDER.index(self.step) < ORDER.index(BackfillStep.ENABLE_TTL)
