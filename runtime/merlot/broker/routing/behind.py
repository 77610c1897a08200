"""Editions that a broker takes on the way to the newest: pushes may follow each other faster than servers follow them.

A partition stays as it is routed until some server answers for its next edition. Were that always the newest, steady
pushes could make it wait for ever. So views that were passed by are kept while something waits, and the newest of them
that servers answer for by now is routed before the one after it is waited for. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build
from merlot.cluster.segments.editions import editions_of
from merlot.cluster.segments.view import TableView

MOST_KEPT: Final = 16
"""Views; the newest."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A snapshot, and the views between what it routes and what the table is."""

    snapshot: RoutingSnapshot
    passed: tuple[TableView, ...] = ()


def follow(inputs: RoutingInputs, previous: Followed | None) -> Followed:
    """The next snapshot, as `build`."""
    if previous is None:
        return Followed(build(inputs))
    snapshot, passed = build(inputs, previous.snapshot), previous.passed
    if inputs.partitioning is None or not snapshot.exchanges:
        return Followed(snapshot)
    for place in reversed(range(len(passed))):
        if not _is_answered(replace(inputs, view=passed[place])):
            continue
        older = build(replace(inputs, view=passed[place]), previous.snapshot)
        if not older.exchanges and not older.unavailable:
            snapshot, passed = build(inputs, older), passed[place + 1 :]
            break
    return Followed(snapshot, _with(passed, inputs.view))


def _is_answered(inputs: RoutingInputs) -> bool:
    assert inputs.partitioning is not None
    reported = set[str]().union(*(keys for one, keys in inputs.reports.items() if one in inputs.standings))
    editions = editions_of(inputs.view.visible.values(), inputs.partitioning).values()
    return all(edition.key in reported for edition in editions)


def _with(passed: Sequence[TableView], view: TableView) -> tuple[TableView, ...]:
    found = (*(one for one in passed if one.epoch != view.epoch), view)
    return found[-MOST_KEPT:]
