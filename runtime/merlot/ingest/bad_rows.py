"""Rows that cannot be stored: counted by reason, with samples, so that none is dropped in silence.

Immutable; `+` merges what tasks of one job saw, in any order, to the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SAMPLES_PER_REASON = 3
MAX_SAMPLES = 20


@dataclass(frozen=True, order=True, slots=True)
class BadRow:
    """One sampled row: why it was left out, and its values as text."""

    reason: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BadRows:
    """How many rows were left out and why. A row with several problems counts once, under the first."""

    by_reason: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[BadRow, ...] = ()

    @property
    def count(self) -> int:
        """Rows left out."""
        return sum(self.by_reason.values())

    def __add__(self, other: BadRows) -> BadRows:
        reasons = sorted({*self.by_reason, *other.by_reason})
        counts = {reason: self.by_reason.get(reason, 0) + other.by_reason.get(reason, 0) for reason in reasons}
        return BadRows(counts, pick_samples((*self.samples, *other.samples)))

    def to_json(self) -> dict[str, Any]:
        """For reports and for the way from an executor to the driver."""
        samples = [{"reason": sample.reason, "row": dict(sample.values)} for sample in self.samples]
        return {"count": self.count, "byReason": dict(self.by_reason), "samples": samples}

    def to_lines(self) -> list[str]:
        """For people: a line per reason, then a line per sampled row. None if no row was bad."""
        lines = [f"{self.count:,} bad rows left out:"] if self.count else []
        for reason, count in self.by_reason.items():
            lines.append(f"  {count:,} × {reason}")
            samples = [sample for sample in self.samples if sample.reason == reason]
            lines += [f"      {json.dumps(dict(sample.values), ensure_ascii=False)}" for sample in samples]
        return lines

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BadRows:
        """Inverse of `to_json`."""
        samples = (BadRow(one["reason"], tuple(one["row"].items())) for one in value["samples"])
        return cls(dict(value["byReason"]), tuple(samples))


def pick_samples(samples: Iterable[BadRow]) -> tuple[BadRow, ...]:
    """At most SAMPLES_PER_REASON of each reason and MAX_SAMPLES in all: the smallest, so that order does not matter."""
    picked: list[BadRow] = []
    seen: dict[str, int] = {}
    for sample in sorted(set(samples)):
        seen[sample.reason] = seen.get(sample.reason, 0) + 1
        if seen[sample.reason] <= SAMPLES_PER_REASON:
            picked.append(sample)
    return tuple(picked[:MAX_SAMPLES])
