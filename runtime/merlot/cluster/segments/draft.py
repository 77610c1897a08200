"""Apply mutations to a view: the result is the contents that a write has to make visible. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from merlot.cluster.records import LineageMark, LineageRecord, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments import lineage_rules, origins
from merlot.cluster.segments.mutations import (
    Assign,
    EndReplacement,
    ForgetReplacement,
    MoveTimeBoundary,
    Mutation,
    PreconditionError,
    PutOutputs,
    PutSegments,
    RemoveSegments,
    RevertReplacement,
    StampReplacement,
    StartReplacement,
)
from merlot.cluster.segments.view import Bucket, TableView, bucket_of
from merlot.cluster.segments.visibility import is_visible, why_held
from merlot.ids import InstanceId, TableName


@dataclass(frozen=True, slots=True)
class Changed:
    """Contents that a write has to make visible: new content of the touched buckets, and the names concerned."""

    buckets: Mapping[int, Bucket]
    names: tuple[str, ...]
    dropped: tuple[SegmentRecord, ...]
    """Records whose files no record names any more."""
    added_urls: tuple[str, ...]
    lineage: Mapping[str, LineageMark]
    time_boundary: tuple[int | None, int]
    """Boundary, and the time of its last move."""
    details: Mapping[str, LineageRecord] = field(default_factory=dict)
    """Details of entries to write; the marks do not name them yet."""


def apply(view: TableView, mutations: Sequence[Mutation]) -> Changed | None:
    """Return the view's contents after the mutations, in order; None if nothing changes."""
    draft = Draft(view)
    for mutation in mutations:
        match mutation:
            case PutSegments():
                draft.put(mutation)
            case RemoveSegments():
                draft.remove(mutation)
            case Assign():
                draft.assign(mutation)
            case MoveTimeBoundary():
                draft.time_boundary = (mutation.boundary_ms, mutation.now_ms)
            case StartReplacement():
                lineage_rules.start(draft, mutation)
            case PutOutputs():
                lineage_rules.put_outputs(draft, mutation)
            case EndReplacement():
                lineage_rules.end(draft, mutation)
            case RevertReplacement():
                lineage_rules.revert(draft, mutation)
            case ForgetReplacement():
                lineage_rules.forget(draft, mutation)
            case StampReplacement():
                lineage_rules.stamp(draft, mutation)
            case _:
                assert_never(mutation)
    return draft.finish()


class Draft:
    """Copies of the buckets that mutations touch, and of the lineage."""

    def __init__(self, view: TableView) -> None:
        self._view = view
        self._buckets: dict[int, tuple[dict[str, SegmentRecord], dict[str, tuple[InstanceId, ...]]]] = {}
        self._names: dict[str, None] = {}
        self.lineage: dict[str, LineageMark] = dict(view.root.lineage)
        self.details: dict[str, LineageRecord] = {}
        self.time_boundary = (view.root.time_boundary_ms, view.root.time_boundary_moved_ms)

    @property
    def table(self) -> TableName:
        """Table that is changed."""
        return self._view.table

    @property
    def is_hybrid(self) -> bool:
        """True if batches and the stream answer for different times."""
        return self.time_boundary[0] is not None

    def put(self, mutation: PutSegments) -> None:
        for name, crc in mutation.expected.items():
            self._expect(name, crc)
        for record in mutation.records:
            present = self.find(record.name)
            marks = self._inherited(record, present)
            self.store(record if marks == (record.replaces, record.replaced_by) else marked(record, *marks))

    def remove(self, mutation: RemoveSegments) -> None:
        removed = []
        for key in mutation.keys:
            record = self.find(key.name)
            if record is None:
                continue
            self._expect(key.name, key.crc)
            if record.is_open and not mutation.even_open:
                raise PreconditionError(f"segment of a stream is open and cannot be removed segment={key.name}")
            reason = why_held(record, self.lineage)
            if reason is not None:
                raise PreconditionError(reason)
            self.drop(key.name)
            removed.append(record)
        for record in origins.without(removed, self.all_records()):
            self.store(record)

    def assign(self, mutation: Assign) -> None:
        for name, instances in mutation.instances.items():
            segments, assignment = self._bucket(name)
            if name not in segments:
                raise PreconditionError(f"segment to assign does not exist segment={name}")
            if assignment.get(name, ()) != instances:
                assignment[name] = instances
                self._names[name] = None

    def find(self, name: str) -> SegmentRecord | None:
        """Return the draft's record of a segment; None if there is none."""
        touched = self._buckets.get(bucket_of(name, self._view.root.num_buckets))
        return self._view.segment(name) if touched is None else touched[0].get(name)

    def store(self, record: SegmentRecord) -> None:
        """Put a record without changing its marks."""
        if self.find(record.name) != record:
            self._bucket(record.name)[0][record.name] = record
            self._names[record.name] = None

    def drop(self, name: str) -> None:
        """Remove a record."""
        segments, assignment = self._bucket(name)
        del segments[name]
        assignment.pop(name, None)
        self._names[name] = None

    def all_records(self) -> Iterator[SegmentRecord]:
        """Yield every record of the draft, which must not change meanwhile."""
        numbers = {*self._view.buckets, *self._buckets}
        for number in sorted(numbers):
            touched = self._buckets.get(number)
            yield from (self._view.buckets[number].segments if touched is None else touched[0]).values()

    def finish(self) -> Changed | None:
        """Return the changes; None if there are none."""
        root = self._view.root
        before = (root.lineage, root.time_boundary_ms, root.time_boundary_moved_ms)
        if not self._names and (self.lineage, *self.time_boundary) == before:
            return None
        touched = {bucket_of(name, self._view.root.num_buckets) for name in self._names}
        buckets = {number: Bucket("", *self._buckets[number]) for number in sorted(touched)}
        dropped, added = self._files()
        return Changed(buckets, tuple(self._names), dropped, added, self.lineage, self.time_boundary, self.details)

    def _inherited(self, record: SegmentRecord, present: SegmentRecord | None) -> tuple[str, str]:
        """Return the marks of a new version."""
        if present is None:
            return "", ""
        if present.is_open and not isinstance(record, StreamSegmentRecord):
            raise PreconditionError(f"segment of a stream is open and takes no other's file segment={present.name}")
        if present.crc == record.crc:
            return present.replaces, present.replaced_by
        if not is_visible(present, self.lineage):
            reason = why_held(present, self.lineage) or "segment is the output of a reverted replacement"
            raise PreconditionError(f"segment takes no new version segment={present.name} reason: {reason}")
        return "", ""

    def _files(self) -> tuple[tuple[SegmentRecord, ...], tuple[str, ...]]:
        """Return records whose files are no longer named, and files that are named from now on."""
        old = [self._view.segment(name) for name in self._names]
        new = [self.find(name) for name in self._names]
        before = {record.url: record for record in old if record is not None and record.url}
        after = dict.fromkeys(record.url for record in new if record is not None and record.url)
        dropped = tuple(
            lineage_rules.remembering(self._view, record) for url, record in before.items() if url not in after
        )
        return dropped, tuple(url for url in after if url not in before)

    def _expect(self, name: str, crc: int | None) -> None:
        segment = self.find(name)
        got = None if segment is None else segment.crc
        if got != crc:
            raise PreconditionError(f"segment has changed segment={name} expected={crc} got={got}")

    def _bucket(self, name: str) -> tuple[dict[str, SegmentRecord], dict[str, tuple[InstanceId, ...]]]:
        number = bucket_of(name, self._view.root.num_buckets)
        if number not in self._buckets:
            bucket = self._view.buckets.get(number)
            self._buckets[number] = ({}, {}) if bucket is None else (dict(bucket.segments), dict(bucket.assignment))
        return self._buckets[number]


def marked(record: SegmentRecord, replaces: str, replaced_by: str) -> SegmentRecord:
    """Return the record with these marks."""
    return record.model_copy(update={"replaces": replaces, "replaced_by": replaced_by})
