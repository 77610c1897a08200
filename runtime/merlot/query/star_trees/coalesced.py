"""Star-trees of several segments, coalesced into one tree that is kept in memory.

A tree answers in a tenth of a millisecond, nearly all of which is Python between kernels: a hundred segments take ten
milliseconds. When the same segments are queried again, the documents of all dimensions of their trees are aggregated
once more, over merged dictionaries, and a tree is grown over those: later queries walk only that tree. If the segments
hold the same combinations, as segments of successive days often do, it is as large as the tree of one segment. A tree
that would be too large is given up.

The cache holds weak references to its segments, is bounded by bytes, and evicts the least recently used entry. Any
thread may use it; of the threads that ask at the same time, only one grows the trees.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels.jit import read_only
from merlot.query.context import ExecutionContext
from merlot.query.read.columns import SegmentColumns
from merlot.query.star_trees.documents import CodedDimension
from merlot.segment.concat import Values, concat_coded, entries_of
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.dict_ids import id_dtype
from merlot.segment.index.dictionary import ValueDictionary, of_values
from merlot.segment.reader import Reader
from merlot.segment.startree.agreement import spec_of
from merlot.segment.startree.build import BuiltTree, grow
from merlot.segment.startree.documents import Documents, Function, TooManyDocumentsError
from merlot.segment.startree.tree import Docs, StarTree, Tree, TreeNodes
from merlot.spec.schema import TableSchema
from merlot.spec.star_tree import StoredFunction
from merlot.values.types import TypeName

SIGHTINGS: Final = 2
"""Number of queries of the same segments, the running query included, from which on their trees are coalesced."""
MOST_DOCUMENTS: Final = 1 << 20
"""Most documents of a coalesced tree."""
MOST_CACHED_BYTES: Final = 1 << 28
"""Most bytes of all coalesced trees together."""
MOST_ENTRIES: Final = 256
_PLAIN: Final = frozenset({pa.int64(), pa.float64()})

Key = tuple[int, ...]


class CoalescedTree(Tree):
    """Star-tree in memory over the documents of several segments. Its dict ids refer to its own dictionaries."""

    def __init__(
        self,
        built: BuiltTree,
        dictionaries: Sequence[ValueDictionary],
        types: Sequence[TypeName],
        *,
        is_automatic: bool,
    ) -> None:
        self.num_docs = built.documents.count
        self.dimensions = built.spec.dimensions_split_order
        self.is_automatic = is_automatic
        nodes = built.nodes
        values, children, aggregated = (
            read_only(array.astype(np.uint32)) for array in (nodes.values, nodes.children, nodes.aggregated)
        )
        self._nodes = TreeNodes(values, children, nodes.starts, nodes.ends, aggregated)
        self._functions = {function.stored: function for function in built.documents.functions}
        self._states = {
            function.stored: states
            for function, states in zip(built.documents.functions, built.documents.states, strict=True)
        }
        self._ids = [
            read_only(ids.astype(id_dtype(len(dictionary))))
            for ids, dictionary in zip(built.documents.ids, dictionaries, strict=True)
        ]
        self.columns = {
            name: _column(type_, dictionary, ids)
            for name, type_, dictionary, ids in zip(self.dimensions, types, dictionaries, self._ids, strict=True)
        }

        arrays = [values, children, nodes.starts, nodes.ends, aggregated, *self._ids]
        states = [state for columns in self._states.values() for state in columns]
        texts = [dictionary.arrow() for dictionary in dictionaries if dictionary.numeric is None]
        numbers = [dictionary.numeric for dictionary in dictionaries if dictionary.numeric is not None]
        self.num_bytes = sum(array.nbytes for array in (*arrays, *states, *texts, *numbers))

    @property
    def functions(self) -> frozenset[StoredFunction]:
        return frozenset(self._functions)

    @property
    def nodes(self) -> TreeNodes:
        return self._nodes

    def type_of(self, function: StoredFunction) -> TypeName | None:
        types = self._functions[function].call.types
        return types[0].base if types else None

    def state_types(self, function: StoredFunction) -> list[pa.DataType]:
        return [state.type for state in self._states[function]]

    def ids(self, dimension: int) -> NDArray[Any]:
        return self._ids[dimension]

    def states(self, function: StoredFunction, docs: Docs) -> list[pa.Array]:
        return [_taken(state, docs) for state in self._states[function]]


def _taken(state: pa.Array, docs: Docs) -> pa.Array:
    """Return the rows of a state column. Numbers without nulls go through numpy: for a few rows that takes 3 us,
    Arrow's `take` 20."""
    if state.type in _PLAIN and not state.null_count:
        return pa.array(state.to_numpy()[docs])
    return state.take(pa.array(docs))


def _column(type_: TypeName, dictionary: ValueDictionary, ids: NDArray[Any]) -> CodedDimension:
    return CodedDimension(type_, dictionary, lambda: ids)


class CoalescedDimensions:
    """Dimensions of a coalesced tree, with the bounds of its segments' columns."""

    def __init__(self, tree: CoalescedTree, parts: Sequence[SegmentColumns]) -> None:
        self._tree = tree
        self._parts = parts

    def reader(self, name: str) -> Reader:
        return self._tree.columns[name]

    def bounds(self, name: str) -> tuple[int, int] | None:
        every = [part.bounds(name) for part in self._parts]
        bounded = [bounds for bounds in every if bounds is not None]
        return None if len(bounded) < len(every) else (min(low for low, _ in bounded), max(high for _, high in bounded))


@dataclass(slots=True)
class Group:
    """Segments that were queried together, and their trees once those are coalesced."""

    segments: list[weakref.ref[ImmutableSegment]]
    schema: TableSchema
    sightings: int = 0
    trees: tuple[CoalescedTree, ...] | None = None
    is_claimed: bool = False
    """True if a thread coalesces the trees, did so or is about to: other queries use each segment's own trees
    meanwhile. False again if that fails."""
    nulls: dict[str, bool] = field(default_factory=dict)

    def is_of(self, segments: Sequence[ImmutableSegment], schema: TableSchema) -> bool:
        """Return whether the group is of these very segments: Python may have used an id again."""
        return schema is self.schema and all(
            reference() is segment for reference, segment in zip(self.segments, segments, strict=True)
        )

    def has_nulls(self, name: str, parts: Sequence[SegmentColumns]) -> bool:
        """Return whether a column has a null in any of the segments."""
        has_nulls = self.nulls.get(name)
        if has_nulls is None:
            has_nulls = self.nulls[name] = any(part.reader(name).nulls is not None for part in parts)
        return has_nulls

    @property
    def num_bytes(self) -> int:
        return sum(tree.num_bytes for tree in self.trees or ())


class TreeCache:
    """Groups of segments with their coalesced trees, by the ids of the segments."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Key, Group] = OrderedDict()
        self._lock = threading.Lock()

    def group(self, parts: Sequence[SegmentColumns], context: ExecutionContext) -> Group | None:
        """Return the group of these segments if their trees are coalesced. Coalesce them, here or by
        `context.coalesce_later`, when that is due."""
        segments = [part.segment for part in parts if isinstance(part.segment, ImmutableSegment)]
        assert len(segments) == len(parts)
        with self._lock:
            group = self._seen(segments, context.schema)
            is_due = not group.is_claimed and group.sightings >= SIGHTINGS
            group.is_claimed |= is_due
        if is_due and context.coalesce_later is None:
            self._coalesce(group, parts)
        elif is_due and context.coalesce_later is not None:
            context.coalesce_later(lambda: self._coalesce(group, parts))
        return group if group.trees else None

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._groups.clear()

    def _seen(self, segments: Sequence[ImmutableSegment], schema: TableSchema) -> Group:
        key = tuple(map(id, segments))
        group = self._groups.get(key)
        if group is None or not group.is_of(segments, schema):
            group = self._groups[key] = Group([weakref.ref(segment) for segment in segments], schema)
        self._groups.move_to_end(key)
        group.sightings += 1
        while len(self._groups) > MOST_ENTRIES:
            self._groups.popitem(last=False)
        return group

    def _coalesce(self, group: Group, parts: Sequence[SegmentColumns]) -> None:
        trees = None
        try:
            trees = coalesce(parts)
        finally:
            with self._lock:
                group.trees, group.is_claimed = trees, trees is not None
                self._evict()

    def _evict(self) -> None:
        while len(self._groups) > 1 and sum(each.num_bytes for each in self._groups.values()) > MOST_CACHED_BYTES:
            self._groups.popitem(last=False)


TREES: Final = TreeCache()
"""Cache of this process."""


def coalesce(parts: Sequence[SegmentColumns]) -> tuple[CoalescedTree, ...]:
    """Return the trees that all of these segments have, each coalesced, without those that would be too large."""
    every = [_trees_of(part) for part in parts]
    coalesced = []
    for key in every[0]:
        if all(key in trees for trees in every):
            tree = _coalesce([trees[key] for trees in every], parts)
            if tree is not None:
                coalesced.append(tree)
    return tuple(coalesced)


def _trees_of(part: SegmentColumns) -> dict[object, StarTree]:
    """Return the star-trees of a segment by the properties that must be equal for trees to be coalesced."""
    assert isinstance(part.segment, ImmutableSegment)
    return {
        (
            tree.dimensions,
            tree.is_automatic,
            frozenset((stored, tree.type_of(stored)) for stored in tree.functions),
        ): tree
        for tree in part.segment.star_trees
    }


def _coalesce(trees: Sequence[StarTree], parts: Sequence[SegmentColumns]) -> CoalescedTree | None:
    sizes = [int(tree.nodes.ends[0]) for tree in trees]
    if sum(sizes) > 2 * MOST_DOCUMENTS:
        return None
    dictionaries, types, ids = [], [], []
    for dimension, name in enumerate(trees[0].dimensions):
        readers = [part.reader(name) for part in parts]
        stored = [tree.ids(dimension)[:size] for tree, size in zip(trees, sizes, strict=True)]
        coded = concat_coded(readers[0].type, list(map(_entries, readers)), stored)
        dictionaries.append(of_values(readers[0].type, coded.values))
        types.append(readers[0].type)
        ids.append(coded.ids.astype(np.uint32))
    made_by = spec_of(trees[0])
    if made_by is None:
        return None
    spec = made_by.model_copy(update={"max_documents": MOST_DOCUMENTS})
    functions = [Function.of(stored, trees[0].type_of(stored)) for stored in spec.stored]
    if any(tree.state_types(function.stored) != function.state_types for function in functions for tree in trees):
        return None
    states = [_states(function.stored, trees, sizes) for function in functions]
    documents = Documents([len(dictionary) for dictionary in dictionaries], functions, MOST_DOCUMENTS)
    try:
        documents.add_documents(ids, states)
        return CoalescedTree(grow(spec, documents), dictionaries, types, is_automatic=trees[0].is_automatic)
    except TooManyDocumentsError:
        return None


def _entries(reader: Reader) -> Values:
    assert reader.dictionary is not None
    return entries_of(reader.dictionary)


def _states(stored: StoredFunction, trees: Sequence[StarTree], sizes: Sequence[int]) -> list[pa.Array]:
    """Return the states of the documents of all dimensions of every tree."""
    parts = [tree.states(stored, np.arange(size, dtype=np.uint32)) for tree, size in zip(trees, sizes, strict=True)]
    return [pa.concat_arrays(list(columns)) for columns in zip(*parts, strict=True)]
