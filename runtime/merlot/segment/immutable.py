"""A segment to read: one mapped file, a reader per column made when asked for.

A segment that was opened stays so. One that was only checked knows its name, size and number of docs: its file is
mapped and its footer read once a query asks for a column, and forgotten again when many others were read since. So
thousands of small segments take some hundred bytes each, and the ones in use what they take anyway.
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
    ColumnsWhenAsked,
    SegmentMetadata,
    StarTreeMetadata,
    parse_metadata,
)
from merlot.segment.reader import EVERY_DOC, Instants, ValidDocs
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.segment.startree.tree import StarTree

_LOG: Final = logging.getLogger(__name__)

MAX_OPENED: Final = 4096
"""Segments that were only checked and are open now, of the whole process: some 15 KB each, and what was read."""
MAX_READ_BYTES: Final = 16 << 10
"""Files up to this size are read when they are opened, larger ones mapped."""


class _Opened:
    """What reading a segment takes."""

    __slots__ = ("file", "metadata", "readers", "sidecar", "star_trees", "was_used")

    def __init__(self, file: MappedFile, metadata: SegmentMetadata, sidecar: Sidecar | None = None) -> None:
        self.file = file
        self.metadata = metadata
        self.sidecar = sidecar
        self.readers: dict[str, ColumnReader] = {}
        self.star_trees: tuple[StarTree, ...] | None = None
        self.was_used = True
        """Since the last look for one that may be forgotten."""


class ImmutableSegment:
    """A sealed segment, a `segment.reader.Segment`; any thread. Arrays taken from it stay valid after `close`."""

    valid_docs: Final[ValidDocs] = EVERY_DOC

    __slots__ = ("__weakref__", "_crc", "_folder", "_name", "_opened", "_path", "_sidecar", "num_docs", "size_bytes")

    def __init__(self, path: Path | None, key: SegmentKey, num_docs: int, size_bytes: int, folder: str = "") -> None:
        """path: None for the file in `folder` that is called by the key."""
        self._path = path
        self._folder = folder
        self._name, self._crc = key.name, key.crc
        self.num_docs = num_docs
        self.size_bytes = size_bytes
        self._opened: _Opened | None = None
        self._sidecar: Path | None = None

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Self:
        """Map a file and check header, trailer and footer, with `verify` every buffer too.

        Raises CorruptionError, NotFoundError, or UnavailableError if the file cannot be read."""
        file = MappedFile(path)
        if verify and (problems := file.verify()):
            raise damaged(path, problems[0])
        opened = _Opened(file, _metadata_of(file))
        segment = cls(path, opened.metadata.key, opened.metadata.num_docs, file.size_bytes)
        segment._opened = opened
        return segment

    @classmethod
    def checked(cls, folder: str, expected: SegmentKey, content: bytes) -> Self:
        """The segment of the file in a folder that is called by its key, and that holds or will hold this content,
        every byte of which is checked now.

        Raises CorruptionError, also if it is another segment. The file is not touched before somebody reads a column:
        NotFoundError if it is gone by then."""
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
        """The same segment with what a sidecar adds, or without any; this one stays as it is."""
        other = ImmutableSegment(self._path, self.key, self.num_docs, self.size_bytes, self._folder)
        other._sidecar = None if sidecar is None else sidecar.path
        opened = self._opened
        if opened is not None and not _OPENED.may_forget(self):
            other._opened = _Opened(opened.file, opened.metadata, sidecar)
        return other

    @property
    def sidecar_path(self) -> Path | None:
        """Where the sidecar is that it is read with; None without one, or if that turned out to be none."""
        return self._sidecar

    @property
    def sidecar(self) -> Sidecar | None:
        """What it is read with besides its own file."""
        return self._open().sidecar

    @property
    def path(self) -> Path:
        return self._path or Path(file_of(self._folder, self.key))

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self._name, self._crc)

    @property
    def is_lost(self) -> bool:
        """Say whether pages of a file that it is read from were gone when somebody looked at them."""
        opened = self._opened
        if opened is None:
            return False
        return opened.file.is_lost or (opened.sidecar is not None and opened.sidecar.file.is_lost)

    @property
    def is_open(self) -> bool:
        """Whether it can be read without a look at its file's footer first."""
        return self._opened is not None

    @property
    def file(self) -> MappedFile:
        return self._open().file

    @property
    def metadata(self) -> SegmentMetadata:
        return self._open().metadata

    @property
    def instants(self) -> Instants:
        """When it was made, and of when its rows are."""
        metadata = self.metadata
        return Instants(metadata.creation.time_ms or None, metadata.start_time_ms, metadata.end_time_ms)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(self.metadata.columns)

    def column(self, name: str) -> ColumnReader | None:
        """Reader of a column, or of a derived one; None if the segment was built before the column was added."""
        opened = self._open()
        reader = opened.readers.get(name)
        if reader is not None:
            return reader
        metadata = opened.metadata.columns.get(name)
        if metadata is None:
            derived = _derived(opened, name) if name.startswith("$") else None
            return None if derived is None else opened.readers.setdefault(name, derived)
        # Two threads that come at once make two; both are given the same one.
        return opened.readers.setdefault(name, self._reader(metadata, opened))

    def _reader(self, metadata: ColumnMetadata, opened: _Opened) -> ColumnReader:
        sidecar = opened.sidecar
        if sidecar is None:
            return ColumnReader(metadata, self.num_docs, opened.file)
        anew = sidecar.column(metadata.name)
        place = sidecar.places.get(metadata.name)
        return anew or ColumnReader(metadata, self.num_docs, opened.file, place)

    def own_column(self, name: str) -> ColumnReader:
        """A column as the segment's own file has it; KeyError if it has none."""
        opened = self._open()
        metadata = _derived_metadata(opened, name) if name.startswith("$") else opened.metadata.columns[name]
        if metadata is None:
            raise KeyError(name)
        return ColumnReader(metadata, self.num_docs, opened.file)

    def look(self) -> SegmentMetadata:
        """What the footer says. A segment that is not open is not opened for it."""
        opened = self._opened
        return _metadata_of(_file_at(self.path, self.size_bytes)) if opened is None else opened.metadata

    @property
    def star_trees(self) -> tuple[StarTree, ...]:
        """Star-trees, in the order in which they were declared, and those of its sidecar. Raises CorruptionError."""
        opened = self._open()
        if opened.star_trees is None:
            own = tuple(_star_tree(tree, opened) for tree in opened.metadata.star_trees)
            opened.star_trees = own if opened.sidecar is None else (*own, *opened.sidecar.star_trees)
        return opened.star_trees

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Smallest and largest whole number that the column holds, if it holds such."""
        opened = self._open()
        stored = opened.metadata.columns.get(name)
        if stored is None and name.startswith("$") and (reader := self.column(name)) is not None:
            stored = reader.metadata
        if stored is None or not isinstance(stored.min, int) or not isinstance(stored.max, int):
            return None
        return stored.min, stored.max

    def check_columns(self) -> None:
        """Compare what the footer says of every column with itself and with the sizes of buffers, as is done anyway
        for a column that is asked for. Raises CorruptionError."""
        for _ in self.metadata.columns.values():
            pass
        for one in self.metadata.derived:
            assert self.column(one.name) is not None
        assert len(self.star_trees) >= len(self.metadata.star_trees)

    def prepare(self) -> None:
        """Be open from now on, whatever becomes of the file's name. Raises as `open` does."""
        self._open()
        _OPENED.forget(self)
        if self._opened is None:  # forgotten in between
            self.prepare()

    def close(self) -> None:
        """Forget readers and decoded arrays. The mapping ends with the last array that somebody still holds."""
        _OPENED.forget(self)
        opened = self._opened
        if opened is not None:
            opened.readers = {}
            opened.star_trees = None
            opened.file.close()

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is None:
            opened = self._read()
        opened.was_used = True
        return opened

    def _read(self) -> _Opened:
        file = _file_at(self.path, self.size_bytes)
        opened = _Opened(file, _metadata_of(file))
        if opened.metadata.key != self.key:
            raise damaged(self.path, f"the file is of {opened.metadata.key} now")
        opened.sidecar = self._open_sidecar(opened.metadata)
        return _OPENED.add(self, opened)

    def _open_sidecar(self, metadata: SegmentMetadata) -> Sidecar | None:
        """What it is read with, if that is still there and right: else it goes without from now on."""
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
        """Raise CorruptionError, unless there is an error already, if what was read was not all there."""
        is_lost = self.is_lost
        self.close()
        if is_lost and error is None:
            raise damaged(self.path, "pages of it could not be read")


class _OpenedSegments:
    """Segments that can be opened again, in the order in which they were; those not used since a look go first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._segments: OrderedDict[int, ImmutableSegment] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, segment: ImmutableSegment, opened: _Opened) -> _Opened:
        """What the segment is read through from now on: of two threads that open one, the first one's."""
        with self._lock:
            if segment._opened is not None:
                return segment._opened
            segment._opened = opened
            self._segments[id(segment)] = segment
            while len(self._segments) > self._capacity:
                self._forget_one()
        return opened

    def forget(self, segment: ImmutableSegment) -> None:
        """Leave it as it is."""
        with self._lock:
            self._segments.pop(id(segment), None)

    def may_forget(self, segment: ImmutableSegment) -> bool:
        """Whether it can be closed, and opened again."""
        with self._lock:
            return id(segment) in self._segments

    def resize(self, capacity: int) -> None:
        """Set the bound; closes at once what is beyond it."""
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
            # Whoever reads it now goes on with what it holds.
            segment._opened = None
            opened.file.close()


_OPENED = _OpenedSegments(MAX_OPENED)


def keep_opened(capacity: int) -> None:
    """Set how many segments that can be opened again stay open."""
    _OPENED.resize(capacity)


def file_of(folder: str, key: SegmentKey) -> str:
    """Path of the file that is called by a segment's key."""
    return f"{folder}/{key.name}@{key.crc}{SUFFIX}"


def verify_file(path: Path) -> None:
    """Read every byte of a segment file; raises CorruptionError at the first one that is not as written."""
    ImmutableSegment.open(path, verify=True).close()


def _file_at(path: Path, size_bytes: int) -> MappedFile:
    return MappedFile(path, read_file(path) if size_bytes <= MAX_READ_BYTES else None)


def _metadata_of(file: MappedFile) -> SegmentMetadata:
    """The footer. What it says of a column is looked at when the column is asked for: queries read few of them."""
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
        metadata = metadata.model_copy(update={"columns": ColumnsWhenAsked(named, make)})
    except (ValidationError, KeyError, TypeError) as error:
        raise damaged(file.path, f"footer is not what it should be: {error}") from error
    file.require(len(named) == len(columns), "two columns have one name")
    check_segment(metadata, file)
    # What the footer said is in the metadata now, in fewer bytes.
    file.layout = replace(layout, content={}, identity={}, creation={})
    return metadata


def _star_tree(metadata: StarTreeMetadata, opened: _Opened) -> StarTree:
    cardinalities = []
    for name in metadata.dimensions:
        column = _derived_metadata(opened, name) if name.startswith("$") else opened.metadata.columns.get(name)
        is_dimension = column is not None and not column.multi_value and column.encoding.has_dictionary
        opened.file.require(is_dimension, f"star-tree of a column that has no dictionary column={name}")
        assert column is not None
        cardinalities.append(column.cardinality or 0)
    return StarTree(metadata, cardinalities, opened.file)


def _derived(opened: _Opened, name: str) -> ColumnReader | None:
    """Reader of a derived column, of the segment's own file or of its sidecar; None if neither has it."""
    if opened.sidecar is not None and (found := opened.sidecar.column(name)) is not None:
        return found
    metadata = _derived_metadata(opened, name)
    return None if metadata is None else ColumnReader(metadata, opened.metadata.num_docs, opened.file)


def _derived_metadata(opened: _Opened, name: str) -> ColumnMetadata | None:
    """What the segment's own file has of a derived column, looked at; None if it has none."""
    metadata = opened.metadata
    for one in metadata.derived:
        if one.name == name:
            check_derived(one, metadata.columns, metadata.num_docs, opened.file)
            return one
    return None


def _column_of(fields: bytes, num_docs: int, file: MappedFile) -> ColumnMetadata:
    try:
        column = ColumnMetadata.model_validate_json(fields)
    except ValidationError as error:
        raise damaged(file.path, f"column of the footer is not what it should be: {error}") from error
    check_column(column, num_docs, file)
    return column
