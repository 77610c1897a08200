"""DISTINCTCOUNTHLL and DISTINCTCOUNTRAWHLL: an estimate of the number of distinct values, and its sketch.

Raw values are put into a sketch; sketches in BYTES are merged. In both cases a state is the bytes of clearspring's
`HyperLogLog.getBytes`, as Pinot stores them, or empty bytes without values. Answers equal Pinot's: hashes, registers
and the estimate are clearspring's.
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
    Chosen,
    Dictionary,
    Groups,
    Input,
    State,
    all_in_one,
    grown,
)
from merlot.aggregates.sketches import Serialized, binaries, in_blocks, merge_sketches
from merlot.aggregates.stored import SketchFunction
from merlot.kernels import hll as kernels
from merlot.kernels.jit import read_only
from merlot.kernels.sketch import REGISTER_BITS, REGISTERS_PER_WORD
from merlot.tree.nodes import Value
from merlot.tree.types import LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.encoding import MAX_DENSE_SPACE, one_zero
from merlot.vectors.texts import text_buffers
from merlot.vectors.vector import TEXT, Vector

DEFAULT_LOG2M: Final = 8
MOST_LOG2M: Final = 16
MIN_PENDING: Final = 1 << 20
"""Least number of notes for registers that are collected before they are merged."""
MAX_WAITING: Final = 1 << 28
"""Bytes of sketches that are collected before they are merged."""
BLOCK_BYTES: Final = 1 << 20
"""Registers that are laid out at a time, a byte each."""
_NOTE_BITS: Final = 8
"""Bits of a note below the index of its register; they hold the rank."""

Hashes = NDArray[np.uint32]


def hashes_of(type_: TypeName, values: Any) -> Hashes:
    """Return clearspring's `MurmurHash.hash` of values of a type; equal values have equal hashes."""
    out = np.empty(len(values), np.uint32)
    if type_ in TEXT:
        kernels.hash_bytes(*text_buffers(values.cast(pa.large_binary())), out)
        return out
    numbers = values
    if numbers.dtype.kind == "f":
        numbers = one_zero(numbers).view(np.int32 if numbers.itemsize == 4 else np.int64)
    kernels.hash_longs(read_only(numbers.astype(np.int64, copy=False)), out)
    return out


def precision_of(constants: Sequence[Value], default: int) -> int:
    """Return the logarithm of the number of registers that a call requests."""
    asked = constants[0] if constants else default
    assert isinstance(asked, int)
    return asked


class SketchState(State):
    """Registers of raw values by group, or notes of (group, register, rank) if registers would be too many; and stored
    sketches that wait to be merged."""

    merge_name = "DISTINCTCOUNTHLL"
    """Key in `aggregates.sketches.MERGES` of the function that merges sketches."""

    def __init__(self, type_: TypeName, num_groups: int, log2m: int, dictionary: Dictionary | None) -> None:
        self._type = type_
        self._log2m = log2m
        self._num_groups = num_groups
        self._dictionary = dictionary
        self._hash_of_id: NDArray[Any] | None = None
        self._registers: NDArray[np.uint8] | None = np.zeros(0, np.uint8)
        self._notes: list[NDArray[np.int64]] = []
        self._num_notes = 0
        self._bound = MIN_PENDING
        self._sketches: list[tuple[pa.Array, Groups]] = []
        self._num_waiting = 0

    def grow(self, num_groups: int) -> None:
        self._num_groups = max(num_groups, self._num_groups)

    def wants_ids(self, *, is_grouped: bool) -> bool:
        """Return True if there is a dictionary of raw values: each of them is hashed once."""
        return self._dictionary is not None and self._type is not TypeName.BYTES

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        if self._hash_of_id is None:
            assert self._dictionary is not None
            numeric = self._dictionary.numeric
            self._hash_of_id = self._hashes(self._dictionary.arrow() if numeric is None else numeric)
        self._offer(self._hash_of_id[ids], all_in_one(groups, len(ids)))

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        if self._type is TypeName.BYTES:
            self._wait(values[0], all_in_one(groups, num_rows))
        else:
            self._offer(self._hashes(values[0]), all_in_one(groups, num_rows))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        self._wait(columns[0], groups)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        with_values, sketches = self._made()
        states = (
            self._sketches if not len(with_values) else [*self._sketches, (sketches, with_values.astype(np.uint32))]
        )
        united = self._united(states)
        return [united.take(pa.array(groups)).cast(pa.binary())]

    def _hashes(self, values: Any) -> NDArray[Any]:
        return hashes_of(self._type, values)

    def _offer(self, hashes: NDArray[Any], groups: Groups) -> None:
        space = self._num_groups << self._log2m
        if self._registers is not None and space > MAX_DENSE_SPACE:
            places = np.flatnonzero(self._registers)
            self._keep(places, self._registers[places])
            self._registers = None
        if self._registers is None:
            within, registers = self._apart(hashes)
            self._keep(groups.astype(np.int64) << self._log2m | within, registers)
        else:
            self._registers = grown(self._registers, space)
            self._take_in(hashes, groups, self._registers)

    def _take_in(self, hashes: NDArray[Any], groups: Groups, registers: NDArray[np.uint8]) -> None:
        """Add hashes to the registers (G << log2m,) of their groups."""
        kernels.offer(hashes, groups, self._log2m, registers)

    def _apart(self, hashes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return for each hash the index of its register within its group, and the value that this hash alone gives the
        register."""
        ranks = np.zeros(len(hashes), np.uint8)
        kernels.ranks(hashes, self._log2m, ranks)
        return hashes.astype(np.int64) >> (32 - self._log2m), ranks

    def _keep(self, places: NDArray[np.int64], registers: NDArray[np.uint8]) -> None:
        """Note values that registers have at least. places: indices of the registers, numbered through all groups."""
        self._note(places << _NOTE_BITS | registers)

    def _note(self, notes: NDArray[np.int64]) -> None:
        self._notes.append(notes)
        self._num_notes += len(notes)
        if self._num_notes > self._bound:
            self._notes = [self._joined(self._notes)]
            self._num_notes = len(self._notes[0])
            self._bound = max(MIN_PENDING, 2 * self._num_notes)

    def _wait(self, sketches: pa.Array, groups: Groups) -> None:
        self._sketches.append((sketches, groups))
        self._num_waiting += sketches.nbytes
        if self._num_waiting > MAX_WAITING:
            self._sketches = [(self._united(self._sketches), np.arange(self._num_groups, dtype=np.uint32))]
            self._num_waiting = 0

    def _made(self) -> tuple[NDArray[np.int64], pa.Array]:
        """Return the groups with raw values, and their sketches."""
        if self._registers is not None:
            places = np.flatnonzero(self._registers)
            ranks = self._registers[places]
        else:
            notes = self._joined(self._notes)
            places, ranks = notes >> _NOTE_BITS, (notes & ((1 << _NOTE_BITS) - 1)).astype(np.uint8)
        with_values, owners = np.unique(places >> self._log2m, return_inverse=True)
        size = 1 << self._log2m
        account.current().expect("", len(with_values) * size)
        parts = []
        block = max(1, BLOCK_BYTES >> self._log2m)
        for first in range(0, len(with_values), block):
            start, stop = np.searchsorted(owners, [first, first + block])
            registers = np.zeros((min(block, len(with_values) - first), size), np.uint8)
            registers[owners[start:stop] - first, places[start:stop] & (size - 1)] = ranks[start:stop]
            parts.append(self._packed(registers))
        return with_values, pa.concat_arrays(parts) if parts else pa.array([], pa.large_binary())

    def _joined(self, notes: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return one note for each register, ascending."""
        return self._one_each(np.sort(np.concatenate([np.zeros(0, np.int64), *notes])))

    def _one_each(self, ordered: NDArray[np.int64]) -> NDArray[np.int64]:
        """Combine ascending notes to one for each register: the note with the greatest rank."""
        is_last = np.ones(len(ordered), np.bool_)
        is_last[:-1] = ordered[1:] >> _NOTE_BITS != ordered[:-1] >> _NOTE_BITS
        greatest: NDArray[np.int64] = ordered[is_last]
        return greatest

    def _packed(self, registers: NDArray[np.uint8]) -> pa.Array:
        """Return sketches from rows of registers."""
        return packed(registers, self._log2m)

    def _united(self, states: Sequence[tuple[pa.Array, Groups]]) -> pa.Array:
        """Return one sketch per group, empty bytes without sketches; raise SketchError."""
        values = [sketches.cast(pa.large_binary()) for sketches, _ in states]
        of_rows = [groups for _, groups in states]
        given = Serialized(
            values=pa.concat_arrays(values) if values else pa.array([], pa.large_binary()),
            of_rows=np.concatenate(of_rows) if of_rows else np.zeros(0, np.uint32),
            num_groups=self._num_groups,
        )
        return merge_sketches(given, self.merge_name, {}).cast(pa.large_binary())


def packed(registers: NDArray[np.uint8], log2m: int) -> pa.Array:
    """Return sketches from rows of registers, as `HyperLogLog.getBytes` writes them."""
    number, size = registers.shape
    words = size // REGISTERS_PER_WORD + 1
    padded = np.zeros((number, words * REGISTERS_PER_WORD), np.uint32)
    padded[:, :size] = registers
    shifts = (REGISTER_BITS * np.arange(REGISTERS_PER_WORD)).astype(np.uint32)
    content = np.bitwise_or.reduce(padded.reshape(number, words, REGISTERS_PER_WORD) << shifts, axis=2)
    out = np.empty((number, 2 + words), ">i4")
    out[:, 0], out[:, 1], out[:, 2:] = log2m, 4 * words, content.astype(np.int32)
    return binaries(out.view(np.uint8))


def estimates(sketches: pa.Array) -> NDArray[np.int64]:
    """Return `HyperLogLog.cardinality` of each sketch; 0 for empty bytes."""
    counts = np.zeros(len(sketches), np.int64)
    for places, cells in in_blocks(sketches):
        words = cells.view(">u4").astype(np.uint32)
        # Sketches of log2m 0, 1 and 2 have one length.
        for log2m in np.unique(words[:, 0]).tolist():
            rows = np.flatnonzero(words[:, 0] == log2m)
            counts[np.array(places)[rows]] = _cardinalities(log2m, words[rows, 2:])
    return counts


def _cardinalities(log2m: int, content: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the cardinalities of sketches of one size. content: the words of their registers."""
    size = 1 << log2m
    shifts = (REGISTER_BITS * np.arange(REGISTERS_PER_WORD)).astype(np.uint32)
    registers = (content[:, :, np.newaxis] >> shifts & np.uint32(31)).reshape(len(content), -1)[:, :size]
    alpha = {4: 0.673, 5: 0.697, 6: 0.709}.get(log2m, 0.7213 / (1 + 1.079 / size))
    estimate = alpha * size * size / (1.0 / (np.uint64(1) << registers.astype(np.uint64))).sum(axis=1)
    zeros = (registers == 0).sum(axis=1)
    is_small = (estimate <= 2.5 * size) & (zeros > 0)
    counted = size * np.log(size / np.where(zeros > 0, zeros, 1))
    rounded: NDArray[np.int64] = np.floor(np.where(is_small, counted, estimate) + 0.5).astype(np.int64)
    return rounded


class DistinctCountHll(SketchFunction):
    """DISTINCTCOUNTHLL: the estimate."""

    name = "distinctcounthll"
    parameters = (
        AggregateParameter(name="x", takes=INTEGERS | TEXT | {TypeName.FLOAT, TypeName.DOUBLE}),
        AggregateParameter(
            name="log2m", takes=frozenset({TypeName.INT, TypeName.LONG}), is_constant=True, is_optional=True
        ),
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        for log2m in constants:
            if not isinstance(log2m, int) or not 1 <= log2m <= MOST_LOG2M:
                return f"log2m must be 1 to {MOST_LOG2M}, got {log2m!r}"
        return None

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        dictionary = (*inputs, UNKNOWN)[0].dictionary()
        return SketchState(call.types[0].base, num_groups, precision_of(call.constants, DEFAULT_LOG2M), dictionary)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, estimates(columns[0]))


class DistinctCountRawHll(DistinctCountHll):
    """DISTINCTCOUNTRAWHLL: the sketch, as hex."""

    name = "distinctcountrawhll"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        log2m = precision_of(call.constants, DEFAULT_LOG2M)
        nothing = packed(np.zeros((1, 1 << log2m), np.uint8), log2m)[0].as_py()
        return Vector(call.result, pa.array([(cell or nothing).hex() for cell in columns[0].to_pylist()], pa.string()))
