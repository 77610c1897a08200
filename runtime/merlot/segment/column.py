"""One column of a sealed segment: the arrays that a query reads.

Arrays may be kept after the segment is closed. Whole-column methods return a read-only array: a mapped array if the
column is stored uncompressed, not packed and not as runs, else a decoded array, usually from `buffers.DECODE_CACHE`. A
segment keeps its readers until it is closed. A reader is safe on any thread: what it caches is idempotent.
"""

from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.segment.buffers import DECODE_CACHE, Array, MappedFile
from merlot.segment.index import dictionary, nulls, variable, zones
from merlot.segment.index.dict_ids import DictIds
from merlot.segment.index.dictionary import OrderedDictionary
from merlot.segment.index.kind import ColumnIndexes, Index, IndexPlace
from merlot.segment.index.multi_value import MultiValueOffsets
from merlot.segment.index.raw import RawValues
from merlot.segment.index.registry import indexes_in
from merlot.segment.index.zones import ZoneMaps
from merlot.segment.metadata import ColumnEncoding, ColumnMetadata
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled, scaled_of

R = TypeVar("R")

_NOTHING = np.zeros(0, np.int64)


class ColumnReader:
    """Reader of one column. A single-value column has one value per doc. For a multi-value column, whole-column methods
    return the values of all docs one after another, and `offsets` divides them."""

    def __init__(
        self, metadata: ColumnMetadata, num_docs: int, file: MappedFile, beside: IndexPlace | None = None
    ) -> None:
        """beside: indexes of the column in another file."""
        self._beside = beside
        self.metadata = metadata
        self.type: TypeName = metadata.type
        self.multi_value = metadata.multi_value
        self.num_docs = num_docs
        self.is_sorted = metadata.is_sorted and not metadata.multi_value
        """True if values ascend from doc to doc."""
        self._file = file
        self._has_good_strings = False
        self._scaling: Scaled | None = None
        """Scale and bounds, once computed. The values themselves may leave the cache meanwhile."""
        self._is_unscaled = False
        self._scaled_key = (file.owner, f"{metadata.name}/scaled")
        self._is_in_order = metadata.encoding is ColumnEncoding.DICTIONARY_RUNS

    @cached_property
    def dictionary(self) -> OrderedDictionary | None:
        """Values by dict id; None for a raw column."""
        if not self.metadata.encoding.has_dictionary:
            return None
        return dictionary.read(self.metadata, self._file)

    @cached_property
    def nulls(self) -> NDArray[np.uint64] | None:
        """Bit words, lowest bit first, 1 = null; None if no doc is null."""
        return nulls.read(self.metadata, self.num_docs, self._file)

    @cached_property
    def zones(self) -> ZoneMaps | None:
        """Bounds per block of docs: dict ids, or values of a raw numeric column. A single block has the bounds of the
        column. None if there are no bounds."""
        return zones.read(self.metadata, self.num_docs, self._file)

    @cached_property
    def runs(self) -> NDArray[np.uint32] | None:
        """First docs of the dict ids of a column that is stored as runs: dict id k covers docs [runs[k], runs[k + 1]).
        None for other columns."""
        return self._ids.runs() if self.metadata.encoding.has_dictionary else None

    @cached_property
    def indexes(self) -> ColumnIndexes | None:
        """Indexes of the column, in the segment's file or its sidecar; None if it has none."""
        present = indexes_in(self.metadata)
        own = [IndexPlace(present, self.metadata, self._file)] if present else []
        places = own if self._beside is None else [*own, self._beside]
        return ColumnIndexes(places, self.num_docs) if places else None

    def index(self, kind: Index[R]) -> R | None:
        """Return the index of one kind; None if the column has none."""
        return None if self.indexes is None else self.indexes.get(kind)

    def dict_ids(self) -> Array:
        """Return every dict id: u8, u16 or u32, the smallest that holds the cardinality."""
        return self._in_order(self._ids.all())

    def take_dict_ids(self, docs: NDArray[np.uint32]) -> Array:
        """Return the dict ids at `docs`."""
        return self._ids.take(docs)

    def values(self) -> Array:
        """Return every value of a raw fixed-width column: int32, int64, float32 or float64."""
        return self._in_order(self._raw.all())

    def take_values(self, docs: NDArray[np.uint32]) -> Array:
        """Return the values of a raw fixed-width column at `docs`."""
        return self._raw.take(docs)

    def strings(self) -> pa.Array:
        """Return every value of a raw variable-width column."""
        values = variable.read(self.metadata, self._file, is_checked=self._has_good_strings)
        self._has_good_strings = True
        return values

    @property
    def is_scaled(self) -> bool:
        """True if `scaled` has parsed the values."""
        return self._scaling is not None

    def scaled(self) -> Scaled | None:
        """Return the values of a BIG_DECIMAL column's dictionary, or every value of a raw column, as scaled integers;
        None if they do not fit in 64 bits."""
        if self._is_unscaled:
            return None
        if self._scaling is None:
            scaled = scaled_of(self._texts())
            if scaled is None:
                self._is_unscaled = True
                return None
            self._scaling = replace(scaled, values=_NOTHING)
            DECODE_CACHE.get(self._scaled_key, lambda: scaled.values)
        return replace(self._scaling, values=DECODE_CACHE.get(self._scaled_key, self._scaled_anew))

    def _scaled_anew(self) -> Array:
        scaled = scaled_of(self._texts())
        assert scaled is not None
        return scaled.values

    def _texts(self) -> pa.Array:
        return self.strings() if self.dictionary is None else self.dictionary.arrow()

    def take_strings(self, docs: NDArray[np.uint32]) -> pa.Array:
        """Return the values of a raw variable-width column at `docs`."""
        return self.strings().take(pa.array(docs))

    def offsets(self) -> NDArray[np.uint32]:
        """Return the offsets of a multi-value column: doc d holds values [offsets[d], offsets[d + 1])."""
        return self._offsets.all()

    def prefetch(self) -> None:
        """Ask the kernel to read the column's pages soon; returns at once."""
        for ref in self.metadata.buffers.values():
            self._file.prefetch(ref)

    def _in_order(self, values: Array) -> Array:
        """Return the values. Raise CorruptionError if the footer calls them sorted and they do not ascend, because
        queries search them."""
        if self.is_sorted and not self._is_in_order:
            descends = bool(np.any(values[1:] < values[:-1]))
            self._file.require(not descends, f"values of a sorted column descend column={self.metadata.name}")
            self._is_in_order = True
        return values

    @cached_property
    def _ids(self) -> DictIds:
        return DictIds(self.metadata, self.metadata.buffers, self._file)

    @cached_property
    def _raw(self) -> RawValues:
        return RawValues(self.metadata, self.metadata.buffers, self._file)

    @cached_property
    def _offsets(self) -> MultiValueOffsets:
        return MultiValueOffsets(self.metadata, self.num_docs, self.metadata.buffers, self._file)
