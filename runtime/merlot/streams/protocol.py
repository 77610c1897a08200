"""The interfaces between a stream and those who consume it.

An offset names a place between two messages of a partition: reading from it gives the message behind it. Offsets grow,
not always by one: a log has gaps where messages were compacted or a transaction was aborted, and offsets of files count
bytes. So `next_offset` of a poll, never the last message's offset, says where to go on.
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
    """What a partition has at the moment."""

    earliest: int
    """Offset of its first message, or `latest` if it has none."""
    latest: int
    """First offset that is not there yet."""


class OffsetOutOfRangeError(MerlotError):
    """Messages from `wanted` on are not in the partition: deleted, or never written. `available` is what there is."""

    def __init__(self, where: str, wanted: int, available: OffsetRange) -> None:
        super().__init__(
            f"offset out of range {where} wanted={wanted} earliest={available.earliest} latest={available.latest}"
        )
        self.wanted = wanted
        self.available = available


class TopicGoneError(NotFoundError):
    """The topic or the partition does not exist, or no longer."""


class NotYetError(UnavailableError):
    """What is needed to read messages is not there, and may be in a moment: keep them, and try the same again."""


class StreamAccessError(InvalidInputError):
    """The stream refuses these credentials, or what they may do; the user must change them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """One poll of one partition, as columns of equal length."""

    values: pa.LargeBinaryArray
    """Payloads; null: a message without one, which in Kafka deletes its key."""
    offsets: npt.NDArray[np.int64]
    """Increasing."""
    timestamps_ms: npt.NDArray[np.int64]
    """When messages were made, or reached the stream; -1 where the stream does not say."""
    keys: pa.LargeBinaryArray | None = None
    """Null where a message has none; None if nobody asked for them, or the stream has none."""
    headers: Sequence[Headers] | None = None
    """None if nobody asked for them, or the stream has none."""
    next_offset: int
    """Where the next poll goes on: behind the last message and behind what is known to hold none."""

    def __len__(self) -> int:
        return len(self.offsets)


class PartitionReader(Protocol):
    """Reads one partition in order; used by one thread at a time."""

    def poll(self, max_messages: int, timeout_s: float) -> Messages:
        """Up to that many messages, as soon as there are any; none after the timeout.

        Raises OffsetOutOfRangeError, TopicGoneError, StreamAccessError; UnavailableError if the stream does not answer:
        the same poll may be tried again."""
        ...

    def seek(self, offset: int) -> None:
        """Go on from another place. That it is not there is the next poll's to say."""
        ...

    def close(self) -> None:
        """Give back what the reader holds; no call follows."""
        ...


class Stream(Protocol):
    """A topic. Safe on any thread. Of a topic that is not the one of the settings' identity, or of what the stream saw
    first, nothing is read: TopicGoneError."""

    def identity(self) -> str:
        """What tells the topic from another one that is made under its name after it; empty if the stream does not
        say, or has not yet. Does not wait. Raises TopicGoneError."""
        ...

    def partitions(self) -> Sequence[int]:
        """Those that there are at the moment, ascending; raises TopicGoneError, UnavailableError, StreamAccessError."""
        ...

    def offsets(self, partition: int) -> OffsetRange:
        """What the partition has; raises as `partitions`."""
        ...

    def offset_at(self, partition: int, time_ms: int) -> int:
        """Offset of the first message that is not older, or the partition's `latest`; raises as `partitions`."""
        ...

    def reader(self, partition: int, start: int) -> PartitionReader:
        """A reader that begins at an offset."""
        ...

    def close(self) -> None:
        """Give back what the stream holds; its readers are closed by their owners."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What a stream is made of."""

    topic: str | None
    properties: Mapping[str, str]
    """Of the manifest and of the Secret together; never logged."""
    wants_keys: bool = False
    wants_headers: bool = False
    identity: str = ""
    """What `Stream.identity` said when offsets were first taken from the topic; empty: nobody knows."""


class StreamFactory(Protocol):
    """What an entry point of `merlot.streams` names."""

    def __call__(self, settings: StreamSettings) -> Stream: ...
