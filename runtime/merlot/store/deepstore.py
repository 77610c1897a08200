"""One deep store by its URI: put, fetch, list and delete whole files.

A file appears under its name only when all its bytes are there: locally by a temporary name, fsync and rename; in
object storage because a put is atomic. Errors: NotFoundError for a missing object, CorruptionError from the caller's
verification, UnavailableError for everything that may pass, OutOfSpaceError when the local disk is full.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from merlot.errors import CorruptionError, InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey, TableName
from merlot.store import credentials
from merlot.store.retry import OutOfSpaceError, RetryPolicy, retrying

T = TypeVar("T")

SUFFIX = ".mseg"
CHUNK_BYTES = 4 << 20
S3_OPTIONS = frozenset({"endpoint_override", "region", "scheme"})


class DeepStore:
    """Files under one URI, e.g. `file:///var/merlot/deep`, `/var/merlot/deep`, `s3://bucket/prefix?region=eu-west-1`.

    S3 credentials come from the environment, or from a Secret of the store's own (`credentials`); options
    (`endpoint_override`, `scheme`, `region`) from the URI's query. Raises InvalidInputError for a URI that pyarrow.fs
    cannot open.
    """

    def __init__(self, uri: str, *, retry: RetryPolicy | None = None, keeps_copies: bool = True) -> None:
        """`keeps_copies`: files that are fetched must outlive a crash of the machine, and damage to the store's own.
        False for working files, which nobody writes to again: links to a local store's, and the store's to them."""
        self.uri = uri if "://" in uri else Path(uri).resolve().as_uri()
        parts = urlsplit(self.uri)
        self._root_url = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        self._retry = retry or RetryPolicy()
        self._keeps_copies = keeps_copies
        self._secret = credentials.folder_of(self.uri)
        self._opened_with: dict[str, Any] = {}
        if self._secret is not None and parts.scheme != "s3":
            raise InvalidInputError(f"only S3 takes a Secret uri={uri} secret={self._secret.name}")
        try:
            self._opened, root = _open(self.uri)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise InvalidInputError(f"cannot open deep store uri={uri} reason={error}") from error
        self._root = root.rstrip("/")
        self._is_local = isinstance(self._opened, fs.LocalFileSystem)
        self._links = self._is_local and not keeps_copies

    @property
    def _fs(self) -> fs.FileSystem:
        """With the Secret as it is now, if the store has one."""
        if self._secret is not None:
            options = credentials.s3_options(self._secret)
            if options != self._opened_with:
                self._opened, _ = _open(self.uri, options)
                self._opened_with = options
        return self._opened

    def url_of(self, table: TableName, key: SegmentKey) -> str:
        """Where the file of this version of a segment belongs."""
        return f"{self._root_url}/{table}/{key}{SUFFIX}"

    def url_below(self, table: TableName, *names: str) -> str:
        """Where another file of a table belongs; `list` does not show what is in a folder of its own."""
        return "/".join([self._root_url, table, *names])

    def put(self, source: Path, url: str) -> None:
        """Copy a local file to `url`. Putting the same version again is harmless: equal bytes replace equal bytes."""
        path = self._path_of(url)
        retrying(self._retry, lambda: self._put_once(source, path))

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

        A copy that is wrong is fetched again within the retry policy: the transfer may be at fault. If it stays wrong
        the last CorruptionError is raised. `expected_size` counts only where there is no `verify`: one version of a
        segment may have two sizes, if two versions of a compressor wrote it. `deadline` is `time.monotonic()` seconds.
        """
        path = self._path_of(url)
        destination.parent.mkdir(parents=True, exist_ok=True)
        self._until_right(lambda: self._fetch_once(path, destination, expected_size, verify, deadline), deadline)

    def read(self, url: str, verify: Callable[[bytes], T]) -> T:
        """What `verify` makes of all the bytes at `url`, for files that are small. Errors and retries as of `fetch`."""
        path = self._path_of(url)
        return self._until_right(lambda: verify(self._read_once(path)), None)

    def _until_right(self, action: Callable[[], T], deadline: float | None) -> T:
        """What the action returns, tried again within the policy for corrupt data too."""
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
        """Remove an object; one that is not there is no error."""
        path = self._path_of(url)

        def attempt() -> None:
            try:
                self._fs.delete_file(path)
            except FileNotFoundError:
                return
            except OSError as error:
                if self._fs.get_file_info(path).type != fs.FileType.NotFound:
                    raise unavailable("delete", path, error) from error

        retrying(self._retry, attempt)

    def modified_ms(self, url: str) -> int | None:
        """When the file at `url` was written, in milliseconds since the epoch; None if it is not there."""
        path = self._path_of(url)

        def attempt() -> int | None:
            try:
                info = self._fs.get_file_info(path)
            except OSError as error:
                raise unavailable("stat", path, error) from error
            return None if info.type == fs.FileType.NotFound else int(info.mtime_ns // 1_000_000)

        return retrying(self._retry, attempt)

    def list(self, table: TableName) -> list[str]:
        """URLs of a table's segment files, sorted."""
        found = self._files(fs.FileSelector(f"{self._root}/{table}", allow_not_found=True))
        return [url for url in found if url.endswith(SUFFIX)]

    def list_below(self, table: TableName, folder: str) -> Sequence[str]:
        """URLs of all files in a folder of a table and in its folders, sorted."""
        return self._files(fs.FileSelector(f"{self._root}/{table}/{folder}", allow_not_found=True, recursive=True))

    def _files(self, selector: fs.FileSelector) -> Sequence[str]:
        def attempt() -> Sequence[str]:
            try:
                infos = self._fs.get_file_info(selector)
            except OSError as error:
                raise unavailable("list", selector.base_dir, error) from error
            return sorted(f"{self._root_url}{info.path.removeprefix(self._root)}" for info in infos if info.is_file)

        return retrying(self._retry, attempt)

    def _path_of(self, url: str) -> str:
        """Path inside the file system of a URL of this store; refuses any other place."""
        inside = url.removeprefix(self._root_url + "/")
        if inside == url or ".." in PurePosixPath(inside).parts:
            raise InvalidInputError(f"url is outside the deep store url={url} store={self._root_url}")
        return f"{self._root}/{inside}"

    def _put_once(self, source: Path, path: str) -> None:
        target = f"{path}.{secrets.token_hex(4)}.tmp" if self._is_local else path
        try:
            if self._is_local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            if self._links and _is_linked(str(source), target):
                os.utime(target)  # it is as old as its time in the store: see `modified_ms`
            else:
                with source.open("rb") as reader, self._fs.open_output_stream(target) as writer:
                    while chunk := reader.read(CHUNK_BYTES):
                        writer.write(chunk)
            if self._is_local:
                _sync(Path(target))
                Path(target).rename(path)
                _sync(Path(path).parent)
        except OSError as error:
            raise unavailable("write", path, error) from error
        finally:
            if self._is_local:
                # There after a failure; and after success too if both names were one file's before.
                Path(target).unlink(missing_ok=True)

    def _fetch_once(
        self,
        path: str,
        destination: Path,
        expected_size: int | None,
        verify: Callable[[Path], None] | None,
        deadline: float | None,
    ) -> None:
        partial = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.tmp")
        try:
            is_linked = self._links and _is_linked(path, str(partial))
            size = partial.stat().st_size if is_linked else self._copy(path, partial, deadline)
            if verify is not None:
                verify(partial)
            elif expected_size is not None and size != expected_size:
                raise CorruptionError(f"fetched file has a wrong size path={path} expected={expected_size} got={size}")
            partial.rename(destination)
            if self._keeps_copies:
                _sync(destination.parent)
        except FileNotFoundError as error:
            raise NotFoundError(f"not in the deep store path={path}") from error
        except OSError as error:
            raise unavailable("read", path, error) from error
        finally:
            partial.unlink(missing_ok=True)

    def _read_once(self, path: str) -> bytes:
        try:
            if self._is_local:
                return Path(path).read_bytes()
            with self._fs.open_input_file(path) as reader:
                content: bytes = reader.read()
                return content
        except FileNotFoundError as error:
            raise NotFoundError(f"not in the deep store path={path}") from error
        except OSError as error:
            raise unavailable("read", path, error) from error

    def _copy(self, path: str, partial: Path, deadline: float | None) -> int:
        """Copy and fsync; returns the number of bytes. The writer is closed here so that ENOSPC is never lost."""
        size = 0
        with self._fs.open_input_stream(path) as reader, partial.open("wb") as writer:
            while chunk := reader.read(CHUNK_BYTES):
                size += writer.write(chunk)
                if deadline is not None and time.monotonic() > deadline:
                    raise UnavailableError(f"deadline passed while reading path={path} bytes={size}")
            writer.flush()
            if self._keeps_copies:
                os.fsync(writer.fileno())
        return size


def _open(uri: str, more: Mapping[str, Any] | None = None) -> tuple[fs.FileSystem, str]:
    """The file system of a URI and the path in it. S3's own retries are off: `retrying` alone decides. `more`: S3's
    options, which those of the URI go before."""
    parts = urlsplit(uri)
    if parts.scheme != "s3":
        found, path = fs.FileSystem.from_uri(uri)
        return found, str(path)
    options = dict(parse_qsl(parts.query))
    if unknown := sorted(options.keys() - S3_OPTIONS):
        raise InvalidInputError(f"unknown option in deep store uri options={unknown} known={sorted(S3_OPTIONS)}")
    once = fs.AwsStandardS3RetryStrategy(max_attempts=1)
    return fs.S3FileSystem(retry_strategy=once, **{**(more or {}), **options}), parts.netloc + parts.path


def _is_linked(path: str, target: str) -> bool:
    """Make `target` another name of a file, where that is possible."""
    try:
        os.link(path, target)
    except OSError:  # another file system, or one without links
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unavailable(action: str, path: str, error: OSError) -> UnavailableError:
    """The error of a file that cannot be read or written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return OutOfSpaceError(f"no space left on the disk action={action} path={path}")
    return UnavailableError(f"deep store failed action={action} path={path} reason={str(error).splitlines()[0]}")
