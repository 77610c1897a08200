"""What a builder keeps of columns that are written, to make star-trees of them when it has all."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from merlot.errors import InvalidInputError
from merlot.segment.build.coding import Coded
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.rows import BuildColumn
from merlot.segment.metadata import StarTreeMetadata
from merlot.segment.startree.build import build
from merlot.segment.startree.documents import SourceColumn
from merlot.segment.startree.written import write
from merlot.spec.star_tree import StarTreeSpec
from merlot.values.types import TypeName

_LOG: Final = logging.getLogger(__name__)


class TreeSources:
    """Columns of one segment's trees; one thread's. Holds their dict ids or values until the trees are written."""

    def __init__(self, specs: Sequence[StarTreeSpec], *, may_leave_out: bool) -> None:
        """may_leave_out: whether to go without a tree that cannot be made of the rows."""
        self._specs = specs
        self._may_leave_out = may_leave_out
        self._wanted = frozenset(name for spec in specs for name in spec.columns)
        self._columns: dict[str, SourceColumn] = {}

    def take(self, name: str, type_: TypeName, column: BuildColumn, coded: Coded | None) -> None:
        """Keep a column if a tree is made of it; its values are those of `column` where it has no dictionary."""
        if name in self._wanted:
            values = column.values if coded is None else None
            self._columns[name] = SourceColumn(type_, coded, values)

    def write(self, file: FileWriter, num_rows: int) -> list[StarTreeMetadata]:
        """Make the trees and append their buffers, in the order in which they are declared.

        Raises InvalidInputError if a tree would have too many documents, or a function takes not all values (a t-digest
        no NaN), and UnavailableError."""
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
            order, size = ",".join(spec.dimensions_split_order), (tree.documents.count, len(tree.nodes.values))
            text = "star-tree built path=%s dimensions=%s rows=%d documents=%d nodes=%d seconds=%.3f"
            _LOG.info(text, file.path, order, num_rows, *size, time.monotonic() - started)
        self._columns = {}
        return trees
