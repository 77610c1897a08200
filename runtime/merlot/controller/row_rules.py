"""Whether the settings by which rows of an upsert table replace each other stay, whoever declares them: the table
itself or the UpsertConfig that it names. Blocks; any thread may call."""

from __future__ import annotations

from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.manifests import tables, upserts
from merlot.cluster.segments.view import load, load_retained
from merlot.errors import NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.evolution import compare_compared, compare_upserts
from merlot.spec.manifest import Problem, from_stored
from merlot.spec.table import TableSpec
from merlot.spec.upserting import UpsertSpec


def changed(metastore: Metastore, table: TableName, new: TableSpec, upsert: UpsertSpec, path: str) -> list[Problem]:
    """List settings that would decide rows otherwise than those of the table, or of an earlier one of its name.

    new, upsert: the table and its upsert settings as they will be. path: of these settings, in the problems. Nothing if
    the table itself declares them before and after, which `evolution.compare` judges."""
    old = _spec_of(metastore, table)
    if old is None or old.upsert is None or (old.upsert.config and new.upsert and new.upsert.config):
        return []
    before = _decided_by(metastore, table, old)
    if before is None:
        return []
    return [*compare_upserts(before, upsert, path), *compare_compared(old, new, upsert)]


def _spec_of(metastore: Metastore, table: TableName) -> TableSpec | None:
    record = tables.find_table(metastore, table)
    if record is not None:
        return tables.spec_of(record).spec
    retained = tables.find_retained(metastore, table)
    return None if retained is None else from_stored(retained.manifest).spec


def _decided_by(metastore: Metastore, table: TableName, spec: TableSpec) -> UpsertSpec | None:
    """The settings as they are; if the UpsertConfig that declared them is gone, those of the newest segment."""
    if spec.upsert is None or spec.upsert.config is not None:
        return None if spec.upsert is None else spec.upsert.config
    record = None if spec.upsert.config_ref is None else upserts.find_upsert(metastore, spec.upsert.config_ref)
    return _pinned(metastore, table) if record is None else upserts.spec_of(record).spec


def _pinned(metastore: Metastore, table: TableName) -> UpsertSpec | None:
    try:
        view = load_retained(metastore, table) or load(metastore, table)
    except NotFoundError:
        return None
    pinned = [one for one in view.stream_segments if one.upsert]
    return unpin_upsert(max(pinned, key=lambda one: one.sequence).upsert) if pinned else None
