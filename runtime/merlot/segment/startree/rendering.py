"""Show a star-tree to people: its nodes as an indented tree, its documents as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from merlot.kernels.star_tree import STAR
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.startree.documents import Function
from merlot.segment.startree.tree import StarTree
from merlot.spec.star_tree import SEPARATOR

ANY: Final = "*"
Path = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node of a star-tree and the path to it."""

    number: int
    path: Path
    """Values of the dimensions by which its ancestors are split; ANY below a star node."""
    num_children: int
    num_docs: int
    answers: tuple[Any, ...]
    """Results of the functions over all of its documents."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One tree of an open segment."""

    segment: ImmutableSegment
    tree: StarTree

    @property
    def headers(self) -> tuple[str, ...]:
        """Names of the functions."""
        return tuple(
            function.function.upper() + SEPARATOR + (function.column or ANY) for function in sorted(self.tree.functions)
        )

    def nodes(self) -> Iterator[DrawnNode]:
        """Yield every node, each before its children. Raises CorruptionError."""
        answers = self._answers()
        nodes = self.tree.nodes
        waiting: list[tuple[int, Path]] = [(0, ())]
        while waiting:
            number, path = waiting.pop()
            first, last = int(nodes.children[number]), int(nodes.children[number + 1])
            num_docs = int(nodes.ends[number] - nodes.starts[number])
            results = tuple(column[nodes.aggregated[number]] for column in answers)
            yield DrawnNode(number, path, last - first, num_docs, results)
            waiting += [(child, (*path, self._value(len(path), child))) for child in range(last - 1, first - 1, -1)]

    def documents(self) -> list[Path]:
        """Return all documents, ordered by number: values of the dimensions, ANY where a document lacks one, and
        results."""
        tree, nodes, answers = self.tree, self.tree.nodes, self._answers()
        rows: dict[int, Path] = {}
        every = sorted(self.nodes(), key=lambda node: (node.num_children > 0, -len(node.path)))
        for node in every:
            if not node.num_children:
                for doc in range(int(nodes.starts[node.number]), int(nodes.ends[node.number])):
                    rest = range(len(node.path), len(tree.dimensions))
                    cells = (self._cell(dimension, int(tree.ids(dimension)[doc])) for dimension in rest)
                    rows[doc] = (*node.path, *cells)
        for node in every:
            missing = (ANY,) * (len(tree.dimensions) - len(node.path))
            rows.setdefault(int(nodes.aggregated[node.number]), (*node.path, *missing))
        return [(*rows[doc], *(column[doc] for column in answers)) for doc in sorted(rows)]

    def lines(self, most: int) -> Iterator[str]:
        """Yield the lines of the tree as text, for its first `most` nodes."""
        for number, node in enumerate(self.nodes()):
            if number == most:
                yield f"… {self.tree.metadata.num_nodes - most:,} more nodes"
                return
            label = f"{self.tree.dimensions[len(node.path) - 1]} = {node.path[-1]}" if node.path else "all"
            results = ", ".join(f"{name} {value}" for name, value in zip(self.headers, node.answers, strict=True))
            docs = "" if node.num_children else f", {node.num_docs:,} documents"
            yield f"{'  ' * len(node.path)}{label} ({results}{docs})"

    def _value(self, dimension: int, node: int) -> Any:
        value = self.tree.nodes.values[node]
        return ANY if value == STAR else self._cell(dimension, int(value))

    def _cell(self, dimension: int, dict_id: int) -> Any:
        column = self.segment.column(self.tree.dimensions[dimension])
        assert column is not None
        assert column.dictionary is not None
        return column.dictionary.arrow()[dict_id].as_py()

    def _answers(self) -> Sequence[list[Any]]:
        """Return the results of each function, by document."""
        tree = self.tree
        every = np.arange(tree.num_docs, dtype=np.uint32)
        results = []
        for stored in sorted(tree.functions):
            function = Function.of(stored, tree.type_of(stored))
            vector = function.function.finish(function.call, tree.states(stored, every))
            results.append(vector.to_arrow(tree.num_docs).to_pylist())
        return results
