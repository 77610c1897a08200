"""What a decoder gives and is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NO_RECORD = "the message is no record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows of a batch of messages, in the order of the messages."""

    columns: Mapping[str, pa.Array]
    """By the names that were asked for; one that no message has may be left out."""
    messages: NDArray[np.int64]
    """The message that each row is from: its place in the batch."""
    bad: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Messages without rows, by the reason."""


class Decoder(Protocol):
    """Reads messages of one form; on one thread."""

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        """The rows of messages, none of which is null. UnavailableError if a registry of schemas does not answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a decoder looks for."""

    columns: Mapping[str, bool]
    """Names, and whether each may hold a list."""
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """What values may be given as, where that says the same of them as their text does."""
    names: tuple[str, ...]
    """Of all columns of the table, in order: those of a CSV message unless it is said otherwise."""


def all_good(columns: Mapping[str, pa.Array], num_rows: int) -> Decoded:
    """A row of each message."""
    return Decoded(columns=columns, messages=np.arange(num_rows, dtype=np.int64))


def without(bad: NDArray[np.int64], num_messages: int) -> tuple[NDArray[np.int64], Mapping[str, NDArray[np.int64]]]:
    """The messages that are left, and by their reason those that are no records."""
    is_good = np.ones(num_messages, dtype=bool)
    is_good[bad] = False
    return np.flatnonzero(is_good), {NO_RECORD: bad} if len(bad) else {}
