"""Lists made from other lists, single values and ranges of numbers; by numpy over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions import sizes
from merlot.functions.conversion import cast_to, common_type
from merlot.functions.function import (
    NUMBERS,
    WHOLE,
    ArgumentKind,
    Family,
    Lists,
    Parameter,
    VectorFunction,
    anything,
    constant,
    number,
)
from merlot.functions.lists import LIST, TWO_LISTS, ListValues, is_in, joined, of_element_type, of_one_type, typed_names
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr
from merlot.tree.types import BOOLEAN, DOUBLE, FLOAT, INT, LONG, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import DTYPES, Attempt, Vector, arrow_type, failed

LIST_MAKING: Final = Family("Making lists")
MOST: Final = 10_000
"""Limit of the values in a list of generated numbers."""
_PLACES: Final = SqlType(TypeName.INT, is_array=True)


def _same(args: Sequence[Expr]) -> SqlType:
    return args[0].type


def _fitted(function: str) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    """Return a function that converts the value to the type of the list's values."""

    def complete(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        element = SqlType(args[0].type.base)
        if common_type(element, args[1].type) is None:
            raise SqlValidationError(f"{function} needs a value of {element}, not {args[1].type}")
        return args[0], cast_to(args[1], element)

    return complete


def _pushed(*, is_front: bool) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        single = _of_one(args[1], args[0])
        values = joined((single, args[0]) if is_front else (args[0], single))
        return values.chosen(np.arange(len(values.flat)))

    return apply


def _of_one(value: Vector, like: Vector) -> Vector:
    """Return lists of a single value each, of the type of other lists."""
    num_rows = 1 if value.is_constant else len(value.data)
    values = Vector(value.type, value.data).to_arrow(num_rows).cast(ListValues.of(like).flat.type)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(num_rows + 1, dtype=np.int32)), values)
    return Vector(like.type, lists[0] if value.is_constant else lists)


for _name, _is_front, _example in (
    ("arraypushback", False, ["a", "b", "c"]),
    ("arraypushfront", True, ["c", "a", "b"]),
):
    LIST_MAKING.strict(
        f"{_name}int",
        aliases=typed_names(_name),
        parameters=(LIST, anything("value")),
        result=_same,
        lists=Lists.PASSED_WHOLE,
        complete=_fitted(_name),
        most_bytes=sizes.together,
        examples={f"{_name.upper()}STRING(SPLIT('a,b', ','), 'c')": _example},
    )(_pushed(is_front=_is_front))


@LIST_MAKING.strict(
    "arrayindexesofint",
    aliases=typed_names("arrayindexesof"),
    parameters=(LIST, constant("value")),
    result=_PLACES,
    lists=Lists.PASSED_WHOLE,
    complete=of_element_type("arrayindexesof"),
    examples={"ARRAYINDEXESOFSTRING(SPLIT('a,b,a', ','), 'a')": [0, 2]},
)
def _indexes_of(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return every place of a value in each list, counted from 0."""
    values = ListValues.of(args[0])
    matches = np.flatnonzero(is_in(values, args[1:]))
    places = ListValues(pa.array(values.places.astype(np.int32)), values.offsets, values.is_constant)
    return places.chosen(matches)


@LIST_MAKING.strict(
    "arraysoverlap",
    parameters=TWO_LISTS,
    result=BOOLEAN,
    lists=Lists.PASSED_WHOLE,
    complete=of_one_type,
    examples={
        "ARRAYS_OVERLAP(SPLIT('a,b', ','), SPLIT('b,c', ','))": True,
        "ARRAYSOVERLAP(SPLIT('a,b', ','), SPLIT('c,d', ','))": False,
    },
)
def _overlap(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return True for rows whose lists have a value in common."""
    first = ListValues.of(args[0])
    both = joined(args)
    rows = len(both.offsets) - 1
    lengths = np.broadcast_to(first.lengths, rows)
    is_of_first = both.places < np.repeat(lengths, both.lengths)
    encoded = pc.dictionary_encode(both.flat)
    codes = both.rows * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
    is_common = np.isin(codes, codes[is_of_first]) & ~is_of_first
    return both.answer(np.bincount(both.rows[is_common], minlength=rows) > 0)


@LIST_MAKING.rewriting(
    "arraytomv",
    parameters=(LIST,),
    lists=Lists.PASSED_WHOLE,
    examples={"ARRAY_TO_MV(SPLIT('a,b', ','))": ["a", "b"]},
)
def _to_mv(_binding: Any, args: tuple[Expr, ...]) -> Expr:
    """Return the list itself: a multi-value column is one."""
    return args[0]


def _stepped(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Return the numbers from the first argument to the second, inclusive, by steps of the third. Without a third they
    are 1, or -1 if the second is less than the first. A row fails if its step is 0, or if it has too many numbers."""
    dtype = DTYPES[type_.base]
    numbers = [np.asarray(arg.data, np.float64 if dtype in (np.float32, np.float64) else np.int64) for arg in args]
    is_constant = all(arg.is_constant for arg in args)
    steps = numbers[2] if len(numbers) > 2 else np.where(numbers[1] < numbers[0], -1, 1)
    starts, ends, steps = (np.atleast_1d(part) for part in np.broadcast_arrays(numbers[0], numbers[1], steps))
    counts, is_lost = _counts(starts, ends, steps)
    account.current().expect("", int(counts.sum()) * sizes.VALUE_BYTES)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    made = np.repeat(starts, counts) + places * np.repeat(steps, counts)
    values = pa.array(made.astype(dtype), arrow_type(SqlType(type_.base)))
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
    lost = is_lost.reshape(()) if is_constant else is_lost
    return Attempt(lists[0] if is_constant else lists, failed(lost, f"steps of 0, or more than {MOST} of them"))


def _counts(starts: Any, ends: Any, steps: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return how many numbers each list has, 0 if it may not be made, and which lists may not. Differences of LONGs may
    exceed 64 bits."""
    with np.errstate(all="ignore"):
        span = ends.astype(np.float64) - starts.astype(np.float64)
        exact = ends - starts
        whole = np.where(np.abs(span) < 2.0**62, exact, 0) if exact.dtype == np.int64 else span
        safe = np.where(steps == 0, 1, steps)
        counts = np.floor_divide(whole, safe) + 1
    is_lost = (steps == 0) | ~np.isfinite(span) | (np.abs(span) >= 2.0**62) | (counts > MOST)
    lengths = np.where(is_lost | (counts < 0), 0, np.nan_to_num(counts.astype(np.float64)))
    return lengths.astype(np.int64), is_lost


def _widest(args: Sequence[Expr]) -> SqlType:
    bases = {arg.type.base for arg in args}
    if bases <= {TypeName.INT}:
        return _PLACES
    return SqlType(TypeName.LONG if bases <= WHOLE.types else TypeName.DOUBLE, is_array=True)


def _as_ints(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(cast_to(arg, INT) for arg in args)


def _step(kind: ArgumentKind) -> tuple[Parameter, ...]:
    return tuple(Parameter(name=name, kind=kind, is_optional=name == "step") for name in ("start", "end", "step"))


LIST_MAKING.strict(
    "generatearray",
    parameters=(number("start"), number("end"), number("step", is_optional=True)),
    result=_widest,
    examples={"GENERATEARRAY(1, 7, 2)": [1, 3, 5, 7], "GENERATE_ARRAY(2, 0)": [2, 1, 0]},
)(_stepped)
for _type, _kind, _numbers in (
    (INT, WHOLE, [1, 3, 5]),
    (LONG, WHOLE, [1, 3, 5]),
    (FLOAT, NUMBERS, [1.0, 3.0, 5.0]),
    (DOUBLE, NUMBERS, [1.0, 3.0, 5.0]),
):
    LIST_MAKING.strict(
        f"generate{_type.base.value.lower()}array",
        parameters=_step(_kind),
        result=SqlType(_type.base, is_array=True),
        complete=_as_ints if _type == INT else None,
        examples={f"GENERATE_{_type.base.value}_ARRAY(1, 6, 2)": _numbers},
    )(_stepped)
