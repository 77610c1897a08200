"""DISTINCTCOUNTRAWULL, and DISTINCTCOUNTULL of stored sketches: UltraLogLogs, as hash4j makes and Pinot stores them.

A state is what Pinot stores: a byte that says p, and hash4j's registers; without values it is empty bytes. Sketches of
different p are merged to the least p. Values are hashed by their bytes, as in Pinot. DISTINCTCOUNTULL of values counts
exactly.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    ANYTHING,
    INTEGERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    Groups,
    Input,
    State,
)
from merlot.aggregates.hyperloglog import SketchState, precision_of
from merlot.aggregates.sketches import binaries, in_blocks
from merlot.aggregates.stored import SketchFunction
from merlot.aggregates.ultraloglog_estimate import counts_of, estimates, rounded
from merlot.kernels import ultraloglog, wyhash
from merlot.kernels.jit import read_only
from merlot.tree.nodes import Value
from merlot.tree.types import LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.encoding import one_zero
from merlot.vectors.texts import text_buffers
from merlot.vectors.vector import TEXT, Vector

DEFAULT_P: Final = 12
MOST_P: Final = 20
"""Greatest p of sketches that are made here; stored sketches may have up to `ultraloglog.MOST_P`."""
_WIDE: Final = frozenset({TypeName.LONG, TypeName.TIMESTAMP, TypeName.DOUBLE})


def hashes_of(type_: TypeName, values: Any) -> NDArray[np.uint64]:
    """Return hash4j's wyhashFinal4 of values of a type; equal values have equal hashes."""
    out = np.empty(len(values), np.uint64)
    if type_ in TEXT:
        wyhash.hash_texts(*text_buffers(values.cast(pa.large_binary())), out)
        return out
    if values.dtype.kind == "f":
        words = one_zero(values).view(np.uint64 if values.itemsize == 8 else np.uint32).astype(np.uint64)
    else:
        words = values.astype(np.int64).view(np.uint64)
    wyhash.hash_words(read_only(words), type_ in _WIDE, out)
    return out


class UltraLogLogState(SketchState):
    """Registers of raw values by group, or notes of them; and stored sketches that wait to be merged."""

    merge_name = "DISTINCTCOUNTULL"

    def _hashes(self, values: Any) -> NDArray[Any]:
        return hashes_of(self._type, values)

    def _take_in(self, hashes: NDArray[Any], groups: Groups, registers: NDArray[np.uint8]) -> None:
        ultraloglog.offer(read_only(hashes), read_only(groups), self._log2m, registers)

    def _apart(self, hashes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        registers = np.zeros(len(hashes), np.uint8)
        ultraloglog.registers_of(read_only(hashes), self._log2m, registers)
        return (hashes >> np.uint64(64 - self._log2m)).astype(np.int64), registers

    def _one_each(self, ordered: NDArray[np.int64]) -> NDArray[np.int64]:
        return ordered[: ultraloglog.join_notes(ordered)]

    def _packed(self, registers: NDArray[np.uint8]) -> pa.Array:
        number, size = registers.shape
        cells = np.empty((number, 1 + size), np.uint8)
        cells[:, 0], cells[:, 1:] = self._log2m, registers
        return binaries(cells)


class _UltraLogLog(SketchFunction):
    most_p: int
    """Greatest p that a call may request."""

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        p = constants[0] if constants else DEFAULT_P
        is_sound = isinstance(p, int) and ultraloglog.LEAST_P <= p <= self.most_p
        return None if is_sound else f"p must be {ultraloglog.LEAST_P} to {self.most_p} got={p!r}"

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return UltraLogLogState(
            call.types[0].base, num_groups, precision_of(call.constants, DEFAULT_P), (*inputs, UNKNOWN)[0].dictionary()
        )


class DistinctCountUll(_UltraLogLog):
    """DISTINCTCOUNTULL: the estimate of stored sketches; for values, the exact number of distinct values."""

    name = "distinctcountull"
    most_p = ultraloglog.MOST_P
    parameters = (
        AggregateParameter(name="x", takes=ANYTHING),
        AggregateParameter(name="p", takes=frozenset({TypeName.INT}), is_constant=True, is_optional=True),
    )

    def variant(self, types: Sequence[SqlType]) -> str:
        return self.name if types[0].base is TypeName.BYTES else "distinctcounthllplus"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, counted(columns[0]))


class DistinctCountRawUll(_UltraLogLog):
    """DISTINCTCOUNTRAWULL: the registers, in base 64 as Pinot answers them."""

    name = "distinctcountrawull"
    most_p = MOST_P
    parameters = (
        AggregateParameter(name="x", takes=INTEGERS | TEXT | {TypeName.FLOAT, TypeName.DOUBLE}),
        AggregateParameter(
            name="p", takes=frozenset({TypeName.INT, TypeName.LONG}), is_constant=True, is_optional=True
        ),
    )

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        nothing = bytes(1 + (1 << precision_of(call.constants, DEFAULT_P)))
        cells = [base64.b64encode((cell or nothing)[1:]).decode() for cell in columns[0].to_pylist()]
        return Vector(call.result, pa.array(cells, pa.string()))


def counted(sketches: pa.Array) -> NDArray[np.int64]:
    """Return hash4j's `getDistinctCountEstimate` of each sketch, rounded; 0 for empty bytes."""
    counts = np.zeros(len(sketches), np.int64)
    for places, cells in in_blocks(sketches):
        counts[places] = rounded(estimates(counts_of(cells[:, 1:]), int(cells[0, 0])))
    return counts
