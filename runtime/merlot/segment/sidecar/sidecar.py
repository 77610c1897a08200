"""Open and read sidecars. Opening checks the footer, and with `verify` all content.

Damage of the content is otherwise found when the damaged part is first read.
"""

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
    """Return the name of a sidecar's file: `name@crc.config.midx`."""
    return f"{key}.{digest}{SIDECAR_SUFFIX}"


def config_of(path: Path) -> str:
    """Return the digest of the configuration, which is part of the file's name."""
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
    """Columns that are read from the sidecar, derived ones included."""
    star_trees: tuple[StarTree, ...]
    left_out: tuple[LeftOut, ...]

    @classmethod
    def open(cls, path: Path, segment: SegmentMetadata, *, verify: bool = False) -> Sidecar:
        """Map and check a sidecar; with `verify`, check every byte and all that readers trust for memory access.

        Raises CorruptionError if the file is damaged, belongs to another segment or version of it than `segment`, or
        was made for another configuration than its name says. Raises NotFoundError or UnavailableError if it cannot be
        read."""
        file = MappedFile(path)
        identity, content = _parsed(file)
        is_of_segment = (identity.name, identity.segment_crc) == (segment.name, segment.crc)
        file.require(is_of_segment, f"sidecar is of {identity.name}@{identity.segment_crc}, not of {segment.key}")
        file.require(identity.config == config_of(path), f"sidecar was made by configuration {identity.config}")
        file.require(content.num_docs == segment.num_docs, f"sidecar is of {content.num_docs} docs")
        if verify and (problems := file.verify()):
            raise damaged(path, problems[0])
        stored = {added.name: added.stored for added in content.added if added.stored is not None}
        places = {added.name: _place(added, segment, file) for added in content.added if added.stored is None}
        for name, column in stored.items():
            original = segment.columns.get(name)
            file.require(original is not None and _is_same(original, column), f"sidecar has another column={name}")
            check_column(column, segment.num_docs, file)
        with_dictionary = {derived.name for derived in segment.derived if derived.encoding.has_dictionary}
        for column in content.derived:
            # The segment's own trees may be split by the column, which needs a dictionary.
            is_wanted = column.name not in with_dictionary or column.encoding.has_dictionary
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
        """Return the column's reader if the sidecar stores the column, else None."""
        metadata = self.stored.get(name)
        return None if metadata is None else ColumnReader(metadata, self.num_docs, self.file)

    def _check(self, segment: SegmentMetadata) -> None:
        """Read every part once: each reader checks its part when it is first read."""
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
    return len(content.derived) + sum(column.stored is not None for column in content.added)


def _place(added: SidecarColumn, segment: SegmentMetadata, file: MappedFile) -> IndexPlace:
    original = segment.columns.get(added.name)
    if original is None:
        raise damaged(file.path, f"index of no column={added.name}")
    column = original.model_copy(update={"buffers": added.buffers})
    check_indexes(column, segment.num_docs, file)
    return IndexPlace(indexes_in(column), column, file)


def _is_same(original: ColumnMetadata, stored: ColumnMetadata) -> bool:
    """Return True if a column that was stored anew can be the segment's column."""
    return stored.encoding.has_dictionary and _facts(original) == _facts(stored)


def _facts(column: ColumnMetadata) -> tuple[object, ...]:
    lists = column.multi_value, column.total_values, column.max_values_per_doc
    return column.name, column.type, column.default_null_value, column.num_nulls, *lists


def _cardinalities(
    segment: SegmentMetadata, stored: Mapping[str, ColumnMetadata], file: MappedFile
) -> Callable[[str], int]:
    own = {derived.name: derived for derived in segment.derived}

    def cardinality(name: str) -> int:
        column = stored.get(name) or own.get(name) or segment.columns.get(name)
        is_dimension = column is not None and not column.multi_value and column.encoding.has_dictionary
        if column is None or not is_dimension:
            raise CorruptionError(f"star-tree of a column that has no dictionary path={file.path} column={name}")
        return column.cardinality or 0

    return cardinality
