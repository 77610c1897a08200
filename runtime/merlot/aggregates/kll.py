"""PERCENTILEKLL and PERCENTILERAWKLL: percentiles estimated by KLL sketches of Apache DataSketches.

A state is the image of a sketch of doubles, which the Java library reads; without values it is empty bytes. Up to K
values of a group stay separate, and are exact. The library tosses coins when it makes room, so estimates over more
values differ a little from query to query. It trusts its images, so images in BYTES columns are checked first.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    NUMBERS,
    AggregateCall,
    AggregateParameter,
    Chosen,
    Groups,
    Input,
    State,
    all_in_one,
    nothing,
)
from merlot.aggregates.kll_images import checked, has_values, with_sorted_first_level
from merlot.aggregates.moments import doubles
from merlot.aggregates.percentiles import PERCENT, percent_problem
from merlot.aggregates.stored import SketchFunction, StoredStates
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.encoding import one_zero
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.vector import Vector

if TYPE_CHECKING:
    from datasketches import kll_doubles_sketch

DEFAULT_K: Final = 200
LEAST_K: Final = 8
MOST_K: Final = 65_535
MIN_PENDING: Final = 1 << 18
"""Values that are collected before they are added to their groups' sketches."""


SKETCH_BYTES: Final = 512
"""Bytes of a sketch besides the room for its values."""


class KllState(State):
    """Sketch by group, and the values that are in no sketch yet."""

    def __init__(self, num_groups: int, k: int) -> None:
        self._k = k
        self._sketches: dict[int, kll_doubles_sketch] = {}
        self._values: list[tuple[Groups, NDArray[np.float64]]] = []
        self._num_pending = 0
        self._num_values = 0

    def grow(self, num_groups: int) -> None:
        """Do nothing: a group has no sketch before it has values."""

    def foreign_bytes(self) -> int:
        """Return an estimate: a sketch has room for K values at first, and for about three times as many in the end."""
        values = min(len(self._sketches) * 3 * self._k, len(self._sketches) * self._k + self._num_values)
        return 8 * values + len(self._sketches) * SKETCH_BYTES

    def takes_scaled(self) -> bool:
        return True

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        numbers = one_zero(doubles(values[0]))  # the order of rows decides whether 0.0 or -0.0 comes first
        if np.isnan(numbers).any():
            raise QueryArithmeticError("a KLL sketch takes no NaN; PERCENTILE does")
        self._values.append((all_in_one(groups, num_rows), numbers))
        self._num_pending += num_rows
        if self._num_pending > MIN_PENDING:
            self._take_in()

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        from datasketches import kll_doubles_sketch

        self._expect(len(np.unique(groups)))
        for group, image in zip(groups.tolist(), columns[0].to_pylist(), strict=True):
            if has_values(image):
                self._of(group).merge(kll_doubles_sketch.deserialize(image))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        self._take_in()
        sketches = [self._sketches.get(group) for group in groups.tolist()]
        images = [b"" if sketch is None else with_sorted_first_level(sketch.serialize()) for sketch in sketches]
        return [pa.array(images, pa.binary())]

    def _take_in(self) -> None:
        if not self._num_pending:
            return
        owners = np.concatenate([groups for groups, _ in self._values])
        numbers = np.concatenate([values for _, values in self._values])
        order = np.argsort(owners, kind="stable")
        with_values, firsts = np.unique(owners[order], return_index=True)
        self._num_values += len(numbers)
        self._expect(sum([group not in self._sketches for group in with_values.tolist()]))
        for group, part in zip(with_values.tolist(), np.split(numbers[order], firsts[1:]), strict=True):
            self._of(group).update(part)
        self._values, self._num_pending = [], 0

    def _expect(self, num_sketches: int) -> None:
        account.current().expect("", num_sketches * (8 * self._k + SKETCH_BYTES))

    def _of(self, group: int) -> kll_doubles_sketch:
        sketch = self._sketches.get(group)
        if sketch is None:
            from datasketches import kll_doubles_sketch  # 20 ms, with the first query that needs it

            sketch = self._sketches[group] = kll_doubles_sketch(self._k)
        return sketch


class PercentileKll(SketchFunction):
    """PERCENTILEKLL(x, p [, K]): NaN without values, or NULL with null handling."""

    name = "percentilekll"
    parameters = (
        AggregateParameter(name="x", takes=NUMBERS | {TypeName.BYTES}),
        PERCENT,
        AggregateParameter(name="k", takes=frozenset({TypeName.INT}), is_constant=True, is_optional=True),
    )

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        is_sound = len(constants) < 2 or (isinstance(constants[1], int) and LEAST_K <= constants[1] <= MOST_K)
        wrong = None if is_sound else f"K must be from {LEAST_K} to {MOST_K} got={constants[1]!r}"
        return percent_problem(constants) or wrong

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return DOUBLE

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        state = KllState(num_groups, _k(call))
        return StoredStates(self, state) if call.types[0].base is TypeName.BYTES else state

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        from datasketches import kll_doubles_sketch

        rank = float(call.constants[0]) / 100  # type: ignore[arg-type]
        images = columns[0].to_pylist()
        # One sketch at a time, because each takes more memory than its image.
        sketches = (kll_doubles_sketch.deserialize(image) if image else None for image in images)
        answers = [np.nan if sketch is None else sketch.get_quantile(rank, inclusive=True) for sketch in sketches]
        return Vector(call.result, np.array(answers, np.float64), nothing(call, _lengths(images)))

    def from_bytes(self, stored: pa.Array) -> list[pa.Array]:
        return [checked(stored)]


class PercentileRawKll(PercentileKll):
    """PERCENTILERAWKLL: the sketch itself, in base 64 as Pinot answers it."""

    name = "percentilerawkll"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return STRING

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        from datasketches import kll_doubles_sketch

        images = columns[0].to_pylist()
        empty = kll_doubles_sketch(_k(call)).serialize()
        cells = [base64.b64encode(image or empty).decode() for image in images]
        return Vector(call.result, pa.array(cells, pa.string()), nothing(call, _lengths(images)))


def _lengths(images: Sequence[bytes]) -> NDArray[np.int64]:
    return np.array([len(image) for image in images], np.int64)


def _k(call: AggregateCall) -> int:
    k = call.constants[1] if len(call.constants) > 1 else DEFAULT_K
    assert isinstance(k, int)
    return k
