"""Where a table's catalog lies: in a folder of its own beside the segments' files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar, runtime_checkable

from merlot.cluster.losses import CatalogRecord
from merlot.errors import NotFoundError
from merlot.ids import TableName

T = TypeVar("T")

FOLDER: Final = "_catalog"
FILE: Final = "segments.json.z"


@runtime_checkable
class Shelf(Protocol):
    """The deep store, as far as catalogs need it."""

    def url_below(self, table: TableName, *names: str) -> str: ...
    def put(self, source: Path, url: str) -> None: ...
    def read(self, url: str, verify: Callable[[bytes], T]) -> T: ...
    def delete(self, url: str) -> None: ...


OpenShelf = Callable[[str | None], Shelf]
"""The deep store of a URI; None is the cluster's own."""


def read_catalog(shelf: Shelf, table: TableName) -> CatalogRecord | None:
    """The table's catalog; None if there is none, CorruptionError if it cannot be read."""
    url = shelf.url_below(table, FOLDER, FILE)
    try:
        return shelf.read(url, lambda data: CatalogRecord.from_bytes(bytes(data), url))
    except NotFoundError:
        return None


def write_catalog(shelf: Shelf, table: TableName, catalog: CatalogRecord) -> None:
    """Replace the table's catalog."""
    with tempfile.TemporaryDirectory(prefix="merlot-catalog-") as folder:
        path = Path(folder) / FILE
        path.write_bytes(catalog.to_bytes())
        shelf.put(path, shelf.url_below(table, FOLDER, FILE))


def delete_catalog(shelf: Shelf, table: TableName) -> None:
    """The table is gone, with its files."""
    shelf.delete(shelf.url_below(table, FOLDER, FILE))
