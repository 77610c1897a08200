"""DISTINCTCOUNTCPCSKETCH and DISTINCTCOUNTRAWCPCSKETCH: distinct values estimated by Apache DataSketches' CPC sketches.

A state is the image of a sketch, which the Java library reads; the state of no values is empty bytes. Stored sketches
are not read: the library trusts their compressed words, and wrong ones crash the whole process (ADR 40).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    INTEGERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Dictionary,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
)
from merlot.aggregates.settings_text import nominal_entries, nominal_entries_problem
from merlot.tree.nodes import Value
from merlot.tree.types import LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import TEXT, Vector

if TYPE_CHECKING:
    from datasketches import cpc_sketch

DEFAULT_LOG2K: Final = 12
LEAST_LOG2K: Final = 4
MOST_LOG2K: Final = 20
SKETCH_BYTES: Final = 512
"""Bytes of a sketch besides the values that it holds."""


class CpcState(State):
    """Sketch of each group, which also takes in the sketches of other states."""

    def __init__(self, type_: TypeName, log2k: int, dictionary: Dictionary | None) -> None:
        self._type = type_
        self._log2k = log2k
        self._dictionary = dictionary
        self._values_of_ids: list[Any] | None = None
        self._sketches: dict[int, cpc_sketch] = {}
        self._num_values = 0

    def grow(self, num_groups: int) -> None:
        """Do nothing: a group has no sketch before it has values."""

    def foreign_bytes(self) -> int:
        """Return an estimate: a sketch has a table of a few values first, and later a window of 2 ** log2k bytes."""
        number = len(self._sketches)
        return number * SKETCH_BYTES + min(16 * self._num_values, number << (self._log2k + 1))

    def wants_ids(self, *, is_grouped: bool) -> bool:
        """Return True if there is a dictionary. The library takes one value at a time, so `add_ids` offers a group
        each value of a chunk only once."""
        return self._dictionary is not None

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        if self._values_of_ids is None:
            assert self._dictionary is not None
            numeric = self._dictionary.numeric
            self._values_of_ids = self._plain(self._dictionary.arrow() if numeric is None else numeric)
        pairs = np.unique(all_in_one(groups, len(ids)).astype(np.int64) << 32 | ids.astype(np.int64))
        self._offer((pairs >> 32).tolist(), [self._values_of_ids[id_] for id_ in (pairs & 0xFFFFFFFF).tolist()])

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        self._offer(all_in_one(groups, num_rows).tolist(), self._plain(values[0]))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        from datasketches import cpc_sketch, cpc_union

        of_groups: dict[int, list[bytes]] = {}
        for group, image in zip(groups.tolist(), columns[0].to_pylist(), strict=True):
            if image:
                of_groups.setdefault(group, []).append(image)
        self._num_values += sum([len(image) for images in of_groups.values() for image in images])
        for group, images in of_groups.items():
            union = cpc_union(self._log2k)
            for image in images:
                union.update(cpc_sketch.deserialize(image))
            if group in self._sketches:
                union.update(self._sketches[group])
            self._sketches[group] = union.get_result()

    def columns(self, groups: Chosen) -> list[pa.Array]:
        sketches = [self._sketches.get(group) for group in groups.tolist()]
        images = [b"" if sketch is None else self._merged(sketch).serialize() for sketch in sketches]
        return [pa.array(images, pa.binary())]

    def _merged(self, sketch: cpc_sketch) -> cpc_sketch:
        """Return the sketch in the form of a union, so that an answer does not depend on the number of segments."""
        from datasketches import cpc_union

        union = cpc_union(self._log2k)
        union.update(sketch)
        return union.get_result()

    def _plain(self, values: Any) -> list[Any]:
        """Return the values as Java's library would hash them: whole numbers as long, other numbers as double,
        texts."""
        if self._type in TEXT:
            plain: list[Any] = values.to_pylist()
            return plain
        numbers: list[Any] = values.astype(np.float64 if values.dtype.kind == "f" else np.int64).tolist()
        return numbers

    def _offer(self, groups: Sequence[int], values: Sequence[Any]) -> None:
        self._num_values += len(values)
        for group, value in zip(groups, values, strict=True):
            sketch = self._sketches.get(group)
            if sketch is None:
                from datasketches import cpc_sketch

                sketch = self._sketches[group] = cpc_sketch(self._log2k)
            sketch.update(value)


class DistinctCountCpc(AggregationFunction):
    """DISTINCTCOUNTCPCSKETCH: the estimate."""

    name = "distinctcountcpcsketch"
    parameters = (
        AggregateParameter(name="x", takes=(INTEGERS | TEXT | {TypeName.FLOAT, TypeName.DOUBLE}) - {TypeName.BYTES}),
        AggregateParameter(
            name="settings", takes=frozenset({TypeName.INT, TypeName.STRING}), is_constant=True, is_optional=True
        ),
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        wrong = nominal_entries_problem(constants) if constants and isinstance(constants[0], str) else None
        if wrong is None and not LEAST_LOG2K <= _log2k(constants) <= MOST_LOG2K:
            return f"lgK must be {LEAST_LOG2K} to {MOST_LOG2K} got={constants[0]!r}"
        return wrong

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("sketch", pa.binary()),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        dictionary = (*inputs, UNKNOWN)[0].dictionary()
        return CpcState(call.types[0].base, _log2k(call.constants), dictionary)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        from datasketches import cpc_sketch

        images = columns[0].to_pylist()
        counts = [cpc_sketch.deserialize(image).get_estimate() if image else 0.0 for image in images]
        return Vector(call.result, np.floor(np.array(counts) + 0.5).astype(np.int64))


class DistinctCountRawCpc(DistinctCountCpc):
    """DISTINCTCOUNTRAWCPCSKETCH: the sketch, in base 64 as Pinot answers it."""

    name = "distinctcountrawcpcsketch"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        from datasketches import cpc_sketch

        empty = cpc_sketch(_log2k(call.constants)).serialize()
        cells = [base64.b64encode(image or empty).decode() for image in columns[0].to_pylist()]
        return Vector(call.result, pa.array(cells, pa.string()))


def _log2k(constants: Sequence[Value]) -> int:
    if constants and isinstance(constants[0], int):
        return constants[0]
    return nominal_entries(constants, 1 << DEFAULT_LOG2K).bit_length() - 1
