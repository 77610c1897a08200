"""Write a star-tree to a file: its nodes as arrays, its documents as raw columns. FORMAT.md §5.14."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.segment.buffers import Array
from merlot.segment.build.column_writer import ColumnRequest, write_column
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.rows import StoredColumn
from merlot.segment.metadata import ColumnMetadata, StarTreeFunction, StarTreeMetadata
from merlot.segment.startree.build import BuiltTree
from merlot.segment.startree.tree import NODE_BUFFERS
from merlot.spec.indexing import Encoding
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

_RAW: Final = ColumnRequest(encoding=Encoding.RAW)
_TYPES: Final = {
    pa.int32(): TypeName.INT,
    pa.int64(): TypeName.LONG,
    pa.float64(): TypeName.DOUBLE,
    pa.string(): TypeName.BIG_DECIMAL,
    pa.binary(): TypeName.BYTES,
}


def column_name(tree: int, part: str) -> str:
    """Return the name of a column of documents, which no column of a table can have."""
    return f"star_tree.{tree}.{part}"


def write(tree: BuiltTree, number: int, file: FileWriter, *, is_automatic: bool = False) -> StarTreeMetadata:
    """Append the buffers of star-tree `number` of a file, and return the tree's metadata."""
    spec, documents, nodes = tree.spec, tree.documents, tree.nodes
    arrays = (nodes.values, nodes.children, nodes.starts, nodes.ends, nodes.aggregated)
    buffers = {name: file.add(array.astype("<u4"), None) for name, array in zip(NODE_BUFFERS, arrays, strict=True)}
    ids = tuple(
        _write_numbers(column_name(number, f"ids{position}"), TypeName.LONG, codes.astype(np.int64), file)
        for position, codes in enumerate(documents.ids)
    )
    functions = []
    for position, (function, states) in enumerate(zip(documents.functions, documents.states, strict=True)):
        name = column_name(number, f"function{position}")
        fields = function.function.fields(function.call)
        parts = [_write_state(f"{name}.{part.suffix}", state, file) for part, state in zip(fields, states, strict=True)]
        types, (stored, column) = function.call.types, function.stored
        type_ = types[0].base if types else None
        functions.append(StarTreeFunction(function=stored, column=column, type=type_, states=tuple(parts)))
    return StarTreeMetadata(
        dimensions=spec.dimensions_split_order,
        skipped=spec.skip_star_node_creation_for_dimensions,
        is_automatic=is_automatic,
        max_leaf_records=spec.max_leaf_records,
        num_docs=documents.count,
        num_nodes=len(nodes.values),
        ids=ids,
        functions=tuple(functions),
        buffers=buffers,
    )


def _write_numbers(name: str, type_: TypeName, values: Array, file: FileWriter) -> ColumnMetadata:
    return _write(name, type_, values, None, len(values), file)


def _write_state(name: str, state: pa.Array, file: FileWriter) -> ColumnMetadata:
    """Write one part of the states of all documents. No state is null, because every document stands for at least one
    row."""
    assert state.null_count == 0
    offsets, flat = None, state
    if pa.types.is_list(state.type):
        flat = state.flatten()
        lengths = np.diff(state.offsets.to_numpy())
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
    type_ = _TYPES[flat.type]
    if type_ is TypeName.BIG_DECIMAL:
        flat = pa.array([plain_text(Decimal(text)) for text in flat.to_pylist()], pa.string())
    is_number = type_ in (TypeName.INT, TypeName.LONG, TypeName.DOUBLE)
    return _write(name, type_, flat.to_numpy() if is_number else flat, offsets, len(state), file)


def _write(
    name: str, type_: TypeName, values: Array | pa.Array, offsets: Array | None, num_docs: int, file: FileWriter
) -> ColumnMetadata:
    field = FieldSpec(name="part", type=type_, multi_value=offsets is not None)
    column = StoredColumn(field=field, num_docs=num_docs, values=values, offsets=offsets, nulls=None, num_nulls=0)
    return write_column(column, _RAW, file).metadata.model_copy(update={"name": name})
