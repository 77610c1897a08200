"""Add pruning facts to records that lack them. The segments' files and versions stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from merlot.cluster.records import UNREADABLE, AnnotationRecord, SegmentRecord
from merlot.cluster.segments.numbers import check_facts
from merlot.cluster.segments.transaction import Mutation, PutSegments, WriteContext, mutate
from merlot.cluster.segments.view import TableView
from merlot.errors import InvalidInputError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore


@dataclass(frozen=True, slots=True)
class AnnotateResult:
    """Names of segments by outcome. Segments in `replaced` are gone, or of another version than was annotated."""

    annotated: tuple[str, ...]
    unchanged: tuple[str, ...]
    replaced: tuple[str, ...]
    epoch: int


def annotate(
    metastore: Metastore,
    table: TableName,
    annotations: Sequence[AnnotationRecord],
    *,
    context: WriteContext | None = None,
    previous: TableView | None = None,
) -> AnnotateResult:
    """Complete the records in one compare-and-set; a repetition changes nothing."""
    names = {annotation.name for annotation in annotations}
    if len(names) != len(annotations):
        raise InvalidInputError("segments are annotated twice in one request")
    for annotation in annotations:
        check_facts(annotation)
    outcome: tuple[list[str], list[str], list[str]] = ([], [], [])

    def decide(view: TableView) -> Sequence[Mutation]:
        nonlocal outcome
        annotated, unchanged, replaced = outcome = ([], [], [])
        changed = []
        for annotation in annotations:
            present = view.segment(annotation.name)
            if present is None or present.crc != annotation.crc:
                replaced.append(annotation.name)
            elif (record := completed(present, annotation)) == present:
                unchanged.append(annotation.name)
            else:
                annotated.append(annotation.name)
                changed.append(record)
        return [PutSegments(tuple(changed), {record.name: record.crc for record in changed})]

    view = mutate(metastore, table, decide, previous=previous, context=context or WriteContext())
    annotated, unchanged, replaced = outcome
    return AnnotateResult(tuple(annotated), tuple(unchanged), tuple(replaced), view.epoch)


def completed(record: SegmentRecord, annotation: AnnotationRecord) -> SegmentRecord:
    """Return the record with the annotation's facts, which replace unreadable ones."""
    updates: dict[str, Any] = {}
    if annotation.ranges:
        updates["ranges"] = {**_readable(record.ranges), **annotation.ranges}
    if annotation.partitions:
        updates["partitions"] = {**_readable(record.partitions), **annotation.partitions}
    if annotation.blooms:
        updates["blooms"] = {**_readable(record.blooms), **annotation.blooms}
    if annotation.columns:
        updates["columns"] = annotation.columns
    if annotation.start_time_ms is not None and annotation.end_time_ms is not None:
        updates |= {"start_time_ms": annotation.start_time_ms, "end_time_ms": annotation.end_time_ms}
    return record.model_copy(update=updates)


def _readable(entries: dict[str, Any]) -> dict[str, Any]:
    return {column: entry for column, entry in entries.items() if column != UNREADABLE}
