"""Choose which replacements of the lineage a broker follows: each as soon as its outputs can answer.

The root of the table's segments says which entries are completed; a broker follows it entry by entry. Both sides of an
entry are in the view. Until the broker takes an entry for completed, it sees the inputs and not the outputs. So one
snapshot changes from all inputs of an entry to all of its outputs, or back after a reversal, and no entry waits for
another. Entries that build on each other switch in order, or together if the segments between them have no replica any
more. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from merlot.broker.routing.atomic_swaps import LONGEST_MS
from merlot.cluster.records import LineageMark, LineageState, SegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_visible_under

HasReplica = Callable[[SegmentRecord], bool]


@dataclass(frozen=True, slots=True)
class FollowedEntries:
    """Entries that the broker takes for completed, and when the next of the others will have waited too long."""

    completed: frozenset[str]
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _MarkedRecords:
    """Records that an entry marks."""

    inputs: list[SegmentRecord]
    outputs: list[SegmentRecord]

    def all(self) -> list[SegmentRecord]:
        return [*self.inputs, *self.outputs]


def visible_with(view: TableView, followed: Set[str]) -> Mapping[str, SegmentRecord]:
    """Return the table's segments as they are if exactly the entries `followed` are completed."""
    if followed == _completed(view):
        return view.visible
    lineage = view.lineage
    return MappingProxyType(
        {name: record for name, record in view.segments.items() if is_visible_under(record, lineage, followed)}
    )


def completed_at_start(view: TableView, has_replica: HasReplica) -> frozenset[str]:
    """Return the entries that a broker takes for completed when it starts: those the root calls completed, but for
    entries of which only the inputs can answer yet.

    The broker may have started before servers have reported the outputs."""
    completed = _completed(view)
    if not completed or all(map(has_replica, view.visible.values())):
        return completed
    members = _members(view, {entry for entry in view.lineage if not _is_under_way(view, entry)})
    followed = completed
    for group in _groups(members):
        is_whole = not any(_is_broken(view.lineage[entry], members[entry]) for entry in group)
        if is_whole and not _can_answer(view, members, group, completed, has_replica):
            of_group = {entry: members[entry] for entry in group}
            earlier = _as_far_as_possible(view, of_group, completed - group, has_replica)
            has_inputs = all(members[entry].inputs for entry in group & completed - earlier)
            if has_inputs and _can_answer(view, members, group, earlier, has_replica):
                followed = followed - group | group & earlier
    return followed


def still_completed(view: TableView, before: frozenset[str]) -> frozenset[str]:
    """Return the entries to take for completed before anything is switched.

    These are the entries that were, `before`, less those that the root has forgotten or started anew. An entry may wait
    while segments of the side to come are removed, or replaced by others. Such an entry is switched at once, with all
    that depend on it: the replacements are not marked, so the step as a whole has to be a swap."""
    followed = frozenset(entry for entry in before.intersection(view.lineage) if not _is_under_way(view, entry))
    waiting = _waiting(view, followed)
    if not waiting:
        return followed
    members = _members(view, waiting)
    broken = {entry for entry, marked in members.items() if _is_broken(view.lineage[entry], marked)}
    if broken:
        for group in _groups(members):
            if not broken.isdisjoint(group):
                followed = followed ^ group
    return followed


def _is_broken(mark: LineageMark, members: _MarkedRecords) -> bool:
    if mark.state is LineageState.COMPLETED:
        return len(members.outputs) < mark.num_to
    return len(members.inputs) < mark.num_from


def switch_ready(
    view: TableView, followed: frozenset[str], frozen: Set[str], has_replica: HasReplica, now_ms: int
) -> FollowedEntries:
    """Switch toward the root's states as far as replicas allow. `frozen`: names that must keep their routes."""
    waiting = _waiting(view, followed)
    if not waiting:
        return FollowedEntries(followed)
    members = _members(view, waiting)
    free = {
        entry: marked for entry, marked in members.items() if all(record.name not in frozen for record in marked.all())
    }
    followed = _as_far_as_possible(view, free, followed, has_replica, now_ms)
    ends = [view.lineage[entry].since_ms + LONGEST_MS for entry in _waiting(view, followed)]
    return FollowedEntries(followed, min((end for end in ends if end > now_ms), default=None))


def _as_far_as_possible(
    view: TableView,
    members: Mapping[str, _MarkedRecords],
    followed: frozenset[str],
    has_replica: HasReplica,
    now_ms: int | None = None,
) -> frozenset[str]:
    """Switch entries one by one while any can be, then whole groups of those that depend on each other."""
    waiting = sorted(members.keys() & _waiting(view, followed), key=lambda entry: view.lineage[entry].since_ms)
    has_moved = True
    while has_moved and waiting:
        has_moved = False
        for entry in list(waiting):
            late = now_ms is not None and now_ms >= view.lineage[entry].since_ms + LONGEST_MS
            if _can_switch(view.lineage, members[entry], entry, followed, has_replica, is_late=late):
                followed = followed ^ {entry}
                waiting.remove(entry)
                has_moved = True
    for group in _groups({entry: members[entry] for entry in waiting}):
        if len(group) > 1 and _can_switch_together(view.lineage, members, group, followed, has_replica):
            followed = followed ^ group
    return followed


def _can_switch(
    lineage: Mapping[str, LineageMark],
    members: _MarkedRecords,
    entry: str,
    followed: frozenset[str],
    has_replica: HasReplica,
    *,
    is_late: bool,
) -> bool:
    """Return True if one side of the entry is in use, and the other side would be, and can answer.

    An entry that is late is also switched if its side in use cannot answer either: the exception of the answers then
    names the segments that the table should have. As long as the old side answers, it is as right as the new."""
    old, new = (members.outputs, members.inputs) if entry in followed else (members.inputs, members.outputs)
    switched = followed ^ {entry}
    if not all(is_visible_under(record, lineage, followed) for record in old):
        return False
    if not all(is_visible_under(record, lineage, switched) for record in new):
        return False
    if all(map(has_replica, new)):
        return True
    return is_late and not (old and all(map(has_replica, old)))


def _can_switch_together(
    lineage: Mapping[str, LineageMark],
    members: Mapping[str, _MarkedRecords],
    group: frozenset[str],
    followed: frozenset[str],
    has_replica: HasReplica,
) -> bool:
    switched = followed ^ group
    records = [record for entry in group for record in members[entry].all()]
    new = (record for record in records if is_visible_under(record, lineage, switched))
    return all(has_replica(record) for record in new if not is_visible_under(record, lineage, followed))


def _can_answer(
    view: TableView,
    members: Mapping[str, _MarkedRecords],
    group: Iterable[str],
    followed: Set[str],
    has_replica: HasReplica,
) -> bool:
    records = (record for entry in group for record in members[entry].all())
    return all(has_replica(record) for record in records if is_visible_under(record, view.lineage, followed))


def _members(view: TableView, entries: Collection[str]) -> dict[str, _MarkedRecords]:
    members = {entry: _MarkedRecords([], []) for entry in entries}
    for record in view.segments.values():
        if record.replaced_by in members:
            members[record.replaced_by].inputs.append(record)
        if record.replaces in members:
            members[record.replaces].outputs.append(record)
    return members


def _groups(members: Mapping[str, _MarkedRecords]) -> list[frozenset[str]]:
    """Group entries that are linked by a segment: an output of one entry and an input of the other."""
    linked: dict[str, set[str]] = defaultdict(set)
    for entry, marked in members.items():
        for record in marked.outputs:
            if record.replaced_by in members:
                linked[entry].add(record.replaced_by)
                linked[record.replaced_by].add(entry)
    groups = []
    left = set(members)
    while left:
        group: set[str] = set()
        edge = [left.pop()]
        while edge:
            entry = edge.pop()
            group.add(entry)
            edge += linked[entry] - group
        left -= group
        groups.append(frozenset(group))
    return groups


def _waiting(view: TableView, followed: Set[str]) -> frozenset[str]:
    """Return the entries whose state in the root differs from the one that the broker follows."""
    return frozenset(
        entry for entry, mark in view.lineage.items() if (mark.state is LineageState.COMPLETED) != (entry in followed)
    )


def _completed(view: TableView) -> frozenset[str]:
    return frozenset(entry for entry, mark in view.lineage.items() if mark.state is LineageState.COMPLETED)


def _is_under_way(view: TableView, entry: str) -> bool:
    return view.lineage[entry].state is LineageState.IN_PROGRESS
