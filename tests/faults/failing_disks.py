"""Disks that answer EIO to some of a process's calls: by a library that is compiled here and that processes preload."""

from __future__ import annotations

import functools
import mmap
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.fork_server import PRELOAD

SOURCE = Path(__file__).with_name("failing_disk.c")
CONTROL = "MERLOT_DISK_CONTROL"
_LAYOUT = struct.Struct("<5I1004s")
"""`struct control` of the source."""


@functools.cache
def library() -> Path | None:
    """The library; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    built = Path(tempfile.mkdtemp(prefix="merlot-disk-")) / "failing_disk.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", built, SOURCE, "-ldl"], check=True, capture_output=True)
    return built


class FailingDisk:
    """What one process sees of a folder."""

    def __init__(self, control: Path, folder: Path) -> None:
        self._folder = folder
        self._file = control
        control.write_bytes(bytes(_LAYOUT.size))
        with control.open("r+b") as file:
            self._pages = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._set(0, 0, 0)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the process."""
        return {PRELOAD: str(library()), CONTROL: str(self._file)}

    @property
    def num_failures(self) -> int:
        """How many calls have failed."""
        return int(_LAYOUT.unpack(self._pages)[4])

    @contextmanager
    def failing(self, *, reads: int = 0, writes: int = 0, syncs: int = 0) -> Iterator[None]:
        """So many of a hundred calls fail while the block runs."""
        self._set(reads, writes, syncs)
        try:
            yield
        finally:
            self._set(0, 0, 0)

    def _set(self, reads: int, writes: int, syncs: int) -> None:
        struct.pack_into("<3I", self._pages, 0, reads, writes, syncs)
        struct.pack_into("<1004s", self._pages, 20, bytes(self._folder))
