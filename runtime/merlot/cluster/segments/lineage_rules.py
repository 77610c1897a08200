"""Apply replacements to a draft: preconditions of each step, and its effect on marks and states. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from merlot.cluster.records import LineageMark, LineageRecord, LineageState, SegmentRecord
from merlot.cluster.segments import origins
from merlot.cluster.segments.mutations import (
    EndReplacement,
    ForgetReplacement,
    PreconditionError,
    PutOutputs,
    RevertReplacement,
    StampReplacement,
    StartReplacement,
    TooManyReplacementsError,
)
from merlot.cluster.segments.parts import are_mixed, joined_offsets
from merlot.cluster.segments.visibility import is_leftover, is_visible
from merlot.ids import TableName

if TYPE_CHECKING:
    from merlot.cluster.segments.draft import Draft
    from merlot.cluster.segments.view import TableView

MAX_ENTRIES = 3000
"""Maximum number of live entries of a table: the root, which every write rewrites, holds some 100 bytes of each."""


def start(draft: Draft, mutation: StartReplacement) -> None:
    entry = mutation.entry
    if entry in draft.lineage:
        raise PreconditionError(f"replacement exists already entry={entry} state={draft.lineage[entry].state}")
    if len(draft.lineage) >= MAX_ENTRIES:
        raise TooManyReplacementsError(
            f"too many replacements are kept, wait until the grace period of some ends entries={len(draft.lineage)}"
        )
    _check_lists(mutation)
    inputs = [_check_input(draft, name, crc) for name, crc in mutation.segments_from.items()]
    if draft.is_hybrid and are_mixed(inputs):
        raise PreconditionError(
            f"segments of batches and of the stream cannot be replaced together in a hybrid table entry={entry}"
        )
    for name in mutation.segments_to:
        _make_room(draft, name)
    for record in inputs:
        draft.store(record.model_copy(update={"replaced_by": entry}))
    num_from, num_to = len(inputs), len(mutation.segments_to)
    draft.lineage[entry] = LineageMark(LineageState.IN_PROGRESS, mutation.now_ms, "", num_from, num_to)
    draft.details[entry] = LineageRecord(
        created_ms=mutation.now_ms,
        segments_from=tuple(mutation.segments_from),
        segments_to=mutation.segments_to,
        custom_map=dict(mutation.custom_map),
    )


def put_outputs(draft: Draft, mutation: PutOutputs) -> None:
    entry = mutation.entry
    state = _mark(draft, entry).state
    for record in mutation.records:
        present = draft.find(record.name)
        is_ours = present is not None and present.replaces == entry
        if is_ours and present is not None and present.crc == record.crc:
            continue
        if state is not LineageState.IN_PROGRESS:
            raise PreconditionError(f"replacement takes no outputs any more entry={entry} state={state}")
        if present is not None and not is_ours:
            raise PreconditionError(f"output exists already, as no output of this entry={entry} segment={record.name}")
        draft.store(record.model_copy(update={"replaces": entry, "replaced_by": "", "stream_offsets": ""}))


def end(draft: Draft, mutation: EndReplacement) -> None:
    entry = mutation.entry
    mark = _mark(draft, entry)
    if mark.state is LineageState.COMPLETED:
        return
    if mark.state is LineageState.REVERTED:
        raise PreconditionError(f"replacement was reverted, start it again entry={entry}")
    details = mutation.details
    changed = _unmarked(draft, details.segments_from, replaced_by=entry)
    if changed:
        raise PreconditionError(
            f"inputs were replaced or removed since the start; revert the entry and start again with what is there now "
            f"entry={entry} segments={changed[:3]}"
        )
    outputs = tuple(name for name in details.segments_to if name not in mutation.dropped)
    missing = _unmarked(draft, outputs, replaces=entry)
    if missing:
        raise PreconditionError(f"outputs are missing, publish them first entry={entry} segments={missing[:3]}")
    for name in mutation.dropped:
        record = draft.find(name)
        if record is not None and record.replaces == entry:
            draft.drop(name)
    _keep_offsets(draft, details.segments_from, outputs)
    if mutation.dropped or mutation.custom_map:
        update = {"segments_to": outputs, "custom_map": {**details.custom_map, **mutation.custom_map}}
        draft.details[entry] = details.model_copy(update=update)
    completed = {"state": LineageState.COMPLETED, "since_ms": mutation.now_ms, "num_to": len(outputs)}
    draft.lineage[entry] = LineageMark(**{**mark._asdict(), **completed})


def _keep_offsets(draft: Draft, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Give the outputs the offsets of the inputs: segments that replace a stream's segments are of the stream, wherever
    their rows come from."""
    input_records = (draft.find(name) for name in inputs)
    offsets = joined_offsets(record for record in input_records if record is not None)
    for record in (draft.find(name) for name in outputs) if offsets else ():
        if record is not None:
            draft.store(record.model_copy(update={"stream_offsets": offsets}))


def revert(draft: Draft, mutation: RevertReplacement) -> None:
    entry = mutation.entry
    mark = _mark(draft, entry)
    if mark.state is LineageState.REVERTED:
        return
    if mark.state is LineageState.IN_PROGRESS:
        _drop_outputs(draft, entry)
    else:
        _check_reversible(draft, mutation)
    draft.lineage[entry] = mark._replace(state=LineageState.REVERTED, since_ms=mutation.now_ms)


def forget(draft: Draft, mutation: ForgetReplacement) -> None:
    entry = mutation.entry
    mark = draft.lineage.get(entry)
    if mark is None:
        return
    if mark.state is LineageState.IN_PROGRESS:
        raise PreconditionError(f"replacement is under way, end or revert it first entry={entry}")
    is_completed = mark.state is LineageState.COMPLETED
    del draft.lineage[entry]
    draft.details.pop(entry, None)
    concerned = [record for record in draft.all_records() if entry in (record.replaces, record.replaced_by)]
    if is_completed:
        concerned = with_origins(draft.table, entry, mark, concerned)
    for record in concerned:
        if is_completed if record.replaced_by == entry else not is_completed:
            draft.drop(record.name)
        elif record.replaces == entry:
            draft.store(record.model_copy(update={"replaces": ""}))
        else:
            draft.store(record.model_copy(update={"replaced_by": ""}))


def stamp(draft: Draft, mutation: StampReplacement) -> None:
    mark = draft.lineage.get(mutation.entry)
    if mark is not None and mark.state is mutation.state:
        draft.lineage[mutation.entry] = mark._replace(since_ms=mutation.since_ms)


def remembering(view: TableView, record: SegmentRecord) -> SegmentRecord:
    """Return the record with the origins of the inputs, and of theirs, if it is an output of a completed replacement
    that is not cleaned up yet."""
    entry = record.replaces
    mark = view.lineage.get(entry)
    if mark is None or mark.state is not LineageState.COMPLETED:
        return record
    concerned = [other for other in view.segments.values() if entry in (other.replaces, other.replaced_by)]
    records = [remembering(view, other) if other.replaced_by == entry else other for other in concerned]
    return next(other for other in with_origins(view.table, entry, mark, records) if other.name == record.name)


def with_origins(
    table: TableName, entry: str, mark: LineageMark, records: Sequence[SegmentRecord]
) -> list[SegmentRecord]:
    """Return the inputs and outputs of an entry; the outputs remember the origins of the inputs."""
    inputs = [record for record in records if record.replaced_by == entry]
    outputs = [record for record in records if record.replaces == entry]
    changed = origins.remember(table, inputs, outputs, are_all=len(outputs) == mark.num_to)
    remembering = {record.name: record for record in changed}
    return [remembering.get(record.name, record) for record in records]


def _check_lists(mutation: StartReplacement) -> None:
    if not mutation.segments_from and not mutation.segments_to:
        raise PreconditionError(f"replacement has neither inputs nor outputs entry={mutation.entry}")
    both = sorted(mutation.segments_from.keys() & set(mutation.segments_to))
    if both:
        raise PreconditionError(f"segments are both inputs and outputs entry={mutation.entry} segments={both[:3]}")
    if len(set(mutation.segments_to)) != len(mutation.segments_to):
        raise PreconditionError(f"outputs are named twice entry={mutation.entry}")


def _check_input(draft: Draft, name: str, crc: int | None) -> SegmentRecord:
    record = draft.find(name)
    if record is None:
        raise PreconditionError(f"segment to replace does not exist segment={name}")
    if crc is not None and record.crc != crc:
        raise PreconditionError(f"segment to replace has changed segment={name} expected={crc} got={record.crc}")
    if record.is_open:
        raise PreconditionError(f"segment of a stream is open and cannot be replaced segment={name}")
    if not is_visible(record, draft.lineage):
        raise PreconditionError(f"segment to replace is no part of the table segment={name} {_marks(record)}")
    other = draft.lineage.get(record.replaced_by)
    if other is not None and other.state is LineageState.IN_PROGRESS:
        raise PreconditionError(
            f"segment is an input of another replacement under way segment={name} entry={record.replaced_by}; "
            "end or revert that one first"
        )
    return record


def _make_room(draft: Draft, name: str) -> None:
    """Check that an output's name is free; drop a segment that a reverted replacement has left under it."""
    record = draft.find(name)
    if record is None:
        return
    if not is_leftover(record, draft.lineage):
        raise PreconditionError(f"segment to create exists already segment={name} {_marks(record)}".rstrip())
    draft.drop(name)


def _check_reversible(draft: Draft, mutation: RevertReplacement) -> None:
    entry = mutation.entry
    lost = _unmarked(draft, mutation.details.segments_from, replaced_by=entry)
    lost += _unmarked(draft, mutation.details.segments_to, replaces=entry)
    if lost:
        raise PreconditionError(
            f"replacement cannot be reverted, segments of it were removed or replaced since entry={entry} "
            f"segments={lost[:3]}"
        )
    for name in mutation.details.segments_to:
        record = draft.find(name)
        other = None if record is None else draft.lineage.get(record.replaced_by)
        if record is not None and other is not None and other.state is not LineageState.REVERTED:
            raise PreconditionError(
                f"replacement cannot be reverted, another one replaces its output; revert that one first "
                f"entry={entry} segment={name} other={record.replaced_by}"
            )


def _drop_outputs(draft: Draft, entry: str) -> None:
    for name in [record.name for record in draft.all_records() if record.replaces == entry]:
        draft.drop(name)


def _unmarked(
    draft: Draft, names: Iterable[str], *, replaces: str | None = None, replaced_by: str | None = None
) -> list[str]:
    """Return the names without a segment, or whose segment does not bear this mark."""
    records = ((name, draft.find(name)) for name in names)
    return sorted(
        name
        for name, record in records
        if record is None
        or (replaces is not None and record.replaces != replaces)
        or (replaced_by is not None and record.replaced_by != replaced_by)
    )


def _mark(draft: Draft, entry: str) -> LineageMark:
    mark = draft.lineage.get(entry)
    if mark is None:
        raise PreconditionError(f"replacement does not exist entry={entry}")
    return mark


def _marks(record: SegmentRecord) -> str:
    marks = (("output_of", record.replaces), ("input_of", record.replaced_by))
    return " ".join(f"{name}={entry}" for name, entry in marks if entry)
