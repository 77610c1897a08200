"""A table's catalog: how it is made from a view, and how it is brought up to date from one view to the next. Pure,
except that each whole catalog gets a random edition.

The module also decides whether a metastore contradicts a catalog, which means that it has lost something.
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
"""Number of records that may change before the whole catalog of a small table is written anew."""

Changes = Mapping[str, SegmentRecord | None]
"""Current records to write to the catalog, by segment name; None if the segment has left the table."""


def loss_reason(catalog: CatalogRecord | None, own_id: str, record: TableRecord, view: TableView) -> str:
    """Return why the metastore cannot be right about a table; empty if it may be."""
    if catalog is None or not catalog.num_segments:
        return ""
    if catalog.store_id != own_id:
        here = {segment.key for segment in view.segments.values()}
        stored = [segment.key for segment in _stored(catalog)]
        # A stream removes segments of the catalog, but it adds none to a new table before that table is confirmed.
        has_moved_on = catalog.has_stream and not record.is_unconfirmed
        is_here = bool(view.segments) if has_moved_on else bool(stored) and here.issuperset(stored)
        return "" if is_here else "the metastore is a new one"
    if catalog.created_ms > record.created_ms:
        return "the metastore is from before the table was created"
    if catalog.created_ms == record.created_ms and catalog.epoch > view.epoch:
        return "the metastore is older than the table's files"
    return ""


def _stored(catalog: CatalogRecord) -> Iterator[SegmentRecord]:
    """Yield the segments of a catalog that have files."""
    yield from catalog.records
    yield from (segment for segment in catalog.stream_segments if not segment.is_open)


def catalog_of(own_id: str, record: TableRecord, view: TableView, stream: StreamStateRecord | None) -> CatalogRecord:
    """Return a catalog of all that a table has now. stream: the state of its stream; None if it has none."""
    unmarked = [
        segment.model_copy(update={"replaces": "", "replaced_by": ""})
        if segment.replaces or segment.replaced_by
        else segment
        for segment in _with_origins(view)
    ]
    return CatalogRecord(**_head(own_id, record, view, stream), **_by_kind(unmarked), edition=secrets.token_hex(8))


def changes_of(
    own_id: str, record: TableRecord, view: TableView, stream: StreamStateRecord | None, edition: str, changes: Changes
) -> CatalogChanges:
    """Return what has changed since the whole catalog of an edition. changes: all changes since then."""
    removed = tuple(name for name, segment in changes.items() if segment is None)
    parts = _by_kind([segment for segment in changes.values() if segment is not None])
    return CatalogChanges(**_head(own_id, record, view, stream), **parts, edition=edition, removed=removed)


def changes_between(old: TableView, new: TableView) -> Changes | None:
    """Return the changes that lead from the catalog of one view to the catalog of another.

    Return None if changes of single records are not enough: a replacement shows and hides segments, and changes the
    origins of others."""
    if old.lineage != new.lineage or old.root.num_buckets != new.root.num_buckets:
        return None
    differ = diff(old, new)
    changes = {name: new.segment(name) for name in (*differ.changed, *differ.removed)}
    segments = (*changes.values(), *map(old.segment, changes))
    if any(segment is not None and (segment.replaces or segment.replaced_by) for segment in segments):
        return None
    return changes


def are_few(changes: Changes, view: TableView, always_few: int = FEW) -> bool:
    """Return True if the changes are to be written rather than the whole catalog. Up to `always_few` changes always
    are. Beyond the other limit, writing changes costs more than the whole catalog in the long run."""
    return len(changes) <= max(always_few, math.isqrt(2 * len(view.segments)))


def _head(own_id: str, record: TableRecord, view: TableView, stream: StreamStateRecord | None) -> dict[str, Any]:
    """Return the members of a catalog beside its records."""
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


def _by_kind(records: Collection[SegmentRecord]) -> dict[str, tuple[SegmentRecord, ...]]:
    return {
        "records": tuple(record for record in records if not isinstance(record, StreamSegmentRecord)),
        "stream_segments": tuple(record for record in records if isinstance(record, StreamSegmentRecord)),
    }


def _with_origins(view: TableView) -> list[SegmentRecord]:
    """Return the visible records with their origins, which keep a batch that runs again from adding its rows twice."""
    by_name = dict(view.segments)
    concerned: dict[str, set[str]] = defaultdict(set)
    for record in by_name.values():
        for entry in filter(None, (record.replaces, record.replaced_by)):
            concerned[entry].add(record.name)
    for entry, mark in sorted(view.lineage.items(), key=lambda item: item[1].since_ms):
        if mark.state is LineageState.COMPLETED:
            records = [by_name[name] for name in sorted(concerned[entry])]
            by_name |= {record.name: record for record in with_origins(view.table, entry, mark, records)}
    return [by_name[name] for name in view.visible]
