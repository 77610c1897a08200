"""Files below one local folder, opened one path component at a time: no link below it is followed, and only regular
files are read.

Anybody who may write into the folder may put a link, a pipe or a device under any name. Since each component is
opened by the descriptor of its parent, none of them is followed, not even if it is put there meanwhile.
InvalidInputError says that a link or a special file was met.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from merlot.errors import InvalidInputError

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a folder for passing through. Where O_PATH exists, this needs no right to list the folder."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open a file. A pipe is opened without waiting for its writer, and closed again."""
_ASTRAY = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)


class LocalFolder:
    """Files by their paths below a folder. The folder itself may be a link: its owner chose it."""

    def __init__(self, root: str) -> None:
        self._root = root or "/"

    def open(self, path: str) -> int:
        """Return a descriptor of a regular file, for the caller to close. Raise FileNotFoundError if it is missing."""
        with self._parent(path) as (folder, name):
            descriptor = os.open(name, _FILE, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _not_regular(path)
        return descriptor

    def link(self, path: str, target: str) -> bool:
        """Make `target` a hard link to a regular file; return False where that is not possible. Raise
        FileNotFoundError."""
        with self._parent(path) as (folder, name):
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise _not_regular(path)
            try:
                os.link(name, target, src_dir_fd=folder, follow_symlinks=False)
            except OSError:  # another file system, or one without links
                return False
            return True

    def modified_ns(self, path: str) -> int:
        """Return when the file was written; for a link, when the link was. Raise FileNotFoundError."""
        with self._parent(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns

    def delete(self, path: str) -> None:
        """Remove the name; for a link, the link alone. Raise FileNotFoundError."""
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def files(self, folder: str, *, recursive: bool) -> Sequence[str]:
        """Return the paths of the regular files in a folder; none if the folder is missing."""
        paths: list[str] = []
        with contextlib.suppress(FileNotFoundError), self._folder(PurePosixPath(folder).parts, folder) as descriptor:
            for place, folders, names, step in os.fwalk(".", dir_fd=descriptor):
                inner = PurePosixPath(folder, place)
                paths += [str(inner / name) for name in names if _is_regular(name, step)]
                if not recursive:
                    folders.clear()
        return paths

    def make_parent(self, path: str) -> None:
        """Make the folder of a file, and the folders on the way to it."""
        os.makedirs(self._root, exist_ok=True)
        with self._folder(PurePosixPath(path).parts[:-1], path, makes=True):
            pass

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        *folders, name = PurePosixPath(path).parts
        with self._folder(folders, path) as descriptor:
            yield descriptor, name

    @contextlib.contextmanager
    def _folder(self, names: Sequence[str], path: str, *, makes: bool = False) -> Iterator[int]:
        """Yield the descriptor of a folder below the root. A link or a special file that is met within the block raises
        InvalidInputError too."""
        opened = [os.open(self._root, _FOLDER)]
        try:
            for name in names:
                if makes:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=opened[-1])
                opened.append(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=opened[-1]))
            yield opened[-1]
        except OSError as error:
            if error.errno in _ASTRAY:
                raise _not_regular(path) from error
            raise
        finally:
            for descriptor in opened:
                os.close(descriptor)


def _is_regular(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _not_regular(path: str) -> InvalidInputError:
    return InvalidInputError(
        f"not a regular file of the deep store: a link or a special file is on the way path={path}"
    )
