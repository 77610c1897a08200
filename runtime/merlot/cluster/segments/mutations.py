"""What can be done to a table's segments: mutations, each with its preconditions. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from merlot.cluster.records import LineageRecord, SegmentRecord
from merlot.errors import ConflictError, UnavailableError
from merlot.ids import InstanceId, SegmentKey


@dataclass(frozen=True, slots=True)
class PutSegments:
    """Add records, or replace those of the same names. `expected`: the crc that a name must have now, None = absent.

    Marks of replacements are the table's, not the caller's: a new version is neither an input nor an output, and a
    hidden segment takes none.
    """

    records: tuple[SegmentRecord, ...]
    expected: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveSegments:
    """Remove these versions. A name that is gone already is fine; one with another crc, or one that a replacement
    needs, is a conflict; so is an open one of a stream, without `even_open`: it is its partition's place."""

    keys: tuple[SegmentKey, ...]
    even_open: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Replace the servers of these segments, all of which must exist."""

    instances: Mapping[str, tuple[InstanceId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReplacement:
    """Begin to replace segments by others. Inputs: visible, in no other live replacement, and of the crc that is given
    for them, if any. Outputs: names that do not exist, but for what a reverted replacement left, which goes."""

    entry: str
    segments_from: Mapping[str, int | None]
    segments_to: tuple[str, ...]
    now_ms: int
    custom_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutOutputs:
    """Add outputs, unseen. The entry must be IN_PROGRESS; a name must be new or an output of the same entry."""

    entry: str
    records: tuple[SegmentRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReplacement:
    """Show the outputs in place of the inputs: all inputs as they were at the start, all outputs present.

    `dropped`: outputs that shall not be after all. `custom_map` is added to the entry's.
    """

    entry: str
    details: LineageRecord
    now_ms: int
    dropped: tuple[str, ...] = ()
    custom_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertReplacement:
    """Show the inputs again. Outputs that were never seen go at once, those that were are kept, hidden.

    A completed entry needs all of its inputs, and all of its outputs, none of which another live replacement replaces.
    """

    entry: str
    details: LineageRecord
    now_ms: int


@dataclass(frozen=True, slots=True)
class ForgetReplacement:
    """Remove the records of the hidden side, wipe the marks of the other, and drop the entry. Not while IN_PROGRESS."""

    entry: str


@dataclass(frozen=True, slots=True)
class MoveTimeBoundary:
    """Have the batches answer for other times, the stream for the rest: None, both for all."""

    boundary_ms: int | None
    now_ms: int


LineageMutation = StartReplacement | PutOutputs | EndReplacement | RevertReplacement | ForgetReplacement
Mutation = PutSegments | RemoveSegments | Assign | MoveTimeBoundary | LineageMutation


class PreconditionError(ConflictError):
    """A mutation expects what is not so: whoever decided it has to look again."""


class TooManyReplacementsError(UnavailableError):
    """A table keeps as many replacements as its root has room for: wait until the grace period of some ends."""
