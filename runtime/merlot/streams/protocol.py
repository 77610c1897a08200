"""Interfaces between a stream and its consumers.

An offset names a position between two messages of a partition: reading from it gives the message behind it. Offsets
grow, not always by one: a log has gaps where messages were compacted or a transaction was aborted, and offsets of files
count bytes. So `next_offset` of a poll, never the last message's offset, says where to go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from merlot.errors import InvalidInputError, MerlotError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Headers = Sequence[tuple[str, bytes | None]]


class OffsetRange(NamedTuple):
    """Range of offsets that a partition has at the moment."""

    earliest: int
    """Offset of its first message, or `latest` if it has none."""
    latest: int
    """First offset that is not there yet."""


class OffsetOutOfRangeError(MerlotError):
    """Raised if messages from `wanted` on are not in the partition: deleted, or never written. `available` is the range
    that is there."""

    def __init__(self, where: str, wanted: int, available: OffsetRange) -> None:
        super().__init__(
            f"offset out of range {where} wanted={wanted} earliest={available.earliest} latest={available.latest}"
        )
        self.wanted = wanted
        self.available = available


class TopicGoneError(NotFoundError):
    """Raised if the topic or the partition does not exist, or no longer exists."""


class NotYetError(UnavailableError):
    """Raised if something needed to read messages is missing, and may be there in a moment: keep the messages, and try
    again."""


class StreamAccessError(InvalidInputError):
    """Raised if the stream refuses these credentials, or lacks rights for them; the user must change them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """One poll of one partition, as columns of equal length."""

    values: pa.LargeBinaryArray
    """Payloads; null for a message without payload, which in Kafka deletes its key."""
    offsets: npt.NDArray[np.int64]
    """Offsets of the messages, increasing."""
    timestamps_ms: npt.NDArray[np.int64]
    """Times at which messages were made, or reached the stream; -1 where the stream does not say."""
    keys: pa.LargeBinaryArray | None = None
    """Keys, null where a message has none; None if they were not asked for, or the stream has none."""
    headers: Sequence[Headers] | None = None
    """Headers; None if they were not asked for, or the stream has none."""
    next_offset: int
    """Offset at which the next poll goes on: behind the last message and behind what is known to hold none."""

    def __len__(self) -> int:
        return len(self.offsets)


class PartitionReader(Protocol):
    """Reader of one partition, in order; used by one thread at a time."""

    def poll(self, max_messages: int, timeout_s: float) -> Messages:
        """Return up to `max_messages` messages, as soon as there are any; none after the timeout.

        Raises OffsetOutOfRangeError, TopicGoneError, StreamAccessError; UnavailableError if the stream does not answer:
        the same poll may be tried again."""
        ...

    def seek(self, offset: int) -> None:
        """Go on from another offset. If that is not there, the next poll raises."""
        ...

    def close(self) -> None:
        """Release what the reader holds; no call follows."""
        ...


class StreamClient(Protocol):
    """Topic of a stream. Safe on any thread. A topic whose identity differs from that of the settings, or from the
    identity first seen, is not read: TopicGoneError is raised."""

    def identity(self) -> str:
        """Return what distinguishes the topic from another topic that is later made under its name; empty if the stream
        does not tell, or has not yet. Does not wait. Raises TopicGoneError."""
        ...

    def partitions(self) -> Sequence[int]:
        """Return the present partitions, ascending. Raises TopicGoneError, UnavailableError, StreamAccessError."""
        ...

    def offsets(self, partition: int) -> OffsetRange:
        """Return the offsets that the partition has. Raises as `partitions`."""
        ...

    def offset_at(self, partition: int, time_ms: int) -> int:
        """Return the offset of the first message that is not older, or the partition's `latest`. Raises as
        `partitions`."""
        ...

    def reader(self, partition: int, start: int) -> PartitionReader:
        """Return a reader that begins at an offset."""
        ...

    def close(self) -> None:
        """Release what the stream holds; its readers are closed by their owners."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Settings that a stream is made of."""

    topic: str | None
    properties: Mapping[str, str]
    """Properties of the manifest and of the Secret together; never logged."""
    wants_keys: bool = False
    wants_headers: bool = False
    identity: str = ""
    """Identity that `StreamClient.identity` returned when offsets were first taken from the topic; empty if unknown."""


class StreamFactory(Protocol):
    """Function that an entry point of `merlot.streams` names."""

    def __call__(self, settings: StreamSettings) -> StreamClient: ...
