"""Which replacements of the lineage a broker takes for completed: each from the moment that its outputs can answer.

The root says what is true; a broker follows it entry by entry. Until it takes an entry for completed, it goes on
seeing the inputs and not the outputs, which both are in the view: so one step changes from all inputs of an entry to
all of its outputs, or back after a reversal, in one snapshot, and no entry waits for another. Entries that build on
each other switch in order, or together, if what lies between has no replica any more. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from merlot.broker.routing.exchanges import LONGEST_MS
from merlot.cluster.records import LineageMark, LineageState, SegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_visible_under

HasReplica = Callable[[SegmentRecord], bool]


@dataclass(frozen=True, slots=True)
class Switched:
    """Entries taken for completed, and when waiting for the others will have taken too long."""

    taken: frozenset[str]
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Members:
    """The records that an entry marks."""

    inputs: list[SegmentRecord]
    outputs: list[SegmentRecord]

    def all(self) -> list[SegmentRecord]:
        return [*self.inputs, *self.outputs]


def seen(view: TableView, taken: Set[str]) -> Mapping[str, SegmentRecord]:
    """The table for somebody who takes exactly these entries for completed."""
    if taken == _completed(view):
        return view.visible
    lineage = view.lineage
    return MappingProxyType(
        {name: record for name, record in view.segments.items() if is_visible_under(record, lineage, taken)}
    )


def first(view: TableView, has_replica: HasReplica) -> frozenset[str]:
    """What a broker that starts takes for completed: what is, but where only the inputs of an entry can answer yet.

    It may have started before it could hear that a server has loaded the outputs.
    """
    completed = _completed(view)
    if not completed or all(map(has_replica, view.visible.values())):
        return completed
    members = _members(view, {entry for entry in view.lineage if not _is_under_way(view, entry)})
    taken = completed
    for group in _groups(members):
        is_whole = not any(_is_broken(view.lineage[entry], members[entry]) for entry in group)
        if is_whole and not _can_answer(view, members, group, completed, has_replica):
            earlier = _as_far_as_possible(view, {one: members[one] for one in group}, completed - group, has_replica)
            waiting = group & completed - earlier
            if all(members[one].inputs for one in waiting) and _can_answer(view, members, group, earlier, has_replica):
                taken = taken - group | group & earlier
    return taken


def still(view: TableView, taken: frozenset[str]) -> frozenset[str]:
    """The entries to take for completed before anything is switched.

    Those that were, less those that the root has forgotten or started anew. An entry that waits to be switched while
    segments of the side to come were removed or replaced by others is switched at once, with all that depend on it:
    what replaces those segments is not marked, so the step as a whole has to be an exchange.
    """
    kept = frozenset(entry for entry in taken.intersection(view.lineage) if not _is_under_way(view, entry))
    waiting = _waiting(view, kept)
    if not waiting:
        return kept
    members = _members(view, waiting)
    broken = {entry for entry, one in members.items() if _is_broken(view.lineage[entry], one)}
    if broken:
        for group in _groups(members):
            if not broken.isdisjoint(group):
                kept = kept ^ group
    return kept


def _is_broken(mark: LineageMark, members: _Members) -> bool:
    if mark.state is LineageState.COMPLETED:
        return len(members.outputs) < mark.num_to
    return len(members.inputs) < mark.num_from


def follow(view: TableView, taken: frozenset[str], frozen: Set[str], has_replica: HasReplica, now_ms: int) -> Switched:
    """Take the steps toward the root's states that can be taken; `frozen`: names that must keep their routes."""
    waiting = _waiting(view, taken)
    if not waiting:
        return Switched(taken)
    members = _members(view, waiting)
    free = {entry: one for entry, one in members.items() if all(record.name not in frozen for record in one.all())}
    taken = _as_far_as_possible(view, free, taken, has_replica, now_ms)
    ends = [view.lineage[entry].since_ms + LONGEST_MS for entry in _waiting(view, taken)]
    return Switched(taken, min((end for end in ends if end > now_ms), default=None))


def _as_far_as_possible(
    view: TableView,
    members: Mapping[str, _Members],
    taken: frozenset[str],
    has_replica: HasReplica,
    now_ms: int | None = None,
) -> frozenset[str]:
    """Switch entries one by one while any can be, then whole groups of those that depend on each other."""
    waiting = sorted(members.keys() & _waiting(view, taken), key=lambda entry: view.lineage[entry].since_ms)
    has_moved = True
    while has_moved and waiting:
        has_moved = False
        for entry in list(waiting):
            late = now_ms is not None and now_ms >= view.lineage[entry].since_ms + LONGEST_MS
            if _can_switch(view.lineage, members[entry], entry, taken, has_replica, is_late=late):
                taken = taken ^ {entry}
                waiting.remove(entry)
                has_moved = True
    for group in _groups({entry: members[entry] for entry in waiting}):
        if len(group) > 1 and _can_switch_together(view.lineage, members, group, taken, has_replica):
            taken = taken ^ group
    return taken


def _can_switch(
    lineage: Mapping[str, LineageMark],
    members: _Members,
    entry: str,
    taken: frozenset[str],
    has_replica: HasReplica,
    *,
    is_late: bool,
) -> bool:
    """Whether one side of the entry is in use now and the other would be, and can answer.

    An entry that is late is switched if its side in use cannot answer either: the answers' exception then names what
    the table should have. As long as that side answers, it is as right as the other.
    """
    old, new = (members.outputs, members.inputs) if entry in taken else (members.inputs, members.outputs)
    switched = taken ^ {entry}
    if not all(is_visible_under(record, lineage, taken) for record in old):
        return False
    if not all(is_visible_under(record, lineage, switched) for record in new):
        return False
    if all(map(has_replica, new)):
        return True
    return is_late and not (old and all(map(has_replica, old)))


def _can_switch_together(
    lineage: Mapping[str, LineageMark],
    members: Mapping[str, _Members],
    group: frozenset[str],
    taken: frozenset[str],
    has_replica: HasReplica,
) -> bool:
    switched = taken ^ group
    records = [record for entry in group for record in members[entry].all()]
    new = (record for record in records if is_visible_under(record, lineage, switched))
    return all(has_replica(record) for record in new if not is_visible_under(record, lineage, taken))


def _can_answer(
    view: TableView,
    members: Mapping[str, _Members],
    group: Iterable[str],
    taken: Set[str],
    has_replica: HasReplica,
) -> bool:
    records = (record for entry in group for record in members[entry].all())
    return all(has_replica(record) for record in records if is_visible_under(record, view.lineage, taken))


def _members(view: TableView, entries: Collection[str]) -> dict[str, _Members]:
    found = {entry: _Members([], []) for entry in entries}
    for record in view.segments.values():
        if record.replaced_by in found:
            found[record.replaced_by].inputs.append(record)
        if record.replaces in found:
            found[record.replaces].outputs.append(record)
    return found


def _groups(members: Mapping[str, _Members]) -> list[frozenset[str]]:
    """Entries joined by segments that are outputs of one and inputs of another."""
    linked: dict[str, set[str]] = defaultdict(set)
    for entry, one in members.items():
        for record in one.outputs:
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


def _waiting(view: TableView, taken: Set[str]) -> frozenset[str]:
    """Entries whose state in the root is another one."""
    return frozenset(
        entry for entry, mark in view.lineage.items() if (mark.state is LineageState.COMPLETED) != (entry in taken)
    )


def _completed(view: TableView) -> frozenset[str]:
    return frozenset(entry for entry, mark in view.lineage.items() if mark.state is LineageState.COMPLETED)


def _is_under_way(view: TableView, entry: str) -> bool:
    return view.lineage[entry].state is LineageState.IN_PROGRESS
