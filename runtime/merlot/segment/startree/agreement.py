"""Check that a star-tree agrees with its segment's rows: build it again and compare, array by array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from merlot.errors import CorruptionError
from merlot.segment.build.coding import DictionaryEncoded
from merlot.segment.column import ColumnReader
from merlot.segment.metadata import ColumnEncoding
from merlot.segment.startree.build import BuiltTree, build
from merlot.segment.startree.documents import SourceColumn, TooManyDocumentsError
from merlot.segment.startree.tree import StarTree
from merlot.spec.star_tree import EVERY_ROW, FUNCTIONS, SEPARATOR, StarTreeSpec, StoredFunction
from merlot.values.types import TypeName


def agrees(tree: StarTree, column_of: Callable[[str], ColumnReader | None], num_rows: int) -> bool:
    """Return True if nodes and documents are those of the rows. Functions that this version does not know are skipped;
    a tree without any other function is not checked.

    Takes as long as building the tree. Raises CorruptionError, and QueryArithmeticError if a function has no state for
    some value."""
    spec = spec_of(tree)
    if spec is None:
        return True
    columns: dict[str, SourceColumn] = {}
    for name in spec.columns:
        reader = column_of(name)
        if reader is None or reader.multi_value:
            return False
        columns[name] = source_of(reader)
    types = {function: tree.type_of(function) for function in spec.stored}
    if any(function.column and columns[function.column].type is not type_ for function, type_ in types.items()):
        return False
    try:
        rebuilt = build(spec, columns, num_rows)
    except TooManyDocumentsError:
        return False
    return rebuilt.documents.count == tree.num_docs and _nodes_agree(tree, rebuilt) and _documents_agree(tree, rebuilt)


def spec_of(tree: StarTree) -> StarTreeSpec | None:
    """Return the spec of a tree, with the functions that this version knows; None if it knows none of them.

    Raises CorruptionError if no table could ask for such a tree."""
    functions = sorted(function for function in tree.functions if _is_known(function, tree.type_of(function)))
    if not functions:
        return None
    try:
        spec = StarTreeSpec(
            dimensions_split_order=tree.dimensions,
            skip_star_node_creation_for_dimensions=tree.metadata.skipped,
            function_column_pairs=tuple(_pair(function) for function in functions),
            max_leaf_records=tree.metadata.max_leaf_records,
            max_documents=tree.num_docs,
        )
    except ValidationError as error:
        raise CorruptionError(f"no table has the star-tree of dimensions={','.join(tree.dimensions)}") from error
    if spec.stored != tuple(functions):
        raise CorruptionError(f"a star-tree cannot keep functions={functions} dimensions={','.join(tree.dimensions)}")
    return spec


def _is_known(stored: StoredFunction, type_: TypeName | None) -> bool:
    rule = FUNCTIONS.get(stored.function)
    return rule is not None and (type_ is None or type_ in rule.types)


def _pair(stored: StoredFunction) -> str:
    return f"{stored.function}{SEPARATOR}{stored.column or EVERY_ROW}"


def source_of(reader: ColumnReader) -> SourceColumn:
    """Return a stored column as a tree is built from it."""
    dictionary = reader.dictionary
    if dictionary is None:
        is_variable = reader.metadata.encoding is ColumnEncoding.RAW_VARIABLE
        return SourceColumn(reader.type, None, reader.strings() if is_variable else reader.values())
    distinct = dictionary.arrow() if dictionary.numeric is None else dictionary.numeric
    return SourceColumn(reader.type, DictionaryEncoded(reader.dict_ids(), distinct), None)


def _nodes_agree(tree: StarTree, rebuilt: BuiltTree) -> bool:
    stored, wanted = tree.nodes, rebuilt.nodes
    return (
        np.array_equal(stored.values, wanted.values)
        and np.array_equal(stored.children, wanted.children)
        and np.array_equal(stored.starts, wanted.starts)
        and np.array_equal(stored.ends, wanted.ends)
        and np.array_equal(stored.aggregated, wanted.aggregated)
    )


def _documents_agree(tree: StarTree, rebuilt: BuiltTree) -> bool:
    every = np.arange(tree.num_docs, dtype=np.uint32)
    if not all(np.array_equal(tree.ids(dimension), ids) for dimension, ids in enumerate(rebuilt.documents.ids)):
        return False
    pairs = zip(rebuilt.documents.functions, rebuilt.documents.states, strict=True)
    return all(_are_equal(tree.states(function.stored, every), states) for function, states in pairs)


def _are_equal(stored: Sequence[pa.Array], rebuilt: Sequence[pa.Array]) -> bool:
    """Compare floats by their bits, NaN included, also in lists, and decimals by value: the file has one canonical text
    for each."""
    return [_bits(state) for state in stored] == [_bits(state) for state in rebuilt]


def _bits(state: pa.Array) -> object:
    if pa.types.is_floating(state.type):
        return state.to_numpy().tobytes()
    if pa.types.is_string(state.type):
        return [Decimal(text) for text in state.to_pylist()]
    if pa.types.is_list(state.type):
        return pc.list_value_length(state).to_pylist(), _bits(state.flatten())
    return state.to_pylist()
