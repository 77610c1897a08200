"""A filter against one segment: which access serves each predicate. Pure; reads dictionaries and indexes, no rows.

ALL and NONE are exact, so that a segment is skipped or taken whole, and NOT of them is sound.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.functions.evaluate import matches
from merlot.functions.registry import of
from merlot.functions.source import ValueSource
from merlot.query.filter.predicates import (
    AnyValueMatch,
    BitMatch,
    DocList,
    Predicate,
    RangeMatch,
    SpanMatch,
    TableMatch,
    ValueMatch,
)
from merlot.query.plan.expressions import columns_of, literal_values, walk
from merlot.query.read.columns import Columns, Reader
from merlot.segment.index.dictionary import Dictionary
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.vector import DTYPES


class All:
    """Every doc."""


class Nothing:
    """No doc."""


@dataclass(frozen=True, slots=True)
class And:
    """Docs of all children."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Docs of any child."""

    children: tuple[Node, ...]


Node = All | Nothing | And | Or | Predicate

ALL, NOTHING = All(), Nothing()
_COMPARISONS = frozenset(
    {"equals", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal", "between"}
)
_POSITIVE = {"not_equals": "equals", "not_in": "in"}
_EXACT_KEYS = frozenset({TypeName.INT, TypeName.LONG, TypeName.STRING, TypeName.JSON})
"""Types whose values are equal as Python values exactly if they are equal in a dictionary."""
INVERTED_NS_PER_DOC = 1.2
SCAN_NS_PER_DOC = {1: 0.05, 2: 0.07, 4: 0.16}


class Resolver:
    """Turns a filter into nodes for one segment."""

    def __init__(self, columns: Columns, *, null_handling: bool) -> None:
        self._columns = columns
        self._num_docs = columns.num_docs
        self._null_handling = null_handling

    def resolve(self, expr: Expr | None, *, negate: bool = False) -> Node:
        """The node of a predicate, or of its complement."""
        if expr is None:
            return ALL
        if isinstance(expr, Literal):
            return ALL if expr.value is not None and bool(expr.value) != negate else NOTHING
        if not isinstance(expr, Call):
            return ValueMatch(_negated(expr, negate))
        if expr.function == "not":
            return self.resolve(expr.args[0], negate=not negate)
        if expr.function in ("and", "or"):
            is_and = (expr.function == "and") != negate
            return self._resolve_all(expr.args, negate=negate, is_and=is_and)
        if expr.function in ("is_null", "is_not_null") and isinstance(expr.args[0], Column):
            return self._nulls(expr.args[0], wanted=(expr.function == "is_null") != negate)
        return self._predicate(expr, negate)

    def _resolve_all(self, args: tuple[Expr, ...], *, negate: bool, is_and: bool) -> Node:
        """The nodes of operands, combined; those after one that decides are not looked at."""
        nodes: list[Node] = []
        for arg in args:
            nodes.append(self.resolve(arg, negate=negate))
            if isinstance(nodes[-1], Nothing if is_and else All):
                break
        return _combine(nodes, is_and=is_and)

    def _nulls(self, column: Column, *, wanted: bool) -> Node:
        words = self._columns.reader(column.name).nulls
        if words is None:
            return NOTHING if wanted else ALL
        return BitMatch(words, negate=not wanted, share=0.1 if wanted else 0.9)

    def _predicate(self, call: Call, negate: bool) -> Node:
        # The values of a plain predicate, which may be many, name no column.
        names = columns_of(call.args[0] if _is_plain(call) else call)
        if len(names) != 1:
            return ValueMatch(_negated(call, negate))
        reader = self._columns.reader(next(iter(names)))
        if self._needs_rows(call, reader):
            return ValueMatch(_negated(call, negate))
        if reader.multi_value:
            node: Node = self._multi_value(call, reader, negate)
        elif reader.dictionary is not None:
            try:
                node = self._by_dictionary(call, reader, reader.dictionary, negate)
            except QueryArithmeticError:
                # An error of a value may be of none of the rows that other predicates leave.
                return ValueMatch(_negated(call, negate))
        elif _is_plain(call) and reader.type in DTYPES:
            node = self._by_values(call, reader, negate)
        else:
            return ValueMatch(_negated(call, negate))
        if self._null_handling and reader.nulls is not None:
            return _combine([node, BitMatch(reader.nulls, negate=True, share=0.9)], is_and=True)
        return node

    def _needs_rows(self, call: Call, reader: Reader) -> bool:
        """Whether lists or nulls inside an expression keep it from being decided per value."""
        if _is_plain(call):
            return False
        if reader.multi_value:
            return True
        is_null_aware = any(isinstance(node, Call) and of(node).sees_nulls for node in walk(call))
        return is_null_aware and (self._null_handling or reader.nulls is not None)

    # Dictionary columns

    def _by_dictionary(self, call: Call, reader: Reader, dictionary: Dictionary, negate: bool) -> Node:
        cardinality = len(dictionary)
        if _is_plain(call) and call.function in _COMPARISONS | {"not_equals"}:
            if call.function == "not_equals":
                negate = not negate
            low, high = _id_range(call, dictionary)
            return self._id_span(reader, low, high, cardinality, negate)
        ids, negate = self._matching_ids(call, reader, dictionary, negate)
        if len(ids) == 0 or int(ids[-1]) - int(ids[0]) + 1 == len(ids):
            low = int(ids[0]) if len(ids) else 0
            return self._id_span(reader, low, low + len(ids), cardinality, negate)
        if (runs := reader.runs) is not None:
            return self._run_spans(runs, ids, negate)
        if not negate and (node := self._inverted(reader, ids)) is not None:
            return node
        table = np.zeros(cardinality, np.uint8)
        table[ids] = 1
        share = len(ids) / cardinality
        return TableMatch(reader.dict_ids, table, negate, 1 - share if negate else share)

    def _matching_ids(
        self, call: Call, reader: Reader, dictionary: Dictionary, negate: bool
    ) -> tuple[NDArray[np.int64], bool]:
        if _is_plain(call) and call.function in ("in", "not_in"):
            return _ids_of(literal_values(call.args[1:]), reader, dictionary), negate != (call.function == "not_in")
        verdict = matches(call, ValueSource(reader.type, dictionary.arrow()))
        return np.flatnonzero(verdict), negate

    def _id_span(self, reader: Reader, low: int, high: int, cardinality: int, negate: bool) -> Node:
        """Dict ids [low, high), or the others."""
        if low >= high:
            return ALL if negate else NOTHING
        if high - low >= cardinality:
            return NOTHING if negate else ALL
        if negate and low == 0:
            low, high, negate = high, cardinality, False
        elif negate and high == cardinality:
            low, high, negate = 0, low, False
        if (runs := reader.runs) is not None:
            return self._spans([(int(runs[low]), int(runs[high]))], negate)
        if reader.is_sorted:
            return self._spans([_sorted_span(reader.dict_ids(), low, high)], negate)
        if not negate and (node := self._inverted(reader, np.arange(low, high))) is not None:
            return node
        share = (high - low) / cardinality
        dtype = np.uint8 if cardinality <= 1 << 8 else np.uint16 if cardinality <= 1 << 16 else np.uint32
        zones = reader.zones if self._num_docs > 16_384 else None
        bounds = dtype(low), dtype(high - 1)
        return RangeMatch(reader.dict_ids, *bounds, negate, 1 - share if negate else share, zones)

    def _run_spans(self, runs: NDArray[np.uint32], ids: NDArray[np.int64], negate: bool) -> Node:
        cuts = np.flatnonzero(np.diff(ids) != 1)
        firsts = runs[ids[np.concatenate([[0], cuts + 1])]].tolist()
        lasts = runs[ids[np.concatenate([cuts, [len(ids) - 1]])] + 1].tolist()
        return self._spans(list(zip(firsts, lasts, strict=True)), negate)

    def _spans(self, spans: list[tuple[int, int]], negate: bool) -> Node:
        """The docs of ascending spans, or the others."""
        if negate:
            edges = [0, *(edge for span in spans for edge in span), self._num_docs]
            spans = list(zip(edges[::2], edges[1::2], strict=True))
        spans = [(first, last) for first, last in spans if first < last]
        covered = sum(last - first for first, last in spans)
        if covered == 0:
            return NOTHING
        return ALL if covered == self._num_docs else SpanMatch(tuple(spans), covered / self._num_docs)

    def _inverted(self, reader: Reader, ids: NDArray[np.int64]) -> Node | None:
        """The docs by the inverted index, where listing them is cheaper than a scan."""
        index = reader.inverted
        if index is None or len(ids) > 1000:
            return None
        width = 1 if reader.dictionary is None or len(reader.dictionary) <= 256 else 2
        count = int(index.counts()[ids].sum())
        if count * INVERTED_NS_PER_DOC > self._num_docs * SCAN_NS_PER_DOC[width]:
            return None
        return DocList(index.union(ids.tolist()), count / max(1, self._num_docs))

    # Raw columns

    def _by_values(self, call: Call, reader: Reader, negate: bool) -> Node:
        if call.function not in _COMPARISONS | {"not_equals"} or reader.type is TypeName.BOOLEAN:
            return ValueMatch(_negated(call, negate))
        function = _POSITIVE.get(call.function, call.function)
        negate = negate != (call.function in _POSITIVE)
        low, high, flip = _value_range(function, literal_values(call.args[1:]), reader.type)
        if low is None:
            return ALL if negate != flip else NOTHING
        if reader.is_sorted and isinstance(low, np.integer):
            return self._spans([_sorted_span(reader.values(), int(low), int(high) + 1)], negate != flip)
        zones = reader.zones if self._num_docs > 16_384 else None
        return RangeMatch(reader.values, low, high, negate != flip, 0.3, zones)

    # Multi-value columns

    def _multi_value(self, call: Call, reader: Reader, negate: bool) -> Node:
        """Any value matches; `not_equals` and `not_in` mean that none is equal."""
        if call.function in _POSITIVE:
            negate = not negate
            call = Call(_POSITIVE[call.function], call.args, call.type)
        positive = Call(call.function, (_scalar(call.args[0]), *call.args[1:]), call.type)
        dictionary = reader.dictionary
        if dictionary is None:
            return AnyValueMatch(reader, lambda first, last: _flat(positive, reader, first, last), negate, 0.3)
        verdict = matches(positive, ValueSource(reader.type, dictionary.arrow())).astype(np.uint8)
        if not verdict.any():
            return ALL if negate else NOTHING
        share = float(verdict.mean())
        return AnyValueMatch(reader, lambda first, last: verdict[reader.dict_ids()[first:last]], negate, share)


def _sorted_span(ascending: NDArray[Any], low: int, stop: int) -> tuple[int, int]:
    """Docs whose value is in [low, stop)."""
    return bisect_left(ascending, low), bisect_left(ascending, stop)


def _ids_of(values: list[Any], reader: Reader, dictionary: Dictionary) -> NDArray[np.int64]:
    """Ascending dict ids of any of the values. A list longer than the dictionary is not searched value by value."""
    if len(values) > len(dictionary) and reader.type in _EXACT_KEYS:
        wanted = set(values)
        keys = dictionary.arrow().to_pylist() if dictionary.numeric is None else dictionary.numeric.tolist()
        return np.array([dict_id for dict_id, key in enumerate(keys) if key in wanted], np.int64)
    ranges = [range(*dictionary.range_of(value, value, True, True)) for value in values]
    return np.array(sorted({dict_id for ids in ranges for dict_id in ids}), np.int64)


def _flat(call: Call, reader: Reader, first: int, last: int) -> NDArray[np.uint8]:
    import pyarrow as pa

    values = (
        pa.array(reader.values()[first:last]) if reader.type in DTYPES else reader.strings().slice(first, last - first)
    )
    return matches(call, ValueSource(reader.type, values)).astype(np.uint8)


def _scalar(expr: Expr) -> Expr:
    return Column(expr.name, SqlType(expr.type.base)) if isinstance(expr, Column) else expr


def _is_plain(call: Call) -> bool:
    """Whether a column is compared with constants."""
    return isinstance(call.args[0], Column) and all(isinstance(arg, Literal) for arg in call.args[1:])


def _negated(expr: Expr, negate: bool) -> Expr:
    return Call("not", (expr,), expr.type) if negate else expr


def _id_range(call: Call, dictionary: Dictionary) -> tuple[int, int]:
    values = literal_values(call.args[1:])
    match call.function:
        case "equals" | "not_equals":
            return dictionary.range_of(values[0], values[0], True, True)
        case "less_than":
            return dictionary.range_of(None, values[0], True, False)
        case "less_than_or_equal":
            return dictionary.range_of(None, values[0], True, True)
        case "greater_than":
            return dictionary.range_of(values[0], None, False, True)
        case "greater_than_or_equal":
            return dictionary.range_of(values[0], None, True, True)
    return dictionary.range_of(values[0], values[1], True, True)


def _value_range(function: str, values: list[Any], type_: TypeName) -> tuple[Any, Any, bool]:
    """Inclusive bounds in the column's dtype, and whether their complement is meant; (None, None, False) if no value.

    `>` and `>=` are complements, so that NaN, the largest number, is among them."""
    dtype = DTYPES[type_].type
    low, high, flip = _bounds(function, values)
    if DTYPES[type_].kind == "f":
        with np.errstate(over="ignore"):
            lowest = dtype(-math.inf) if low is None else dtype(low)
            highest = dtype(math.inf) if high is None else dtype(high)
        if function in ("less_than", "greater_than_or_equal"):
            highest = np.nextafter(highest, dtype(-math.inf))
            if values[0] == -math.inf:
                return None, None, flip
        return lowest, highest, flip
    bounds = np.iinfo(dtype)
    whole_low = bounds.min if low is None else max(int(low), bounds.min)
    whole_high = bounds.max if high is None else min(int(high), bounds.max)
    if function in ("less_than", "greater_than_or_equal"):
        whole_high -= 1
    if whole_low > whole_high:
        return None, None, flip
    return dtype(whole_low), dtype(whole_high), flip


def _bounds(function: str, values: list[Any]) -> tuple[Any, Any, bool]:
    match function:
        case "equals":
            return values[0], values[0], False
        case "less_than" | "less_than_or_equal":
            return None, values[0], False
        case "greater_than" | "greater_than_or_equal":
            return None, values[0], True
    return values[0], values[1], False


def _combine(nodes: list[Node], *, is_and: bool) -> Node:
    neutral, absorbing = (All, Nothing) if is_and else (Nothing, All)
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, absorbing):
            return node
        if isinstance(node, And if is_and else Or):
            kept.extend(node.children)
        elif not isinstance(node, neutral):
            kept.append(node)
    if not kept:
        return ALL if is_and else NOTHING
    if len(kept) == 1:
        return kept[0]
    return And(tuple(kept)) if is_and else Or(tuple(kept))
