"""Slots of a partial answer as columns that expressions read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.tree.types import SqlType
from merlot.vectors.vector import Vector


class SlotSource:
    """Vectors by name."""

    def __init__(self, slots: dict[str, Vector], num_rows: int) -> None:
        self._slots = slots
        self.num_rows = num_rows

    def column(self, name: str, type_: SqlType) -> Vector:
        """The slot of that name."""
        return self._slots[name]

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        """Which rows are null."""
        return self._slots[name].nulls

    def at(self, rows: NDArray[Any]) -> SlotSource:
        """Chosen rows."""
        taken = {name: vector.spread(self.num_rows).take(rows) for name, vector in self._slots.items()}
        return SlotSource(taken, len(rows))
