"""Refuse changes of the settings by which rows of an upsert table replace each other. The table itself declares them,
or the UpsertConfig that it names. Calls block; any thread may call.

Declared settings are in force as long as they fit the table. If there are none, because a document is gone or no longer
fits, the settings that decided the present rows count. Rows of a stream have them in the record of their segment, rows
of batches in the record of the table (`upserts.noting`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.consuming.recovery import settings_of
from merlot.cluster.manifests import tables, upserts
from merlot.cluster.records import TableRecord
from merlot.cluster.segments.view import TableView, load, load_retained
from merlot.errors import NotFoundError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.evolution import compare_compared, compare_upserts
from merlot.spec.manifest import ManifestProblem, from_stored
from merlot.spec.manifest.upsert_checks import UpsertSettings
from merlot.spec.table import Table, TableSpec
from merlot.spec.upsert import UpsertConfig
from merlot.spec.upserting import UpsertSpec


def changed(
    metastore: Metastore, table: TableName, new: TableSpec, upsert: UpsertSpec, path: str
) -> list[ManifestProblem]:
    """List settings that would decide rows otherwise than those of the table, or of an earlier table of its name.

    `new`, `upsert`: the table and its upsert settings after the change. `path`: path of these settings in the problems.
    The list is empty if the table itself declares them before and after: `evolution.compare` judges those."""
    record = tables.find_table(metastore, table)
    old = _retained_spec(metastore, table) if record is None else tables.spec_of(record).spec
    if old is None or old.upsert is None or (old.upsert.config and new.upsert and new.upsert.config):
        return []
    before = _retained_by(metastore, table, old) if record is None else _decided_by(metastore, record, old)
    if before is None:
        return []
    return [*compare_upserts(before, upsert, path), *compare_compared(old, new, upsert)]


def stopped(metastore: Metastore, table: Table, settings: UpsertSettings) -> list[ManifestProblem]:
    """List why these settings, which an upsert table declares or names from now on, would stop it. The list is empty
    for a new table, and for a table that waits already: its documents may come in any order."""
    record = tables.find_table(metastore, table.name)
    if record is None or upserts.upserting_of(metastore, tables.spec_of(record).spec).spec is None:
        return []
    return settings.problems_of(table)


def changed_by(metastore: Metastore, config: UpsertConfig, but: Collection[TableName] = ()) -> list[ManifestProblem]:
    """List settings of an UpsertConfig that would decide rows otherwise than those of the tables that name it.

    `but`: tables that change with it, and are judged with it elsewhere."""
    problems = []
    for name, record in tables.list_tables(metastore).items():
        table = tables.spec_of(record)
        if name in but or table.spec.upsert is None or table.spec.upsert.config_ref != config.metadata.name:
            continue
        of_table = changed(metastore, name, table.spec, config.spec, "spec")
        problems += [
            ManifestProblem(problem.path, f'table "{table.raw_name}": {problem.message}') for problem in of_table
        ]
    return problems


def _retained_spec(metastore: Metastore, table: TableName) -> TableSpec | None:
    retained = tables.find_retained(metastore, table)
    return None if retained is None else from_stored(retained.manifest).spec


def _decided_by(metastore: Metastore, record: TableRecord, spec: TableSpec) -> UpsertSpec | None:
    """Return the settings in force, or those that decided the present rows."""
    in_force = upserts.upserting_of(metastore, spec).spec
    if in_force is not None:
        return in_force
    try:
        view = load(metastore, record.name)
    except NotFoundError:
        return None
    return _pinned(view) or (_noted(record.decided_by) if view.segments else None)


def _retained_by(metastore: Metastore, table: TableName, spec: TableSpec) -> UpsertSpec | None:
    """Return the settings of a table whose files were retained: the UpsertConfig may have changed since."""
    retained, view = tables.find_retained(metastore, table), load_retained(metastore, table)
    pinned = None if view is None else _pinned(view)
    noted = None if retained is None else _noted(retained.decided_by)
    return pinned or noted or upserts.upserting_of(metastore, spec).spec


def _pinned(view: TableView) -> UpsertSpec | None:
    pinned = [segment for segment in view.stream_segments if segment.upsert]
    return unpin_upsert(max(pinned, key=lambda segment: segment.sequence).upsert) if pinned else None


def _noted(settings: Mapping[str, Any] | None) -> UpsertSpec | None:
    return None if settings is None else settings_of(settings)
