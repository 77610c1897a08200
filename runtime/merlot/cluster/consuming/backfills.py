"""Read and change the records of backfills of upsert tables.

There is one node per table. A change is computed from the record that was read. If the record has changed since, a
fenced write fails, and any other write is tried again with the present record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from merlot.cluster import paths
from merlot.cluster.backfill_record import BackfillRecord, BackfillStep
from merlot.cluster.consuming.pinned import pin
from merlot.cluster.consuming.recovery import without_expiry
from merlot.errors import ConflictError, InvalidInputError, NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Check, Create, Metastore, Op, Put
from merlot.spec.table import TableSpec
from merlot.spec.upserting import UpsertSpec


def find_backfill(metastore: Metastore, table: TableName) -> BackfillRecord | None:
    """Return the last backfill of a table; None if there was none."""
    path = paths.backfill(table)
    node = metastore.get(path)
    return None if node is None else BackfillRecord.from_bytes(node.data, path)


Change = Callable[[BackfillRecord | None], BackfillRecord | None]


def change_backfill(
    metastore: Metastore, table: TableName, change: Change, fence: Check | None = None
) -> BackfillRecord | None:
    """Write `change(record)` unless it is None or the same record, and return the record that is stored then. `change`
    is pure.

    With a fence, raise ConflictError or NotFoundError if the fence is lost or the record has changed meanwhile."""
    path = paths.backfill(table)
    while True:
        node = metastore.get(path)
        before = None if node is None else BackfillRecord.from_bytes(node.data, path)
        after = change(before)
        if after is None or after == before:
            return before
        try:
            _write(metastore, path, None if node is None else node.version, after.to_bytes(), fence)
        except (ConflictError, NotFoundError):
            if fence is not None:
                raise
            continue
        return after


def _write(metastore: Metastore, path: str, version: int | None, data: bytes, fence: Check | None) -> None:
    ops: list[Op] = [] if fence is None else [fence]
    metastore.multi([*ops, Create(path, data) if version is None else Put(path, data, version)])


def begun(
    before: BackfillRecord | None,
    name: str,
    now_ms: int,
    *,
    offsets: Mapping[int, int] | None,
    ignores_memory: bool = False,
    is_declared: bool = False,
) -> BackfillRecord:
    """Return a new backfill, or the backfill of this name if it is under way. Raise InvalidInputError while another
    backfill is under way."""
    if before is not None and not before.is_over:
        if before.name == name:
            return before
        raise InvalidInputError(f"another backfill is under way name={before.name} step={before.step}")
    return BackfillRecord(
        name=name,
        begun_ms=now_ms,
        since_ms=now_ms,
        offsets=offsets,
        ignores_memory=ignores_memory,
        is_declared=is_declared,
        recovered=0 if before is None else before.recovered,
    )


def cancelled(record: BackfillRecord, now_ms: int) -> BackfillRecord:
    """Return the backfill as cancelled: nothing more is loaded and keys expire again. Recovered keys, and rows that
    were read, stay."""
    if not record.keeps_keys:
        return record
    return record.model_copy(
        update={"step": BackfillStep.ENABLE_TTL, "since_ms": now_ms, "is_cancelled": True, "message": ""}
    )


def mark_loaded(record: BackfillRecord, now_ms: int) -> BackfillRecord:
    """Note that all rows to load have been produced. A backfill that reads the stream again needs no such note."""
    return record if record.loaded_ms else record.model_copy(update={"loaded_ms": now_ms})


def pinned_of(table: TableSpec, upsert: UpsertSpec | None, record: BackfillRecord | None) -> str:
    """Return the settings that a table's segments must have, during a backfill too."""
    if upsert is None or record is None:
        return pin(table, upsert)
    return pin(table, without_expiry(upsert) if record.keeps_keys else upsert, record.recovered)
