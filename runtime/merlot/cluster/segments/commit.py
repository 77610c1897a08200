"""Make a draft visible: write new nodes that no reader looks at, then swap the root.

If all of it fits into one transaction, one transaction writes it. A crash before the swap leaves nodes that no root
names; `sweep` deletes them. After a crash that follows the swap there is nothing to repair.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.records import LineageMark, RootRecord, SegmentRecord, TrashRecord
from merlot.cluster.segments.draft import Changed
from merlot.cluster.segments.lineage_nodes import details_nodes
from merlot.cluster.segments.remnants import remnant_of
from merlot.cluster.segments.view import Bucket, TableView, bucket_of, share
from merlot.errors import ConflictError, InvalidInputError, MerlotError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Check, Create, Delete, Metastore, Op, Put

_LOG = logging.getLogger(__name__)

MAX_BUCKET_BYTES = 256 * 1024
"""Size of a bucket in bytes above which the number of buckets doubles, far below the limit of a znode."""

MAX_MULTI_BYTES = 512 * 1024
"""Maximum size of one transaction in bytes. Larger contents are staged in several transactions before the root is
swapped."""

MAX_DELETES = 500
"""Maximum number of deletions in one transaction."""

RING_LENGTH = 16
"""Number of recent changes that a root lists in its ring."""

RING_NAMES = 8
"""Maximum number of segments or entries that a change names in the ring. A change of more segments is named as bulk."""

TRASH_URLS = 2000
"""Maximum number of files that one node of the trash lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRetries:
    """Retries of a writer that lost the race for a root: of n writers, each loses n-1 times in the worst case."""

    attempts: int = 1000
    first_delay_s: float = 0.002
    max_delay_s: float = 0.25

    def delay_s(self, attempt: int, random_share: float) -> float:
        """Return the wait after an attempt: full jitter, from 0 to an exponentially growing bound."""
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** min(attempt, 20)) * random_share


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """Dependencies of a write: clock, randomness, sleeping and retries."""

    clock: Clock = field(default_factory=SystemClock)
    nonce: Callable[[], str] = lambda: secrets.token_hex(5)
    random: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep
    retry: WriteRetries = field(default_factory=WriteRetries)
    publish_id: str | None = None
    """Name of this change in the root's ring, as a bulk change. None: the ring names the segments, if they are few."""


def commit(
    metastore: Metastore, view: TableView, changed: Changed, checks: Sequence[Check], context: WriteContext
) -> TableView:
    """Write the new nodes, swap the root, delete nodes that retired long ago, and return the new view.

    Nodes that do not fit into one transaction are staged first."""
    plan = _write_plan(view, changed, context)
    swap: list[Op] = [*checks, Put(paths.segments_root(view.table), plan.root.to_bytes(), view.version)]
    creates = [Create(path, data) for path, data in plan.nodes.items()]
    if sum(len(op.data) for op in (*creates, *swap) if isinstance(op, Create | Put)) <= MAX_MULTI_BYTES:
        metastore.multi([*creates, *swap])
    else:
        _stage_and_swap(metastore, creates, swap)
    buckets = share(metastore, view.table, plan.buckets)
    delete_quietly(metastore, plan.expired)
    return TableView(view.table, plan.root, view.version + 1, buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WritePlan:
    """Root and nodes that a commit writes, and nodes that it may delete."""

    root: RootRecord
    buckets: Mapping[int, Bucket]
    """All buckets of the new root, by number."""
    nodes: Mapping[str, bytes]
    """Contents of the new nodes, by path."""
    expired: tuple[str, ...]
    """Paths of old nodes to delete after the swap. A reader that misses one reads the root again."""


def _write_plan(view: TableView, changed: Changed, context: WriteContext) -> _WritePlan:
    content_id = f"{view.epoch + 1}.{context.nonce()}"
    num_buckets = view.root.num_buckets
    touched = changed.buckets
    records = {number: bucket.to_record() for number, bucket in touched.items()}
    encoded = {number: record.to_bytes() for number, record in records.items()}
    while large := {number: len(data) for number, data in encoded.items() if len(data) > MAX_BUCKET_BYTES}:
        for number, num_bytes in large.items():
            _check_divisible(touched[number], num_bytes)
        num_buckets *= 2
        touched = _rebucket({**view.buckets, **changed.buckets}.values(), num_buckets)
        records = {number: bucket.to_record() for number, bucket in touched.items()}
        encoded = {number: record.to_bytes() for number, record in records.items()}
    is_rebucketed = num_buckets != view.root.num_buckets
    unchanged = (
        {} if is_rebucketed else {number: bucket for number, bucket in view.buckets.items() if number not in touched}
    )
    # Rebuilt from the records, in the order in which readers would decode them: all readers of the session share these
    # objects.
    filled = {number: Bucket.of(content_id, records[number]) for number, bucket in touched.items() if bucket.segments}
    buckets = {**unchanged, **filled}
    lineage = {
        entry: mark._replace(details=content_id) if entry in changed.details else mark
        for entry, mark in changed.lineage.items()
    }
    root, retired = _next_root(view, buckets, changed, num_buckets, context.publish_id)
    boundary_ms, moved_ms = changed.time_boundary
    update = {"lineage": lineage, "time_boundary_ms": boundary_ms, "time_boundary_moved_ms": moved_ms}
    root = root.model_copy(update=update)
    nodes = {paths.segment_bucket(view.table, number, content_id): encoded[number] for number in filled}
    for entry, details in changed.details.items():
        nodes |= details_nodes(view.table, entry, content_id, details)
    nodes |= _trash(view.table, content_id, changed.dropped, context.clock)
    expired = [paths.child(paths.segments_root(view.table), name) for name in retired]
    expired += [
        paths.lineage_entry(view.table, entry, mark.details)
        for entry, mark in view.root.lineage.items()
        if entry not in lineage or lineage[entry].details != mark.details
    ]
    return _WritePlan(root=root, buckets=buckets, nodes=nodes, expired=tuple(expired))


def _next_root(
    view: TableView, buckets: Mapping[int, Bucket], changed: Changed, num_buckets: int, publish_id: str | None
) -> tuple[RootRecord, tuple[str, ...]]:
    """Return the next root, and the retired buckets to delete: all but the last `2 * num_buckets`, which readers of a
    recent root may still need."""
    epoch = view.epoch + 1
    is_bulk = publish_id is not None or len(changed.names) > RING_NAMES
    names = (
        (f"bulk:{publish_id or epoch}",) if is_bulk else changed.names or _entry_names(view.lineage, changed.lineage)
    )
    content_ids = {number: bucket.content_id for number, bucket in buckets.items()}
    newly_retired = [f"{number}-{old}" for number, old in view.root.buckets.items() if content_ids.get(number) != old]
    retired = (*view.root.retired, *newly_retired)
    num_expired = max(0, len(retired) - 2 * num_buckets)
    update = {
        "epoch": epoch,
        "num_buckets": num_buckets,
        "buckets": content_ids,
        "ring": (*view.root.ring, (epoch, names))[-RING_LENGTH:],
        "retired": retired[num_expired:],
    }
    return view.root.model_copy(update=update), retired[:num_expired]


def _entry_names(old: Mapping[str, LineageMark], new: Mapping[str, LineageMark]) -> tuple[str, ...]:
    """Return the ring's names for a change of the lineage alone."""
    entries = [entry for entry in {**old, **new} if old.get(entry) != new.get(entry)]
    return tuple(f"entry:{entry}" for entry in entries[:RING_NAMES])


def _rebucket(buckets: Iterable[Bucket], num_buckets: int) -> dict[int, Bucket]:
    drafts: dict[int, tuple[dict[str, SegmentRecord], dict[str, tuple[InstanceId, ...]]]] = {}
    for bucket in buckets:
        for name, segment in bucket.segments.items():
            segments, assignment = drafts.setdefault(bucket_of(name, num_buckets), ({}, {}))
            segments[name] = segment
            if name in bucket.assignment:
                assignment[name] = bucket.assignment[name]
    return {number: Bucket("", *draft) for number, draft in drafts.items()}


def _check_divisible(bucket: Bucket, num_bytes: int) -> None:
    """Raise InvalidInputError if the bucket holds a single segment: more buckets make it no smaller."""
    if len(bucket.segments) == 1:
        raise InvalidInputError(
            f"record of a segment is too large, remove entries of its customMap, ranges or blooms "
            f"segment={next(iter(bucket.segments))} bytes={num_bytes} most={MAX_BUCKET_BYTES}"
        )


def _trash(table: TableName, content_id: str, dropped: Sequence[SegmentRecord], clock: Clock) -> dict[str, bytes]:
    """Return the nodes that list the dropped files, with the remnants of their records.

    If the nodes are too large for one transaction, the remnants are left out. The removal of a stream's segments
    succeeds then, but they cannot be restored."""
    files = TrashRecord(deleted_ms=clock.now_ms(), urls=tuple(record.url for record in dropped))
    remnants = {position: dict(remnant_of(record)) for position, record in enumerate(dropped)}
    nodes = trash_nodes(table, content_id, files.model_copy(update={"remnants": remnants}))
    is_too_much = sum(map(len, nodes.values())) > MAX_MULTI_BYTES
    return trash_nodes(table, content_id, files) if is_too_much else nodes


def trash_nodes(table: TableName, content_id: str, files: TrashRecord) -> dict[str, bytes]:
    """Return the nodes that list files without a record, by path. Write them in the transaction that swaps the root, so
    that no file is forgotten."""
    nodes = {}
    for number, start in enumerate(range(0, len(files.urls), TRASH_URLS)):
        positions = range(start, min(start + TRASH_URLS, len(files.urls)))
        remnants = {position - start: files.remnants[position] for position in positions if position in files.remnants}
        part = files.model_copy(
            update={"urls": tuple(files.urls[position] for position in positions), "remnants": remnants}
        )
        nodes[paths.child(paths.trash(table), f"{content_id}-{number}")] = part.to_bytes()
    return nodes


def _stage_and_swap(metastore: Metastore, creates: Sequence[Create], swap: Sequence[Op]) -> None:
    """Write buckets and details of the lineage first, in transactions that fit. Then write the trash, which is read
    without the root, together with the root."""
    trash = [create for create in creates if create.path.startswith(paths.TRASH)]
    staged = [create for create in creates if not create.path.startswith(paths.TRASH)]
    try:
        for chunk in _chunks(staged):
            metastore.multi(chunk)
        metastore.multi([*trash, *swap])
    except ConflictError:
        delete_quietly(metastore, [create.path for create in staged])
        raise


def _chunks(creates: Sequence[Create]) -> Iterable[list[Op]]:
    chunk: list[Op] = []
    size = 0
    for create in creates:
        if chunk and size + len(create.data) > MAX_MULTI_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(create)
        size += len(create.data)
    if chunk:
        yield chunk


def delete_quietly(metastore: Metastore, unread: Sequence[str]) -> int:
    """Delete nodes that nobody reads, many at a time; return how many were deleted. If that fails, `sweep` finds the
    nodes later."""
    num_deleted = 0
    for start in range(0, len(unread), MAX_DELETES):
        batch = unread[start : start + MAX_DELETES]
        try:
            metastore.multi([Delete(path) for path in batch])
            num_deleted += len(batch)
        except ConflictError:
            # One of the nodes is gone already.
            num_deleted += sum(_delete_one_quietly(metastore, path) for path in batch)
        except MerlotError as error:
            _LOG.warning("buckets not deleted num_buckets=%d cause=%s", len(batch), error)
    return num_deleted


def _delete_one_quietly(metastore: Metastore, path: str) -> bool:
    with suppress(NotFoundError):
        try:
            metastore.delete(path)
        except MerlotError as error:
            _LOG.warning("bucket not deleted path=%s cause=%s", path, error)
            return False
        return True
    return False
