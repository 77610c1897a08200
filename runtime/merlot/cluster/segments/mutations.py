"""Mutations of a table's segments, each with its preconditions. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from merlot.cluster.records import LineageRecord, LineageState, SegmentRecord
from merlot.errors import ConflictError, UnavailableError
from merlot.ids import InstanceId, SegmentKey


@dataclass(frozen=True, slots=True)
class PutSegments:
    """Add records, or replace those of the same names. `expected`: crc that a name must have now; None if it must not
    exist.

    The table sets the marks of replacements, not the caller: a new version is neither an input nor an output, and a
    hidden segment takes no new version."""

    records: tuple[SegmentRecord, ...]
    expected: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveSegments:
    """Remove these versions. A name that is gone already is fine. A name with another crc, or one that a replacement
    needs, is a conflict. So is an open segment of a stream, without `even_open`: it holds its partition's place."""

    keys: tuple[SegmentKey, ...]
    even_open: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Replace the servers of these segments, all of which must exist."""

    instances: Mapping[str, tuple[InstanceId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReplacement:
    """Begin to replace segments by others.

    Inputs must be visible, in no other replacement under way, and of the given crc, if any. Outputs must not exist; a
    segment that a reverted replacement left under their name is dropped."""

    entry: str
    segments_from: Mapping[str, int | None]
    segments_to: tuple[str, ...]
    now_ms: int
    custom_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutOutputs:
    """Add outputs, hidden. The entry must be IN_PROGRESS; a name must be new or an output of the same entry."""

    entry: str
    records: tuple[SegmentRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReplacement:
    """Show the outputs in place of the inputs: all inputs must be as they were at the start, and all outputs present.

    `dropped`: outputs that are dropped instead. `custom_map` is added to the entry's."""

    entry: str
    details: LineageRecord
    now_ms: int
    dropped: tuple[str, ...] = ()
    custom_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertReplacement:
    """Show the inputs again. Outputs that were never visible are dropped at once, others are kept, hidden.

    A completed entry needs all of its inputs, and all of its outputs, none of which another live replacement
    replaces."""

    entry: str
    details: LineageRecord
    now_ms: int


@dataclass(frozen=True, slots=True)
class ForgetReplacement:
    """Remove the records of the hidden side, clear the marks of the other side, and drop the entry. The entry must not
    be IN_PROGRESS."""

    entry: str


@dataclass(frozen=True, slots=True)
class StampReplacement:
    """Correct the time since which an entry is in this state. An entry that is gone, or in another state, is left
    alone."""

    entry: str
    state: LineageState
    since_ms: int


@dataclass(frozen=True, slots=True)
class MoveTimeBoundary:
    """Move the time before which batches answer, and from which on the stream does. None: both answer for all times."""

    boundary_ms: int | None
    now_ms: int


LineageMutation = (
    StartReplacement | PutOutputs | EndReplacement | RevertReplacement | ForgetReplacement | StampReplacement
)
Mutation = PutSegments | RemoveSegments | Assign | MoveTimeBoundary | LineageMutation


class PreconditionError(ConflictError):
    """A precondition of a mutation is not met: the caller has to decide again by the present view."""


class TooManyReplacementsError(UnavailableError):
    """A table keeps as many replacements as its root has room for: wait until the grace period of some ends."""
