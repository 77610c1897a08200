"""Registry of indexes by name: those that `spec.indexing.IndexingSpec` declares, each in the module of its name."""

from importlib import import_module
from typing import Final

from merlot.segment.index.kind import AnyIndex
from merlot.segment.metadata import ColumnMetadata
from merlot.spec.indexing import INDEX_KINDS


def _load(name: str) -> AnyIndex:
    index: AnyIndex = import_module(f"merlot.segment.index.{name}").INDEX
    assert index.name == name
    assert all(buffer.startswith(f"{name}.") for buffer in index.buffers)
    return index


INDEXES: Final[dict[str, AnyIndex]] = {name: _load(name) for name in INDEX_KINDS}
BUFFERS: Final = frozenset(buffer for index in INDEXES.values() for buffer in index.buffers)
"""Names of the buffers of all indexes."""
SEARCHES: Final = frozenset(function for index in INDEXES.values() for function in index.searches)
"""Functions that look inside values and that an index may answer."""
_OF: Final = {buffer: index for index in INDEXES.values() for buffer in index.buffers}
_PLAIN: Final = ("dict.", "zones.", *(f"{name}." for name in INDEXES))


def is_plain(buffer: str) -> bool:
    """Return True if a buffer is never compressed, because single values are read from it: those of dictionaries, zone
    maps and indexes."""
    return buffer.startswith(_PLAIN)


def indexes_in(column: ColumnMetadata) -> tuple[AnyIndex, ...]:
    """Return the indexes of which a column has at least one buffer."""
    if BUFFERS.isdisjoint(column.buffers):
        return ()
    return tuple({_OF[buffer].name: _OF[buffer] for buffer in column.buffers if buffer in BUFFERS}.values())
