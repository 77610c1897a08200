"""Pinot's other distinct counts, which are exact here, and DISTINCTCOUNTBITMAP, which also reads stored bitmaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from merlot.aggregates.distinct import DistinctCount, DistinctState
from merlot.aggregates.function import (
    ANYTHING,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    Input,
    State,
    StateField,
)
from merlot.aggregates.listed import offsets_of
from merlot.aggregates.sketches import SketchError
from merlot.aggregates.stored import StoredStates
from merlot.kernels.jit import read_only
from merlot.kernels.roaring import count_bitmap
from merlot.tree.nodes import Value
from merlot.tree.types import INT, SqlType
from merlot.values.types import TypeName

NO_BITMAP = "bytes are no serialized roaring bitmap"
TEXT: Final = MappingProxyType({"settings": TypeName.STRING})
NO_SKETCHES: Final = ANYTHING - {TypeName.BYTES}
"""Argument types of a form that refuses BYTES: Pinot would merge them as stored sketches."""
PRECISIONS: Final = MappingProxyType({"p": TypeName.INT, "sp": TypeName.INT})


class DistinctForm(DistinctCount):
    """Exact distinct count under a name for which Pinot counts by other means, or estimates. Its settings are Pinot's,
    and have no effect."""

    def __init__(
        self,
        name: str,
        result: SqlType,
        settings: Mapping[str, TypeName] = MappingProxyType({}),
        *,
        takes: frozenset[TypeName] = ANYTHING,
    ) -> None:
        self.name = name
        self._result = result
        optional = (
            AggregateParameter(name=setting, takes=frozenset({type_}), is_constant=True, is_optional=True)
            for setting, type_ in settings.items()
        )
        self.parameters = (AggregateParameter(name="x", takes=takes), *optional)

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return self._result


class DistinctCountBitmap(DistinctCount):
    """DISTINCTCOUNTBITMAP: the exact number of distinct values; for BYTES, of the numbers in all stored bitmaps."""

    name = "distinctcountbitmap"
    parameters = (AggregateParameter(name="x", takes=ANYTHING),)
    has_bytes = True

    def variant(self, types: Sequence[SqlType]) -> str:
        return self.name if types[0].base in (TypeName.INT, TypeName.BYTES) else "distinctcount"

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("values", pa.list_(pa.int32())),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        if call.types[0].base is TypeName.BYTES:
            return StoredStates(self, DistinctState(INT, num_groups))
        return DistinctState(INT, num_groups, (*inputs, UNKNOWN)[0].dictionary())

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        """Return Roaring bitmaps in their portable form, which Pinot's Java library reads. To both, numbers are
        unsigned: a negative number is greater than all others."""
        values = columns[0].flatten().to_numpy().view(np.uint32)
        places = np.cumsum(np.diff(columns[0].offsets.to_numpy()))
        parts = np.split(values, places[:-1])
        return pa.array([BitMap(part).serialize() if len(part) else b"" for part in parts], pa.binary())

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        parts = []
        for row, cell in enumerate(stored.to_pylist()):
            data = np.frombuffer(cell, np.uint8)
            if count_bitmap(read_only(data), 1 << 32) < 0:
                raise SketchError(NO_BITMAP, row)
            parts.append(np.frombuffer(BitMap.deserialize(cell).to_array(), np.uint32).view(np.int32))
        offsets = offsets_of(np.array([len(part) for part in parts], np.int64)).astype(np.int32)
        values = np.concatenate([np.zeros(0, np.int32), *parts])
        return [pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, pa.int32()))]
