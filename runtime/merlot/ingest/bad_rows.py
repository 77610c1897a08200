"""Rows that cannot be stored: counted by reason, with samples, so that none is dropped silently.

Immutable. `+` merges what the tasks of one job saw, with the same result in any order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SAMPLES_PER_REASON = 3
MAX_SAMPLES = 20
SHOWN_REASONS = 3
"""Number of reasons in one line."""
KEPT_REASONS = 100
STATUS_REASONS = 12
OTHER_REASONS = "other reasons"
LONGEST_ROW = 120
UNKNOWN_ROW = -1


@dataclass(frozen=True, order=True, slots=True)
class BadRow:
    """One sampled row: why it was left out, its values as text, and its place, as far as the reader knows it."""

    reason: str
    values: tuple[tuple[str, str], ...] = ()
    file: str = ""
    row_number: int = UNKNOWN_ROW
    """Number within the file, from 1; the offset of a message."""
    column: str = ""
    """Column whose value is at fault; empty if the whole line is."""
    value: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without unknown members."""
        optional = {"file": self.file, "column": self.column, "value": self.value}
        content: dict[str, Any] = {"reason": self.reason, **{key: text for key, text in optional.items() if text}}
        if self.row_number != UNKNOWN_ROW:
            content["rowNumber"] = self.row_number
        return {**content, "row": dict(self.values)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BadRow:
        """Parse what `to_json` returns."""
        return cls(
            value["reason"],
            tuple(value["row"].items()),
            value.get("file", ""),
            value.get("rowNumber", UNKNOWN_ROW),
            value.get("column", ""),
            value.get("value", ""),
        )

    def to_line(self) -> str:
        """Return a line for people: `part-1.csv row 17: amount = '12,5' in {"id": "4", "amount": "12,5"}`."""
        fault = f"{self._fault} in " if self.column else ""
        return f"{self._place}{fault}{self._row}"

    def to_short_line(self) -> str:
        """Return the line with the value at fault alone, or with the beginning of the row if no column is at fault."""
        return f"{self._place}{self._fault if self.column else self._row[:LONGEST_ROW]}"

    @property
    def _place(self) -> str:
        number = f"row {self.row_number}" if self.row_number != UNKNOWN_ROW else ""
        place = " ".join(filter(None, (self.file, number)))
        return f"{place}: " if place else ""

    @property
    def _fault(self) -> str:
        return f"{self.column} = {self.value!r}"

    @property
    def _row(self) -> str:
        return json.dumps(dict(self.values), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class BadRows:
    """Number of rows that were left out, by reason. A row with several problems counts once, under the first."""

    by_reason: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[BadRow, ...] = ()

    @property
    def count(self) -> int:
        """Number of rows left out."""
        return sum(self.by_reason.values())

    def __add__(self, other: BadRows) -> BadRows:
        reasons = sorted({*self.by_reason, *other.by_reason})
        counts = {reason: self.by_reason.get(reason, 0) + other.by_reason.get(reason, 0) for reason in reasons}
        return BadRows(counts, pick_samples((*self.samples, *other.samples)))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object, for reports and for the transport from an executor to the driver."""
        samples = [sample.to_json() for sample in self.samples]
        return {"count": self.count, "byReason": dict(self.by_reason), "samples": samples}

    def to_lines(self) -> list[str]:
        """Return lines for people: one per reason, each followed by its sampled rows. Empty if no row was bad."""
        lines = [f"{self.count:,} bad rows left out:"] if self.count else []
        for reason, count in self.by_reason.items():
            lines.append(f"  {count:,} × {reason}")
            lines += [f"      {sample.to_line()}" for sample in self.samples if sample.reason == reason]
        return lines

    def bounded(self) -> BadRows:
        """Return the same with only the most frequent reasons, the others added up: a status accumulates reasons
        without end."""
        if len(self.by_reason) <= KEPT_REASONS:
            return self
        reasons = self._commonest()[: KEPT_REASONS - 1]
        counts = {reason: self.by_reason[reason] for reason in sorted(reasons)}
        samples = tuple(sample for sample in self.samples if sample.reason in counts)
        counts[OTHER_REASONS] = counts.get(OTHER_REASONS, 0) + self.count - sum(counts.values())
        return BadRows(counts, samples)

    def to_status(self) -> tuple[str, ...]:
        """Return lines as `to_lines` does, but bounded: the most frequent reasons first, each with the first row that
        has it."""
        if not self.count:
            return ()
        first = {sample.reason: sample.to_short_line() for sample in reversed(self.samples)}
        lines = [f"{self.count:,} bad rows left out:"]
        for reason in self._commonest()[:STATUS_REASONS]:
            lines.append(f"  {self.by_reason[reason]:,} × {reason}")
            lines += [f"      {first[reason]}"] if reason in first else []
        num_others = len(self.by_reason) - STATUS_REASONS
        return (*lines, *([f"  and {num_others} other reasons"] if num_others > 0 else []))

    def _commonest(self) -> list[str]:
        return sorted(self.by_reason, key=lambda reason: (-self.by_reason[reason], reason))

    def in_one_line(self) -> str:
        """Return the most frequent reasons, each with the first row that has it."""
        commonest = self._commonest()[:SHOWN_REASONS]
        first = {sample.reason: f" ({sample.to_short_line()})" for sample in reversed(self.samples)}
        return "; ".join(f"{self.by_reason[reason]:,} × {reason}{first.get(reason, '')}" for reason in commonest)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BadRows:
        """Parse what `to_json` returns."""
        return cls(dict(value["byReason"]), tuple(map(BadRow.from_json, value["samples"])))


def pick_samples(samples: Iterable[BadRow]) -> tuple[BadRow, ...]:
    """Return at most SAMPLES_PER_REASON samples of each reason and MAX_SAMPLES in all: the first by place, so that the
    order in which tasks end does not matter."""
    picked: list[BadRow] = []
    seen: dict[str, int] = {}
    for sample in sorted(set(samples), key=lambda row: (row.reason, row.file, row.row_number, row)):
        seen[sample.reason] = seen.get(sample.reason, 0) + 1
        if seen[sample.reason] <= SAMPLES_PER_REASON:
            picked.append(sample)
    return tuple(picked[:MAX_SAMPLES])
