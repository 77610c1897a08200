"""DISTINCTCOUNTRAWHLLPLUS: Pinot's sketch of distinct values, clearspring's `HyperLogLogPlus.getBytes`.

Values are hashed by their texts, as in Pinot. Registers are laid out as in a `HyperLogLog` (`aggregates.hyperloglog`),
in whose bytes states travel. Only the head differs: it holds a version, p, sp (0), a flag that nothing is sparse, and
the length of the registers. A sketch is sparse only if the query's third argument asks for that, which is refused;
stored sparse sketches are refused too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    INTEGERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    Dictionary,
    Input,
    State,
)
from merlot.aggregates.hyperloglog import SketchState, packed, precision_of
from merlot.aggregates.sketches import SketchError
from merlot.aggregates.stored import SketchFunction, StoredStates
from merlot.kernels import murmur64
from merlot.kernels.jit import read_only
from merlot.kernels.sketch import HLL_HEADER, REGISTERS_PER_WORD
from merlot.tree.nodes import Value
from merlot.tree.types import STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.encoding import one_zero
from merlot.vectors.texts import float_texts, text_buffers
from merlot.vectors.vector import TEXT, Vector

DEFAULT_P: Final = 14
LEAST_P: Final = 4
MOST_P: Final = 16
_VERSION: Final = (-2).to_bytes(4, "big", signed=True)
_NORMAL: Final = 0
NO_SKETCH: Final = "bytes are no serialized HyperLogLogPlus"


def hashes_of(type_: TypeName, values: Any) -> NDArray[np.uint64]:
    """Return clearspring's `MurmurHash.hash64` of values of a type: of their texts, as Java's toString writes them."""
    if type_ in TEXT:
        texts = values
    elif values.dtype.kind == "f":
        texts = float_texts(one_zero(values))
    else:
        texts = pa.array(values.astype(np.int64)).cast(pa.string())
    out = np.empty(len(texts), np.uint64)
    murmur64.hash_bytes(*text_buffers(texts.cast(pa.large_binary())), out)
    return out


class PlusState(SketchState):
    """Notes of (group, register, rank), and sketches of other states."""

    def __init__(self, type_: TypeName, num_groups: int, p: int, dictionary: Dictionary | None = None) -> None:
        super().__init__(type_, num_groups, p, dictionary)
        self._registers = None

    def _hashes(self, values: Any) -> NDArray[Any]:
        return hashes_of(self._type, values)

    def _apart(self, hashes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        ranks = np.zeros(len(hashes), np.uint8)
        murmur64.ranks(read_only(hashes), self._log2m, ranks)
        return (hashes >> np.uint64(64 - self._log2m)).astype(np.int64), ranks


class DistinctCountRawHllPlus(SketchFunction):
    """DISTINCTCOUNTRAWHLLPLUS: the sketch, as hex."""

    name = "distinctcountrawhllplus"
    parameters = (
        AggregateParameter(name="x", takes=INTEGERS | TEXT | {TypeName.FLOAT, TypeName.DOUBLE}),
        *(
            AggregateParameter(
                name=name, takes=frozenset({TypeName.INT, TypeName.LONG}), is_constant=True, is_optional=True
            )
            for name in ("p", "sp")
        ),
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        p = precision_of(constants, DEFAULT_P)
        if not LEAST_P <= p <= MOST_P:
            return f"p must be {LEAST_P} to {MOST_P} got={p}"
        return "sp must be 0: sparse sketches are not made" if len(constants) > 1 and constants[1] != 0 else None

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        base, p = call.types[0].base, precision_of(call.constants, DEFAULT_P)
        if base is TypeName.BYTES:
            return StoredStates(self, PlusState(base, num_groups, p))
        return PlusState(base, num_groups, p, (*inputs, UNKNOWN)[0].dictionary())

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        p = precision_of(call.constants, DEFAULT_P)
        nothing = _stored(packed(np.zeros((1, 1 << p), np.uint8), p)[0].as_py())
        cells = [(cell or nothing).hex() for cell in self.to_bytes(call, columns).to_pylist()]
        return Vector(call.result, pa.array(cells, pa.string()))

    def to_bytes(self, call: AggregateCall, columns: Sequence[pa.Array]) -> pa.Array:
        return pa.array([_stored(cell) if cell else b"" for cell in columns[0].to_pylist()], pa.binary())

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        cells = []
        for row, cell in enumerate(stored.to_pylist()):
            p, registers = _read(cell, row)
            cells.append(p.to_bytes(4, "big") + len(registers).to_bytes(4, "big") + registers)
        return [pa.array(cells, pa.binary())]


def _stored(cell: bytes) -> bytes:
    """Return clearspring's bytes of a state."""
    registers = cell[HLL_HEADER:]
    return _VERSION + bytes([cell[3], 0, _NORMAL]) + _varint(len(registers)) + registers


def _varint(number: int) -> bytes:
    """Return a varint: seven bits a byte, the least significant first; the eighth bit is set in all bytes but the
    last."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _read(cell: bytes, row: int) -> tuple[int, bytes]:
    """Return p and the registers; raise SketchError."""
    if len(cell) < len(_VERSION) + 4 or not cell.startswith(_VERSION) or not LEAST_P <= cell[4] <= MOST_P:
        raise SketchError(NO_SKETCH, row)
    if cell[6] != _NORMAL:
        raise SketchError("sparse HyperLogLogPlus cannot be read", row)
    size = 4 * ((1 << cell[4]) // REGISTERS_PER_WORD + 1)
    head = 7 + len(_varint(size))
    if cell[7:head] != _varint(size) or len(cell) != head + size:
        raise SketchError(NO_SKETCH, row)
    return cell[4], cell[head:]
