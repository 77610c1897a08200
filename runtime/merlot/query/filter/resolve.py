"""Resolution of a filter against one segment: choose the access path of each predicate. Pure; reads dictionaries and
indexes, no rows.

ALL and NOTHING are exact, so that a segment may be skipped or taken whole, and NOT of them is sound.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.functions.evaluate import matches
from merlot.functions.registry import of
from merlot.functions.source import ValueSource
from merlot.query.filter import planning
from merlot.query.filter.predicates import (
    SPARSE_SHARE,
    VALID_DOCS,
    AnyValueMatch,
    BitMatch,
    DocList,
    EqualMatch,
    LateMatch,
    Predicate,
    RangeMatch,
    SignatureMatch,
    SpanMatch,
    TableMatch,
    ValueMatch,
)
from merlot.query.filter.prefixes import ids_to_look_at, takes_all
from merlot.query.plan.expressions import columns_of, literal_values, walk
from merlot.query.plan.nodes import UpsertRows
from merlot.query.read.columns import Columns
from merlot.segment.index.dictionary import OrderedDictionary, ValueDictionary
from merlot.segment.index.kind import ColumnIndexes, IndexedPredicate, Offer
from merlot.segment.index.registry import SEARCHES
from merlot.segment.index.zones import ZoneMaps
from merlot.segment.reader import BlockSignatureReader, Reader, SomeDocs, ValidDocs
from merlot.spec.indexing import IndexingSpec
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


@dataclass(frozen=True, slots=True)
class Live:
    """Valid docs that pass a filter. Only this type can be run, so that docs which are not valid are never seen."""

    node: Node


ALL, NOTHING = All(), Nothing()
_COMPARISONS = frozenset(
    {"equals", "not_equals", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal", "between"}
)
_POSITIVE = {"not_equals": "equals", "not_in": "in"}
_EXACT_KEYS = frozenset({TypeName.INT, TypeName.LONG, TypeName.STRING, TypeName.JSON})
"""Types whose values are equal in Python exactly if they are equal in a dictionary."""
SCAN_NS_PER_DOC = {1: 0.05, 2: 0.07, 4: 0.16, 8: 0.3}
"""Cost of scanning a doc, by bytes of a value."""
REFINE_NS_PER_DOC = 2.5
"""Cost of checking a single doc that other predicates left."""
WORDS_NS_PER_DOC = 0.01
"""Cost per doc of the segment of clearing, setting and combining the words of a list."""
SCAN_START_NS = 15_000.0
"""Fixed cost of a scan: its words are allocated, and listed again."""


class Resolver:
    """Resolver of filters into nodes for one segment."""

    def __init__(self, columns: Columns, *, null_handling: bool, indexing: IndexingSpec | None = None) -> None:
        """`indexing` names the indexes that may be used, of those that segments have; None for all."""
        self._columns = columns
        self._indexing = indexing
        self._num_docs = columns.num_docs
        self._null_handling = null_handling
        self._left = columns.num_docs
        """Upper bound of the docs that are left by the operands resolved so far, of the conjunction being resolved."""
        self._is_beside = False
        """True if the predicate being resolved is one of several operands of a conjunction."""

    def live(self, expr: Expr | None, rows: UpsertRows = UpsertRows.NEWEST) -> Live:
        """Return the docs that pass a filter, of the rows of the table that a query asks for."""
        node, words = self.resolve(expr), _words(self._columns.valid_docs, rows)
        if words is not None:
            share = int(np.bitwise_count(words).sum()) / max(1, self._num_docs)
            node = _combine([node, BitMatch(words, negate=False, share=share, access=VALID_DOCS)], is_and=True)
        return Live(node)

    def resolve(self, expr: Expr | None, *, negate: bool = False) -> Node:
        """Return the node of a predicate, or of its complement, over all docs."""
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
        """Return the combined node of operands. Operands after one that decides the result are not resolved."""
        nodes: list[Node] = []
        left, is_beside = self._left, self._is_beside
        self._is_beside = is_and and len(args) > 1
        if not is_and:
            # Each operand of an OR has to check all docs.
            self._left = self._num_docs
        for arg in planning.in_order(args) if is_and else args:
            node = self.resolve(arg, negate=negate)
            nodes.append(node)
            if isinstance(node, Nothing if is_and else All):
                break
            if is_and:
                self._left = min(self._left, planning.docs_left(node, self._num_docs))
        self._left, self._is_beside = left, is_beside
        return _combine(nodes, is_and=is_and)

    def _nulls(self, column: Column, *, wanted: bool) -> Node:
        words = self._columns.reader(column.name).nulls
        if words is None:
            return NOTHING if wanted else ALL
        return BitMatch(words, negate=not wanted, share=0.1 if wanted else 0.9)

    def _predicate(self, call: Call, negate: bool) -> Node:
        # Computed once, since every segment takes this path. The constants, which may be many, name no column.
        plain = _plain_column(call)
        is_plain = plain is not None
        names = columns_of(call) if plain is None else {plain}
        if len(names) != 1:
            return ValueMatch(_negated(call, negate))
        (name,) = names
        reader = self._columns.reader(name)
        if not is_plain and self._needs_rows(call, reader):
            return ValueMatch(_negated(call, negate))
        searched = None
        if is_plain and call.function in SEARCHES and reader.indexes is not None:
            searched = self._search(call, name, reader, negate)
        if searched is not None:
            node: Node = searched
        elif reader.multi_value:
            node = self._multi_value(call, name, reader, negate)
        elif reader.dictionary is not None:
            if (late := self._late(call, reader, negate)) is not None:
                return late
            try:
                node = self._by_dictionary(call, name, reader, negate, is_plain=is_plain)
            except QueryArithmeticError:
                # The value that raised may belong to no row that other predicates leave.
                return ValueMatch(_negated(call, negate))
        elif is_plain and reader.type in DTYPES:
            node = self._by_values(call, name, reader, negate)
        else:
            return ValueMatch(_negated(call, negate))
        if self._null_handling and reader.nulls is not None:
            return _combine([node, BitMatch(reader.nulls, negate=True, share=0.9)], is_and=True)
        return node

    def _needs_rows(self, call: Call, reader: Reader) -> bool:
        """Return whether an expression has to be evaluated row by row, because of lists or nulls inside it."""
        if reader.multi_value:
            return True
        is_null_aware = any(isinstance(node, Call) and of(node).sees_nulls for node in walk(call))
        return is_null_aware and (self._null_handling or reader.nulls is not None)

    def _late(self, call: Call, reader: Reader, negate: bool) -> LateMatch | None:
        """Return a predicate that waits for the docs that other operands leave; None if deciding it now costs less."""
        dictionary = reader.dictionary
        if not self._is_beside or dictionary is None or reader.is_sorted or not planning.looks_into_values(call):
            return None
        most_docs = planning.docs_worth(call, len(dictionary))
        is_range = ids_to_look_at(call, reader.type, dictionary) is not None
        if most_docs <= 0 or is_range or (self._null_handling and reader.nulls is not None):
            return None

        def by_values() -> TableMatch | None:
            try:
                verdict = matches(asked, ValueSource(reader.type, dictionary.arrow())).astype(np.uint8)
            except QueryArithmeticError:
                return None
            return TableMatch(reader.dict_ids, verdict, False, float(verdict.mean()))

        asked = _negated(call, negate)
        return LateMatch(ValueMatch(asked), by_values, most_docs)

    def _num_values(self, call: Call, reader: Reader) -> int:
        """Return the number of values that have to be read to decide a predicate."""
        if reader.dictionary is None:
            return self._num_docs
        ids = ids_to_look_at(call, reader.type, reader.dictionary)
        return len(reader.dictionary) if ids is None else len(ids)

    # Dictionary columns

    def _by_dictionary(self, call: Call, name: str, reader: Reader, negate: bool, *, is_plain: bool) -> Node:
        dictionary = reader.dictionary
        assert dictionary is not None
        if is_plain and call.function in _COMPARISONS and isinstance(dictionary, OrderedDictionary):
            if call.function == "not_equals":
                negate = not negate
            return self._id_span(name, reader, range(*_id_range(call, dictionary)), negate)
        cardinality = len(dictionary)
        ids, negate = self._matching_ids(call, reader, dictionary, negate, is_plain=is_plain)
        if len(ids) == 0 or int(ids[-1]) - int(ids[0]) + 1 == len(ids):
            low = int(ids[0]) if len(ids) else 0
            return self._id_span(name, reader, range(low, low + len(ids)), negate)
        if (runs := reader.runs) is not None:
            return self._run_spans(runs, ids, negate)
        if not negate and (indexes := reader.indexes) is not None:
            scan_ns = partial(self._scan_ns, None, _id_bytes(cardinality))
            asked = IndexedPredicate(name, self._num_docs, scan_ns, reader.dict_ids, ids=ids)
            if (node := self._by_index(indexes, asked)) is not None:
                return node
        table = np.zeros(cardinality, np.uint8)
        table[ids] = 1
        share = len(ids) / cardinality
        return TableMatch(reader.dict_ids, table, negate, 1 - share if negate else share)

    def _matching_ids(
        self, call: Call, reader: Reader, dictionary: ValueDictionary, negate: bool, *, is_plain: bool
    ) -> tuple[NDArray[np.int64], bool]:
        if is_plain and call.function in ("in", "not_in") and isinstance(dictionary, OrderedDictionary):
            return _ids_of(literal_values(call.args[1:]), reader, dictionary), negate != (call.function == "not_in")
        if not is_plain:
            # An expression of a value may be NULL: then neither the predicate nor its complement holds.
            return np.flatnonzero(matches(_negated(call, negate), ValueSource(reader.type, dictionary.arrow()))), False
        within = ids_to_look_at(call, reader.type, dictionary)
        if within is None:
            return np.flatnonzero(matches(call, ValueSource(reader.type, dictionary.arrow()))), negate
        if takes_all(call):
            return np.arange(within.start, within.stop), negate
        values = dictionary.arrow().slice(within.start, len(within))
        return np.flatnonzero(matches(call, ValueSource(reader.type, values))) + within.start, negate

    def _id_span(self, name: str, reader: Reader, ids: range, negate: bool) -> Node:
        """Return the docs with these dict ids, or the other docs."""
        assert reader.dictionary is not None
        low, high, cardinality = ids.start, ids.stop, len(reader.dictionary)
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
        if not negate and (indexes := reader.indexes) is not None:
            scan = partial(self._range_of_ids, reader, low, high, negate)
            scan_ns = partial(self._scan_ns, scan, _id_bytes(cardinality))
            asked = IndexedPredicate(name, self._num_docs, scan_ns, reader.dict_ids, ids=range(low, high))
            if (node := self._by_index(indexes, asked)) is not None:
                return node
        scan_all = self._range_of_ids(reader, low, high, negate)
        return scan_all if negate or high - low > 1 else self._one_of_many(reader, scan_all)

    def _one_of_many(self, reader: Reader, scan: RangeMatch) -> Predicate:
        """Return a scan for one value, or the docs of the value if block signatures of an earlier scan give them."""
        if not isinstance(reader, BlockSignatureReader):
            return scan
        docs = reader.docs_of(int(scan.low))
        if docs is None:
            return EqualMatch(scan.values, scan.low, scan.high, False, scan.share, scan.zones, reader)
        return SignatureMatch(docs, len(docs) / max(1, self._num_docs), "print")

    def _range_of_ids(self, reader: Reader, low: int, high: int, negate: bool) -> RangeMatch:
        assert reader.dictionary is not None
        cardinality = len(reader.dictionary)
        share = (high - low) / cardinality
        dtype = _ID_DTYPES[_id_bytes(cardinality)]
        zones = reader.zones if self._num_docs > 16_384 else None
        bounds = dtype(low), dtype(high - 1)
        return RangeMatch(reader.dict_ids, *bounds, negate, 1 - share if negate else share, zones)

    def _run_spans(self, runs: NDArray[np.uint32], ids: NDArray[np.int64], negate: bool) -> Node:
        cuts = np.flatnonzero(np.diff(ids) != 1)
        firsts = runs[ids[np.concatenate([[0], cuts + 1])]].tolist()
        lasts = runs[ids[np.concatenate([cuts, [len(ids) - 1]])] + 1].tolist()
        return self._spans(list(zip(firsts, lasts, strict=True)), negate)

    def _spans(self, spans: list[tuple[int, int]], negate: bool) -> Node:
        """Return the docs of ascending spans, or the other docs."""
        if negate:
            edges = [0, *(edge for span in spans for edge in span), self._num_docs]
            spans = list(zip(edges[::2], edges[1::2], strict=True))
        spans = [(first, last) for first, last in spans if first < last]
        covered = sum(last - first for first, last in spans)
        if covered == 0:
            return NOTHING
        return ALL if covered == self._num_docs else SpanMatch(tuple(spans), covered / self._num_docs)

    def _by_index(self, indexes: ColumnIndexes, asked: IndexedPredicate, *, negate: bool = False) -> Node | None:
        """Return the docs by the index with the least cost; None if a scan costs less."""
        best: Offer | None = None
        indexing = self._indexing
        for offer in indexes.offers(asked):
            may_use = indexing is None or asked.column in indexing.columns_of(offer.name)
            if may_use and (best is None or offer.cost_ns < best.cost_ns):
                best = offer
        if best is None or self._is_for_refining(best, asked):
            return None
        # Estimating the cost of a scan takes longer than the cheapest index lookups.
        if best.cost_ns > SCAN_START_NS and best.cost_ns > asked.scan_ns():
            return None
        return self._by_offer(best, asked.call, negate)

    def _is_for_refining(self, offer: Offer, asked: IndexedPredicate) -> bool:
        """Return whether checking the docs that are left costs less than listing the matching docs and setting their
        words."""
        left = self._left
        is_sparse = left < SPARSE_SHARE * self._num_docs and asked.call is None and not asked.is_multi_value
        return is_sparse and left * REFINE_NS_PER_DOC < offer.cost_ns + self._num_docs * WORDS_NS_PER_DOC

    def _by_offer(self, offer: Offer, call: Call | None, negate: bool) -> Node:
        """Return the docs that an index finds, or the other docs. Docs that are only candidates are checked by their
        values."""
        docs, share = offer.docs(), offer.num_docs / max(1, self._num_docs)
        if call is None or offer.is_exact:
            is_other = negate != offer.negate
            return DocList(docs, 1.0 - share if is_other else share, offer.name, is_other)
        listed = DocList(docs, share, offer.name)
        if negate == offer.negate:
            return And((listed, ValueMatch(_negated(call, negate))))
        return Or((DocList(docs, 1.0 - share, offer.name, True), And((listed, ValueMatch(_negated(call, negate))))))

    def _search(self, call: Call, name: str, reader: Reader, negate: bool) -> Node | None:
        """Return the docs by an index over the contents of values; None if evaluating the distinct values costs
        less."""
        assert reader.indexes is not None
        num_values = self._num_values(call, reader)
        scan_ns = min(SCAN_START_NS + planning.indexed_values_ns(call, num_values), planning.rows_ns(call, self._left))
        asked = IndexedPredicate(name, self._num_docs, lambda: scan_ns, reader.dict_ids, call=call)
        return self._by_index(reader.indexes, asked, negate=negate)

    def _scan_ns(self, scan: Callable[[], Predicate] | None, value_bytes: int) -> float:
        """Return the cost of a scan over the blocks that it does not skip. `scan` is None for a scan of all docs."""
        blocks = None if scan is None else scan().blocks()
        num_docs = self._num_docs if blocks is None else int(np.count_nonzero(blocks)) * 16_384
        return SCAN_START_NS + num_docs * SCAN_NS_PER_DOC[value_bytes]

    def _by_values(self, call: Call, name: str, reader: Reader, negate: bool) -> Node:
        if call.function not in _COMPARISONS or reader.type is TypeName.BOOLEAN:
            return ValueMatch(_negated(call, negate))
        function = _POSITIVE.get(call.function, call.function)
        negate = negate != (call.function in _POSITIVE)
        low, high, flip = _value_range(function, literal_values(call.args[1:]), reader.type)
        if low is None:
            return ALL if negate != flip else NOTHING
        if reader.is_sorted and isinstance(low, np.integer):
            return self._spans([_sorted_span(reader.values(), int(low), int(high) + 1)], negate != flip)
        zones = reader.zones
        if zones is not None and (constant := _folded(zones, low, high)) is not None:
            return constant if negate == flip else NOTHING if constant is ALL else ALL
        scan = RangeMatch(reader.values, low, high, negate != flip, 0.3, zones if self._num_docs > 16_384 else None)
        if negate != flip or (indexes := reader.indexes) is None:
            is_one = negate == flip and low == high and isinstance(low, np.integer)
            return self._one_of_many(reader, scan) if is_one else scan
        scan_ns = partial(self._scan_ns, lambda: scan, low.itemsize)
        asked = IndexedPredicate(name, self._num_docs, scan_ns, reader.values, bounds=(low, high))
        return self._by_index(indexes, asked) or scan

    # Multi-value columns

    def _multi_value(self, call: Call, name: str, reader: Reader, negate: bool) -> Node:
        """Match docs of which any value matches; `not_equals` and `not_in` mean that no value is equal."""
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
        if not negate and (indexes := reader.indexes) is not None:
            scan_ns = partial(self._scan_ns, None, 8)
            asked = IndexedPredicate(
                name, self._num_docs, scan_ns, reader.dict_ids, ids=np.flatnonzero(verdict), is_multi_value=True
            )
            if (node := self._by_index(indexes, asked)) is not None:
                return node
        share = float(verdict.mean())
        return AnyValueMatch(reader, lambda first, last: verdict[reader.dict_ids()[first:last]], negate, share)


def _folded(zones: ZoneMaps, low: Any, high: Any) -> Node | None:
    """Return ALL or NOTHING if the least and the greatest value show that all or no values are within the bounds; else
    None."""
    least, greatest = zones.least, zones.greatest
    if low <= least and greatest <= high:
        return ALL
    # If the greatest value is NaN, it says nothing of the numbers below it.
    return NOTHING if least > high or greatest < low else None


def _words(valid: ValidDocs, rows: UpsertRows) -> NDArray[np.uint64] | None:
    """Return a bit for each doc that a query asks for; None for all docs."""
    if not isinstance(valid, SomeDocs) or rows is UpsertRows.EVERY:
        return None
    return valid.words if rows is UpsertRows.NEWEST or valid.with_tombstones is None else valid.with_tombstones


def _id_bytes(cardinality: int) -> int:
    return 1 if cardinality <= 1 << 8 else 2 if cardinality <= 1 << 16 else 4


_ID_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def _sorted_span(ascending: NDArray[Any], low: int, stop: int) -> tuple[int, int]:
    """Return the docs whose value is in [low, stop)."""
    return bisect_left(ascending, low), bisect_left(ascending, stop)


def _ids_of(values: list[Any], reader: Reader, dictionary: OrderedDictionary) -> NDArray[np.int64]:
    """Return the dict ids of the values, ascending. If there are more values than entries, the dictionary is read once
    instead of searched for each value."""
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


def _plain_column(call: Call) -> str | None:
    """Return the column that is compared with constants; None if the call is no such comparison."""
    column, *others = call.args
    if not isinstance(column, Column):
        return None
    for arg in others:  # a generator would take longer than all else here
        if not isinstance(arg, Literal):
            return None
    return column.name


def _negated(expr: Expr, negate: bool) -> Expr:
    return Call("not", (expr,), expr.type) if negate else expr


def _id_range(call: Call, dictionary: OrderedDictionary) -> tuple[int, int]:
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
    """Return inclusive bounds in the column's dtype, and whether their complement is meant; the bounds are None if no
    value matches.

    `>` and `>=` are complements, so that they include NaN, the largest number."""
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
    operands: list[Node] = []
    for node in nodes:
        if isinstance(node, absorbing):
            return node
        if isinstance(node, And if is_and else Or):
            operands.extend(node.children)
        elif not isinstance(node, neutral):
            operands.append(node)
    if not operands:
        return ALL if is_and else NOTHING
    if len(operands) == 1:
        return operands[0]
    return And(tuple(operands)) if is_and else Or(tuple(operands))
