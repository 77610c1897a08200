"""DISTINCTCOUNTTHETASKETCH and DISTINCTCOUNTRAWTHETASKETCH: distinct values estimated by their least hashes.

A sketch of `nominalEntries` k keeps the k least hashes of all values, and theta, below which it keeps every hash. So it
does not depend on the order or repetition of values, and a union of sketches is the sketch of all their values. A state
is the compact image of Apache DataSketches, which its Java library reads; without values it is empty bytes.
"""

from __future__ import annotations

import base64
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
from merlot.aggregates.settings_text import nominal_entries, nominal_entries_problem
from merlot.aggregates.stored import SketchFunction, StoredStates
from merlot.aggregates.theta_images import MAX_THETA, Sketches, empty_image, images, read_images
from merlot.kernels import murmur3
from merlot.kernels.jit import read_only
from merlot.tree.nodes import Value
from merlot.tree.types import LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.encoding import one_zero
from merlot.vectors.texts import text_buffers
from merlot.vectors.vector import TEXT, Vector

DEFAULT_ENTRIES: Final = 16_384
MIN_PENDING: Final = 1 << 18
"""Least number of hashes that are collected before the least hashes are selected."""

Hashes = NDArray[np.uint64]


def hashes_of(type_: TypeName, values: Any) -> Hashes:
    """Return hashes as DataSketches computes them of Java's values: whole numbers as long, other numbers as double,
    texts in UTF-8. Empty texts and bytes have the hash 0, which no sketch takes in."""
    out = np.empty(len(values), np.uint64)
    if type_ in TEXT:
        murmur3.hash_bytes(*text_buffers(values.cast(pa.large_binary())), out)
        return out
    if values.dtype.kind == "f":
        words = one_zero(values.astype(np.float64)).view(np.uint64)
    else:
        words = values.astype(np.int64).view(np.uint64)
    murmur3.hash_words(read_only(words), out)
    return out


class ThetaState(State):
    """Least hashes by group, and hashes that came after they were selected."""

    def __init__(self, type_: TypeName, num_groups: int, entries: int, dictionary: Dictionary | None = None) -> None:
        self._type = type_
        self._entries = entries
        self._dictionary = dictionary
        self._hash_of_id: Hashes | None = None
        self._thetas = np.full(num_groups, MAX_THETA, np.uint64)
        self._seen = np.zeros(num_groups, np.bool_)
        """True for groups that have a sketch, or a value whose hash is not 0; the states of others are empty bytes."""
        self._parts: list[tuple[Groups, Hashes]] = []
        self._num_pending = 0
        self._bound = MIN_PENDING

    def grow(self, num_groups: int) -> None:
        self._thetas = grown(self._thetas, num_groups, MAX_THETA)
        self._seen = grown(self._seen, num_groups, False)

    def wants_ids(self, *, is_grouped: bool) -> bool:
        """Return True if there is a dictionary: each of its values is hashed once."""
        return self._dictionary is not None

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        if self._hash_of_id is None:
            assert self._dictionary is not None
            numeric = self._dictionary.numeric
            self._hash_of_id = hashes_of(self._type, self._dictionary.arrow() if numeric is None else numeric)
        self._offer(all_in_one(groups, len(ids)), self._hash_of_id[ids])

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        self._offer(all_in_one(groups, num_rows), hashes_of(self._type, values[0]))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        given = read_images(columns[0])
        self._seen[groups[given.present]] = True
        np.minimum.at(self._thetas, groups, given.thetas)
        self._offer(np.repeat(groups, given.counts()), given.hashes)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        owners, hashes = self._least()
        starts = np.searchsorted(owners, np.arange(len(self._thetas) + 1))
        counts = np.diff(starts)[groups]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = hashes[np.repeat(starts[groups], counts) + within]
        bounds = np.concatenate([[0], np.cumsum(counts)])
        return [images(Sketches(self._thetas[groups], bounds, chosen, self._seen[groups]))]

    def _offer(self, groups: Groups, hashes: Hashes) -> None:
        self._seen[groups[hashes > 0]] = True
        is_small = (hashes > 0) & (hashes < self._thetas[groups])
        self._parts.append((groups[is_small], hashes[is_small]))
        self._num_pending += int(is_small.sum())
        if self._num_pending > self._bound:
            self._num_pending = len(self._least()[0])
            self._bound = max(MIN_PENDING, 2 * self._num_pending)

    def _least(self) -> tuple[Groups, Hashes]:
        """Return the least hashes of each group, ascending, with their groups. If a group has more hashes than entries,
        its theta is lowered to the next hash."""
        if not self._parts:
            return np.zeros(0, np.uint32), np.zeros(0, np.uint64)
        owners = np.concatenate([groups for groups, _ in self._parts])
        hashes = np.concatenate([hashes for _, hashes in self._parts])
        is_small = hashes < self._thetas[owners]
        owners, hashes = owners[is_small], hashes[is_small]
        order = np.lexsort((hashes, owners))
        owners, hashes = owners[order], hashes[order]
        is_new = np.ones(len(owners), np.bool_)
        is_new[1:] = (owners[1:] != owners[:-1]) | (hashes[1:] != hashes[:-1])
        owners, hashes = owners[is_new], hashes[is_new]
        ranks = np.arange(len(owners)) - np.searchsorted(owners, owners)
        is_bound = ranks == self._entries
        self._thetas[owners[is_bound]] = hashes[is_bound]
        is_kept = ranks < self._entries
        self._parts = [(owners[is_kept], hashes[is_kept])]
        return self._parts[0]


class DistinctCountTheta(SketchFunction):
    """DISTINCTCOUNTTHETASKETCH: the estimate, of values or of stored sketches in BYTES."""

    name = "distinctcountthetasketch"
    parameters = (
        AggregateParameter(name="x", takes=INTEGERS | TEXT | {TypeName.FLOAT, TypeName.DOUBLE}),
        AggregateParameter(name="settings", takes=frozenset({TypeName.STRING}), is_constant=True, is_optional=True),
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        return nominal_entries_problem(constants)

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        entries = nominal_entries(call.constants, DEFAULT_ENTRIES)
        base = call.types[0].base
        if base is TypeName.BYTES:
            return StoredStates(self, ThetaState(base, num_groups, entries))
        return ThetaState(base, num_groups, entries, (*inputs, UNKNOWN)[0].dictionary())

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, estimates(columns[0]))


class DistinctCountRawTheta(DistinctCountTheta):
    """DISTINCTCOUNTRAWTHETASKETCH: the sketch, in base 64 as Pinot answers it."""

    name = "distinctcountrawthetasketch"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        cells = [base64.b64encode(cell or empty_image()).decode() for cell in columns[0].to_pylist()]
        return Vector(call.result, pa.array(cells, pa.string()))


def estimates(sketches: pa.Array) -> NDArray[np.int64]:
    """Return the estimate of each sketch, rounded."""
    given = read_images(sketches)
    counts = given.counts() * (float(MAX_THETA) / given.thetas.astype(np.float64))
    rounded: NDArray[np.int64] = np.floor(counts + 0.5).astype(np.int64)
    return rounded
