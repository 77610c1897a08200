"""Open the stream of a table's declaration, and compute offsets from its policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from merlot.entry_points import entry_points_named
from merlot.errors import InvalidInputError
from merlot.extras import lacks
from merlot.spec.stream import ENTRY_POINTS, HEADER_PREFIX, OutOfRange, StreamIngestion
from merlot.streams.folders import EVERY_FOLDER, AllowedFolders
from merlot.streams.protocol import OffsetRange, StreamClient, StreamSettings

NO_SECRETS: Mapping[str, str] = {}


def open_stream(
    declared: StreamIngestion,
    secrets: Mapping[str, str] = NO_SECRETS,
    identity: str = "",
    folders: AllowedFolders = EVERY_FOLDER,
) -> StreamClient:
    """Open the stream of a declaration. `secrets` are the properties of its Secret, `identity` is what the stream said
    of its topic before; a stream of files reads below `folders`. Nothing is asked of the stream yet. Raises
    InvalidInputError if it is not installed, or cannot be made of these properties."""
    sources = declared.metadata.values()
    settings = StreamSettings(
        topic=declared.topic,
        properties={**declared.properties, **secrets},
        wants_keys="key" in sources,
        wants_headers=any(source.startswith(HEADER_PREFIX) for source in sources),
        identity=identity,
    )
    match declared.type:
        case "files":
            from merlot.streams.files import FilesStream

            return FilesStream(settings, folders)
        case "kafka":
            return _kafka(settings)
        case name:
            return _installed(name, settings)


def _kafka(settings: StreamSettings) -> StreamClient:
    try:
        from merlot.streams.kafka import KafkaStream
    except ModuleNotFoundError as error:
        raise InvalidInputError(lacks("a stream of kafka", "kafka", error)) from error
    return KafkaStream(settings)


def _installed(name: str, settings: StreamSettings) -> StreamClient:
    entries = entry_points_named(ENTRY_POINTS, name)
    if not entries:
        raise InvalidInputError(f"no installed package offers the stream type={name}")
    stream: StreamClient = next(iter(entries)).load()(settings)
    return stream


def first_offset(declared: StreamIngestion, stream: StreamClient, partition: int, *, is_new: bool = False) -> int:
    """Return the offset where the first segment of a partition begins. `is_new`: the partition was made while the table
    consumed others, so all of it is read."""
    available = stream.offsets(partition)
    if is_new or declared.start == "earliest":
        return available.earliest
    return available.latest if declared.start_ms is None else stream.offset_at(partition, declared.start_ms)


def after_gap(policy: OutOfRange, wanted: int, available: OffsetRange) -> int | None:
    """Return the offset to go on from when `wanted` is not there; None to stop. Behind the end of a stream there may be
    messages that were consumed before it was truncated, so the oldest messages would come twice."""
    match policy:
        case OutOfRange.STOP:
            return None
        case OutOfRange.LATEST:
            return available.latest
        case OutOfRange.EARLIEST:
            return available.earliest if wanted < available.earliest else None
        case _:
            assert_never(policy)
