"""Describe a segment file for people: sizes by column and index, encodings, statistics, damage."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from merlot.errors import CorruptionError
from merlot.segment.buffers import MappedFile
from merlot.segment.contents import check_contents
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.registry import INDEXES
from merlot.segment.layout import FACTS_BYTES, HEADER_BYTES, TRAILER_BYTES
from merlot.segment.metadata import ColumnMetadata, JsonValue
from merlot.segment.startree.rendering import Drawing
from merlot.segment.startree.tree import StarTree

INDEX_OF_BUFFER: Final = {
    "dict": "dictionary",
    "ids": "forward",
    "raw": "forward",
    "mv": "forward",
    "nulls": "nulls",
    "zones": "zones",
    **{name: name for name in INDEXES},
}
"""Index that a buffer belongs to, by the first part of the buffer's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnReport:
    """Report about one column; `bytes_by_index` are bytes on disk without padding."""

    name: str
    type: str
    role: str
    multi_value: bool
    encoding: str
    compression: str
    bits: int | None
    cardinality: int | None
    min: JsonValue | None
    max: JsonValue | None
    num_nulls: int
    is_sorted: bool
    total_values: int
    size_bytes: int
    bytes_by_index: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class StarTreeReport:
    """Report about one star-tree."""

    dimensions: tuple[str, ...]
    functions: tuple[str, ...]
    is_automatic: bool
    """True if the builder chose the dimensions and functions from the columns."""
    max_leaf_records: int
    num_docs: int
    num_nodes: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentReport:
    """Report about one file."""

    path: str
    name: str
    table: str
    crc: int
    format_version: int
    num_docs: int
    size_bytes: int
    footer_bytes: int
    bytes_by_index: dict[str, int]
    """Sums over columns and star-trees; `padding`, `footer` and `frame` (header, facts, trailer) are the rest."""
    time_column: str | None
    start_time: JsonValue | None
    end_time: JsonValue | None
    start_time_ms: int | None
    end_time_ms: int | None
    sort_order: tuple[str, ...]
    partitions: dict[str, dict[str, Any]]
    creation: dict[str, Any]
    columns: tuple[ColumnReport, ...]
    star_trees: tuple[StarTreeReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)


def describe(path: Path) -> SegmentReport:
    """Return the report about a segment file, read from its footer. Raises CorruptionError, NotFoundError or
    UnavailableError."""
    with ImmutableSegment.open(path) as segment:
        metadata = segment.metadata
        file = segment.file
        every = (*metadata.columns.values(), *metadata.derived)
        columns = tuple(_describe_column(column, file) for column in every)
        star_trees = tuple(_describe_tree(Drawing(segment, tree), file) for tree in segment.star_trees)
        return SegmentReport(
            path=str(path),
            name=metadata.name,
            table=metadata.table,
            crc=metadata.crc,
            format_version=metadata.format_version,
            num_docs=metadata.num_docs,
            size_bytes=segment.size_bytes,
            footer_bytes=file.layout.footer_length,
            bytes_by_index=_total(columns, star_trees, file),
            time_column=metadata.time_column,
            start_time=metadata.start_time,
            end_time=metadata.end_time,
            start_time_ms=metadata.start_time_ms,
            end_time_ms=metadata.end_time_ms,
            sort_order=metadata.sort_order,
            partitions={name: info.model_dump(mode="json") for name, info in metadata.partitions.items()},
            creation=metadata.creation.model_dump(mode="json"),
            columns=columns,
            star_trees=star_trees,
        )


def draw_star_trees(path: Path, most_nodes: int) -> Iterator[str]:
    """Yield the star-trees of a segment file as text, each with `most_nodes` nodes at most. Raises as `describe`
    does."""
    with ImmutableSegment.open(path) as segment:
        if not segment.star_trees:
            yield "no star-trees"
        for number, tree in enumerate(segment.star_trees):
            drawing = Drawing(segment, tree)
            size = f"{tree.num_docs:,} documents, {tree.metadata.num_nodes:,} nodes"
            size += f", {_tree_bytes(tree, segment.file):,} bytes"
            chosen = ", chosen by its columns" if tree.is_automatic else ""
            yield f"star-tree {number}{chosen} of {', '.join(tree.dimensions)}: {size}"
            yield from drawing.lines(most_nodes)


def verify(path: Path) -> list[str]:
    """Return the problems of a segment file, by reading all of it; empty if it is as it was written.

    A file that is too damaged to be opened has a single problem. Otherwise these are all damaged buffers and paddings;
    without any, the first wrong claim of the footer. Raises NotFoundError or UnavailableError."""
    try:
        with ImmutableSegment.open(path) as segment:
            problems = segment.file.verify()
            if not problems:
                check_contents(segment)
            return problems
    except CorruptionError as error:
        return [str(error)]


def _describe_column(column: ColumnMetadata, file: MappedFile) -> ColumnReport:
    sizes: Counter[str] = Counter()
    codecs = set()
    for buffer_name, ref in column.buffers.items():
        stored = file.stored(ref)
        sizes[INDEX_OF_BUFFER.get(buffer_name.split(".")[0], "other")] += stored.length
        codecs.add(stored.codec)
    return ColumnReport(
        name=column.name,
        type=column.type.value,
        role=column.role,
        multi_value=column.multi_value,
        encoding=column.encoding.value,
        compression="+".join(sorted(codecs - {""})).upper() or "NONE",
        bits=column.bits,
        cardinality=column.cardinality,
        min=column.min,
        max=column.max,
        num_nulls=column.num_nulls,
        is_sorted=column.is_sorted,
        total_values=column.total_values,
        size_bytes=sum(sizes.values()),
        bytes_by_index=dict(sizes),
    )


def _describe_tree(drawing: Drawing, file: MappedFile) -> StarTreeReport:
    tree = drawing.tree
    return StarTreeReport(
        dimensions=tree.dimensions,
        functions=drawing.headers,
        is_automatic=tree.is_automatic,
        max_leaf_records=tree.metadata.max_leaf_records,
        num_docs=tree.num_docs,
        num_nodes=tree.metadata.num_nodes,
        size_bytes=_tree_bytes(tree, file),
    )


def _tree_bytes(tree: StarTree, file: MappedFile) -> int:
    """Return the bytes of a star-tree on disk, without padding."""
    metadata = tree.metadata
    columns = [*metadata.ids, *(state for function in metadata.functions for state in function.states)]
    refs = [*metadata.buffers.values(), *(ref for column in columns for ref in column.buffers.values())]
    return sum(file.stored(ref).length for ref in refs)


def _total(
    columns: tuple[ColumnReport, ...], star_trees: tuple[StarTreeReport, ...], file: MappedFile
) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for column in columns:
        sizes.update(column.bytes_by_index)
    sizes["star_tree"] = sum(tree.size_bytes for tree in star_trees)
    sizes["footer"] = file.layout.footer_length
    sizes["frame"] = HEADER_BYTES + FACTS_BYTES + TRAILER_BYTES
    sizes["padding"] = file.size_bytes - sum(sizes.values())
    return dict(sizes)
