"""Moves of a hybrid table's time boundary: up once servers have loaded the batches before it, down at once.

Pure. The old boundary holds until servers report every segment of the batches that begins before the new one: a batch
that is half loaded answers for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from merlot.cluster.segments.boundary import BoundaryRule
from merlot.cluster.segments.parts import is_of_stream
from merlot.cluster.segments.transaction import MoveTimeBoundary, Mutation
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId
from merlot.spec.table import TableSpec

Loaded = Mapping[InstanceId, Set[str]]
"""Keys of the segments that servers report, by server."""


def decide(view: TableView, spec: TableSpec, loaded: Loaded | None, now_ms: int) -> Sequence[Mutation]:
    """Return the move to write; none if the boundary is right, or has to wait. `loaded`: None while reports are not
    read."""
    known_ms, target_ms = view.root.time_boundary_ms, _target(view, spec, now_ms)
    if target_ms == known_ms or spec.suspend:
        return []
    is_down = target_ms is None or (known_ms is not None and target_ms < known_ms)
    if is_down or (target_ms is not None and _is_loaded(view, target_ms, loaded)):
        return [MoveTimeBoundary(target_ms, now_ms)]
    return []


def is_waiting(view: TableView, spec: TableSpec, now_ms: int) -> bool:
    """Return whether the boundary moves once servers have loaded more."""
    return not spec.suspend and _target(view, spec, now_ms) != view.root.time_boundary_ms


def _target(view: TableView, spec: TableSpec, now_ms: int) -> int | None:
    rule = BoundaryRule.of(spec)
    return None if rule is None else rule.target(view.visible.values(), now_ms)


def _is_loaded(view: TableView, boundary_ms: int, loaded: Loaded | None) -> bool:
    if loaded is None:
        return False
    keys = frozenset[str]().union(*loaded.values())
    needed = (segment for segment in view.visible.values() if not is_of_stream(segment))
    return all(
        segment.key_text in keys
        for segment in needed
        if segment.start_time_ms is None or segment.start_time_ms < boundary_ms
    )
