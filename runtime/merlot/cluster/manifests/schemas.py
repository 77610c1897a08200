"""Schemas in Pinot's form that were written apart from their tables: what a table config takes its columns from.

While a table of the name is there, its manifest says what the columns are; the schema written here is what is left when
the table goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merlot.cluster import paths
from merlot.cluster.records import ManifestRecord
from merlot.metastore.protocol import Create, Metastore, Put


class SchemaRecord(ManifestRecord):
    """Pinot's schema as it was last written; `manifest` is its JSON."""


def find_schema(metastore: Metastore, name: str) -> Mapping[str, Any] | None:
    """Pinot's JSON, or None."""
    path = paths.schema(name)
    node = metastore.get(path)
    return None if node is None else SchemaRecord.from_bytes(node.data, path).manifest


def schema_names(metastore: Metastore) -> frozenset[str]:
    """Of all schemas that were written apart."""
    return frozenset(metastore.children(paths.SCHEMAS))


def writing(metastore: Metastore, name: str, document: Mapping[str, Any], now_ms: int) -> Create | Put | None:
    """The operation that writes it; None if it is written already."""
    path = paths.schema(name)
    node = metastore.get(path)
    if node is None:
        record = SchemaRecord(name=name, revision=1, manifest=dict(document), created_ms=now_ms, updated_ms=now_ms)
        return Create(path, record.to_bytes())
    old = SchemaRecord.from_bytes(node.data, path)
    if old.manifest == document:
        return None
    update = {"revision": old.revision + 1, "manifest": dict(document), "updated_ms": now_ms}
    return Put(path, old.model_copy(update=update).to_bytes(), node.version)


def delete_schema(metastore: Metastore, name: str) -> None:
    """NotFoundError if there is none."""
    metastore.delete(paths.schema(name))
