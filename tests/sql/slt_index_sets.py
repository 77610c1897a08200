"""No index, each by itself, all of them, and star-trees, in every form that sealed rows have: `make fuzz`.

Consuming segments have no indexes: the layouts `consuming` and `half-sealed` are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.budget import count
from tests.sql.slt_answers import Answer
from tests.sql.slt_data import Dataset
from tests.sql.slt_layouts import InProcess
from tests.sql.slt_segments import build_paths, indexed_beside, star_trees_of, uneven_edges
from tests.support.indexes import every_index

from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.nulls import words_of
from merlot.segment.reader import Segment, SomeDocs
from merlot.segment.segment_view import SegmentView
from merlot.spec.indexing import INDEX_KINDS, IndexingSpec

IS_WANTED = count("MERLOT_INDEX_SETS", quick=0, every=0, fuzz=1) > 0
SETS = ("none", *INDEX_KINDS, "all", "trees")
Cut = Callable[[Dataset, Path, Sequence[IndexingSpec]], Iterator[ImmutableSegment]]


class Repeated(InProcess):
    """Answers only what it was asked before: small segments are joined by then, and star-trees grown over several."""

    def query(self, sql: str) -> Answer:
        """The third answer."""
        for _ in range(2):
            super().query(sql)
        return super().query(sql)


def indexings_of(dataset: Dataset, name: str) -> tuple[IndexingSpec, ...]:
    """One for columns with dictionaries and one for raw ones; trees know neither."""
    if name == "trees":
        return (star_trees_of(dataset),)
    raws = ((), dataset.schema.names)
    if name == "all":
        return tuple(every_index(dataset.schema, raw) for raw in raws)
    kept = {"no_dictionary", name}
    every = tuple(every_index(dataset.schema, raw).model_dump(by_alias=False) for raw in raws)
    return tuple(IndexingSpec.model_validate({key: one[key] for key in one if key in kept}) for one in every)


def _sealed(dataset: Dataset, folder: Path, indexings: Sequence[IndexingSpec]) -> Iterator[ImmutableSegment]:
    """A segment for each."""
    rows, count = dataset.rows.num_rows, len(indexings)
    for number, indexing in enumerate(indexings):
        edges = [rows * number // count, rows * (number + 1) // count]
        (path,) = build_paths(dataset, folder, edges, varied=False, indexing=indexing, first=number)
        yield ImmutableSegment.open(path)


def _small(dataset: Dataset, folder: Path, indexings: Sequence[IndexingSpec]) -> Iterator[ImmutableSegment]:
    """Twelve uneven ones, in turn."""
    edges = uneven_edges(dataset.rows.num_rows)
    for number in range(len(edges) - 1):
        indexing = indexings[number % len(indexings)]
        cut = edges[number : number + 2]
        (path,) = build_paths(dataset, folder, cut, varied=False, indexing=indexing, first=number)
        yield ImmutableSegment.open(path)


def _later(dataset: Dataset, folder: Path, indexings: Sequence[IndexingSpec]) -> Iterator[ImmutableSegment]:
    """A segment for each, which was built without indexes and has them in a file beside it."""
    rows, count = dataset.rows.num_rows, len(indexings)
    for number, indexing in enumerate(indexings):
        edges = [rows * number // count, rows * (number + 1) // count]
        stored = IndexingSpec(no_dictionary=indexing.no_dictionary)
        yield indexed_beside(dataset, folder, edges, stored, indexing, number)


def _upserted(dataset: Dataset, folder: Path, indexings: Sequence[IndexingSpec]) -> Iterator[ImmutableSegment]:
    """A segment for each, in which another row stands before every row and does not count."""
    rows, count = dataset.rows.num_rows, len(indexings)
    for number, indexing in enumerate(indexings):
        own = np.arange(rows * number // count, rows * (number + 1) // count)
        docs = np.column_stack([(own * 7 + 1) % max(rows, 1), own]).ravel()
        stored = Dataset(
            name=dataset.name,
            schema=dataset.schema,
            rows=dataset.rows.take(pa.array(docs)),
            time_column=dataset.time_column,
        )
        (path,) = build_paths(stored, folder, [0, len(docs)], varied=False, indexing=indexing, first=number)
        yield ImmutableSegment.open(path)


def _every_second(segment: ImmutableSegment) -> Segment:
    return SegmentView(segment, SomeDocs(words_of(np.arange(segment.num_docs) % 2 == 1)))


def _whole(segment: ImmutableSegment) -> Segment:
    return segment


FORMS: dict[str, tuple[Cut, type[InProcess], Callable[[ImmutableSegment], Segment]]] = {
    "sealed": (_sealed, InProcess, _whole),
    "joined": (_small, Repeated, _whole),
    "later": (_later, InProcess, _whole),
    "upserted": (_upserted, InProcess, _every_second),
}


@contextmanager
def _layout(name: str, form: str, datasets: Sequence[Dataset], folder: Path) -> Iterator[InProcess]:
    cut, kind, shown = FORMS[form]
    with ExitStack() as stack:
        segments: dict[str, list[Segment]] = {}
        for dataset in datasets:
            opened = cut(dataset, folder, indexings_of(dataset, name))
            segments[dataset.name] = [shown(stack.enter_context(segment)) for segment in opened]
        layout = kind({dataset.name: dataset.schema for dataset in datasets}, segments, parts=1)
        stack.callback(layout.close)
        yield layout


INDEXED = {f"{name}-{form}": partial(_layout, name, form) for name in SETS for form in FORMS}
"""Layouts by name."""
