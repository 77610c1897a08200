"""Put, fetch, list and delete whole files of one deep store.

A file appears under its name only when all its bytes are there: locally by a temporary name, fsync and rename; in HDFS
by a temporary name and rename; in object storage because a put is atomic. Errors: NotFoundError for a missing object;
CorruptionError from the caller's verification, and for a file that is larger than it may be; InvalidInputError for a
URL outside the store, and for anything but a regular file; UnavailableError for every failure that may pass;
OutOfSpaceError if the local disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
from pyarrow import fs

from merlot.errors import CorruptionError, InvalidInputError, NotFoundError, UnavailableError, first_line
from merlot.ids import SEGMENT_SUFFIX, SegmentKey, TableName
from merlot.schemes import scheme_named
from merlot.store import credentials
from merlot.store.credentials import without_options
from merlot.store.filesystems import FileSystemUse, open_filesystem
from merlot.store.local import LocalFolder
from merlot.store.retry import OutOfSpaceError, RetryPolicy, retrying
from merlot.uris import parts_below, place_of, redact, scheme_of

T = TypeVar("T")

SUFFIX = SEGMENT_SUFFIX
CHUNK_BYTES, LEAST_CHUNK_BYTES = 4 << 20, 64 << 10
SLACK_BYTES = 1 << 20
"""Bytes that a file may have beyond its recorded size; see `largest_of`."""
PATIENCE_S = 120.0
SLOWEST_BYTES_PER_S = 256 << 10
"""Rate below which a transfer is given up; see `patience_s`."""


class DeepStore:
    """Files under one URI, e.g. `file:///var/merlot/deep`, `/var/merlot/deep`, `s3://bucket/prefix?region=eu-west-1`.

    Credentials come from the environment, or from a Secret of the store's own (`credentials`). Raises InvalidInputError
    for a URI that `filesystems` does not open."""

    def __init__(self, uri: str, *, retry: RetryPolicy | None = None, keeps_copies: bool = True) -> None:
        """With `keeps_copies`, fetched files survive a crash of the machine, and damage to the store's own files.
        Without it, fetched files are working files that nobody writes to again: they may be hard links to files of a
        local store, as files that are put may be."""
        self.uri = uri if scheme_of(uri) else Path(uri).resolve().as_uri()
        self._opened, root = open_filesystem(self.uri, FileSystemUse.DEEP_STORE)
        self._place = place_of(self.uri)
        self._root_url = f"{scheme_of(self.uri)}://{without_options(self.uri).partition('://')[2]}".rstrip("/")
        self._retry = retry or RetryPolicy()
        self._keeps_copies = keeps_copies
        self._secret = credentials.folder_of(self.uri)
        self._opened_with: Mapping[str, Any] = {}
        if self._secret is not None and credentials.keys_of(self.uri) is None:
            raise InvalidInputError(f"{scheme_of(uri)}:// takes no Secret uri={redact(uri)} secret={self._secret.name}")
        self._root = root.rstrip("/")
        self._local = LocalFolder(self._root)
        self._is_local = isinstance(self._opened, fs.LocalFileSystem)
        scheme = scheme_named(scheme_of(self.uri))
        self._shows_partial_files = scheme is not None and scheme.shows_partial_files
        self._links = self._is_local and not keeps_copies

    @property
    def _fs(self) -> fs.FileSystem:
        """The file system, opened again if the store's Secret has changed."""
        if self._secret is not None:
            options = credentials.options_of(self.uri, self._secret)
            if options != self._opened_with:
                self._opened, _ = open_filesystem(self.uri, FileSystemUse.DEEP_STORE, options)
                self._opened_with = options
        return self._opened

    def url_of(self, table: TableName, key: SegmentKey) -> str:
        """Return the URL of the file of this version of a segment."""
        return f"{self._root_url}/{table}/{key}{SUFFIX}"

    def url_below(self, table: TableName, *names: str) -> str:
        """Return the URL of another file of a table; `list` does not show files in folders of their own."""
        return "/".join([self._root_url, table, *names])

    def put(self, source: Path, url: str) -> None:
        """Copy a local file to `url`. Putting the same version again is harmless: equal bytes replace equal bytes."""
        self.put_all([(source, url)])

    def put_all(self, files: Sequence[tuple[Path, str]]) -> None:
        """Put each file, as `put` does. In a local store all files wait for the disk together, and a failure may leave
        some of them under their names, each of them whole."""
        inside = [(source, self._inside(url)) for source, url in files]
        if self._is_local:
            retrying(self._retry, lambda: self._put_local(inside))
            return
        for source, path in inside:
            retrying(self._retry, partial(self._put_object, source, path))

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        expected_size: int | None = None,
        verify: Callable[[Path], None] | None = None,
        deadline: float | None = None,
    ) -> None:
        """Copy `url` to a local file that appears only when it is whole and `verify` has returned.

        A wrong copy is fetched again within the retry policy: the transfer may be at fault. If it stays wrong, the last
        CorruptionError is raised. With `verify`, `expected_size` is only a bound (`largest_of`). `deadline` is in
        `time.monotonic()` seconds."""
        inside = self._inside(url)
        destination.parent.mkdir(parents=True, exist_ok=True)
        self._retrying_corrupt(lambda: self._fetch_once(inside, destination, expected_size, verify, deadline), deadline)

    def read(
        self,
        url: str,
        verify: Callable[[bytes], T],
        *,
        expected_size: int | None = None,
        deadline: float | None = None,
    ) -> T:
        """Return `verify(data)` of all bytes at `url`; meant for small files. Bounds, errors and retries are as in
        `fetch`."""
        inside = self._inside(url)
        return self._retrying_corrupt(lambda: verify(self._read_once(inside, expected_size, deadline)), deadline)

    def _retrying_corrupt(self, action: Callable[[], T], deadline: float | None) -> T:
        """Return the action's result; corrupt data too is tried again within the retry policy."""
        corrupt: list[CorruptionError] = []

        def attempt() -> T:
            try:
                return action()
            except CorruptionError as error:
                corrupt.append(error)
                raise UnavailableError(str(error)) from error

        try:
            return retrying(self._retry, attempt, deadline=deadline)
        except UnavailableError as error:
            if corrupt and error.__cause__ is corrupt[-1]:
                raise corrupt[-1] from None
            raise

    def delete(self, url: str) -> None:
        """Remove an object; a missing object is no error."""
        inside = self._inside(url)

        def attempt() -> None:
            with contextlib.suppress(NotFoundError), self._translating("delete", inside):
                if self._is_local:
                    self._local.delete(inside)
                else:
                    self._delete_object(self._path_of(inside))

        retrying(self._retry, attempt)

    def modified_ms(self, url: str) -> int | None:
        """Return when the file at `url` was written, in milliseconds since the epoch; None if it is missing."""
        inside = self._inside(url)

        def attempt() -> int | None:
            with contextlib.suppress(NotFoundError), self._translating("stat", inside):
                if self._is_local:
                    return self._local.modified_ns(inside) // 1_000_000
                info = self._fs.get_file_info(self._path_of(inside))
                return None if info.type == fs.FileType.NotFound else int(info.mtime_ns // 1_000_000)
            return None

        return retrying(self._retry, attempt)

    def list(self, table: TableName) -> list[str]:
        """Return the URLs of a table's segment files, sorted."""
        return [url for url in self._files(table, recursive=False) if url.endswith(SUFFIX)]

    def list_below(self, table: TableName, folder: str) -> Sequence[str]:
        """Return the URLs of all files in a folder of a table and in its subfolders, sorted."""
        return self._files(f"{table}/{folder}", recursive=True)

    def path_in(self, table: TableName, url: str) -> str | None:
        """Return the path of a URL in the table's folder, None if it leads anywhere else."""
        parts = parts_below(self._place, url)
        return None if parts is None or len(parts) < 2 or parts[0] != table else "/".join(parts[1:])

    def _files(self, folder: str, *, recursive: bool) -> Sequence[str]:
        def attempt() -> Sequence[str]:
            with self._translating("list", folder):
                if self._is_local:
                    paths = self._local.files(folder, recursive=recursive)
                else:
                    selector = fs.FileSelector(self._path_of(folder), allow_not_found=True, recursive=recursive)
                    infos = self._fs.get_file_info(selector)
                    paths = [info.path.removeprefix(f"{self._root}/") for info in infos if info.is_file]
                return sorted(f"{self._root_url}/{path}" for path in paths)

        return retrying(self._retry, attempt)

    def _inside(self, url: str) -> str:
        """Return the path of a URL below the store's root; raise InvalidInputError for any other place."""
        parts = parts_below(self._place, url)
        if parts is None:
            raise InvalidInputError(f"url is outside the deep store url={redact(url)} store={redact(self._root_url)}")
        return "/".join(parts)

    def _path_of(self, inside: str) -> str:
        """Return the path in the file system."""
        return f"{self._root}/{inside}"

    @contextlib.contextmanager
    def _translating(self, action: str, inside: str) -> Iterator[None]:
        """Raise a file system's errors as this project's."""
        path = self._path_of(inside)
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and action != "write":
                raise NotFoundError(f"not in the deep store path={path}") from error
            raise unavailable(action, path, error) from error
        except pa.ArrowException as error:
            reason = redact(first_line(error))
            raise InvalidInputError(
                f"deep store refuses the path action={action} path={path} reason={reason}"
            ) from error

    def _delete_object(self, path: str) -> None:
        try:
            self._fs.delete_file(path)
        except FileNotFoundError:
            return
        except OSError:
            if self._fs.get_file_info(path).type != fs.FileType.NotFound:
                raise

    def _put_object(self, source: Path, inside: str) -> None:
        with self._translating("write", inside):
            if self._shows_partial_files:
                self._put_renamed(source, self._path_of(inside))
            else:
                self._copy_to(source, self._path_of(inside))

    def _put_renamed(self, source: Path, path: str) -> None:
        """Write the file under a temporary name, then rename it. A file of its size that is there already stays: it has
        the same bytes, and HDFS would delete it first."""
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            self._copy_to(source, temporary)
            if self._fs.get_file_info(path).size != source.stat().st_size:
                self._fs.move(temporary, path)
        finally:
            # It exists after a failure, and if the file was there before.
            with contextlib.suppress(OSError):
                self._delete_object(temporary)

    def _put_local(self, files: Sequence[tuple[Path, str]]) -> None:
        """Write all files under temporary names, then sync and rename them.

        64 files of 60 KB take 0.6 ms each if all are on their way to the disk before the first is waited for. One after
        the other, with a sync of their folder each, they take 1.3 to 3.3 ms."""
        targets = [f"{self._path_of(inside)}.{secrets.token_hex(4)}.tmp" for _, inside in files]
        folders = {os.path.dirname(inside): inside for _, inside in files}
        try:
            for inside in folders.values():
                with self._translating("write", inside):
                    self._local.make_parent(inside)
            for (source, inside), target in zip(files, targets, strict=True):
                with self._translating("write", inside):
                    self._write_local(source, target)
            for (_, inside), target in zip(files, targets, strict=True):
                with self._translating("write", inside):
                    _sync(target)
                    os.rename(target, self._path_of(inside))
            for folder, inside in folders.items():
                with self._translating("write", inside):
                    _sync(self._path_of(folder))
        finally:
            # They exist after a failure; and after success too if both names were one file's before.
            for target in targets:
                with contextlib.suppress(OSError):
                    os.unlink(target)

    def _write_local(self, source: Path, target: str) -> None:
        if self._links and _is_linked(str(source), target):
            os.utime(target)  # `modified_ms` is the time at which the file came into the store
        else:
            self._copy_to(source, target)
        _begin_writing(target)

    def _copy_to(self, source: Path, path: str) -> None:
        with source.open("rb") as reader, self._fs.open_output_stream(path) as writer:
            while chunk := reader.read(CHUNK_BYTES):
                writer.write(chunk)

    def _fetch_once(
        self,
        inside: str,
        destination: Path,
        expected_size: int | None,
        verify: Callable[[Path], None] | None,
        deadline: float | None,
    ) -> None:
        partial = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.tmp")
        try:
            with self._translating("read", inside):
                is_linked = self._links and self._local.link(inside, str(partial))
                size = partial.stat().st_size if is_linked else self._copy(inside, partial, expected_size, deadline)
                if verify is not None:
                    verify(partial)
                elif expected_size is not None and size != expected_size:
                    raise CorruptionError(
                        f"fetched file has a wrong size path={inside} expected={expected_size} got={size}"
                    )
                partial.rename(destination)
                if self._keeps_copies:
                    _sync(destination.parent)
        finally:
            partial.unlink(missing_ok=True)

    def _read_once(self, inside: str, expected_size: int | None, deadline: float | None) -> bytes:
        with self._translating("read", inside):
            return b"".join(self._chunks(inside, expected_size, deadline))

    def _copy(self, inside: str, partial: Path, expected_size: int | None, deadline: float | None) -> int:
        """Copy, fsync if the copies are kept, and return the number of bytes. The writer is closed here so that ENOSPC
        is never lost."""
        size = 0
        with partial.open("wb") as writer:
            for chunk in self._chunks(inside, expected_size, deadline):
                size += writer.write(chunk)
            writer.flush()
            if self._keeps_copies:
                os.fsync(writer.fileno())
        return size

    def _chunks(self, inside: str, expected_size: int | None, deadline: float | None) -> Iterator[bytes]:
        """Yield the bytes of a file. Raise CorruptionError as soon as they exceed the largest allowed size."""
        largest, size = sys.maxsize if expected_size is None else largest_of(expected_size), 0
        # A small file is read at once, but never with a much larger buffer: a buffer is allocated before it is filled.
        at_once = CHUNK_BYTES if expected_size is None else min(CHUNK_BYTES, max(LEAST_CHUNK_BYTES, expected_size + 1))
        with self._reader(inside) as reader:
            while chunk := reader.read(at_once):
                size += len(chunk)
                if size > largest:
                    raise CorruptionError(
                        f"file is larger than its record says path={inside} expected={expected_size} largest={largest}"
                    )
                if deadline is not None and time.monotonic() > deadline:
                    raise UnavailableError(f"deadline passed while reading path={inside} bytes={size}")
                yield chunk

    def _reader(self, inside: str) -> BinaryIO | pa.NativeFile:
        if self._is_local:
            return open(self._local.open(inside), "rb", buffering=0)
        return self._fs.open_input_stream(self._path_of(inside))


def largest_of(size_bytes: int) -> int:
    """Return how large a segment's file may be if its record says `size_bytes`.

    Rows and configuration identify a version of a segment. A node with another version of the compressors builds it
    under the same name with other bytes. The sizes then differ by a few per cent, never by half."""
    return size_bytes + size_bytes // 2 + SLACK_BYTES


def patience_s(size_bytes: int) -> float:
    """Return how long a file of this size may take to arrive before its transfer is begun anew."""
    return PATIENCE_S + size_bytes / SLOWEST_BYTES_PER_S


def _is_linked(path: str, target: str) -> bool:
    """Make `target` a hard link to the file; return False where that is not possible."""
    try:
        os.link(path, target)
    except OSError:  # another file system, or one without links
        return False
    return True


def _begin_writing(path: str) -> None:
    """Have the kernel begin to write a file's pages, without waiting for them."""
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _sync(path: Path | str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unavailable(action: str, path: str, error: OSError) -> UnavailableError:
    """Return the error for a file that cannot be read or written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return OutOfSpaceError(f"no space left on the disk action={action} path={path}")
    return UnavailableError(f"deep store failed action={action} path={path} reason={redact(first_line(error))}")
