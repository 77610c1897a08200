"""Schemas in Pinot's form that were written separately from their tables: a table config takes its columns from them.

While a table of the same name exists, its manifest defines the columns; this schema is what remains when the table is
deleted.
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
    """Return a schema's JSON in Pinot's form; None if there is no such schema."""
    path = paths.schema(name)
    node = metastore.get(path)
    return None if node is None else SchemaRecord.from_bytes(node.data, path).manifest


def schema_names(metastore: Metastore) -> frozenset[str]:
    """Return the names of all schemas that were written separately from a table."""
    return frozenset(metastore.children(paths.SCHEMAS))


def writing(metastore: Metastore, name: str, document: Mapping[str, Any], now_ms: int) -> Create | Put | None:
    """Return the operation that writes a schema; None if the stored schema is equal already."""
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
    """Delete a schema; raise NotFoundError if there is none."""
    metastore.delete(paths.schema(name))
