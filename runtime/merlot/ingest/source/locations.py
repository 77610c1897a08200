"""Resolve paths, URIs and globs of a source to the files that they stand for."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from merlot.errors import NotFoundError, first_line
from merlot.ingest.source.errors import storage_error
from merlot.store.filesystems import FileSystemUse, children, open_filesystem
from merlot.uris import redact

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_WILD = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that may hold rows."""

    path: str
    """Path in its file system."""
    num_bytes: int
    modified_ns: int | None = None
    """Time of its last change; None if the file system does not tell."""
    root: str = ""
    """Folder that the source begins with: the one that it names, or the path before the first wildcard."""

    @property
    def partitions(self) -> tuple[tuple[str, str | None], ...]:
        """Columns that the folders below the root give as `k=v`. If a name occurs twice, the innermost folder
        counts."""
        folders = self.path.removeprefix(self.root).split("/")[:-1]
        pairs = (name.partition("=") for name in folders if "=" in name.strip("="))
        return tuple(
            {
                unquote(key): None if value == NULL_PARTITION else unquote(value) for key, _, value in pairs if key
            }.items()
        )


def open_place(uri: str) -> fs.FileSystem:
    """Return the file system of a source. Raises InvalidInputError if there is none for the URI."""
    return _open(uri)[0]


def list_files(uri: str) -> list[SourceFile]:
    """Return the files of a source by path, empty ones too. Raises NotFoundError if there are none."""
    filesystem, base, pattern = _open(uri)
    try:
        literal = _literal(filesystem, base, pattern)
        roots = literal or _matching(filesystem, base, pattern)
        infos = {info.path: info for root in roots for info in _below(filesystem, root)}
    except (OSError, pa.ArrowException) as error:
        raise storage_error(error, f"cannot list source uri={redact(uri)} reason={_reason(error)}") from error
    if not infos:
        raise NotFoundError(f"no source files uri={redact(uri)}")
    top = base if not literal else literal[0].path if not literal[0].is_file else literal[0].path.rpartition("/")[0]
    return [SourceFile(path, infos[path].size or 0, infos[path].mtime_ns, top) for path in sorted(infos)]


def _open(uri: str) -> tuple[fs.FileSystem, str, str]:
    """Return the file system, the path up to the first name with a wildcard, and the rest."""
    if "://" not in uri:
        base, pattern = _split(uri)
        return fs.LocalFileSystem(), str(Path(base or ("." if pattern else "")).resolve()), pattern
    filesystem, path = open_filesystem(uri, FileSystemUse.SOURCE)
    base, pattern = _split(path)
    return filesystem, base or "/", pattern


def _split(path: str) -> tuple[str, str]:
    """Split a path before the first name with a wildcard."""
    wild = _WILD.search(path)
    if wild is None:
        return path.rstrip("/"), ""
    base, slash, name = path[: wild.start()].rpartition("/")
    return base + ("/" if slash and not base else ""), name + path[wild.start() :].rstrip("/")


def _reason(error: Exception) -> str:
    return redact(first_line(error))


def _literal(filesystem: fs.FileSystem, base: str, pattern: str) -> list[fs.FileInfo]:
    info = filesystem.get_file_info(_join(base, pattern))
    return [] if info.type == fs.FileType.NotFound else [info]


def _matching(filesystem: fs.FileSystem, base: str, pattern: str) -> list[fs.FileInfo]:
    """Return the files and folders that match the glob. They are found level by level; other folders are not looked
    into."""
    if not pattern:
        return []
    infos: list[fs.FileInfo] = []
    for plain in _without_braces(pattern):
        level = [filesystem.get_file_info(base)]
        for name in plain.split("/"):
            level = list(_next_level(filesystem, level, name))
        infos += level
    return infos


def _next_level(filesystem: fs.FileSystem, level: Iterable[fs.FileInfo], name: str) -> Iterator[fs.FileInfo]:
    folders = [info.path for info in level if info.type == fs.FileType.Directory]
    if _WILD.search(name) is None:
        infos = filesystem.get_file_info([_join(folder, name) for folder in folders])
        yield from (info for info in infos if info.type != fs.FileType.NotFound)
        return
    matches = re.compile(fnmatch.translate(name.replace("[^", "[!"))).match
    for folder in folders:
        for info in children(filesystem, folder):
            if matches(info.base_name) and (name[0] in "_." or not _is_hidden(info.base_name)):
                yield info


def _below(filesystem: fs.FileSystem, root: fs.FileInfo) -> Iterator[fs.FileInfo]:
    if root.is_file:
        yield root
        return
    for info in filesystem.get_file_info(fs.FileSelector(root.path, recursive=True, allow_not_found=True)):
        if info.is_file and not any(map(_is_hidden, info.path.removeprefix(root.path).split("/"))):
            yield info


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _without_braces(pattern: str) -> Sequence[str]:
    """Expand braces: `a{b,c}` becomes `ab` and `ac`."""
    braces = _BRACES.search(pattern)
    if braces is None:
        return [pattern]
    head, tail = pattern[: braces.start()], pattern[braces.end() :]
    return [expanded for choice in braces[1].split(",") for expanded in _without_braces(head + choice + tail)]


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if name else folder
