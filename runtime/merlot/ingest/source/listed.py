"""Files of a source, read as they were when they were listed, or not at all.

A job plans pieces of a file by its size and its footer, and reads them a while later, on other machines. A file that
was written meanwhile would give a part of its rows, or rows cut in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from merlot.errors import UnavailableError
from merlot.ingest.source.places import SourceFile


class ChangedError(UnavailableError):
    """A file is not the one that was listed: another run sees it as it is by then."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a file system; ChangedError from whatever finds that it has changed."""

    filesystem: fs.FileSystem
    listed: SourceFile

    def open_input_file(self, _: str) -> pa.NativeFile:
        """The file, for random access."""
        self.check()
        return self.filesystem.open_input_file(self.listed.path)

    def open_input_stream(self, _: str) -> pa.NativeFile:
        """The file from its beginning on, unpacked if its name ends so."""
        self.check()
        return self.filesystem.open_input_stream(self.listed.path)

    def check(self) -> None:
        """Raise ChangedError unless it is still what was listed. Who reads asks in the end once more."""
        info, listed = self.filesystem.get_file_info(self.listed.path), self.listed
        if info.type == fs.FileType.NotFound:
            raise ChangedError(f"source file was deleted while the job ran file={listed.path}; run the job again")
        if (info.size or 0, _time(self.filesystem, info.mtime_ns)) != (
            listed.num_bytes,
            _time(self.filesystem, listed.modified_ns),
        ):
            raise ChangedError(
                f"source file changed while the job ran file={listed.path} bytes={listed.num_bytes} "
                f"now={info.size or 0}; run the job again once nobody writes to it"
            )


def _time(filesystem: fs.FileSystem, modified_ns: int | None) -> int | None:
    """When it was modified. Storages tell seconds for a file, and milliseconds in lists."""
    if modified_ns is None or isinstance(filesystem, fs.LocalFileSystem):
        return modified_ns
    return modified_ns // 1_000_000_000
