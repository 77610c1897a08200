"""Build a sidecar: the parts that its plan lists, made of the segment's columns as they are stored.

The file is written under a temporary name and renamed once it is complete, as a segment's is. A build that is killed at
any step leaves nothing that a reader would open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from merlot.errors import InvalidInputError
from merlot.segment import compression
from merlot.segment.build.column_writer import request_of, write_column
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.rows import StoredColumn
from merlot.segment.column import ColumnReader
from merlot.segment.contents import indexed_column
from merlot.segment.derived import unit_of_column, write_derived
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.registry import INDEXES
from merlot.segment.layout import SIDECAR_SUFFIX, Footer
from merlot.segment.metadata import ColumnMetadata, StarTreeMetadata
from merlot.segment.sidecar.content import LeftOut, SidecarColumn, SidecarContent, SidecarIdentity
from merlot.segment.sidecar.plan import SidecarPlan
from merlot.segment.startree.agreement import source_of
from merlot.segment.startree.automatic import narrowed
from merlot.segment.startree.build import build
from merlot.segment.startree.documents import SourceColumn
from merlot.segment.startree.tree_writer import write
from merlot.spec.derived import derived_of
from merlot.spec.indexing import Encoding, IndexingSpec
from merlot.spec.schema import FieldSpec

_LOG: Final = logging.getLogger(__name__)

Check = Callable[[], None]
"""Function that is called between the parts of a build; it raises to end the build."""


def build_sidecar(
    segment: ImmutableSegment, plan: SidecarPlan, indexing: IndexingSpec, directory: Path, check: Check = lambda: None
) -> Path:
    """Write the sidecar of a segment into a folder and return its path. A star-tree that cannot be made of the rows,
    for example because it has too many documents, is left out, and the file says so.

    Raises UnavailableError if the file cannot be written, CorruptionError if the segment is damaged."""
    started = time.monotonic()
    with FileWriter(directory, f"{segment.key}.{plan.digest}", SIDECAR_SUFFIX) as file:
        work = _SidecarBuild(segment, plan, indexing, file)
        for name in plan.columns:
            check()
            work.add_column(name)
        for name in plan.derived:
            check()
            work.add_derived(name)
        for tree in range(len(plan.star_trees)):
            check()
            work.add_tree(tree)
        check()
        work.choose_tree()
        check()
        size = file.commit(work.footer())
    took = time.monotonic() - started
    text = "sidecar built path=%s columns=%d star_trees=%d bytes=%d seconds=%.3f"
    _LOG.info(text, file.path, len(plan.columns), len(work.trees), size, took)
    return file.path


class _SidecarBuild:
    """One build of a sidecar; used by one thread."""

    def __init__(self, segment: ImmutableSegment, plan: SidecarPlan, indexing: IndexingSpec, file: FileWriter) -> None:
        self._segment = segment
        self._metadata = segment.look()
        self._plan = plan
        self._indexing = indexing
        self._file = file
        self._columns: list[SidecarColumn] = []
        self._derived: list[ColumnMetadata] = []
        self._sources: dict[str, SourceColumn] = {}
        self.trees: list[StarTreeMetadata] = []
        self._left_out: list[LeftOut] = []

    def add_column(self, name: str) -> None:
        """Write the indexes that the plan has for a column, or the whole column anew."""
        reader = self._reader(name)
        self._columns.append(self._recoded(reader) if name in self._plan.recoded else self._indexed(reader))

    def add_derived(self, name: str) -> None:
        """Compute and write a derived column."""
        derived = derived_of(name)
        assert derived is not None
        reader = self._reader(derived.column)
        unit, source = unit_of_column(reader.metadata), source_of(reader)
        assert unit is not None
        encoding = Encoding.DICTIONARY if name in self._indexing.tree_dimensions else Encoding.AUTO
        column = self._stored(reader)
        written = write_derived(derived, column, source.coded, unit, encoding=encoding, file=self._file)
        self._derived.append(written.metadata)
        self._sources[name] = SourceColumn(written.metadata.type, written.coded, None)

    def add_tree(self, number: int) -> None:
        """Write star-tree `number` of the plan, or note why it cannot be made."""
        spec = self._plan.star_trees[number]
        try:
            sources = {name: self._source(name) for name in spec.columns}
            tree = build(spec, sources, self._metadata.num_docs)
        except InvalidInputError as error:
            order = ",".join(spec.dimensions_split_order)
            _LOG.warning("segment goes without a star-tree path=%s cause=%s", self._file.path, error)
            self._left_out.append(LeftOut(what=f"star-tree {order}", why=str(error)[:500]))
            return
        self.trees.append(write(tree, len(self.trees), self._file))

    def choose_tree(self) -> None:
        """Write the automatic star-tree if the plan asks for one, or note that none is worth its documents."""
        wanted = self._plan.automatic
        if wanted is None:
            return
        sources = {name: source_of(self._reader(name)) for name in wanted.columns}
        tree = narrowed(wanted, sources, self._metadata.num_docs)
        if tree is None:
            self._left_out.append(LeftOut(what="star-tree of its own choice", why="none is worth its documents"))
            return
        order, count = ",".join(tree.spec.dimensions_split_order), tree.documents.count
        _LOG.info("star-tree chosen path=%s dimensions=%s documents=%d", self._file.path, order, count)
        self.trees.append(write(tree, len(self.trees), self._file, is_automatic=True))

    def footer(self) -> Footer:
        """Return the footer, which says what was written and what was left out."""
        content = SidecarContent(
            num_docs=self._metadata.num_docs,
            added=tuple(self._columns),
            derived=tuple(self._derived),
            star_trees=tuple(self.trees),
            left_out=tuple(self._left_out),
        )
        identity = SidecarIdentity(
            name=self._metadata.name,
            table=self._metadata.table,
            segment_crc=self._metadata.crc,
            config=self._plan.digest,
        )
        stored = orjson.dumps(content.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_SORT_KEYS)
        return Footer(stored, identity.model_dump(mode="json"), {"builder": "sidecar"})

    def _indexed(self, reader: ColumnReader) -> SidecarColumn:
        column, name = indexed_column(reader), reader.metadata.name
        refs = {}
        for kind in self._plan.kinds_of(name):
            for buffer, array in INDEXES[kind].write(column, self._indexing).items():
                refs[buffer] = self._file.add(array, compression.NONE)
        return SidecarColumn(name=name, buffers=refs)

    def _recoded(self, reader: ColumnReader) -> SidecarColumn:
        """Store the whole column again, with the dictionary that it lacks."""
        metadata, column = reader.metadata, self._stored(reader)
        written = write_column(column, request_of(self._planned_indexing(), column.field), self._file)
        self._sources[metadata.name] = SourceColumn(metadata.type, written.coded, None)
        unchanged = {
            "role": metadata.role,
            "format": metadata.format,
            "default_null_value": metadata.default_null_value,
        }
        return SidecarColumn(name=metadata.name, stored=written.metadata.model_copy(update=unchanged))

    def _stored(self, reader: ColumnReader) -> StoredColumn:
        metadata = reader.metadata
        return StoredColumn(
            field=FieldSpec(name=metadata.name, type=metadata.type, multi_value=metadata.multi_value),
            num_docs=reader.num_docs,
            values=indexed_column(reader).values(),
            offsets=reader.offsets() if reader.multi_value else None,
            nulls=reader.nulls,
            num_nulls=metadata.num_nulls,
        )

    def _planned_indexing(self) -> IndexingSpec:
        """Return settings with the plan's indexes, the table's Bloom filter rates and a dictionary for every recoded
        column, and nothing else."""
        kinds = {kind: tuple(index.column for index in self._plan.indexes if index.kind == kind) for kind in INDEXES}
        encodings = dict.fromkeys(self._plan.recoded, "DICTIONARY")
        return IndexingSpec.model_validate({**kinds, "encodings": encodings, "bloom_fpp": self._indexing.bloom_fpp})

    def _source(self, name: str) -> SourceColumn:
        source = self._sources.get(name)
        if source is None:
            source = self._sources[name] = source_of(self._reader(name))
        return source

    def _reader(self, name: str) -> ColumnReader:
        """Return the column as the segment's own file has it."""
        return self._segment.own_column(name)
