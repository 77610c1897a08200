"""A sidecar to read. Whatever is wrong with it is found when it is opened: queries do without it then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from merlot.errors import CorruptionError
from merlot.ids import SegmentKey
from merlot.segment.buffers import MappedFile
from merlot.segment.column import ColumnReader
from merlot.segment.footer_checks import check_column, check_derived, check_indexes
from merlot.segment.index.kind import IndexPlace
from merlot.segment.index.registry import indexes_in
from merlot.segment.layout import SIDECAR_SUFFIX, damaged
from merlot.segment.metadata import ColumnMetadata, SegmentMetadata
from merlot.segment.sidecar.content import LeftOut, SidecarColumn, SidecarContent, SidecarIdentity
from merlot.segment.startree.tree import StarTree


def sidecar_name(key: SegmentKey, digest: str) -> str:
    """Name of the file: `name@crc.config.midx`."""
    return f"{key}.{digest}{SIDECAR_SUFFIX}"


def config_of(path: Path) -> str:
    """The configuration that a file's name tells."""
    return path.name.removesuffix(SIDECAR_SUFFIX).rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Sidecar:
    """An open sidecar. Immutable; any thread."""

    path: Path
    identity: SidecarIdentity
    file: MappedFile
    num_docs: int
    places: Mapping[str, IndexPlace]
    """Indexes of columns that are read from the segment."""
    stored: Mapping[str, ColumnMetadata]
    """Columns that are read from here, derived ones too."""
    star_trees: tuple[StarTree, ...]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def open(cls, path: Path, segment: SegmentMetadata, *, verify: bool = False) -> Sidecar:
        """Map and check a file; with `verify` every byte, and everything that readers trust with memory.

        Raises CorruptionError, also if it is of another segment, version or configuration than its name says,
        NotFoundError or UnavailableError."""
        file = MappedFile(path)
        identity, content = _parsed(file)
        is_of_segment = (identity.name, identity.segment_crc) == (segment.name, segment.crc)
        file.require(is_of_segment, f"sidecar is of {identity.name}@{identity.segment_crc}, not of {segment.key}")
        file.require(identity.config == config_of(path), f"sidecar was made by configuration {identity.config}")
        file.require(content.num_docs == segment.num_docs, f"sidecar is of {content.num_docs} docs")
        if verify and (problems := file.verify()):
            raise damaged(path, problems[0])
        stored = {one.name: one.stored for one in content.added if one.stored is not None}
        places = {one.name: _place(one, segment, file) for one in content.added if one.stored is None}
        for name, column in stored.items():
            known = segment.columns.get(name)
            file.require(known is not None and _is_same(known, column), f"sidecar has another column={name}")
            check_column(column, segment.num_docs, file)
        kept = {one.name for one in segment.derived if one.encoding.has_dictionary}
        for column in content.derived:
            # Trees of the segment are split by its own.
            is_wanted = column.name not in kept or column.encoding.has_dictionary
            file.require(is_wanted, f"derived column lost its dictionary column={column.name}")
            check_derived(column, segment.columns, segment.num_docs, file)
            stored[column.name] = column
        file.require(len(stored) == _num_stored(content), "two columns have one name")
        cardinality = _cardinalities(segment, stored, file)
        trees = tuple(
            StarTree(tree, [cardinality(name) for name in tree.dimensions], file) for tree in content.star_trees
        )
        sidecar = cls(path, identity, file, segment.num_docs, places, stored, trees, content.left_out)
        if verify:
            sidecar._check(segment)
        return sidecar

    def column(self, name: str) -> ColumnReader | None:
        """The column, if it is read from here."""
        metadata = self.stored.get(name)
        return None if metadata is None else ColumnReader(metadata, self.num_docs, self.file)

    def _check(self, segment: SegmentMetadata) -> None:
        """Read what readers look at when they first read a part."""
        for name, place in self.places.items():
            for index in place.present:
                self.file.require(name in segment.columns, f"index of no column={name}")
                index.read(place.column, self.num_docs, place.file)
        for name in self.stored:
            reader = self.column(name)
            assert reader is not None
            if reader.dictionary is None:
                reader.values()
            else:
                reader.dict_ids()
            for index in indexes_in(reader.metadata):
                reader.index(index)
        for tree in self.star_trees:
            assert tree.nodes is not None
            for dimension in range(len(tree.dimensions)):
                tree.ids(dimension)


def _parsed(file: MappedFile) -> tuple[SidecarIdentity, SidecarContent]:
    try:
        identity = SidecarIdentity.model_validate(file.layout.identity)
        return identity, SidecarContent.model_validate(file.layout.content)
    except ValidationError as error:
        raise damaged(file.path, f"footer is not that of a sidecar: {error}") from error


def _num_stored(content: SidecarContent) -> int:
    return len(content.derived) + sum(one.stored is not None for one in content.added)


def _place(one: SidecarColumn, segment: SegmentMetadata, file: MappedFile) -> IndexPlace:
    known = segment.columns.get(one.name)
    if known is None:
        raise damaged(file.path, f"index of no column={one.name}")
    column = known.model_copy(update={"buffers": one.buffers})
    check_indexes(column, segment.num_docs, file)
    return IndexPlace(indexes_in(column), column, file)


def _is_same(known: ColumnMetadata, stored: ColumnMetadata) -> bool:
    """Whether a column that was stored anew can be the one that the segment has."""
    return stored.encoding.has_dictionary and _facts(known) == _facts(stored)


def _facts(column: ColumnMetadata) -> tuple[object, ...]:
    lists = column.multi_value, column.total_values, column.max_values_per_doc
    return column.name, column.type, column.default_null_value, column.num_nulls, *lists


def _cardinalities(
    segment: SegmentMetadata, stored: Mapping[str, ColumnMetadata], file: MappedFile
) -> Callable[[str], int]:
    own = {one.name: one for one in segment.derived}

    def cardinality(name: str) -> int:
        column = stored.get(name) or own.get(name) or segment.columns.get(name)
        is_dimension = column is not None and not column.multi_value and column.encoding.has_dictionary
        if column is None or not is_dimension:
            raise CorruptionError(f"star-tree of a column that has no dictionary path={file.path} column={name}")
        return column.cardinality or 0

    return cardinality
