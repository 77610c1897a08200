"""MAP_VALUE: the value of a key in a map, which is two lists side by side, its keys and its values."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from merlot.functions.function import ANYTHING, Evaluate, Family, Lists, Parameter, constant
from merlot.functions.lists import LIST, ListValues, first_place, of_element_type
from merlot.functions.source import ColumnSource
from merlot.tree.nodes import Call
from merlot.tree.types import SqlType
from merlot.vectors.vector import Vector, either_failed, either_null, failed, from_arrow, outside

MAPS: Final = Family("Maps")
_UNEQUAL: Final = "keys and values differ in number function=mapvalue"


@MAPS.lazy(
    "mapvalue",
    parameters=(LIST, constant("key"), Parameter(name="values", kind=ANYTHING, is_list=True)),
    result=lambda args: SqlType(args[2].type.base),
    lists=Lists.PASSED_WHOLE,
    sees_nulls=True,
    complete=lambda args: (*of_element_type("mapvalue")(args[:2]), args[2]),
    examples={"MAP_VALUE(SPLIT('a,b', ','), 'b', SPLIT('x,y', ','))": "y"},
)
def _map_value(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    """Return the value of the key in each row. It is NULL, with or without null handling, where the key is missing. A
    row whose lists differ in length fails."""
    keys, values = (evaluate(call.args[place], source).spread(source.num_rows) for place in (0, 2))
    places = first_place([keys, evaluate(call.args[1], source)]).astype(np.int64)
    lists = ListValues.of(values)
    is_lost = ListValues.of(keys).lengths != lists.lengths
    taken = pa.array(lists.offsets[:-1] + places, mask=(places < 0) | is_lost)
    result = from_arrow(call.type, lists.flat.take(taken))
    nulls = either_null(keys.nulls, values.nulls)
    failure = either_failed(either_failed(keys.failure, values.failure), failed(is_lost, _UNEQUAL))
    missing = places < 0
    nulls = either_null(nulls, missing & ~is_lost if missing.any() else None)
    return Vector(call.type, result.data, nulls, outside(failure, nulls))
