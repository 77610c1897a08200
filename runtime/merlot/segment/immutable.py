"""An open segment: one mapped file, a reader per column made when asked for."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from merlot.ids import SegmentKey
from merlot.segment.buffers import MappedFile
from merlot.segment.column import ColumnReader
from merlot.segment.layout import FORMAT_VERSION, damaged
from merlot.segment.metadata import SegmentMetadata, parse_metadata


class ImmutableSegment:
    """A sealed segment. Arrays taken from it stay valid after `close`."""

    def __init__(self, file: MappedFile, metadata: SegmentMetadata) -> None:
        self.file = file
        self._readers: dict[str, ColumnReader] = {}
        self._lock = threading.Lock()
        self.metadata = metadata
        self.num_docs = metadata.num_docs

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Self:
        """Map a file and check header, trailer and footer, with `verify` every buffer too.

        Raises CorruptionError, NotFoundError, or UnavailableError if the file cannot be read."""
        file = MappedFile(path)
        if verify and (problems := file.verify()):
            raise damaged(path, problems[0])
        return cls(file, _metadata_of(file))

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes

    @property
    def key(self) -> SegmentKey:
        return self.metadata.key

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(self.metadata.columns)

    def column(self, name: str) -> ColumnReader | None:
        """Reader of a column; None if the segment was built before the column was added."""
        reader = self._readers.get(name)
        if reader is not None:
            return reader
        metadata = self.metadata.columns.get(name)
        if metadata is None:
            return None
        with self._lock:
            return self._readers.setdefault(name, ColumnReader(metadata, self.num_docs, self.file))

    def close(self) -> None:
        """Forget readers and decoded arrays. The mapping ends with the last array that somebody still holds."""
        with self._lock:
            self._readers = {}
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def verify_file(path: Path) -> None:
    """Read every byte of a segment file; raises CorruptionError at the first one that is not as written."""
    ImmutableSegment.open(path, verify=True).close()


def _metadata_of(file: MappedFile) -> SegmentMetadata:
    layout = file.layout
    columns = layout.content.get("columns")
    if not isinstance(columns, list):
        raise damaged(file.path, "footer has no columns")
    try:
        named = {column["name"]: column for column in columns}
        fields = {**layout.content, **layout.identity, "creation": layout.creation, "columns": named}
        return parse_metadata({**fields, "crc": layout.content_crc, "format_version": FORMAT_VERSION})
    except (ValidationError, KeyError, TypeError) as error:
        raise damaged(file.path, f"footer is not what it should be: {error}") from error
