"""Interface of decoders, and what they take and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels.jit import read_only

NO_RECORD = "the message is no record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows of messages, in their order."""

    columns: Mapping[str, pa.Array]
    """Values by wanted name; a name that no message has may be left out."""
    messages: NDArray[np.int64]
    """Message that each row is from, by its position in the batch."""
    bad: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Positions of messages without rows, by reason."""
    rest: int | None = None
    """First message that is not decoded yet, because the rows would take too much memory; only in the last piece."""


class Decoder(Protocol):
    """Decoder of messages of one form; used by one thread."""

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """Return the rows of messages in pieces; a column has one type in each piece, and a message is in one piece.
        No message is null.

        Messages are identified by their positions in `values`. At least the first message is decoded, and the others up
        to `Decoded.rest`, the same ones each time. Raise UnavailableError if a schema registry does not answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Columns that a decoder looks for."""

    columns: Mapping[str, bool]
    """Names; True for those that may hold a list."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Types in which values may be returned instead of as text, where both mean the same."""
    as_json: frozenset[str] = frozenset()
    """Names of fields that are returned as JSON (`ingest.message_values.JSON`) if they may be of several types."""
    names: tuple[str, ...]
    """Names of all columns of the table, in order. A CSV message has these columns unless others are declared."""


def split_good(bad: NDArray[np.int64], num_messages: int) -> tuple[NDArray[np.int64], Mapping[str, NDArray[np.int64]]]:
    """Return the good messages, and the bad ones by reason."""
    is_good = np.ones(num_messages, dtype=bool)
    is_good[bad] = False
    return np.flatnonzero(is_good), {NO_RECORD: bad} if len(bad) else {}


def bytes_of(values: pa.LargeBinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of messages, and the position where each begins: message i is data[starts[i]:starts[i + 1]]."""
    _, offsets, payloads = values.buffers()
    starts = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(payloads, np.uint8) if payloads is not None else np.zeros(0, np.uint8)
    # Arrow's buffers may be writable, and numba compiles a kernel separately for writable arrays.
    return read_only(data), read_only(starts)
