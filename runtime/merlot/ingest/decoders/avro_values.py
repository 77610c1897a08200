"""Values of Avro unions as text and as JSON, written as `ingest.text_casts` writes columns of one type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro.read

from merlot.ingest.text_casts import json_text

NANOS_PER_MICRO = 1_000
"""Nanoseconds in a microsecond."""


class Nanos(int):
    """An instant in nanoseconds, for which datetime has no type; an int for Arrow."""

    def __str__(self) -> str:
        moment, nanos = (
            datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self // NANOS_PER_MICRO),
            self % NANOS_PER_MICRO,
        )
        return f"{moment:%Y-%m-%d %H:%M:%S.%f}{nanos:03}" if nanos else str(_plain(moment, str))


class Uuid(bytes):
    """A UUID; bytes for Arrow."""

    def __str__(self) -> str:
        return str(UUID(bytes=bytes(self)))


def text_of(value: Any) -> str:
    """Return a text as it is, an instant or a number as people write it, anything else as JSON."""
    return value if isinstance(value, str) else _plain(value, json_of)


def json_of(value: Any) -> str:
    """Return a value as JSON: texts and instants in quotes, decimals as numbers."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json_text(name)}:{json_of(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_of, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json_text(_plain(value, lambda other: other))


def _plain(value: Any, of_others: Callable[[Any], Any]) -> Any:
    match value:
        case Nanos() | Uuid():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return utc.isoformat(" ", "microseconds" if utc.microsecond % 1_000 else "milliseconds")
        case date():
            return value.isoformat()
        case time():
            is_whole = not value.microsecond
            return value.isoformat(
                "seconds" if is_whole else "microseconds" if value.microsecond % 1_000 else "milliseconds"
            )
        case _:
            return of_others(value)


READERS: Final[Mapping[str, Callable[..., Nanos | Uuid]]] = {
    "fixed-uuid": lambda value, *_: Uuid(value),
    "long-timestamp-nanos": lambda value, *_: Nanos(value),
    "long-local-timestamp-nanos": lambda value, *_: Nanos(value),
}
"""Readers of logical types that fastavro does not know, by its names for them."""
fastavro.read.LOGICAL_READERS.update(READERS)
