"""MINSTRING and MAXSTRING: the first or last text in the order of bytes; also MIN and MAX of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
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
    grown,
)
from merlot.kernels import aggregate as kernels
from merlot.kernels.texts import best_texts
from merlot.tree.nodes import Value
from merlot.tree.types import STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.texts import text_buffers
from merlot.vectors.vector import Vector, from_arrow

TEXTS: Final = frozenset({TypeName.STRING, TypeName.JSON})
MAX_PARTS: Final = 64
"""Chunks whose best texts are collected before they are compared."""
SPARSE: Final = 16
"""Groups per text up to which an array with an element for every group is cheaper than sorting group numbers."""


class TextExtremeState(State):
    """Least or greatest text: by dict id while values come as ids, else by the best texts of each chunk."""

    def __init__(self, num_groups: int, *, is_min: bool, dictionary: Dictionary | None = None) -> None:
        self._is_min = is_min
        self._dictionary = dictionary
        self._worst = np.iinfo(np.int64).max if is_min else -1
        self._best_ids = np.full(num_groups if dictionary is not None else 0, self._worst, np.int64)
        self._parts: list[tuple[NDArray[np.int64], pa.Array]] = []

    def grow(self, num_groups: int) -> None:
        if self._dictionary is not None:
            self._best_ids = grown(self._best_ids, num_groups, self._worst)

    def wants_ids(self, *, is_grouped: bool) -> bool:
        return self._dictionary is not None

    def add_ids(self, ids: NDArray[Any], groups: Groups | None) -> None:
        kernel = kernels.min_groups if self._is_min else kernels.max_groups
        kernel(all_in_one(groups, len(ids)), ids.astype(np.int64), self._best_ids)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        if num_rows:
            self._parts.append(self._best(all_in_one(groups, num_rows).astype(np.int64), values[0].cast(pa.string())))
        if len(self._parts) > MAX_PARTS:
            self._parts = [self._best_of_parts()]

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        has_text = columns[0].is_valid()
        texts = columns[0].filter(has_text)
        self.add([texts], groups[has_text.to_numpy(zero_copy_only=False)], len(texts))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        owners, texts = self._best_of_parts()
        if not len(owners):
            return [pa.nulls(len(groups), pa.string())]
        places = np.minimum(np.searchsorted(owners, groups), len(owners) - 1)
        return [texts.take(pa.array(places, mask=owners[places] != groups))]

    def _best_of_parts(self) -> tuple[NDArray[np.int64], pa.Array]:
        """Return the groups that have a text, ascending, and the best text of each."""
        parts = list(self._parts)
        with_ids = np.flatnonzero(self._best_ids != self._worst)
        if len(with_ids) and self._dictionary is not None:
            texts = self._dictionary.arrow().take(pa.array(self._best_ids[with_ids]))
            parts.append((with_ids, texts.cast(pa.string())))
        if not parts:
            return np.zeros(0, np.int64), pa.array([], pa.string())
        return self._best(
            np.concatenate([owners for owners, _ in parts]), pa.concat_arrays([part for _, part in parts])
        )

    def _best(self, owners: NDArray[np.int64], texts: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
        if not len(owners):
            return owners, texts
        distinct: NDArray[np.int64] | None = None
        if int(owners.max()) > SPARSE * len(owners):
            distinct, owners = np.unique(owners, return_inverse=True)
        rows = np.full(int(owners.max()) + 1, -1)
        best_texts(*text_buffers(texts), owners, self._is_min, rows)
        with_text = np.flatnonzero(rows >= 0)
        return with_text if distinct is None else distinct[with_text], texts.take(pa.array(rows[with_text]))


class TextExtreme(AggregationFunction):
    """MINSTRING or MAXSTRING: the least or greatest text; NULL without values, with and without null handling, because
    no text can stand for it."""

    def __init__(self, name: str, *, is_min: bool) -> None:
        self.name = name
        self.parameters = (AggregateParameter(name="x", takes=TEXTS),)
        self._is_min = is_min

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return (StateField("value", pa.string()),)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return TextExtremeState(num_groups, is_min=self._is_min, dictionary=(*inputs, UNKNOWN)[0].ranked())

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return from_arrow(call.result, columns[0])
