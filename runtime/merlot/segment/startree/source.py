"""Columns that a builder keeps after it has written them, to build star-trees when all columns are written."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from merlot.errors import InvalidInputError
from merlot.segment.build.coding import DictionaryEncoded
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.rows import BuildColumn
from merlot.segment.metadata import ColumnMetadata, StarTreeMetadata
from merlot.segment.startree import automatic
from merlot.segment.startree.build import BuiltTree, build
from merlot.segment.startree.documents import SourceColumn
from merlot.segment.startree.tree_writer import write
from merlot.spec.star_tree import StarTreeSpec

_LOG: Final = logging.getLogger(__name__)


class TreeSources:
    """Columns of one segment's star-trees; used by one thread. Holds their dict ids or values until the trees are
    written."""

    def __init__(self, specs: Sequence[StarTreeSpec], *, is_automatic: bool, may_leave_out: bool) -> None:
        """is_automatic: choose one more tree. may_leave_out: skip a declared tree that cannot be made of the rows."""
        self._specs = specs
        self._is_automatic = is_automatic
        self._may_leave_out = may_leave_out
        self._wanted = frozenset(name for spec in specs for name in spec.columns)
        self._columns: dict[str, SourceColumn] = {}
        self._metadata: list[ColumnMetadata] = []

    def take(self, metadata: ColumnMetadata, column: BuildColumn, coded: DictionaryEncoded | None) -> None:
        """Keep a column if a tree may be made of it. Without a dictionary its values are those of `column`."""
        may_be_chosen = self._is_automatic and automatic.takes_part(metadata)
        if metadata.name in self._wanted or may_be_chosen:
            values = column.values if coded is None else None
            self._columns[metadata.name] = SourceColumn(metadata.type, coded, values)
        if may_be_chosen:
            self._metadata.append(metadata)

    def write(self, file: FileWriter, num_rows: int) -> tuple[list[StarTreeMetadata], bool]:
        """Build the trees and append their buffers: declared trees in their order, then the automatic tree. Return
        them, and True if an automatic tree was wanted and there is none.

        Raises UnavailableError if the file cannot be written. Unless such trees may be left out, raises
        InvalidInputError if a tree would have too many documents, or if a function does not take all values (a t-digest
        takes no NaN)."""
        trees: list[StarTreeMetadata] = []
        for spec in self._specs:
            started = time.monotonic()
            try:
                tree = build(spec, self._columns, num_rows)
            except InvalidInputError as error:
                if not self._may_leave_out:
                    raise
                _LOG.warning("segment goes without a star-tree path=%s cause=%s", file.path, error)
                continue
            trees.append(write(tree, len(trees), file))
            _log_tree("built", tree, file, num_rows, started)
        chosen = self._chosen(len(trees), file, num_rows) if self._is_automatic else None
        self._columns = {}
        return [*trees, *([] if chosen is None else [chosen])], self._is_automatic and chosen is None

    def _chosen(self, number: int, file: FileWriter, num_rows: int) -> StarTreeMetadata | None:
        started = time.monotonic()
        wanted = automatic.widest(self._metadata, num_rows)
        tree = None if wanted is None else automatic.narrowed(wanted, self._columns, num_rows)
        if tree is None:
            _LOG.info("no star-tree is worth its documents path=%s rows=%d", file.path, num_rows)
            return None
        _log_tree("chosen", tree, file, num_rows, started)
        return write(tree, number, file, is_automatic=True)


def _log_tree(what: str, tree: BuiltTree, file: FileWriter, num_rows: int, started: float) -> None:
    order, size = ",".join(tree.spec.dimensions_split_order), (tree.documents.count, len(tree.nodes.values))
    text = "star-tree %s path=%s dimensions=%s rows=%d documents=%d nodes=%d seconds=%.3f"
    _LOG.info(text, what, file.path, order, num_rows, *size, time.monotonic() - started)
