"""Read files of a source as they were when they were listed, or not at all.

A job plans pieces of a file by its size and its footer, and reads them a while later, on other machines. A file that
was written meanwhile would give a part of its rows, or rows cut in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from merlot.errors import UnavailableError
from merlot.ingest.source.locations import SourceFile


class ChangedError(UnavailableError):
    """Raised if a file is not as it was listed. Another run will list it as it is by then."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a file system. Its methods raise ChangedError if it is not as it was listed."""

    filesystem: fs.FileSystem
    listed: SourceFile

    def open_input_file(self, _: str) -> pa.NativeFile:
        """Open the file for random access."""
        self.check()
        return self.filesystem.open_input_file(self.listed.path)

    def open_input_stream(self, _: str) -> pa.NativeFile:
        """Open the file as a stream from its beginning, unpacked if the end of its name says so."""
        self.check()
        return self.filesystem.open_input_stream(self.listed.path)

    def check(self) -> None:
        """Raise ChangedError unless the file is as it was listed. Readers check again when they are done."""
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
    """Return the time of the last change. Storages give seconds for a file, and milliseconds in lists."""
    if modified_ns is None or isinstance(filesystem, fs.LocalFileSystem):
        return modified_ns
    return modified_ns // 1_000_000_000
