"""UpsertConfigs as applied: stored, revised and deleted; and the upsert settings that result for a table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.manifests.store import TABLES, ApplyOutcome, ApplyResult, Manifests
from merlot.cluster.records import ManifestRecord, TableRecord
from merlot.errors import ConflictError, NotFoundError
from merlot.metastore.protocol import Metastore, Watch
from merlot.spec.manifest import dump, from_stored
from merlot.spec.manifest.upsert_checks import against_table
from merlot.spec.table import TableSpec
from merlot.spec.upsert import BackfillSpec, UpsertConfig
from merlot.spec.upserting import UpsertSpec

_ATTEMPTS = 20


class UpsertRecord(ManifestRecord):
    """An UpsertConfig as it was last applied."""


UPSERTS = Manifests(kind="UpsertConfig", root=paths.UPSERTS, path=paths.upsert_config, record=UpsertRecord)

find_upsert = UPSERTS.find
get_upsert = UPSERTS.get
list_upserts = UPSERTS.all


def put_upsert(metastore: Metastore, manifest: UpsertConfig, *, clock: Clock | None = None) -> UpsertRecord:
    """Create or change an UpsertConfig."""
    return apply_upsert(metastore, manifest, clock=clock).record


def apply_upsert(
    metastore: Metastore, manifest: UpsertConfig, *, clock: Clock | None = None
) -> ApplyResult[UpsertRecord]:
    """Apply a manifest as `put_upsert` does, and return the outcome too. Running it again changes nothing."""
    now_ms = (clock or SystemClock()).now_ms()
    name, document = manifest.metadata.name, dump(manifest)

    def create() -> UpsertRecord:
        record = UpsertRecord(name=name, revision=1, manifest=document, created_ms=now_ms, updated_ms=now_ms)
        metastore.create(paths.upsert_config(name), record.to_bytes())
        return record

    def change(record: UpsertRecord, version: int) -> ApplyResult[UpsertRecord]:
        if record.manifest != document:
            _note_of_tables(metastore, name)
        return UPSERTS.revise(metastore, record, version, document, now_ms)

    return UPSERTS.apply(metastore, name, create, change)


def check_upsert(metastore: Metastore, manifest: UpsertConfig) -> ApplyOutcome:
    """Return what applying the manifest would do, without doing it."""
    record = find_upsert(metastore, manifest.metadata.name)
    if record is None:
        return ApplyOutcome.CREATED
    return ApplyOutcome.UNCHANGED if record.manifest == dump(manifest) else ApplyOutcome.CONFIGURED


def delete_upsert(metastore: Metastore, name: str) -> None:
    """Delete an UpsertConfig; raise NotFoundError if there is none. Tables note its settings, which later ones must
    agree with."""
    get_upsert(metastore, name)
    _note_of_tables(metastore, name)
    metastore.delete(paths.upsert_config(name))


def spec_of(record: UpsertRecord) -> UpsertConfig:
    """Return the manifest as models."""
    return from_stored(record.manifest, UpsertConfig)


def named_by(metastore: Metastore, table: TableSpec) -> UpsertConfig | None:
    """Return the UpsertConfig that a table names; None if it names none, or if the UpsertConfig does not exist."""
    name = None if table.upsert is None else table.upsert.config_ref
    record = None if name is None else find_upsert(metastore, name)
    return None if record is None else spec_of(record)


@dataclass(frozen=True, slots=True)
class Upserting:
    """Result of a table's spec.upsert."""

    spec: UpsertSpec | None = None
    """Settings in force; None if the table is no upsert table, or cannot be consumed yet."""
    waits_for: str = ""
    """Reason why nothing of the table is consumed."""
    revision: int = 0
    """Revision of the UpsertConfig that has the settings; 0 if the table has them."""
    backfill: BackfillSpec | None = None

    def backfill_of(self, table: str) -> BackfillSpec | None:
        """Return the declared backfill if it is for this table, else None."""
        return self.backfill if self.backfill is not None and self.backfill.table == table else None


def upserting_of(metastore: Metastore, table: TableSpec) -> Upserting:
    """Return how rows of a table replace each other, by the manifests that were applied last."""
    declared = table.upsert
    if declared is None:
        return Upserting()
    spec, name, revision, backfill = declared.config, declared.config_ref, 0, None
    if spec is None and name is not None:
        record = find_upsert(metastore, name)
        if record is None:
            return Upserting(waits_for=f'there is no UpsertConfig "{name}" yet')
        config = spec_of(record).spec
        spec, revision, backfill = config, record.revision, config.backfill
    if spec is None:
        return Upserting(waits_for="spec.upsert says nothing")
    problems = against_table(spec, table)
    if problems:
        return Upserting(waits_for="; ".join(map(str, problems)), revision=revision)
    return Upserting(spec, revision=revision, backfill=backfill)


class UpsertWatch:
    """Watch on the UpsertConfig that a table names. Used by one thread at a time."""

    def __init__(self, metastore: Metastore, wake: Callable[[], None]) -> None:
        self._metastore = metastore
        self._wake = wake
        self._name: str | None = None
        self._watch: Watch | None = None

    def follow(self, name: str | None) -> None:
        """Wake when the UpsertConfig of this name is created, changed or deleted; None: the table names none."""
        if name == self._name:
            return
        if self._watch is not None:
            self._watch.cancel()
        self._name = self._watch = None
        if name is not None:
            self._watch = self._metastore.watch(paths.upsert_config(name), self._wake)
        self._name = name


def noting(metastore: Metastore, record: TableRecord) -> TableRecord:
    """Return the record of a table that is about to change, with the settings that decide its rows until then."""
    declared = from_stored(record.manifest).spec
    spec = None if declared.upsert is None else upserting_of(metastore, declared).spec
    if spec is None:
        return record
    fields = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=set(UpsertSpec.model_fields))
    return record.model_copy(update={"decided_by": fields})


def _note_of_tables(metastore: Metastore, config: str) -> None:
    """Note the settings of an UpsertConfig, which are about to change or to go, in all tables that name it."""
    for name in TABLES.versions(metastore):
        for _ in range(_ATTEMPTS):
            node = metastore.get(paths.table_config(name))
            if node is None:
                break
            record = TABLES.read(name, node)
            declared = from_stored(record.manifest).spec.upsert
            noted = record if declared is None or declared.config_ref != config else noting(metastore, record)
            if noted == record:
                break
            with contextlib.suppress(ConflictError, NotFoundError):
                metastore.put(paths.table_config(name), noted.to_bytes(), node.version)
                break
        else:
            raise ConflictError(f"table is changed by too many at once table={name}")
