"""Functions of lists, such as multi-value columns, by numpy and Arrow over all values of all rows at once.

Where Pinot has a name for each type (ARRAYSORTINT, ARRAYSORTSTRING), all are names of one function of any type. Only
ARRAYSUM, ARRAYSUMINT and ARRAYSUMLONG are functions of their own, since their results differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions import sizes
from merlot.functions.conversion import PLACEHOLDERS, cast_to, common_type
from merlot.functions.function import (
    ANYTHING,
    NUMBERS,
    TEXTS,
    ArgumentKind,
    Family,
    Lists,
    Parameter,
    VectorFunction,
    constant,
    whole,
    word,
)
from merlot.tree import literals
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import BOOLEAN, DOUBLE, INT, LONG, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text
from merlot.vectors.vector import Attempt, Vector, arrow_type, decimals, failed, from_arrow

LISTS: Final = Family("Lists")
Places = NDArray[np.int64]
LIST: Final = Parameter(name="list", kind=ANYTHING, is_list=True)
_NUMBERS: Final = Parameter(name="list", kind=NUMBERS, is_list=True)
_OF_64_BITS: Final = Parameter(
    name="list",
    kind=ArgumentKind("numbers other than BIG_DECIMAL", NUMBERS.types - {TypeName.BIG_DECIMAL}),
    is_list=True,
)
_TEXTS: Final = Parameter(name="list", kind=TEXTS, is_list=True)
_TYPES: Final = ("int", "long", "float", "double", "string")


@dataclass(frozen=True, slots=True)
class ListValues:
    """Values of all rows, and where those of each row begin (n + 1,)."""

    flat: pa.Array
    offsets: Places
    is_constant: bool

    @classmethod
    def of(cls, vector: Vector) -> ListValues:
        lists = pa.repeat(vector.data, 1) if vector.is_constant else vector.data
        offsets = lists.offsets.to_numpy().astype(np.int64)
        return cls(lists.flatten(), offsets - offsets[0], vector.is_constant)

    @property
    def lengths(self) -> Places:
        return np.diff(self.offsets)

    @property
    def rows(self) -> Places:
        """The row of each value."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.lengths)

    @property
    def places(self) -> Places:
        """The place of each value in its row."""
        return np.arange(len(self.flat)) - np.repeat(self.offsets[:-1], self.lengths)

    def chosen(self, values: Places) -> Any:
        """Return lists of the values at the given positions among all values. Positions are grouped by row, and rows
        ascend; positions within a row may have any order."""
        counts = np.bincount(self.rows[values], minlength=len(self.offsets) - 1)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return self.answer(pa.ListArray.from_arrays(pa.array(offsets), self.flat.take(pa.array(values))))

    def without(self, rows: NDArray[np.bool_]) -> ListValues:
        """Return the same values without those of some rows, which become empty."""
        counts = np.where(rows, 0, self.lengths)
        remaining = self.flat.filter(pa.array(~np.repeat(rows, self.lengths)))
        return ListValues(remaining, np.concatenate([[0], np.cumsum(counts)]), self.is_constant)

    def answer(self, per_row: Any) -> Any:
        """Return the results of all rows; if the lists are a constant, the result of their only row."""
        if not self.is_constant:
            return per_row
        return per_row[0] if isinstance(per_row, pa.Array) else per_row.reshape(())


def _element(args: Sequence[Expr]) -> SqlType:
    return SqlType(args[0].type.base)


def _same(args: Sequence[Expr]) -> SqlType:
    return args[0].type


def typed_names(name: str) -> tuple[str, ...]:
    """Return the aliases for all types but the first, INT, which is in the function's own name."""
    return tuple(f"{name}{type_}" for type_ in _TYPES[1:])


def of_element_type(function: str) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    """Return a function that converts constants after the list to the type of its values."""

    def complete(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        values: list[Expr] = []
        for arg in args[1:]:
            assert isinstance(arg, Literal)
            if arg.value is None:
                raise SqlValidationError(f"{function} needs values that are not NULL")
            values.append(literals.convert(arg, SqlType(args[0].type.base)))
        return args[0], *values

    return complete


def _in_one_type(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Convert the values of ARRAY[…] to the type that holds all of them."""
    common = args[0].type
    for arg in args[1:]:
        wider = common_type(common, arg.type)
        if wider is None:
            raise SqlValidationError(f"ARRAY cannot join {common} with {arg.type}")
        common = wider
    if common.base is TypeName.UNKNOWN or any(isinstance(arg, Literal) and arg.value is None for arg in args):
        raise SqlValidationError("ARRAY needs values that are not NULL")
    return tuple(cast_to(arg, common) for arg in args)


@LISTS.strict(
    "arrayvalueconstructor",
    parameters=(Parameter(name="value", kind=ANYTHING, repeats=True),),
    result=lambda args: SqlType(args[0].type.base, is_array=True),
    complete=_in_one_type,
    most_bytes=sizes.together,
    examples={"ARRAY[3, 1 + 1]": [3, 2], "ARRAYVALUECONSTRUCTOR('a', 'b')": ["a", "b"]},
)
def _constructed(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Return a list with one value of each argument."""
    is_constant = all(arg.is_constant for arg in args)
    num_rows = 1 if is_constant else max(len(arg.data) for arg in args if not arg.is_constant)
    # A null goes into its list as the value that stands in its place: functions of lists never see nulls.
    columns = pa.concat_arrays([Vector(arg.type, arg.data).to_arrow(num_rows) for arg in args])
    order = np.arange(len(columns)).reshape(len(args), num_rows).T.ravel()
    offsets = np.arange(num_rows + 1, dtype=np.int32) * len(args)
    made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), columns.take(pa.array(order)))
    return made[0] if is_constant else made


@LISTS.strict(
    "arraylength",
    aliases=("cardinality",),
    parameters=(LIST,),
    result=INT,
    lists=Lists.PASSED_WHOLE,
    examples={"ARRAY_LENGTH(SPLIT('a,b,c', ','))": 3},
)
def _length(_type: SqlType, args: Sequence[Vector]) -> Any:
    values = ListValues.of(args[0])
    return values.answer(values.lengths.astype(np.int32))


def _reduced(operation: Any, dtype: Any, identity: Any) -> Callable[[ListValues], NDArray[Any]]:
    """Return a function that reduces the numbers of each row by a ufunc; a row without values gives the identity."""

    def reduce(values: ListValues) -> NDArray[Any]:
        numbers = values.flat.to_numpy(zero_copy_only=False).astype(dtype)
        out = np.full(len(values.offsets) - 1, identity, dtype)
        is_some = values.lengths > 0
        if is_some.any():
            out[is_some] = operation.reduceat(numbers, values.offsets[:-1][is_some])
        return out

    return reduce


def _extreme(operation: Any) -> VectorFunction:
    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        values = ListValues.of(args[0])
        ordered = _ranks(values, type_)
        by_rank = np.zeros(len(ordered), np.int64)
        by_rank[ordered] = np.arange(len(ordered))
        best = _reduced(operation, np.int64, 0)(ListValues(pa.array(ordered), values.offsets, False))
        is_none = values.lengths == 0
        taken = values.flat.take(pa.array(by_rank[best] if len(by_rank) else best[:0])) if len(by_rank) else None
        return _filled(type_, values, taken, is_none)

    return apply


def _ranks(values: ListValues, type_: SqlType) -> Places:
    """Return the rank of each value among the values of all rows, counted from 0; equal values of a type other than
    BIG_DECIMAL rank in their order."""
    if not len(values.flat):
        return _NONE
    if type_.base is TypeName.BIG_DECIMAL:
        return np.unique(decimals(values.flat), return_inverse=True)[1]
    ranks: Places = pc.rank(values.flat, tiebreaker="first").to_numpy().astype(np.int64)
    return ranks - 1


def _filled(type_: SqlType, values: ListValues, taken: pa.Array | None, is_none: NDArray[np.bool_]) -> Any:
    """Return the values, with Pinot's placeholder where there is none."""
    value = PLACEHOLDERS[type_.base]
    nothing = pa.scalar(str(value) if isinstance(value, Decimal) else value, arrow_type(type_))
    if taken is None:
        filled = pa.repeat(nothing, len(is_none))
    else:
        filled = pc.if_else(pa.array(is_none), nothing, taken.cast(arrow_type(type_)))
    return values.answer(from_arrow(type_, filled).with_objects().data)


for _name, _ufunc, _example in (("arraymin", np.minimum, "a"), ("arraymax", np.maximum, "c")):
    LISTS.strict(
        _name,
        parameters=(LIST,),
        result=_element,
        lists=Lists.PASSED_WHOLE,
        examples={f"{_name.upper()}(SPLIT('b,a,c', ','))": _example},
    )(_extreme(_ufunc))


def _summed(dtype: Any, *, is_average: bool = False) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        values = ListValues.of(args[0])
        sums = _reduced(np.add, dtype, 0)(values)
        with np.errstate(all="ignore"):
            return values.answer(sums / values.lengths if is_average else sums)

    return apply


def _summed_int(_type: SqlType, args: Sequence[Vector]) -> Any:
    values = ListValues.of(args[0])
    sums = _reduced(np.add, np.int64, 0)(values)
    lost = (sums < -(2**31)) | (sums >= 2**31)
    return Attempt(
        values.answer(sums.astype(np.int32)), failed(values.answer(lost), "INT overflow function=arraysumint")
    )


_LENGTHS: Final = "JSONEXTRACTSCALAR('[1,2,6]', '$[*]', 'INT_ARRAY')"
for _name, _list, _result, _apply, _sum in (
    ("arraysum", _NUMBERS, DOUBLE, _summed(np.float64), 9.0),
    ("arrayaverage", _NUMBERS, DOUBLE, _summed(np.float64, is_average=True), 3.0),
    ("arraysumint", _OF_64_BITS, INT, _summed_int, 9),
    ("arraysumlong", _OF_64_BITS, LONG, _summed(np.int64), 9),
):
    LISTS.strict(
        _name,
        parameters=(_list,),
        result=_result,
        lists=Lists.PASSED_WHOLE,
        examples={f"{_name.upper()}({_LENGTHS})": _sum},
    )(_apply)


def is_in(values: ListValues, wanted: Sequence[Vector]) -> NDArray[np.bool_]:
    members = pa.concat_arrays([pa.array([_scalar(value)], arrow_type(value.type)) for value in wanted])
    members = members.cast(values.flat.type)
    is_member: NDArray[np.bool_] = pc.is_in(values.flat, value_set=members).to_numpy(zero_copy_only=False)
    return is_member


def _scalar(constant: Vector) -> Any:
    if isinstance(constant.data, pa.Scalar):
        return constant.data.as_py()
    value = constant.data[()]
    return plain_text(value) if isinstance(value, Decimal) else value.item()


@LISTS.strict(
    "valuein",
    parameters=(LIST, constant("value", repeats=True)),
    result=_same,
    lists=Lists.PASSED_WHOLE,
    complete=of_element_type("valuein"),
    examples={"VALUE_IN(SPLIT('a,b,c', ','), 'c', 'a')": ["a", "c"]},
)
def _value_in(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the values that are among the constants."""
    values = ListValues.of(args[0])
    return values.chosen(np.flatnonzero(is_in(values, args[1:])))


@LISTS.strict(
    "arraycontainsint",
    aliases=typed_names("arraycontains"),
    parameters=(LIST, constant("value")),
    result=BOOLEAN,
    lists=Lists.PASSED_WHOLE,
    complete=of_element_type("arraycontains"),
    examples={"ARRAYCONTAINSSTRING(SPLIT('a,b', ','), 'b')": True},
)
def _contains(_type: SqlType, args: Sequence[Vector]) -> Any:
    return first_place(args) >= 0


@LISTS.strict(
    "arrayindexofint",
    aliases=typed_names("arrayindexof"),
    parameters=(LIST, constant("value")),
    result=INT,
    lists=Lists.PASSED_WHOLE,
    complete=of_element_type("arrayindexof"),
    examples={"ARRAYINDEXOFSTRING(SPLIT('a,b', ','), 'b')": 1, "ARRAYINDEXOFSTRING(SPLIT('a,b', ','), 'c')": -1},
)
def _index_of(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the first place of a value, counted from 0; -1 if it is not there."""
    return first_place(args)


def first_place(args: Sequence[Vector]) -> Any:
    """Return the first place of the constant in each list, counted from 0; -1 if it is not there."""
    values = ListValues.of(args[0])
    matches = np.flatnonzero(is_in(values, args[1:]))[::-1]
    places = np.full(len(values.offsets) - 1, -1, np.int32)
    places[values.rows[matches]] = values.places[matches]
    return values.answer(places)


def _reordered(order: Callable[[ListValues], Places]) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        values = ListValues.of(args[0])
        return values.chosen(order(values))

    return apply


def _sort(type_: SqlType, args: Sequence[Vector]) -> Any:
    values = ListValues.of(args[0])
    return values.chosen(np.lexsort((_ranks(values, type_), values.rows)))


def _reversed(values: ListValues) -> Places:
    return np.repeat(values.offsets[:-1] + values.offsets[1:] - 1, values.lengths) - np.arange(len(values.flat))


def _distinct(values: ListValues) -> Places:
    encoded = pc.dictionary_encode(values.flat, null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.sort(np.unique(values.rows * max(len(encoded.dictionary), 1) + codes, return_index=True)[1])


_NONE: Final = np.zeros(0, np.int64)
for _name, _order, _ordered in (
    ("arraysort", _sort, ["a", "b", "b"]),
    ("arrayreverse", _reordered(_reversed), ["a", "b", "b"]),
    ("arraydistinct", _reordered(_distinct), ["b", "a"]),
):
    LISTS.strict(
        f"{_name}int",
        aliases=typed_names(_name),
        parameters=(LIST,),
        result=_same,
        lists=Lists.PASSED_WHOLE,
        examples={f"{_name.upper()}STRING(SPLIT('b,b,a', ','))": _ordered},
    )(_order)


@LISTS.strict(
    "arraysliceint",
    aliases=typed_names("arrayslice"),
    parameters=(LIST, Parameter(name="start", kind=whole().kind), Parameter(name="end", kind=whole().kind)),
    result=_same,
    lists=Lists.PASSED_WHOLE,
    examples={"ARRAYSLICESTRING(SPLIT('a,b,c', ','), 1, 3)": ["b", "c"]},
)
def _slice(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the values of places [start, end), counted from 0."""
    values = ListValues.of(beside(args[0], args[1:]))
    start, end = (np.broadcast_to(arg.data, len(values.offsets) - 1)[values.rows] for arg in args[1:])
    return values.chosen(np.flatnonzero((values.places >= start) & (values.places < end)))


@LISTS.strict(
    "arrayremoveint",
    aliases=typed_names("arrayremove"),
    parameters=(LIST, constant("value")),
    result=_same,
    lists=Lists.PASSED_WHOLE,
    complete=of_element_type("arrayremove"),
    examples={"ARRAYREMOVESTRING(SPLIT('a,b,a', ','), 'a')": ["b", "a"]},
)
def _remove(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return each list without its first value that equals the constant."""
    values = ListValues.of(args[0])
    first = np.atleast_1d(first_place(args))[values.rows]
    return values.chosen(np.flatnonzero(values.places != first))


def beside(lists: Vector, others: Sequence[Vector]) -> Vector:
    """Return the lists; if they are a constant and another argument varies, the list of every row."""
    lengths = [len(other.data) for other in others if not other.is_constant]
    return lists.spread(lengths[0]) if lists.is_constant and lengths else lists


def joined(args: Sequence[Vector]) -> ListValues:
    both = [ListValues.of(arg) for arg in args]
    num_rows = max(len(values.offsets) for values in both) - 1
    flats, rows = [], []
    for values in both:
        repeats = num_rows if values.is_constant else 1
        flats += [values.flat] * repeats
        rows.append(np.repeat(np.arange(num_rows), len(values.flat)) if values.is_constant else values.rows)
    order = np.argsort(np.concatenate(rows), kind="stable")
    counts = np.bincount(np.concatenate(rows), minlength=num_rows)
    flat = pa.concat_arrays([part.cast(flats[0].type) for part in flats]).take(pa.array(order))
    return ListValues(flat, np.concatenate([[0], np.cumsum(counts)]), all(values.is_constant for values in both))


def of_one_type(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    if args[0].type != args[1].type:
        raise SqlValidationError(f"lists of different types: {args[0].type} and {args[1].type}")
    return args


TWO_LISTS: Final = (LIST, Parameter(name="other", kind=ANYTHING, is_list=True))


@LISTS.strict(
    "arrayconcatint",
    aliases=typed_names("arrayconcat"),
    parameters=TWO_LISTS,
    result=_same,
    lists=Lists.PASSED_WHOLE,
    complete=of_one_type,
    most_bytes=sizes.together,
    examples={"ARRAYCONCATSTRING(SPLIT('a,b', ','), SPLIT('b', ','))": ["a", "b", "b"]},
)
def _concat(_type: SqlType, args: Sequence[Vector]) -> Any:
    values = joined(args)
    return values.chosen(np.arange(len(values.flat)))


@LISTS.strict(
    "arrayunionint",
    aliases=typed_names("arrayunion"),
    parameters=TWO_LISTS,
    result=_same,
    lists=Lists.PASSED_WHOLE,
    complete=of_one_type,
    most_bytes=sizes.together,
    examples={"ARRAYUNIONSTRING(SPLIT('a,b', ','), SPLIT('b,c', ','))": ["a", "b", "c"]},
)
def _union(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the distinct values of both lists, in the order of their first occurrence."""
    values = joined(args)
    return values.chosen(_distinct(values))


@LISTS.strict(
    "arrayelementatint",
    aliases=typed_names("arrayelementat"),
    parameters=(LIST, whole("place")),
    result=_element,
    lists=Lists.PASSED_WHOLE,
    examples={"ARRAYELEMENTATSTRING(SPLIT('a,b', ','), 2)": "b", "ARRAYELEMENTATSTRING(SPLIT('a,b', ','), 3)": ""},
)
def _element_at(type_: SqlType, args: Sequence[Vector]) -> Any:
    """Return the value at a place, counted from 1; 0 or an empty text where there is none."""
    values = ListValues.of(beside(args[0], args[1:]))
    return element_at(type_, values, np.asarray(args[1].data, np.int64) - 1)


def element_at(type_: SqlType, values: ListValues, places: Any) -> Any:
    is_none = (places < 0) | (places >= values.lengths)
    taken = values.flat.take(pa.array(np.where(is_none, 0, values.offsets[:-1] + places))) if len(values.flat) else None
    return _filled(type_, values, taken, np.broadcast_to(is_none, values.lengths.shape))


def _most_joined(args: Sequence[Vector]) -> int:
    """Bound the bytes of the values, and of a separator and a text for nulls for each value."""
    return sizes.usual(args[:1]) + sizes.num_values(args[0]) * sum([sizes.bytes_of(arg) for arg in args[1:]])


@LISTS.strict(
    "arraytostring",
    parameters=(_TEXTS, word("separator"), word("of nulls", is_optional=True)),
    result=STRING,
    lists=Lists.PASSED_WHOLE,
    most_bytes=_most_joined,
    examples={
        "ARRAYTOSTRING(SPLIT('a,b', ','), '-')": "a-b",
        "ARRAY_TO_STRING(SPLIT('a,null', ','), '-', '?')": "a-?",
    },
)
def _to_string(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Join values to a text. If there is a text for nulls, it replaces values that are the text 'null', and an empty
    list gives 'null', as in Pinot."""
    values = ListValues.of(args[0])
    flat = values.flat
    if len(args) > 2:
        flat = pc.if_else(pc.equal(flat, "null"), args[2].data.as_py(), flat)
    lists = pa.ListArray.from_arrays(pa.array(values.offsets.astype(np.int32)), flat)
    texts = pc.binary_join(lists, args[1].data.as_py())
    return values.answer(texts if len(args) == 2 else pc.if_else(pa.array(values.lengths == 0), "null", texts))
