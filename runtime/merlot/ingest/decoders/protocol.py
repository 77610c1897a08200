"""What a decoder gives and is made of."""

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
    """Rows of messages that follow each other, in their order."""

    columns: Mapping[str, pa.Array]
    """By the names that were asked for; one that no message has may be left out."""
    messages: NDArray[np.int64]
    """The message that each row is from: its place in the batch."""
    bad: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Messages without rows, by the reason."""
    rest: int | None = None
    """In the last piece: the message from which on nothing is decoded yet, for the rows would take too much memory."""


class Decoder(Protocol):
    """Reads messages of one form; on one thread."""

    def decode(self, values: pa.LargeBinaryArray) -> Sequence[Decoded]:
        """The rows of messages, none of which is null, in pieces: a column has one type in each. Messages are named by
        their places in `values`. At least the first message is decoded, and the others up to `Decoded.rest`, the same
        ones each time. UnavailableError if a registry of schemas does not answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a decoder looks for."""

    columns: Mapping[str, bool]
    """Names, and whether each may hold a list."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """What values may be given as, where that says the same of them as their text does."""
    as_json: frozenset[str] = frozenset()
    """Names of values that are wanted as JSON (`ingest.message_values.JSON`) where they may be of several types."""
    names: tuple[str, ...]
    """Of all columns of the table, in order: those of a CSV message unless it is said otherwise."""


def split_good(bad: NDArray[np.int64], num_messages: int) -> tuple[NDArray[np.int64], Mapping[str, NDArray[np.int64]]]:
    """The messages that are left, and by their reason those that are no records."""
    is_good = np.ones(num_messages, dtype=bool)
    is_good[bad] = False
    return np.flatnonzero(is_good), {NO_RECORD: bad} if len(bad) else {}


def bytes_of(values: pa.LargeBinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of messages, and where each begins: message i is data[starts[i]:starts[i + 1]]."""
    _, offsets, payloads = values.buffers()
    starts = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(payloads, np.uint8) if payloads is not None else np.zeros(0, np.uint8)
    # Whoever made them may write to Arrow's buffers, and numba tells the two apart.
    return read_only(data), read_only(starts)
