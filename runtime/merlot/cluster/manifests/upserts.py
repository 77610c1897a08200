"""UpsertConfigs as applied: kept, revised and deleted. Nothing executes them in this version, as the record says."""

from __future__ import annotations

from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.manifests.store import Applied, Manifests, Outcome
from merlot.cluster.records import ManifestRecord
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest import dump, from_stored
from merlot.spec.upsert import NOT_EXECUTED, UpsertConfig


class UpsertRecord(ManifestRecord):
    """An UpsertConfig as it was last applied."""

    note: str = ""
    """What the version that stored it does with it, in words."""


UPSERTS = Manifests(kind="UpsertConfig", root=paths.UPSERTS, path=paths.upsert_config, record=UpsertRecord)

find_upsert = UPSERTS.find
get_upsert = UPSERTS.get
list_upserts = UPSERTS.all


def put_upsert(metastore: Metastore, manifest: UpsertConfig, *, clock: Clock | None = None) -> UpsertRecord:
    """Create or change it."""
    return apply_upsert(metastore, manifest, clock=clock).record


def apply_upsert(metastore: Metastore, manifest: UpsertConfig, *, clock: Clock | None = None) -> Applied[UpsertRecord]:
    """As `put_upsert`, telling what it did. Rerunning it changes nothing."""
    now_ms = (clock or SystemClock()).now_ms()
    name, document = manifest.metadata.name, dump(manifest)

    def create() -> UpsertRecord:
        record = UpsertRecord(
            name=name, revision=1, manifest=document, created_ms=now_ms, updated_ms=now_ms, note=NOT_EXECUTED
        )
        metastore.create(paths.upsert_config(name), record.to_bytes())
        return record

    def change(record: UpsertRecord, version: int) -> Applied[UpsertRecord]:
        told = record.model_copy(update={"note": NOT_EXECUTED})
        return UPSERTS.revise(metastore, told, version, document, now_ms)

    return UPSERTS.apply(metastore, name, create, change)


def check_upsert(metastore: Metastore, manifest: UpsertConfig) -> Outcome:
    """What applying would do, without doing it."""
    record = find_upsert(metastore, manifest.metadata.name)
    if record is None:
        return Outcome.CREATED
    return Outcome.UNCHANGED if record.manifest == dump(manifest) else Outcome.CONFIGURED


def delete_upsert(metastore: Metastore, name: str) -> None:
    """Delete it; NotFoundError if there is none."""
    get_upsert(metastore, name)
    metastore.delete(paths.upsert_config(name))


def spec_of(record: UpsertRecord) -> UpsertConfig:
    """The manifest as models."""
    return from_stored(record.manifest, UpsertConfig)
