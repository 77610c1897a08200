"""Storage of a table's catalog: a folder of its own beside the segments' files."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar, runtime_checkable

from merlot.cluster.losses import CatalogChanges, CatalogRecord
from merlot.cluster.record import Record
from merlot.errors import CorruptionError, NotFoundError
from merlot.ids import TableName

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound=Record)

_LOG = logging.getLogger(__name__)

FOLDER: Final = "_catalog"
FILE: Final = "segments.json.z"
CHANGES_FILE: Final = "changes.json.z"


@runtime_checkable
class CatalogStore(Protocol):
    """The part of a deep store that catalogs need."""

    def url_below(self, table: TableName, *names: str) -> str: ...
    def put(self, source: Path, url: str) -> None: ...
    def read(self, url: str, verify: Callable[[bytes], T]) -> T: ...
    def delete(self, url: str) -> None: ...


OpenCatalogStore = Callable[[str | None], CatalogStore]
"""Function that opens the deep store of a URI. The URI None stands for the cluster's own deep store."""


def read_catalog(store: CatalogStore, table: TableName) -> CatalogRecord | None:
    """Return the table's catalog with its changes applied; None if there is none. Raise CorruptionError if it cannot be
    read."""
    whole = read_record(store, store.url_below(table, FOLDER, FILE), CatalogRecord)
    if whole is None or not whole.edition:
        return whole
    try:
        changes = read_record(store, store.url_below(table, FOLDER, CHANGES_FILE), CatalogChanges)
    except CorruptionError as error:
        _LOG.error("changes of a catalog cannot be read, an older state is taken table=%s cause=%s", table, error)
        return whole
    return whole if changes is None else changes.applied_to(whole)


def write_catalog(store: CatalogStore, table: TableName, catalog: CatalogRecord) -> None:
    """Replace the table's catalog. Changes recorded against the previous catalog no longer apply."""
    write_record(store, store.url_below(table, FOLDER, FILE), catalog)


def write_changes(store: CatalogStore, table: TableName, changes: CatalogChanges) -> None:
    """Replace the changes beside the table's catalog."""
    write_record(store, store.url_below(table, FOLDER, CHANGES_FILE), changes)


def delete_catalog(store: CatalogStore, table: TableName) -> None:
    """Delete the catalog of a table that is gone with its files."""
    for name in (CHANGES_FILE, FILE):
        store.delete(store.url_below(table, FOLDER, name))


def read_record(store: CatalogStore, url: str, kind: type[RecordT]) -> RecordT | None:
    """Return the record in a file; None if there is no such file. Raise CorruptionError if it cannot be read."""
    try:
        return store.read(url, lambda data: kind.from_bytes(bytes(data), url))
    except NotFoundError:
        return None


def write_record(store: CatalogStore, url: str, record: Record) -> None:
    """Replace the file by one that holds the record."""
    with tempfile.TemporaryDirectory(prefix="merlot-catalog-") as folder:
        path = Path(folder) / FILE
        path.write_bytes(record.to_bytes())
        store.put(path, url)
