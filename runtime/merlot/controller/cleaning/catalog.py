"""Make a table's catalog: of a whole view, or of what has changed since another one. Pure.

And whether a metastore contradicts a catalog, so that it must have lost something.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from merlot.cluster.losses import CatalogChanges, CatalogRecord
from merlot.cluster.records import LineageState, SegmentRecord, StreamSegmentRecord, StreamStateRecord, TableRecord
from merlot.cluster.segments.lineage_rules import with_origins
from merlot.cluster.segments.parts import is_of_stream
from merlot.cluster.segments.view import TableView, diff

FEW: Final = 32
"""Records that may change before the whole catalog of a small table is written anew."""

Changes = Mapping[str, SegmentRecord | None]
"""Records as the catalog has them now, by name of the segment; None if the table has it no more."""


def what_is_lost(kept: CatalogRecord | None, own_id: str, record: TableRecord, view: TableView) -> str:
    """Why the metastore cannot be right about a table; empty if it may be."""
    if kept is None or not kept.num_segments:
        return ""
    if kept.store_id != own_id:
        here, stored = {one.key for one in view.segments.values()}, [one.key for one in _stored(kept)]
        # What a stream brings removes segments of the catalog, but brings none before a new table is confirmed.
        has_moved_on = kept.has_stream and not record.is_unconfirmed
        is_here = bool(view.segments) if has_moved_on else bool(stored) and here.issuperset(stored)
        return "" if is_here else "the metastore is a new one"
    if kept.created_ms > record.created_ms:
        return "the metastore is from before the table was created"
    if kept.created_ms == record.created_ms and kept.epoch > view.epoch:
        return "the metastore is older than the table's files"
    return ""


def _stored(kept: CatalogRecord) -> Iterator[SegmentRecord]:
    """Segments that have files."""
    yield from kept.records
    yield from (one for one in kept.stream_segments if not one.is_open)


def catalog_of(own_id: str, record: TableRecord, view: TableView, stream: StreamStateRecord | None) -> CatalogRecord:
    """Write down what a table has now. stream: the state of its stream; None if it has none."""
    unmarked = [
        one.model_copy(update={"replaces": "", "replaced_by": ""}) if one.replaces or one.replaced_by else one
        for one in _with_origins(view)
    ]
    return CatalogRecord(**_head(own_id, record, view, stream), **_sorted_out(unmarked), edition=secrets.token_hex(8))


def changes_of(
    own_id: str, record: TableRecord, view: TableView, stream: StreamStateRecord | None, edition: str, changes: Changes
) -> CatalogChanges:
    """Write down what has changed since the whole catalog of an edition, and how things are now."""
    removed = tuple(name for name, one in changes.items() if one is None)
    parts = _sorted_out([one for one in changes.values() if one is not None])
    return CatalogChanges(**_head(own_id, record, view, stream), **parts, edition=edition, removed=removed)


def changes_between(old: TableView, new: TableView) -> Changes | None:
    """Return what to change in the catalog of a view to have that of another one; None if single records do not tell,
    since a replacement shows and hides segments, and changes what others are made of."""
    if old.lineage != new.lineage or old.root.num_buckets != new.root.num_buckets:
        return None
    differ = diff(old, new)
    found = {name: new.segment(name) for name in (*differ.changed, *differ.removed)}
    concerned = (*found.values(), *map(old.segment, found))
    if any(one is not None and (one.replaces or one.replaced_by) for one in concerned):
        return None
    return found


def are_few(changes: Changes, view: TableView) -> bool:
    """Say whether to write changes rather than the whole catalog: with this many, both cost as much in the long run."""
    return len(changes) <= max(FEW, math.isqrt(2 * len(view.segments)))


def _head(own_id: str, record: TableRecord, view: TableView, stream: StreamStateRecord | None) -> dict[str, Any]:
    """Members of a catalog beside its records."""
    return {
        "store_id": own_id,
        "created_ms": record.created_ms,
        "epoch": view.epoch,
        "num_segments": len(view.visible),
        "total_docs": view.total_docs,
        "has_stream": bool(view.stream_segments) or any(map(is_of_stream, view.visible.values())),
        "topic_id": "" if stream is None else stream.topic_id,
        "stream": stream,
    }


def _sorted_out(records: Collection[SegmentRecord]) -> dict[str, tuple[SegmentRecord, ...]]:
    return {
        "records": tuple(one for one in records if not isinstance(one, StreamSegmentRecord)),
        "stream_segments": tuple(one for one in records if isinstance(one, StreamSegmentRecord)),
    }


def _with_origins(view: TableView) -> list[SegmentRecord]:
    """Visible records, each with what it took the place of: a batch that runs again must not add it twice."""
    found = dict(view.segments)
    concerned: dict[str, set[str]] = defaultdict(set)
    for record in found.values():
        for entry in filter(None, (record.replaces, record.replaced_by)):
            concerned[entry].add(record.name)
    for entry, mark in sorted(view.lineage.items(), key=lambda one: one[1].since_ms):
        if mark.state is LineageState.COMPLETED:
            records = [found[name] for name in sorted(concerned[entry])]
            found |= {one.name: one for one in with_origins(view.table, entry, mark, records)}
    return [found[name] for name in view.visible]
