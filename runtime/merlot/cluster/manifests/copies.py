"""Copies of manifests, to lie in the deep store: who has the files of tables can declare these again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from merlot.cluster.manifests.rollups import ROLLUPS
from merlot.cluster.manifests.upserts import UPSERTS
from merlot.cluster.record import PackedRecord
from merlot.cluster.records import TableRecord
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest import from_stored


class ManifestsRecord(PackedRecord):
    """Manifests of a table, in a file of the deep store."""

    written_ms: int
    manifests: tuple[dict[str, Any], ...]
    """Documents in an order in which they can be applied: those that a table names, the table, and its merge task."""


def manifests_by_table(
    metastore: Metastore, records: Mapping[TableName, TableRecord]
) -> Mapping[TableName, tuple[dict[str, Any], ...]]:
    """Return the documents of `ManifestsRecord` for each table. Documents that cannot be read are left out."""
    upserts, _ = UPSERTS.readable(metastore)
    rollups: dict[TableName, list[dict[str, Any]]] = defaultdict(list)
    for rollup in ROLLUPS.readable(metastore)[0].values():
        rollups[rollup.table].append(rollup.manifest)
    return {
        name: (
            *(upserts[named].manifest for named in _names_of_upserts(record) if named in upserts),
            record.manifest,
            *rollups[name],
        )
        for name, record in records.items()
    }


def _names_of_upserts(record: TableRecord) -> Iterator[str]:
    upsert = from_stored(record.manifest).spec.upsert
    if upsert is not None and upsert.config_ref is not None:
        yield upsert.config_ref
