"""The one way to change a table's segments: mutations with preconditions, applied by one compare-and-set loop."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from merlot.cluster.segments.commit import WriteContext, WriteRetries, commit, trash_nodes
from merlot.cluster.segments.condemned import guard
from merlot.cluster.segments.draft import Changed, apply
from merlot.cluster.segments.mutations import (
    Assign,
    EndReplacement,
    ForgetReplacement,
    MoveTimeBoundary,
    Mutation,
    PreconditionError,
    PutOutputs,
    PutSegments,
    RemoveSegments,
    RevertReplacement,
    StartReplacement,
)
from merlot.cluster.segments.sweeping import epoch_of_bucket, sweep
from merlot.cluster.segments.view import TableView, load
from merlot.errors import ConflictError
from merlot.ids import TableName
from merlot.metastore.protocol import Check, Metastore

__all__ = [
    "Assign",
    "Changed",
    "Decide",
    "EndReplacement",
    "ForgetReplacement",
    "MoveTimeBoundary",
    "Mutation",
    "PreconditionError",
    "PutOutputs",
    "PutSegments",
    "RemoveSegments",
    "RevertReplacement",
    "StartReplacement",
    "WriteContext",
    "WriteRetries",
    "apply",
    "epoch_of_bucket",
    "mutate",
    "sweep",
    "trash_nodes",
]

_TURNS: weakref.WeakKeyDictionary[Metastore, dict[TableName, threading.Lock]] = weakref.WeakKeyDictionary()
_TURNS_LOCK = threading.Lock()

TURN_TIMEOUT_S = 1.0

Decide = Callable[[TableView], Sequence[Mutation]]

_DEFAULT_CONTEXT = WriteContext()


def mutate(
    metastore: Metastore,
    table: TableName,
    decide: Decide,
    fence: Check | None = None,
    *,
    previous: TableView | None = None,
    context: WriteContext = _DEFAULT_CONTEXT,
) -> TableView:
    """Apply the mutations that `decide` returns for the current view; decide again whenever another writer was first.

    `fence` fails the write once the lease behind it is lost. Without mutations nothing is written. Raise NotFoundError
    for a missing table, PreconditionError from a mutation, FileCondemnedError, and ConflictError for a lost fence or
    after too many attempts."""
    view = previous
    for attempt in range(context.retry.attempts):
        with _turn(metastore, table):
            view = load(metastore, table, view)
            changed = apply(view, decide(view))
            if changed is None:
                return view
            guards = [guard(metastore, table, changed.added_urls)] if changed.added_urls else []
            checks = guards if fence is None else [fence, *guards]
            try:
                return commit(metastore, view, changed, checks, context)
            except ConflictError:
                _check_fence(metastore, fence)
        context.sleep(context.retry.delay_s(attempt, context.random()))
    raise ConflictError(f"segments are written by too many at once table={table} attempts={context.retry.attempts}")


@contextmanager
def _turn(metastore: Metastore, table: TableName) -> Iterator[None]:
    """Let the writers of one session queue instead of racing: a hundred of them took 7.6 s of retries, 1 s in turn.

    Nothing relies on this lock: a writer that waits too long goes ahead."""
    with _TURNS_LOCK:
        turn = _TURNS.setdefault(metastore, {}).setdefault(table, threading.Lock())
    has_turn = turn.acquire(timeout=TURN_TIMEOUT_S)
    try:
        yield
    finally:
        if has_turn:
            turn.release()


def _check_fence(metastore: Metastore, fence: Check | None) -> None:
    if fence is None:
        return
    node = metastore.get(fence.path)
    if node is None or node.version != fence.version:
        raise ConflictError(f"lease is lost path={fence.path} version={fence.version}")
