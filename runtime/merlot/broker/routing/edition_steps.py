"""Route a partition to an older edition than the newest, so that frequent pushes cannot keep its routes from changing.

A partition keeps its routes until some server answers for its next edition. If that were always the newest, pushes that
come faster than servers load them could make it wait forever. So while a partition waits, the broker keeps the views
that later pushes have superseded. It first routes the newest of them that servers can answer; then the partition waits
for the current view. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build
from merlot.cluster.segments.editions import editions_of
from merlot.cluster.segments.view import TableView

MAX_UNROUTED_VIEWS: Final = 16
"""Most views that are kept; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class FollowedViews:
    """Routing snapshot, and the views that are newer than the one that it routes, the current view last."""

    snapshot: RoutingSnapshot
    unrouted_views: tuple[TableView, ...] = ()


def follow(inputs: RoutingInputs, previous: FollowedViews | None) -> FollowedViews:
    """Build the next snapshot, as `routes.build` does, by way of the newest superseded view that servers can answer."""
    if previous is None:
        return FollowedViews(build(inputs))
    snapshot, passed = build(inputs, previous.snapshot), previous.unrouted_views
    if inputs.partitioning is None or not snapshot.swaps:
        return FollowedViews(snapshot)
    for position in reversed(range(len(passed))):
        if not _is_answered(replace(inputs, view=passed[position])):
            continue
        older = build(replace(inputs, view=passed[position]), previous.snapshot)
        if not older.swaps and not older.unavailable:
            snapshot, passed = build(inputs, older), passed[position + 1 :]
            break
    return FollowedViews(snapshot, _appended(passed, inputs.view))


def _is_answered(inputs: RoutingInputs) -> bool:
    assert inputs.partitioning is not None
    reported = set[str]().union(*(keys for instance, keys in inputs.reports.items() if instance in inputs.standings))
    editions = editions_of(inputs.view.visible.values(), inputs.partitioning).values()
    return all(edition.key in reported for edition in editions)


def _appended(passed: Sequence[TableView], view: TableView) -> tuple[TableView, ...]:
    views = (*(earlier for earlier in passed if earlier.epoch != view.epoch), view)
    return views[-MAX_UNROUTED_VIEWS:]
