"""Decide which segments are part of the table while others replace them. The functions are pure: they read only a
record's marks and the root's lineage.

An output is hidden until its entry is COMPLETED. An input is hidden from then on. One compare-and-set of the root
therefore exchanges any number of segments. An entry that the root does not name has no effect: the write that removes
an entry from the root also removes the records of its hidden side.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import StrEnum

from merlot.cluster.records import LineageMark, LineageState, SegmentRecord

Lineage = Mapping[str, LineageMark]


class Visibility(StrEnum):
    """State of a segment for queries; all states but VISIBLE are hidden."""

    VISIBLE = "Visible"
    PENDING = "Pending"
    """Output of a replacement under way."""
    REPLACED = "Replaced"
    """Input of a completed replacement; it is kept for the grace period, so that the replacement can be reverted."""
    REVERTED = "Reverted"
    """Output of a reverted replacement; it will be removed."""


def visibility(record: SegmentRecord, lineage: Lineage) -> Visibility:
    """Return whether queries see the segment, or why they do not."""
    output_of = lineage.get(record.replaces) if record.replaces else None
    if output_of is not None and output_of.state is not LineageState.COMPLETED:
        return Visibility.PENDING if output_of.state is LineageState.IN_PROGRESS else Visibility.REVERTED
    input_of = lineage.get(record.replaced_by) if record.replaced_by else None
    is_replaced = input_of is not None and input_of.state is LineageState.COMPLETED
    return Visibility.REPLACED if is_replaced else Visibility.VISIBLE


def is_visible(record: SegmentRecord, lineage: Lineage) -> bool:
    """Return True if queries see the segment."""
    return visibility(record, lineage) is Visibility.VISIBLE


def is_visible_under(record: SegmentRecord, lineage: Container[str], completed: Container[str]) -> bool:
    """Return True if the segment is visible to a reader that takes exactly the entries in `completed` for completed."""
    if record.replaces and record.replaces in lineage and record.replaces not in completed:
        return False
    return not (record.replaced_by and record.replaced_by in lineage and record.replaced_by in completed)


def is_leftover(record: SegmentRecord, lineage: Lineage) -> bool:
    """Return True if the segment is the output of a reverted replacement: it is hidden, and may be removed."""
    return visibility(record, lineage) is Visibility.REVERTED


def is_held(record: SegmentRecord, lineage: Lineage) -> bool:
    """Return True if a replacement needs the segment: only its end, its reversal or its cleaning may remove it."""
    return why_held(record, lineage) is not None


def why_held(record: SegmentRecord, lineage: Lineage) -> str | None:
    """Return why the segment must not be removed, and what to do; None if it may be."""
    output_of = lineage.get(record.replaces) if record.replaces else None
    if output_of is not None and output_of.state is LineageState.IN_PROGRESS:
        return _under_way("an output", record.name, record.replaces)
    input_of = lineage.get(record.replaced_by) if record.replaced_by else None
    if is_leftover(record, lineage) or input_of is None or input_of.state is LineageState.REVERTED:
        return None
    if input_of.state is LineageState.IN_PROGRESS:
        return _under_way("an input", record.name, record.replaced_by)
    return (
        f"segment was replaced and is kept until its grace period ends, then goes by itself segment={record.name} "
        f"entry={record.replaced_by}; revert the entry to have it back"
    )


def _under_way(part: str, name: str, entry: str) -> str:
    return f"segment is {part} of a replacement under way segment={name} entry={entry}; end or revert the entry first"
