"""UpsertConfigs as applied: kept, revised and deleted. Nothing executes them in this version, as the record says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.metastore import Metastore
from merlot.cluster.records import Record
from merlot.cluster.tables import Outcome
from merlot.errors import ConflictError, NotFoundError
from merlot.spec.manifest import dump, from_stored
from merlot.spec.upsert import NOT_EXECUTED, UpsertConfig

_ATTEMPTS = 20


class UpsertRecord(Record):
    """An UpsertConfig as it was last applied."""

    name: str
    revision: int
    manifest: dict[str, Any]
    created_ms: int = -1
    updated_ms: int = -1
    note: str = ""
    """What the version that stored it does with it, in words."""


@dataclass(frozen=True, slots=True)
class AppliedUpsert:
    """The record after it was applied."""

    record: UpsertRecord
    outcome: Outcome


def put_upsert(metastore: Metastore, manifest: UpsertConfig, *, clock: Clock | None = None) -> UpsertRecord:
    """Create or change it."""
    return apply_upsert(metastore, manifest, clock=clock).record


def apply_upsert(metastore: Metastore, manifest: UpsertConfig, *, clock: Clock | None = None) -> AppliedUpsert:
    """As `put_upsert`, telling what it did. Rerunning it changes nothing."""
    now_ms = (clock or SystemClock()).now_ms()
    for _ in range(_ATTEMPTS):
        try:
            return _apply(metastore, manifest, now_ms)
        except (ConflictError, NotFoundError):
            continue
    raise ConflictError(f"UpsertConfig is applied by too many at once name={manifest.metadata.name}")


def check_upsert(metastore: Metastore, manifest: UpsertConfig) -> Outcome:
    """What applying would do, without doing it."""
    record = find_upsert(metastore, manifest.metadata.name)
    if record is None:
        return Outcome.CREATED
    return Outcome.UNCHANGED if record.manifest == dump(manifest) else Outcome.CONFIGURED


def find_upsert(metastore: Metastore, name: str) -> UpsertRecord | None:
    """The record of that name, or None."""
    path = paths.upsert_config(name)
    node = metastore.get(path)
    return None if node is None else UpsertRecord.from_bytes(node.data, path)


def get_upsert(metastore: Metastore, name: str) -> UpsertRecord:
    """As `find_upsert`, but raises NotFoundError."""
    record = find_upsert(metastore, name)
    if record is None:
        raise NotFoundError(f"UpsertConfig does not exist name={name}")
    return record


def list_upserts(metastore: Metastore) -> Mapping[str, UpsertRecord]:
    """All, by name."""
    names = metastore.children(paths.UPSERTS)
    config_paths = [paths.upsert_config(name) for name in names]
    return {
        name: UpsertRecord.from_bytes(node.data, path)
        for name, path, node in zip(names, config_paths, metastore.get_many(config_paths), strict=True)
        if node is not None
    }


def delete_upsert(metastore: Metastore, name: str) -> None:
    """Delete it; NotFoundError if there is none."""
    get_upsert(metastore, name)
    metastore.delete(paths.upsert_config(name))


def spec_of(record: UpsertRecord) -> UpsertConfig:
    """The manifest as models."""
    return from_stored(record.manifest, UpsertConfig)


def _apply(metastore: Metastore, manifest: UpsertConfig, now_ms: int) -> AppliedUpsert:
    name, document = manifest.metadata.name, dump(manifest)
    path = paths.upsert_config(name)
    node = metastore.get(path)
    if node is None:
        record = UpsertRecord(
            name=name, revision=1, manifest=document, created_ms=now_ms, updated_ms=now_ms, note=NOT_EXECUTED
        )
        metastore.create(path, record.to_bytes())
        return AppliedUpsert(record, Outcome.CREATED)
    record = UpsertRecord.from_bytes(node.data, path)
    if record.manifest == document:
        return AppliedUpsert(record, Outcome.UNCHANGED)
    update = {"revision": record.revision + 1, "manifest": document, "updated_ms": now_ms, "note": NOT_EXECUTED}
    changed = record.model_copy(update=update)
    metastore.put(path, changed.to_bytes(), node.version)
    return AppliedUpsert(changed, Outcome.CONFIGURED)
