"""Charge the memory that aggregates' states hold to the account of their query.

States are measured from outside, so that an aggregate need not count its own memory. Objects of other libraries do not
report their size; a state that has such objects estimates it (`State.foreign_bytes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merlot.aggregates.function import AggregationFunction, State
from merlot.vectors import account

LEAST_ROWS: Final = 1 << 15
"""Fewest rows that a state takes in between two measurements. An eighth of its rows so far counts instead if that is
more."""
_SAMPLE: Final = 16
_ENTRY_BYTES: Final = 100
"""Bytes of an entry of a dict, with its key."""


class Holding:
    """Account of the memory that one state holds. One thread."""

    def __init__(self, function: AggregationFunction, state: State, num_groups: int) -> None:
        self._function_name = function.name.upper()
        self._state = state
        self._num_rows = 0
        self._num_bytes = 0
        # A state of many groups takes memory before it has rows.
        self._measure_at_rows = LEAST_ROWS if num_groups < LEAST_ROWS else 0

    def begin(self) -> None:
        """Name the aggregate in errors about allocations that the state makes from now on."""
        account.current().function = self._function_name

    def add(self, num_rows: int) -> None:
        """Note rows that the state has taken in; raise as `Account.expect` does."""
        self._num_rows += num_rows
        if self._num_rows >= self._measure_at_rows:
            self._measure_at_rows = self._num_rows + max(LEAST_ROWS, self._num_rows >> 3)
            self.measure()

    def measure(self) -> None:
        """Measure what the state holds now; raise as `Account.expect` does."""
        before, self._num_bytes = self._num_bytes, held_bytes(self._state)
        account.current().resize(self._function_name, before, self._num_bytes)

    def columns(self, columns: list[pa.Array]) -> list[pa.Array]:
        """Charge state columns that were made from the state, and return them."""
        account.current().hold(self._function_name, sum([column.nbytes for column in columns]))
        return columns


def held_bytes(held: Any) -> int:
    """Return the bytes of arrays and Python objects that a state, or a part of it, holds."""
    if isinstance(held, np.ndarray | pa.Array | pa.ChunkedArray):
        return account.size_of(held)
    if isinstance(held, dict):
        return len(held) * _ENTRY_BYTES + _bytes_of_items(held.values(), held)
    if isinstance(held, list | tuple | set | frozenset):
        return account.OBJECT_BYTES + 8 * len(held) + _bytes_of_items(held, held)
    if isinstance(held, str | bytes):
        return account.OBJECT_BYTES + len(held)
    if not type(held).__module__.startswith("merlot.aggregates") or isinstance(held, AggregationFunction):
        return 0
    slots = getattr(held, "__dict__", None)
    parts = slots.values() if slots is not None else (getattr(held, name) for name in held.__slots__)
    own = held.foreign_bytes() if isinstance(held, State) else 0
    return own + sum([held_bytes(part) for part in parts])


def _bytes_of_items(items: Iterable[Any], collection: Sized) -> int:
    """Return the bytes of the items; if there are many, estimate them from a sample. The items of one collection are
    alike; only the few parts of a state differ."""
    number = len(collection)
    if number <= 4 * _SAMPLE:
        return sum([held_bytes(item) for item in items])
    step = number // _SAMPLE
    sizes = [held_bytes(item) for index, item in enumerate(items) if index % step == 0]
    return sum(sizes) * number // len(sizes)
