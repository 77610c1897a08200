"""Documents of a star-tree as the docs that operators read: dimensions are columns, aggregates are stored states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.read.columns import StatesOf
from merlot.segment.index.dict_ids import id_dtype
from merlot.segment.index.dictionary import ValueDictionary
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.zones import ZoneMaps
from merlot.segment.reader import EVERY_DOC, Reader, ValidDocs
from merlot.segment.startree.tree import Tree
from merlot.values.types import TypeName

Array = NDArray[Any]
Docs = NDArray[np.uint32]


class Dimensions(Protocol):
    """Columns of the segments that a tree was built from."""

    def reader(self, name: str) -> Reader: ...
    def bounds(self, name: str) -> tuple[int, int] | None: ...


class CodedDimension:
    """Reader of a column without nulls that has a dictionary, given the dict ids of its docs."""

    multi_value: Final = False
    nulls: NDArray[np.uint64] | None = None
    zones: ZoneMaps | None = None
    indexes: ColumnIndexes | None = None
    runs: NDArray[np.uint32] | None = None
    is_sorted: bool = False

    def __init__(self, type_: TypeName, dictionary: ValueDictionary, ids: Callable[[], Array]) -> None:
        self.type = type_
        self.dictionary: ValueDictionary | None = dictionary
        self.dict_ids = ids

    def values(self) -> Array:
        raise AssertionError("a dimension has a dictionary")

    def strings(self) -> pa.Array:
        raise AssertionError("a dimension has a dictionary")

    def offsets(self) -> NDArray[np.uint32]:
        raise AssertionError("a dimension has one value a document")


class DictionaryDocs:
    """Distinct values of a column, one doc for each: a filter over these docs returns the values that pass a
    predicate."""

    valid_docs: Final[ValidDocs] = EVERY_DOC
    stored_states: Final[Sequence[StatesOf] | None] = None

    def __init__(self, reader: Reader) -> None:
        assert reader.dictionary is not None
        self.num_docs = len(reader.dictionary)
        self._column = CodedDimension(reader.type, reader.dictionary, self._ids)
        self._column.is_sorted = True
        self._column.runs = np.arange(self.num_docs + 1, dtype=np.uint32)

    def reader(self, name: str) -> Reader:
        return self._column

    def bounds(self, name: str) -> tuple[int, int] | None:
        return None

    def _ids(self) -> Array:
        return np.arange(self.num_docs, dtype=id_dtype(self.num_docs))


class TreeDocs:
    """Documents of one tree, for one query. Only dimensions are columns. Any thread."""

    valid_docs: Final[ValidDocs] = EVERY_DOC

    def __init__(self, tree: Tree, dimensions: Dimensions, stored_states: Sequence[StatesOf]) -> None:
        self.tree = tree
        self.num_docs = tree.num_docs
        self.stored_states: Sequence[StatesOf] | None = stored_states
        self._dimensions = dimensions
        self._readers: dict[str, Reader] = {}

    def reader(self, name: str) -> Reader:
        column = self._readers.get(name)
        if column is None:
            position = self.tree.dimensions.index(name)
            stored = self._dimensions.reader(name)
            assert stored.dictionary is not None
            coded = CodedDimension(stored.type, stored.dictionary, lambda: self.tree.ids(position))
            column = self._readers.setdefault(name, coded)
        return column

    def bounds(self, name: str) -> tuple[int, int] | None:
        return self._dimensions.bounds(name)
