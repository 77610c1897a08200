"""A segment to read: one mapped file, and a reader per column that is made on first use.

A segment that was opened stays open. A segment that was only checked knows its name, size and number of docs. Its file
is opened and its footer read when a query first needs a column; it is closed again if too many such segments are open.
So thousands of small segments that no query reads take a few hundred bytes each.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pydantic import ValidationError

from merlot.errors import CorruptionError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey
from merlot.segment.buffers import MappedFile, buffer_problems
from merlot.segment.column import ColumnReader
from merlot.segment.footer_checks import check_column, check_derived, check_segment
from merlot.segment.layout import FORMAT_VERSION, SUFFIX, damaged, read_layout
from merlot.segment.mapping import read_file
from merlot.segment.metadata import (
    ColumnMetadata,
    LazyColumns,
    SegmentMetadata,
    StarTreeMetadata,
    parse_metadata,
)
from merlot.segment.reader import EVERY_DOC, Instants, ValidDocs
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.segment.startree.tree import StarTree

_LOG: Final = logging.getLogger(__name__)

MAX_OPENED: Final = 4096
"""Default limit of open segments of the process that were only checked: each takes some 15 KB, plus the arrays that
were read."""
MAX_READ_BYTES: Final = 16 << 10
"""Size up to which the files of segments that were only checked are read when they are opened. Larger files, and those
that `ImmutableSegment.open` opens, are mapped."""


class _OpenSegment:
    """File, metadata and readers of an open segment."""

    __slots__ = ("file", "metadata", "readers", "sidecar", "star_trees", "was_used")

    def __init__(self, file: MappedFile, metadata: SegmentMetadata, sidecar: Sidecar | None = None) -> None:
        self.file = file
        self.metadata = metadata
        self.sidecar = sidecar
        self.readers: dict[str, ColumnReader] = {}
        self.star_trees: tuple[StarTree, ...] | None = None
        self.was_used = True
        """True if it was used since `_OpenSegments` last looked for a segment to close."""


class ImmutableSegment:
    """A sealed segment, a `segment.reader.Segment`; any thread. Arrays taken from it stay valid after `close`."""

    valid_docs: Final[ValidDocs] = EVERY_DOC

    __slots__ = ("__weakref__", "_crc", "_folder", "_name", "_opened", "_path", "_sidecar", "num_docs", "size_bytes")

    def __init__(self, path: Path | None, key: SegmentKey, num_docs: int, size_bytes: int, folder: str = "") -> None:
        """path: None for the file in `folder` that is named by the key."""
        self._path = path
        self._folder = folder
        self._name, self._crc = key.name, key.crc
        self.num_docs = num_docs
        self.size_bytes = size_bytes
        self._opened: _OpenSegment | None = None
        self._sidecar: Path | None = None

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Self:
        """Map a file and check header, trailer and footer; with `verify`, check every buffer too.

        Raises CorruptionError, NotFoundError, or UnavailableError if the file cannot be read."""
        file = MappedFile(path)
        if verify and (problems := file.verify()):
            raise damaged(path, problems[0])
        opened = _OpenSegment(file, _metadata_of(file))
        segment = cls(path, opened.metadata.key, opened.metadata.num_docs, file.size_bytes)
        segment._opened = opened
        return segment

    @classmethod
    def checked(cls, folder: str, expected: SegmentKey, content: bytes) -> Self:
        """Return the segment whose file in `folder` is named by its key, and holds or will hold `content`, every byte
        of which is checked now.

        Raises CorruptionError, also if the content is another segment's. The file itself is opened when a column is
        first read: NotFoundError if it is gone by then."""
        path = file_of(folder, expected)
        view = memoryview(content)
        layout = read_layout(view, path)
        if problems := buffer_problems(view, layout.buffers):
            raise damaged(path, problems[0])
        name, crc = layout.identity.get("name"), layout.content_crc
        if name != expected.name or crc != expected.crc:
            raise CorruptionError(f"segment is another one path={path} expected={expected} got={name}@{crc}")
        num_docs = layout.content.get("num_docs")
        if not isinstance(num_docs, int):
            raise damaged(path, "footer has no number of docs")
        return cls(None, expected, num_docs, len(content), folder)

    def beside(self, sidecar: Sidecar | None) -> ImmutableSegment:
        """Return the same segment with what a sidecar adds, or without any sidecar. This one stays as it is."""
        other = ImmutableSegment(self._path, self.key, self.num_docs, self.size_bytes, self._folder)
        other._sidecar = None if sidecar is None else sidecar.path
        opened = self._opened
        if opened is not None and not _OPENED.may_forget(self):
            other._opened = _OpenSegment(opened.file, opened.metadata, sidecar)
        return other

    @property
    def sidecar_path(self) -> Path | None:
        """Path of the sidecar that the segment is read with; None without one, or if the sidecar proved unusable."""
        return self._sidecar

    @property
    def sidecar(self) -> Sidecar | None:
        """Sidecar that the segment is read with, if any."""
        return self._open().sidecar

    @property
    def path(self) -> Path:
        return self._path or Path(file_of(self._folder, self.key))

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self._name, self._crc)

    @property
    def is_lost(self) -> bool:
        """True if pages of its file or of its sidecar's were missing when they were read."""
        opened = self._opened
        if opened is None:
            return False
        return opened.file.is_lost or (opened.sidecar is not None and opened.sidecar.file.is_lost)

    @property
    def is_open(self) -> bool:
        """True if it can be read without parsing its file's footer first."""
        return self._opened is not None

    @property
    def file(self) -> MappedFile:
        return self._open().file

    @property
    def metadata(self) -> SegmentMetadata:
        return self._open().metadata

    @property
    def instants(self) -> Instants:
        """Time of its creation, and the first and last time of its rows."""
        metadata = self.metadata
        return Instants(metadata.creation.time_ms or None, metadata.start_time_ms, metadata.end_time_ms)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(self.metadata.columns)

    def column(self, name: str) -> ColumnReader | None:
        """Return the reader of a column or derived column; None if the segment was built before the column was
        added."""
        opened = self._open()
        reader = opened.readers.get(name)
        if reader is not None:
            return reader
        metadata = opened.metadata.columns.get(name)
        if metadata is None:
            derived = _derived(opened, name) if name.startswith("$") else None
            return None if derived is None else opened.readers.setdefault(name, derived)
        # Two threads may each make a reader; both get the first one.
        return opened.readers.setdefault(name, self._reader(metadata, opened))

    def _reader(self, metadata: ColumnMetadata, opened: _OpenSegment) -> ColumnReader:
        sidecar = opened.sidecar
        if sidecar is None:
            return ColumnReader(metadata, self.num_docs, opened.file)
        recoded = sidecar.column(metadata.name)
        place = sidecar.places.get(metadata.name)
        return recoded or ColumnReader(metadata, self.num_docs, opened.file, place)

    def own_column(self, name: str) -> ColumnReader:
        """Return a column as the segment's own file has it. Raises KeyError if it has none."""
        opened = self._open()
        metadata = _derived_metadata(opened, name) if name.startswith("$") else opened.metadata.columns[name]
        if metadata is None:
            raise KeyError(name)
        return ColumnReader(metadata, self.num_docs, opened.file)

    def look(self) -> SegmentMetadata:
        """Return the content of the footer. A segment that is not open stays so."""
        opened = self._opened
        return _metadata_of(_file_at(self.path, self.size_bytes)) if opened is None else opened.metadata

    @property
    def star_trees(self) -> tuple[StarTree, ...]:
        """Star-trees of its own file, declared trees in their order before the automatic one; then those of its
        sidecar. Raises CorruptionError."""
        opened = self._open()
        if opened.star_trees is None:
            own = tuple(_star_tree(tree, opened) for tree in opened.metadata.star_trees)
            opened.star_trees = own if opened.sidecar is None else (*own, *opened.sidecar.star_trees)
        return opened.star_trees

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Return the smallest and largest value of a column of whole numbers, None for other columns."""
        opened = self._open()
        stored = opened.metadata.columns.get(name)
        if stored is None and name.startswith("$") and (reader := self.column(name)) is not None:
            stored = reader.metadata
        if stored is None or not isinstance(stored.min, int) or not isinstance(stored.max, int):
            return None
        return stored.min, stored.max

    def check_columns(self) -> None:
        """Compare the footer's entry of every column and star-tree with itself and with the sizes of buffers, as
        happens when it is first used. Raises CorruptionError."""
        for _ in self.metadata.columns.values():
            pass
        for column in self.metadata.derived:
            assert self.column(column.name) is not None
        assert len(self.star_trees) >= len(self.metadata.star_trees)

    def prepare(self) -> None:
        """Stay open from now on, whatever becomes of the file's name. Raises as `open` does."""
        self._open()
        _OPENED.forget(self)
        if self._opened is None:  # closed in between
            self.prepare()

    def close(self) -> None:
        """Drop readers, and arrays decoded from the segment's own file. The file stays mapped until this object and the
        last array over it are gone; a closed segment may be read again."""
        _OPENED.forget(self)
        opened = self._opened
        if opened is not None:
            opened.readers = {}
            opened.star_trees = None
            opened.file.close()

    def _open(self) -> _OpenSegment:
        opened = self._opened
        if opened is None:
            opened = self._read()
        opened.was_used = True
        return opened

    def _read(self) -> _OpenSegment:
        file = _file_at(self.path, self.size_bytes)
        opened = _OpenSegment(file, _metadata_of(file))
        if opened.metadata.key != self.key:
            raise damaged(self.path, f"the file is of {opened.metadata.key} now")
        opened.sidecar = self._open_sidecar(opened.metadata)
        return _OPENED.add(self, opened)

    def _open_sidecar(self, metadata: SegmentMetadata) -> Sidecar | None:
        """Open the sidecar. If it is missing or damaged, the segment does without it from now on."""
        if self._sidecar is None:
            return None
        try:
            return Sidecar.open(self._sidecar, metadata)
        except (CorruptionError, NotFoundError, UnavailableError) as error:
            _LOG.warning("segment is read without its sidecar path=%s cause=%s", self._sidecar, error)
            self._sidecar = None
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; raise CorruptionError if pages that were read were missing, unless another error is raised already."""
        is_lost = self.is_lost
        self.close()
        if is_lost and error is None:
            raise damaged(self.path, "pages of it could not be read")


class _OpenSegments:
    """Open segments that can be closed and opened again, in the order of opening. When there are too many, the first
    one that was not used since the last look is closed."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._segments: OrderedDict[int, ImmutableSegment] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, segment: ImmutableSegment, opened: _OpenSegment) -> _OpenSegment:
        """Add an opened segment. Returns what it is read through: if two threads open it at once, what the first one
        opened."""
        with self._lock:
            if segment._opened is not None:
                return segment._opened
            segment._opened = opened
            self._segments[id(segment)] = segment
            while len(self._segments) > self._capacity:
                self._forget_one()
        return opened

    def forget(self, segment: ImmutableSegment) -> None:
        """Stop managing a segment; it stays open or closed as it is."""
        with self._lock:
            self._segments.pop(id(segment), None)

    def may_forget(self, segment: ImmutableSegment) -> bool:
        """Return True if the segment can be closed, and opened again."""
        with self._lock:
            return id(segment) in self._segments

    def resize(self, capacity: int) -> None:
        """Set the limit; segments beyond it are closed at once."""
        with self._lock:
            self._capacity = capacity
            while len(self._segments) > self._capacity:
                self._forget_one()

    def _forget_one(self) -> None:
        key, segment = self._segments.popitem(last=False)
        opened = segment._opened
        assert opened is not None
        if opened.was_used and self._capacity:
            opened.was_used = False
            self._segments[key] = segment
        else:
            # Queries that read it now go on with the objects that they hold.
            segment._opened = None
            opened.file.close()


_OPENED = _OpenSegments(MAX_OPENED)


def keep_opened(capacity: int) -> None:
    """Set how many segments that can be opened again stay open."""
    _OPENED.resize(capacity)


def file_of(folder: str, key: SegmentKey) -> str:
    """Return the path of the file that is named by a segment's key."""
    return f"{folder}/{key.name}@{key.crc}{SUFFIX}"


def verify_file(path: Path) -> None:
    """Read every byte of a segment file; raise CorruptionError at the first that is not as it was written."""
    ImmutableSegment.open(path, verify=True).close()


def _file_at(path: Path, size_bytes: int) -> MappedFile:
    return MappedFile(path, read_file(path) if size_bytes <= MAX_READ_BYTES else None)


def _metadata_of(file: MappedFile) -> SegmentMetadata:
    """Parse the footer. The entry of a column is checked when the column is first used, because queries read few of
    them."""
    layout = file.layout
    columns = layout.content.get("columns")
    if not isinstance(columns, list):
        raise damaged(file.path, "footer has no columns")
    try:
        named = {column["name"]: column for column in columns}
        fields = {**layout.content, **layout.identity, "creation": layout.creation, "columns": {}}
        fields.update(crc=layout.content_crc, format_version=FORMAT_VERSION)
        metadata = parse_metadata(fields)
        make = partial(_column_of, num_docs=metadata.num_docs, file=file)
        metadata = metadata.model_copy(update={"columns": LazyColumns(named, make)})
    except (ValidationError, KeyError, TypeError) as error:
        raise damaged(file.path, f"footer is not what it should be: {error}") from error
    file.require(len(named) == len(columns), "two columns have one name")
    check_segment(metadata, file)
    # The metadata holds the footer's content now, in fewer bytes.
    file.layout = replace(layout, content={}, identity={}, creation={})
    return metadata


def _star_tree(metadata: StarTreeMetadata, opened: _OpenSegment) -> StarTree:
    cardinalities = []
    for name in metadata.dimensions:
        column = _derived_metadata(opened, name) if name.startswith("$") else opened.metadata.columns.get(name)
        is_dimension = column is not None and not column.multi_value and column.encoding.has_dictionary
        opened.file.require(is_dimension, f"star-tree of a column that has no dictionary column={name}")
        assert column is not None
        cardinalities.append(column.cardinality or 0)
    return StarTree(metadata, cardinalities, opened.file)


def _derived(opened: _OpenSegment, name: str) -> ColumnReader | None:
    """Return the reader of a derived column, from the sidecar or the segment's own file; None if neither has it."""
    if opened.sidecar is not None and (column := opened.sidecar.column(name)) is not None:
        return column
    metadata = _derived_metadata(opened, name)
    return None if metadata is None else ColumnReader(metadata, opened.metadata.num_docs, opened.file)


def _derived_metadata(opened: _OpenSegment, name: str) -> ColumnMetadata | None:
    """Return the metadata of a derived column in the segment's own file, checked; None if it has none."""
    metadata = opened.metadata
    for column in metadata.derived:
        if column.name == name:
            check_derived(column, metadata.columns, metadata.num_docs, opened.file)
            return column
    return None


def _column_of(fields: bytes, num_docs: int, file: MappedFile) -> ColumnMetadata:
    try:
        column = ColumnMetadata.model_validate_json(fields)
    except ValidationError as error:
        raise damaged(file.path, f"column of the footer is not what it should be: {error}") from error
    check_column(column, num_docs, file)
    return column
