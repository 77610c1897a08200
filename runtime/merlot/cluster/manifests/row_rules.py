"""Refuses changes of the settings by which rows of an upsert table replace each other, whoever declares them: the table
itself or the UpsertConfig that it names. Blocks; any thread may call.

The settings in force are what is declared, as long as it fits the table. Where nothing does, since a document is gone
or fits no more, rows that are there remember by what they were decided: those of a stream in the record of their
segment, those of batches in the record of the table (`upserts.noting`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.consuming.recovery import read
from merlot.cluster.manifests import tables, upserts
from merlot.cluster.records import TableRecord
from merlot.cluster.segments.view import TableView, load, load_retained
from merlot.errors import NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.evolution import compare_compared, compare_upserts
from merlot.spec.manifest import Problem, from_stored
from merlot.spec.manifest.upsert_checks import Settings
from merlot.spec.table import Table, TableSpec
from merlot.spec.upsert import UpsertConfig
from merlot.spec.upserting import UpsertSpec


def changed(metastore: Metastore, table: TableName, new: TableSpec, upsert: UpsertSpec, path: str) -> list[Problem]:
    """List settings that would decide rows otherwise than those of the table, or of an earlier one of its name.

    new, upsert: the table and its upsert settings as they will be. path: of these settings, in the problems. Nothing if
    the table itself declares them before and after, which `evolution.compare` judges."""
    record = tables.find_table(metastore, table)
    old = _retained_spec(metastore, table) if record is None else tables.spec_of(record).spec
    if old is None or old.upsert is None or (old.upsert.config and new.upsert and new.upsert.config):
        return []
    before = _retained_by(metastore, table, old) if record is None else _decided_by(metastore, record, old)
    if before is None:
        return []
    return [*compare_upserts(before, upsert, path), *compare_compared(old, new, upsert)]


def stopped(metastore: Metastore, table: Table, settings: Settings) -> list[Problem]:
    """List why a table that is upserted could not be any more by these settings, which it declares or names from now
    on. Nothing of a new table, or of one that waits already: its documents may come in any order."""
    record = tables.find_table(metastore, table.name)
    if record is None or upserts.upserting_of(metastore, tables.spec_of(record).spec).spec is None:
        return []
    return settings.problems_of(table)


def changed_by(metastore: Metastore, config: UpsertConfig, but: Collection[TableName] = ()) -> list[Problem]:
    """List settings of an UpsertConfig that would decide rows otherwise than those of the tables that name it.

    but: tables that change with it, and are judged with it elsewhere."""
    problems = []
    for name, record in tables.list_tables(metastore).items():
        table = tables.spec_of(record)
        if name in but or table.spec.upsert is None or table.spec.upsert.config_ref != config.metadata.name:
            continue
        found = changed(metastore, name, table.spec, config.spec, "spec")
        problems += [Problem(one.path, f'table "{table.raw_name}": {one.message}') for one in found]
    return problems


def _retained_spec(metastore: Metastore, table: TableName) -> TableSpec | None:
    retained = tables.find_retained(metastore, table)
    return None if retained is None else from_stored(retained.manifest).spec


def _decided_by(metastore: Metastore, record: TableRecord, spec: TableSpec) -> UpsertSpec | None:
    """The settings in force, or those by which the rows that are there were decided."""
    in_force = upserts.upserting_of(metastore, spec).spec
    if in_force is not None:
        return in_force
    try:
        view = load(metastore, record.name)
    except NotFoundError:
        return None
    return _pinned(view) or (_noted(record.decided_by) if view.segments else None)


def _retained_by(metastore: Metastore, table: TableName, spec: TableSpec) -> UpsertSpec | None:
    """The settings of a table whose files were left: an UpsertConfig may have become another one since."""
    retained, view = tables.find_retained(metastore, table), load_retained(metastore, table)
    pinned = None if view is None else _pinned(view)
    noted = None if retained is None else _noted(retained.decided_by)
    return pinned or noted or upserts.upserting_of(metastore, spec).spec


def _pinned(view: TableView) -> UpsertSpec | None:
    pinned = [one for one in view.stream_segments if one.upsert]
    return unpin_upsert(max(pinned, key=lambda one: one.sequence).upsert) if pinned else None


def _noted(settings: Mapping[str, Any] | None) -> UpsertSpec | None:
    return None if settings is None else read(settings)
