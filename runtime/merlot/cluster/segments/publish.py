"""Make records visible, all at once; do nothing if they are visible already."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from merlot.cluster.records import RECOVERED, LineageRecord, LineageState, SegmentRecord
from merlot.cluster.segments import coverage, numbers, origins, restoring
from merlot.cluster.segments.coverage import PublishEffect, RowCounts
from merlot.cluster.segments.families import Families, pushes_of
from merlot.cluster.segments.lineage_nodes import read_details
from merlot.cluster.segments.lineage_rules import remembering
from merlot.cluster.segments.mutations import ForgetReplacement
from merlot.cluster.segments.partitionings import Partitionings
from merlot.cluster.segments.parts import is_of_stream
from merlot.cluster.segments.republish import Republished
from merlot.cluster.segments.transaction import (
    Mutation,
    PreconditionError,
    PutOutputs,
    PutSegments,
    RemoveSegments,
    WriteContext,
    apply,
    mutate,
)
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.segments.visibility import is_leftover, is_visible, why_held
from merlot.errors import InvalidInputError
from merlot.ids import SEGMENT_SUFFIX, SegmentKey, SegmentPart, TableName
from merlot.metastore.protocol import Check, Metastore
from merlot.spec.shape import Shape
from merlot.uris import parts_below, parts_of, place_of, redact

MAX_NAME_BYTES = 200
"""Longest name of a segment: it becomes a file's name, with its crc and the suffixes of its writers."""


@dataclass(frozen=True, slots=True)
class PublishResult:
    """Names of segments by outcome, and the epoch at which the table is as requested."""

    published: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    epoch: int
    replaced: tuple[str, ...] = ()
    """Names that were published in place of an older version."""
    rows: RowCounts = field(default_factory=RowCounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """Records to add.

    `replace_all`: all other segments are removed in the same write (push type REFRESH).
    `replace`: names that the request replaces. Those that are not among the records are removed in the same write.
    `replace_rows`: it may replace rows that it does not hold, or have none at all; else it is refused (`coverage`).
    `entry`: the replacement that all records are outputs of. Without it, names that a replacement waits for become its
    outputs, and all others are segments of their own.
    `shape`: that of the manifest by which the segments were built; None if the publisher does not say.
    `is_dry_run`: nothing is written; the answer, or the refusal, is that of the request at this moment.
    `is_recovery`: the table had the records before: they keep their times and their origins.
    `removed_ms`: times of removal by name: these segments come back, unless the table got their rows in another way.
    """

    records: tuple[SegmentRecord, ...]
    publish_id: str = ""
    replace: tuple[str, ...] = ()
    replace_all: bool = False
    replace_rows: bool = False
    entry: str = ""
    shape: Shape | None = None
    is_recovery: bool = False
    removed_ms: Mapping[str, int] = field(default_factory=dict)
    is_dry_run: bool = False


def publish(
    metastore: Metastore,
    table: TableName,
    records: Sequence[SegmentRecord],
    *,
    replace: Collection[str] = (),
    publish_id: str = "",
) -> PublishResult:
    """Make the records visible and remove the names in `replace`, in one compare-and-set, whatever rows that
    removes."""
    request = PublishRequest(records=tuple(records), replace=tuple(replace), publish_id=publish_id, replace_rows=True)
    return publish_request(metastore, table, request)


def publish_request(
    metastore: Metastore,
    table: TableName,
    request: PublishRequest,
    fence: Check | None = None,
    context: WriteContext | None = None,
    previous: TableView | None = None,
) -> PublishResult:
    """Publish the request; a repetition changes nothing. `previous` spares reading what the caller has already.

    Raise UncoveredError if the request removes rows without stating so."""
    _check_records(request)
    context = context or WriteContext()
    context = context if not request.publish_id else _with_publish_id(context, request.publish_id)
    outcome: PublishResult | None = None

    outputs = _Outputs(metastore, table)

    def decide(view: TableView) -> Sequence[Mutation]:
        nonlocal outcome
        outcome, mutations = _decide(view, request, outputs.awaited(view), context.clock.now_ms())
        return mutations

    if request.is_dry_run:
        view = load(metastore, table, previous)
        apply(view, decide(view))
    else:
        view = mutate(metastore, table, decide, fence, previous=previous, context=context)
    assert outcome is not None
    return dataclasses.replace(outcome, epoch=view.epoch)


class _Outputs:
    """Names that replacements under way wait for: publishing such a name makes it an output, hidden until the end."""

    def __init__(self, metastore: Metastore, table: TableName) -> None:
        self._metastore = metastore
        self._table = table
        self._known: dict[str, LineageRecord] = {}

    def awaited(self, view: TableView) -> Mapping[str, str]:
        """Return the entry by name of output."""
        under_way = {entry: mark for entry, mark in view.lineage.items() if mark.state is LineageState.IN_PROGRESS}
        unread = {entry: mark for entry, mark in under_way.items() if mark.details not in self._known}
        for entry, details in read_details(self._metastore, self._table, unread).items() if unread else ():
            if details is not None:  # None: the root has moved on, and the write will fail
                self._known[under_way[entry].details] = details
        details_of = {entry: self._known.get(mark.details) for entry, mark in under_way.items()}
        return {
            name: entry for entry, details in details_of.items() if details is not None for name in details.segments_to
        }


def _decide(
    view: TableView, request: PublishRequest, awaited: Mapping[str, str], now_ms: int
) -> tuple[PublishResult, Sequence[Mutation]]:
    changed: list[SegmentRecord] = []
    replaced: dict[str, SegmentRecord] = {}
    unchanged: list[str] = []
    leftover: list[SegmentKey] = []
    produced: list[str] = []
    outputs: dict[str, list[SegmentRecord]] = {}
    names = {record.name for record in request.records}
    removed = [record for record in _to_remove(view, request) if record.name not in names]
    partitionings = Partitionings.of(view, _ordinary(request, awaited))
    again = Republished(view, names, {record.name for record in removed}, partitionings.other_names)
    families = Families.of(names - awaited.keys() if not request.entry else ())
    divided = families.leaving(view, again, needs_all=not request.is_recovery)
    change = partitionings.change(view, again)
    restoring.check(view, request.records, request.removed_ms, [segment.record.name for segment in change.gone])
    removed += [record for record in (*divided, *change.without(names)) if record not in removed]
    seen = [record for record in removed if is_visible(record, view.lineage)]
    first_pushes = {**pushes_of(divided), **change.pushes}
    forgotten: set[str] = set()
    for record in request.records:
        present = view.segment(record.name)
        entry = awaited.get(record.name)
        if request.entry and entry != request.entry:
            # It comes late: as an ordinary segment its rows would be added to the rows that it was to replace.
            _check_put_before(record, present, request.entry)
            unchanged.append(record.name)
            continue
        if entry is not None:
            is_same = present is not None and (present.crc, present.replaces) == (record.crc, entry)
            (unchanged if is_same else produced).append(record.name)
            outputs.setdefault(entry, []).append(_stamped(record, present, now_ms, {}))
            continue
        if present is not None and is_leftover(present, view.lineage):
            leftover.append(present.key)
            present = None
        elif not request.replace_all and (entries := again.entries_to_forget(record)):
            forgotten |= entries
            present = None
        elif present is None and again.is_merged(record):
            unchanged.append(record.name)
            continue
        if present is not None and present.crc == record.crc:
            _check_unchanged(present, view, is_whole=request.replace_all)
            again.check_hidden(record)
            unchanged.append(record.name)
        else:
            changed.append(
                _stamped_as(
                    request,
                    record,
                    present and remembering(view, present),
                    now_ms,
                    first_pushes,
                    takes_place=bool(seen),
                )
            )
            if present is not None and is_visible(present, view.lineage):
                replaced[record.name] = present
    effect = PublishEffect(replaced=replaced, removed=seen, added=changed)
    if not request.replace_rows:
        coverage.check(
            effect,
            num_records=len(request.records),
            declared=frozenset(request.replace),
            replaces_all=request.replace_all,
            staying=families.staying(view, {*replaced, *(record.name for record in removed)}),
            together=change.together,
        )
    result = PublishResult(
        published=(*(record.name for record in changed), *produced),
        unchanged=tuple(unchanged),
        removed=tuple(record.name for record in removed),
        epoch=view.epoch,
        replaced=tuple(effect.replaced),
        rows=effect.counts(view.visible_docs),
    )
    return result, [
        *map(ForgetReplacement, sorted(forgotten, key=lambda entry: (view.lineage[entry].since_ms, entry))),
        RemoveSegments(tuple(leftover)),
        PutSegments(tuple(changed)),
        *(PutOutputs(entry, tuple(records)) for entry, records in outputs.items()),
        RemoveSegments(tuple(record.key for record in removed)),
    ]


def _ordinary(request: PublishRequest, awaited: Mapping[str, str]) -> Iterable[SegmentRecord]:
    """Return the records that become ordinary segments beside others of the table: neither outputs, nor a replacement
    of the whole table, nor a recovery."""
    if request.entry or request.replace_all or request.is_recovery:
        return ()
    return (record for record in request.records if record.name not in awaited)


def _to_remove(view: TableView, request: PublishRequest) -> Iterable[SegmentRecord]:
    """Return the segments that the request removes, in the order of names. Hidden inputs go by themselves; a stream's
    open segments stay."""
    if not request.replace_all:
        named = (record for record in map(view.segment, sorted(set(request.replace))) if record is not None)
        return map(partial(_checked_part, view), named)
    under_way = {name for name, mark in view.lineage.items() if mark.state is LineageState.IN_PROGRESS}
    staged = (record for record in view.segments.values() if record.replaces in under_way)
    committed = (record for record in view.visible.values() if not record.is_open)
    return sorted((*committed, *staged), key=lambda record: record.name)


def _checked_part(view: TableView, record: SegmentRecord) -> SegmentRecord:
    """Return the record; raise PreconditionError if a batch would replace a stream's segment whose rows the time
    boundary only hides."""
    if view.root.time_boundary_ms is not None and is_of_stream(record):
        raise PreconditionError(
            f"segment of a hybrid table's stream cannot be replaced by a batch segment={record.name}"
        )
    return record


def _check_unchanged(present: SegmentRecord, view: TableView, *, is_whole: bool) -> None:
    """Check that publishing the same version again is harmless: it is if merges have replaced the version since, unless
    it shall be all that the table has."""
    input_of = view.lineage.get(present.replaced_by)
    is_replaced = input_of is not None and input_of.state is LineageState.COMPLETED
    if not is_visible(present, view.lineage) and (is_whole or not is_replaced):
        raise PreconditionError(f"segment cannot be published reason: {why_held(present, view.lineage)}")


def _check_put_before(record: SegmentRecord, present: SegmentRecord | None, entry: str) -> None:
    """Check a late output of an entry that is no longer under way: publishing the same output again is harmless,
    anything else is refused."""
    if present is None or (present.crc, present.replaces) != (record.crc, entry):
        raise PreconditionError(
            f"replacement takes no such output, or no outputs any more entry={entry} segment={record.name}"
        )


def _stamped_as(
    request: PublishRequest,
    record: SegmentRecord,
    present: SegmentRecord | None,
    now_ms: int,
    first_pushes: Mapping[str, int],
    *,
    takes_place: bool,
) -> SegmentRecord:
    if request.is_recovery:
        return _recovered(record, now_ms)
    if record.name in request.removed_ms:
        return restoring.as_it_was(record, now_ms)
    stamped = _stamped(record, present, now_ms, first_pushes)
    return stamped.model_copy(update={"refresh_time_ms": now_ms}) if takes_place else stamped


def _stamped(
    record: SegmentRecord, present: SegmentRecord | None, now_ms: int, first_pushes: Mapping[str, int]
) -> SegmentRecord:
    """Return the record with the table's times and without the caller's marks.

    The push time is that of the first publication, also of the same rows in other parts. A refresh time says that
    something was replaced: a broker that has just started does not take such a version for a new segment. A version of
    a merged segment keeps its origins, as partial: nobody knows which of their rows it has.
    """
    made_of = "" if present is None else origins.in_part(present).made_of
    record = record.model_copy(update={"replaces": "", "replaced_by": "", "made_of": made_of, "stream_offsets": ""})
    first_ms = first_pushes.get(SegmentPart.of(record.name).family) if present is None else present.push_time_ms
    if first_ms is None:
        return record.model_copy(update={"push_time_ms": now_ms})
    return record.model_copy(update={"push_time_ms": first_ms, "refresh_time_ms": now_ms})


def _recovered(record: SegmentRecord, now_ms: int) -> SegmentRecord:
    """Return the record of a recovered segment. It answered queries before, so the mark tells brokers that it is not
    new, whatever its push time."""
    push_time_ms = record.push_time_ms if record.push_time_ms > 0 else now_ms
    marks = {**record.custom_map, RECOVERED: str(now_ms)}
    return record.model_copy(
        update={"replaces": "", "replaced_by": "", "custom_map": marks, "push_time_ms": push_time_ms}
    )


def _check_records(request: PublishRequest) -> None:
    counts = Counter(record.name for record in request.records)
    if len(counts) != len(request.records):
        twice = sorted(name for name, count in counts.items() if count > 1)[:3]
        raise InvalidInputError(f"segments are published twice in one request segments={twice}")
    for record in request.records:
        if not _is_file_name(record.name):
            raise InvalidInputError(f"segment name cannot be a file's name={record.name!r}")
        numbers.check_record(record)


def check_files(table: TableName, records: Sequence[SegmentRecord], store: str | None) -> None:
    """Refuse records whose file is not in the table's own folder of its deep store: servers would read any other file,
    and the controller would delete it with the segment.

    `store`: None if it is not known; then only the folder's name is checked."""
    root = None if store is None else place_of(store)
    for record in records:
        parts = parts_below(root, record.url) if root is not None else parts_of(record.url)[-2:]
        if parts is None or len(parts) != 2 or parts[0] != table or not parts[1].endswith(SEGMENT_SUFFIX):
            folder = f"{'' if store is None else redact(store.partition('?')[0]).rstrip('/')}/{table}/"
            raise InvalidInputError(
                f"a segment's url must be that of a file *{SEGMENT_SUFFIX} in its table's own folder "
                f"segment={record.name} url={redact(record.url)} folder={folder}"
            )


def _is_file_name(name: str) -> bool:
    """Return True if the name can be part of a path: it leads nowhere else, breaks no line of a log, is no option of a
    program, and leaves `name@crc` unambiguous."""
    is_plain = name.isprintable() and name.strip(" .") != "" and "/" not in name and "\\" not in name
    is_plain = is_plain and not name.startswith("-") and "@" not in name
    return is_plain and len(name.encode()) <= MAX_NAME_BYTES


def _with_publish_id(context: WriteContext, publish_id: str) -> WriteContext:
    return dataclasses.replace(context, publish_id=publish_id)
