"""Slots of a partial answer as columns that expressions read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.tree.types import SqlType
from merlot.vectors.vector import Vector

Rows = NDArray[Any]
Slot = Callable[[Rows | None], Vector]
"""Function that returns the vector of some rows, or of all."""


class SlotSource:
    """Vectors by name, each made when it is first read: by then few of a million groups may be left."""

    def __init__(self, slots: Mapping[str, Slot], num_rows: int) -> None:
        self._slots = slots
        self._made: dict[str, Vector] = {}
        self.num_rows = num_rows

    @classmethod
    def of(cls, vectors: Mapping[str, Vector], num_rows: int) -> SlotSource:
        """Return a source of vectors that exist already."""
        source = cls({}, num_rows)
        source._made.update(vectors)
        return source

    def column(self, name: str, type_: SqlType) -> Vector:
        """Return the slot of that name."""
        return self._vector(name)

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        """Return the mask of null rows; None if no row is null."""
        return self._vector(name).nulls

    def at(self, rows: Rows) -> SlotSource:
        """Return a source of the chosen rows."""
        names = self._slots.keys() | self._made.keys()
        return SlotSource({name: partial(self._taken, name, rows) for name in names}, len(rows))

    def _vector(self, name: str) -> Vector:
        if name not in self._made:
            self._made[name] = self._slots[name](None)
        return self._made[name]

    def _taken(self, name: str, rows: Rows, among: Rows | None) -> Vector:
        chosen = rows if among is None else rows[among]
        made = self._made.get(name)
        return self._slots[name](chosen) if made is None else made.spread(self.num_rows).take(chosen)
