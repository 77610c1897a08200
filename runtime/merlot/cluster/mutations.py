"""The one way to change a table's segments: mutations with preconditions, applied by one compare-and-set loop.

A write puts new buckets where no reader looks and then swaps the root. Whatever fits one transaction goes in one.
Crashing before the swap leaves buckets that no root names (`sweep` deletes them), after it nothing to repair.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import assert_never

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.metastore import Check, Create, Metastore, Op, Put
from merlot.cluster.records import RootRecord, SegmentRecord, TrashRecord
from merlot.cluster.view import Bucket, TableView, bucket_of, load, load_root
from merlot.errors import ConflictError, MerlotError, NotFoundError
from merlot.ids import InstanceId, SegmentKey, TableName

_LOG = logging.getLogger(__name__)
_TURNS: weakref.WeakKeyDictionary[Metastore, dict[TableName, threading.Lock]] = weakref.WeakKeyDictionary()
_TURNS_LOCK = threading.Lock()

TURN_TIMEOUT_S = 1.0

MAX_BUCKET_BYTES = 256 * 1024
"""A bucket that outgrows this doubles their number, far below what a znode takes."""

MAX_MULTI_BYTES = 512 * 1024
"""What one transaction carries; more is staged in several before the root is swapped."""

RING_LENGTH = 16
RING_NAMES = 8
TRASH_URLS = 2000


@dataclass(frozen=True, slots=True)
class PutSegments:
    """Add records, or replace those of the same names. `expected`: the crc that a name must have now, None = absent."""

    records: tuple[SegmentRecord, ...]
    expected: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveSegments:
    """Remove these versions. A name that is gone already is fine; one with another crc is a conflict."""

    keys: tuple[SegmentKey, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Replace the servers of these segments, all of which must exist."""

    instances: Mapping[str, tuple[InstanceId, ...]]


Mutation = PutSegments | RemoveSegments | Assign
Decide = Callable[[TableView], Sequence[Mutation]]


class PreconditionError(ConflictError):
    """A mutation expects what is not so: whoever decided it has to look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to fight for a root: with n writers each loses n-1 times in the worst case."""

    attempts: int = 1000
    first_delay_s: float = 0.002
    max_delay_s: float = 0.25

    def delay_s(self, attempt: int, random_share: float) -> float:
        """Full jitter: 0 to an exponentially growing bound."""
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** min(attempt, 20)) * random_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a write takes from outside: time, randomness, patience, a name for the ring."""

    clock: Clock = field(default_factory=SystemClock)
    nonce: Callable[[], str] = lambda: secrets.token_hex(5)
    random: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    publish_id: str | None = None


_DEFAULT_CONTEXT = Context()


def mutate(
    metastore: Metastore,
    table: TableName,
    decide: Decide,
    fence: Check | None = None,
    *,
    previous: TableView | None = None,
    context: Context = _DEFAULT_CONTEXT,
) -> TableView:
    """Apply what `decide` makes of the current view, deciding again whenever another writer was first.

    `fence` fails the write once the lease behind it is lost. Nothing to do writes nothing. Raises NotFoundError for a
    missing table, PreconditionError from a mutation, ConflictError for a lost fence or after too many attempts.
    """
    view = previous
    for attempt in range(context.retry.attempts):
        with _turn(metastore, table):
            view = load(metastore, table, view)
            changed = apply(view, decide(view))
            if changed is None:
                return view
            try:
                return _commit(metastore, view, changed, fence, context)
            except ConflictError:
                _check_fence(metastore, fence)
        context.sleep(context.retry.delay_s(attempt, context.random()))
    raise ConflictError(f"segments are written by too many at once table={table} attempts={context.retry.attempts}")


@contextmanager
def _turn(metastore: Metastore, table: TableName) -> Iterator[None]:
    """Let the writers of one session queue instead of racing: a hundred of them took 7.6 s of retries, 1 s in turn.

    A courtesy, not a lock that anything relies on: whoever waits too long goes ahead.
    """
    with _TURNS_LOCK:
        turn = _TURNS.setdefault(metastore, {}).setdefault(table, threading.Lock())
    has_turn = turn.acquire(timeout=TURN_TIMEOUT_S)
    try:
        yield
    finally:
        if has_turn:
            turn.release()


@dataclass(frozen=True, slots=True)
class Changed:
    """The contents that a write has to make visible: new content of the touched buckets, and whom it concerns."""

    buckets: Mapping[int, Bucket]
    names: tuple[str, ...]
    dropped_urls: tuple[str, ...]


def apply(view: TableView, mutations: Sequence[Mutation]) -> Changed | None:
    """The view's contents after the mutations, in order; None if nothing changes. Pure."""
    draft = _Draft(view)
    for mutation in mutations:
        match mutation:
            case PutSegments():
                draft.put(mutation)
            case RemoveSegments():
                draft.remove(mutation)
            case Assign():
                draft.assign(mutation)
            case _:
                assert_never(mutation)
    return draft.finish()


class _Draft:
    """Copies of the buckets that mutations touch."""

    def __init__(self, view: TableView) -> None:
        self._view = view
        self._buckets: dict[int, tuple[dict[str, SegmentRecord], dict[str, tuple[InstanceId, ...]]]] = {}
        self._names: dict[str, None] = {}

    def put(self, mutation: PutSegments) -> None:
        for name, crc in mutation.expected.items():
            self._expect(name, crc)
        for record in mutation.records:
            segments, _ = self._bucket(record.name)
            if segments.get(record.name) != record:
                segments[record.name] = record
                self._names[record.name] = None

    def remove(self, mutation: RemoveSegments) -> None:
        for key in mutation.keys:
            segments, assignment = self._bucket(key.name)
            if key.name not in segments:
                continue
            self._expect(key.name, key.crc)
            del segments[key.name]
            assignment.pop(key.name, None)
            self._names[key.name] = None

    def assign(self, mutation: Assign) -> None:
        for name, instances in mutation.instances.items():
            segments, assignment = self._bucket(name)
            if name not in segments:
                raise PreconditionError(f"segment to assign does not exist segment={name}")
            if assignment.get(name, ()) != instances:
                assignment[name] = instances
                self._names[name] = None

    def finish(self) -> Changed | None:
        if not self._names:
            return None
        touched = {bucket_of(name, self._view.root.num_buckets) for name in self._names}
        buckets = {number: Bucket("", *self._buckets[number]) for number in sorted(touched)}
        return Changed(buckets, tuple(self._names), self._dropped_urls())

    def _dropped_urls(self) -> tuple[str, ...]:
        kept = {self._bucket(name)[0][name].url for name in self._names if name in self._bucket(name)[0]}
        old = (self._view.segment(name) for name in self._names)
        return tuple(record.url for record in old if record is not None and record.url and record.url not in kept)

    def _expect(self, name: str, crc: int | None) -> None:
        segment = self._bucket(name)[0].get(name)
        got = None if segment is None else segment.crc
        if got != crc:
            raise PreconditionError(f"segment has changed segment={name} expected={crc} got={got}")

    def _bucket(self, name: str) -> tuple[dict[str, SegmentRecord], dict[str, tuple[InstanceId, ...]]]:
        number = bucket_of(name, self._view.root.num_buckets)
        if number not in self._buckets:
            bucket = self._view.buckets.get(number)
            self._buckets[number] = ({}, {}) if bucket is None else (dict(bucket.segments), dict(bucket.assignment))
        return self._buckets[number]


def _commit(
    metastore: Metastore, view: TableView, changed: Changed, fence: Check | None, context: Context
) -> TableView:
    """Stage what does not fit, swap the root, delete what retired long ago."""
    written = _write_plan(view, changed, context)
    swap: list[Op] = [Put(paths.segments_root(view.table), written.root.to_bytes(), view.version)]
    if fence is not None:
        swap.insert(0, fence)
    creates = [Create(path, data) for path, data in written.nodes.items()]
    if sum(len(create.data) for create in creates) <= MAX_MULTI_BYTES:
        metastore.multi([*creates, *swap])
    else:
        _stage_and_swap(metastore, creates, swap)
    for name in written.expired:
        _delete_quietly(metastore, paths.child(paths.segments_root(view.table), name))
    return TableView(view.table, written.root, view.version + 1, written.buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WritePlan:
    root: RootRecord
    buckets: Mapping[int, Bucket]
    nodes: Mapping[str, bytes]
    expired: tuple[str, ...]


def _write_plan(view: TableView, changed: Changed, context: Context) -> _WritePlan:
    content_id = f"{view.epoch + 1}.{context.nonce()}"
    num_buckets = view.root.num_buckets
    touched = changed.buckets
    encoded = {number: bucket.to_record().to_bytes() for number, bucket in touched.items()}
    while max(map(len, encoded.values())) > MAX_BUCKET_BYTES:
        num_buckets *= 2
        touched = _rebucket({**view.buckets, **changed.buckets}.values(), num_buckets)
        encoded = {number: bucket.to_record().to_bytes() for number, bucket in touched.items()}
    is_regrown = num_buckets != view.root.num_buckets
    kept = {} if is_regrown else {number: one for number, one in view.buckets.items() if number not in touched}
    filled = {number: replace(bucket, content_id=content_id) for number, bucket in touched.items() if bucket.segments}
    buckets = {**kept, **filled}
    root, expired = _next_root(view, buckets, changed, num_buckets, context.publish_id)
    nodes = {paths.segment_bucket(view.table, number, content_id): encoded[number] for number in filled}
    nodes |= trash_nodes(view.table, content_id, changed.dropped_urls, context.clock)
    return _WritePlan(root=root, buckets=buckets, nodes=nodes, expired=expired)


def _next_root(
    view: TableView, buckets: Mapping[int, Bucket], changed: Changed, num_buckets: int, publish_id: str | None
) -> tuple[RootRecord, tuple[str, ...]]:
    """The root after this, and the retired buckets that nobody can be reading any more."""
    epoch = view.epoch + 1
    is_bulk = publish_id is not None or len(changed.names) > RING_NAMES
    what = (f"bulk:{publish_id or epoch}",) if is_bulk else changed.names
    names = {number: bucket.content_id for number, bucket in buckets.items()}
    gone = [f"{number}-{old}" for number, old in view.root.buckets.items() if names.get(number) != old]
    retired = (*view.root.retired, *gone)
    num_expired = max(0, len(retired) - 2 * num_buckets)
    update = {
        "epoch": epoch,
        "num_buckets": num_buckets,
        "buckets": names,
        "ring": (*view.root.ring, (epoch, what))[-RING_LENGTH:],
        "retired": retired[num_expired:],
    }
    return view.root.model_copy(update=update), retired[:num_expired]


def _rebucket(buckets: Iterable[Bucket], num_buckets: int) -> dict[int, Bucket]:
    drafts: dict[int, tuple[dict[str, SegmentRecord], dict[str, tuple[InstanceId, ...]]]] = {}
    for bucket in buckets:
        for name, segment in bucket.segments.items():
            segments, assignment = drafts.setdefault(bucket_of(name, num_buckets), ({}, {}))
            segments[name] = segment
            if name in bucket.assignment:
                assignment[name] = bucket.assignment[name]
    return {number: Bucket("", *draft) for number, draft in drafts.items()}


def trash_nodes(
    table: TableName, content_id: str, urls: Sequence[str], clock: Clock, deep_store: str | None = None
) -> dict[str, bytes]:
    """Lists of files without a record, written in the same stroke, so that none is forgotten."""
    now_ms = clock.now_ms()
    chunks = [tuple(urls[start : start + TRASH_URLS]) for start in range(0, len(urls), TRASH_URLS)]
    return {
        paths.child(paths.trash(table), f"{content_id}-{number}"): TrashRecord(
            deleted_ms=now_ms, urls=chunk, deep_store=deep_store
        ).to_bytes()
        for number, chunk in enumerate(chunks)
    }


def _stage_and_swap(metastore: Metastore, creates: Sequence[Create], swap: Sequence[Op]) -> None:
    """Buckets first, in transactions that fit; then trash, which readers do look at, together with the root."""
    trash = [create for create in creates if create.path.startswith(paths.TRASH)]
    staged = [create for create in creates if not create.path.startswith(paths.TRASH)]
    try:
        for chunk in _chunks(staged):
            metastore.multi(chunk)
        metastore.multi([*trash, *swap])
    except ConflictError:
        for create in staged:
            _delete_quietly(metastore, create.path)
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


def sweep(metastore: Metastore, table: TableName) -> int:
    """Delete buckets that crashed writers left; returns how many.

    A content id tells the epoch it was meant for. Once the root is there, a bucket that it does not name never will be
    named, so it can go at once; one meant for the next epoch may belong to a write under way, and stays.
    """
    root, _ = load_root(metastore, table)
    named = {f"{number}-{content_id}" for number, content_id in root.buckets.items()} | set(root.retired)
    num_deleted = 0
    for name in metastore.children(paths.segments_root(table)):
        if name not in named and epoch_of_bucket(name) <= root.epoch:
            num_deleted += _delete_quietly(metastore, paths.child(paths.segments_root(table), name))
    return num_deleted


def epoch_of_bucket(bucket_name: str) -> int:
    """The epoch that a bucket was written for."""
    return int(bucket_name.partition("-")[2].partition(".")[0])


def _delete_quietly(metastore: Metastore, path: str) -> bool:
    """Delete what nobody reads; if it fails, `sweep` finds it later."""
    with suppress(NotFoundError):
        try:
            metastore.delete(path)
        except MerlotError as error:
            _LOG.warning("bucket not deleted path=%s cause=%s", path, error)
            return False
        return True
    return False


def _check_fence(metastore: Metastore, fence: Check | None) -> None:
    if fence is None:
        return
    node = metastore.get(fence.path)
    if node is None or node.version != fence.version:
        raise ConflictError(f"lease is lost path={fence.path} version={fence.version}")
