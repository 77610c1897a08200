"""JSON_MATCH and TEXT_MATCH, which search within a value, and IN_ID_SET, which looks a number up in a set. A JSON or
text index of the column, if it has one, answers the first two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merlot.functions import json_columns, json_filter, text_filter
from merlot.functions.function import INSTANTS, Family, Lists, Parameter, text, word
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import BOOLEAN, SqlType
from merlot.values.types import TypeName
from merlot.vectors import id_sets
from merlot.vectors.vector import Vector

MATCHING: Final = Family("Matching")


def _checked(function: str, parse: Callable[[str], object]) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    def check(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        assert isinstance(args[1], Literal)
        if not isinstance(args[1].value, str):
            raise SqlValidationError(f"{function} needs its filter as a string")
        parse(args[1].value)
        return args

    return check


def _by_text(args: Sequence[Vector], holds: Callable[[str], bool]) -> Any:
    """Read each distinct text once, in Python, which takes some microseconds. Columns that are often searched should
    have an index."""
    texts = args[0].data
    if isinstance(texts, pa.Scalar):
        return np.array(holds(texts.as_py()), np.bool_)
    encoded = texts.dictionary_encode()
    verdicts = np.array([holds(value) for value in encoded.dictionary.to_pylist()], np.bool_)
    return verdicts[encoded.indices.to_numpy(zero_copy_only=False)] if len(texts) else verdicts


@MATCHING.strict(
    "jsonmatch",
    parameters=(text("json"), word("filter")),
    result=BOOLEAN,
    complete=_checked("json_match", json_filter.parse),
    lists=Lists.ANY_VALUE,
    is_predicate=True,
    examples={
        """JSON_MATCH('{"a": {"b": [1, 2]}}', '"$.a.b[*]" = 2')""": True,
        """JSON_MATCH('{"a": [{"x": 1, "y": 1}, {"x": 2, "y": 2}]}', '"$.a[*].x" = 1 AND "$.a[*].y" = 2')""": False,
    },
)
def _json_match(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return which JSON values match a filter."""
    wanted = json_filter.parse(args[1].data.as_py())
    mask = None if args[0].is_constant else json_columns.matches(wanted, args[0].data)
    return mask if mask is not None else _by_text(args, lambda value: json_filter.holds(wanted, value))


@MATCHING.strict(
    "textmatch",
    parameters=(text(), word("query")),
    result=BOOLEAN,
    complete=_checked("text_match", text_filter.parse),
    lists=Lists.ANY_VALUE,
    is_predicate=True,
    examples={
        """TEXT_MATCH('Streams of rows, in Java', 'java AND stream*')""": True,
        """TEXT_MATCH('Streams of rows', '"rows streams"')""": False,
    },
)
def _text_match(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return which texts match a search for words."""
    wanted = text_filter.parse(args[1].data.as_py())
    return _by_text(args, lambda value: text_filter.holds(wanted, value))


@lru_cache(maxsize=16)
def _id_set(written: str) -> id_sets.RoaringIdSet:
    return id_sets.read(written)


def _readable(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    assert isinstance(args[1], Literal)
    try:
        ids = _id_set(str(args[1].value))
    except id_sets.IdSetError as error:
        raise SqlValidationError(f"in_id_set: the set {error}") from error
    own = TypeName.INT if args[0].type.base is TypeName.INT else TypeName.LONG
    if ids.type not in (None, own):
        raise SqlValidationError(f"in_id_set: the set is of {ids.type}, not of {own}")
    return args


@MATCHING.strict(
    "inidset",
    parameters=(Parameter(name="x", kind=INSTANTS), word("set")),
    result=BOOLEAN,
    complete=_readable,
    examples={"IN_ID_SET(7, 'ATowAAABAAAAAAABABAAAAAFAAcA')": True, "IN_ID_SET(6, 'AA==')": False},
)
def _in_id_set(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return which numbers are in a set that ID_SET has answered."""
    ids = _id_set(args[1].data.as_py())
    numbers = np.atleast_1d(args[0].data)
    is_member = ids.holds(numbers)
    return is_member.reshape(()) if args[0].is_constant else is_member
