"""Upserts of one partition, a row at a time, in a dict: what the engine is held to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

Place = tuple[int, int]
"""Segment and doc."""


class Newest(NamedTuple):
    value: int
    is_deleted: bool
    place: Place


class Oracle:
    def __init__(
        self, ttl: float = math.inf, deleted_ttl: float = math.inf, *, skips_late: bool = False, drops: bool = False
    ) -> None:
        self.ttl, self.deleted_ttl, self.skips_late, self.drops = ttl, deleted_ttl, skips_late, drops
        self.newest: dict[int, Newest] = {}
        self.valid: dict[Place, bool] = {}
        self.ceiling = math.inf
        """A value beyond it is too far in the future to be the largest."""
        self.largest = self.frozen = self.frozen_deleted = -math.inf

    def bounds(self) -> tuple[float, float]:
        return max(self.largest - self.ttl, self.frozen), max(self.largest - self.deleted_ttl, self.frozen_deleted)

    def change(self, ttl: float) -> None:
        self.frozen, self.frozen_deleted = self.bounds()
        self.ttl = ttl

    def add(self, key: int, value: int, is_deleted: bool, place: Place) -> bool:
        """Whether the row is kept; then it is the doc of that place."""
        dead, deleted_dead = self.bounds()
        self.largest = max(self.largest, value) if value <= self.ceiling else self.largest
        found = self.newest.get(key)
        if found is not None and (found.value < dead or (found.is_deleted and found.value < deleted_dead)):
            found = None
        is_late, is_out_of_order = value < dead, found is not None and value < found.value
        if (is_late and self.skips_late) or (is_out_of_order and self.drops):
            return False
        if not is_out_of_order:
            if found is not None:
                del self.valid[found.place]
            self.valid[place] = is_deleted
        if not is_late and not is_out_of_order:
            self.newest[key] = Newest(value, is_deleted, place)
        return True

    def move(self, moved: Callable[[Place], Place]) -> None:
        self.valid = {moved(place): is_deleted for place, is_deleted in self.valid.items()}
        self.newest = {key: found._replace(place=moved(found.place)) for key, found in self.newest.items()}


class Firsts(Oracle):
    """Mode DEDUP: the first row of a key is kept, until it is dead."""

    def add(self, key: int, value: int, is_deleted: bool, place: Place) -> bool:
        dead, _ = self.bounds()
        found = self.newest.get(key)
        if (found is not None and found.value >= dead) or (value < dead and self.skips_late):
            return False
        self.largest = max(self.largest, value) if value <= self.ceiling else self.largest
        self.newest[key] = Newest(value if found is None else max(value, found.value), False, place)
        self.valid[place] = False
        return True
