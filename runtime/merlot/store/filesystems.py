"""Open file systems by URI: the only module that opens pyarrow.fs for deep stores and sources.

`merlot.schemes` lists the schemes. Errors never repeat credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import pyarrow as pa
from pyarrow import fs

from merlot import schemes
from merlot.errors import InvalidInputError, first_line
from merlot.schemes import Scheme
from merlot.uris import credentials_problem, option_problems, redact, scheme_of

ATTEMPTS: Final = 8
"""Attempts of each request to a source, with exponential backoff: they outlast half a minute in which the storage
throttles requests."""
ATTEMPTS_VARIABLE: Final = "AWS_MAX_ATTEMPTS"
"""Environment variable that sets another number of attempts for S3."""
_PATIENCE: Final = timedelta(seconds=30)
_SHORTEST_PATIENCE: Final = timedelta(seconds=1)
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class FileSystemUse(StrEnum):
    """Purpose that a file system is opened for."""

    DEEP_STORE = "deep store"
    SOURCE = "source"


def open_filesystem(
    uri: str, use: FileSystemUse, secret: Mapping[str, Any] = _NOTHING, environment: Mapping[str, str] = os.environ
) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI, and the path in it. A source's path may be a glob.

    `secret` holds arguments of the file system's class; options of the URI override them. Raise InvalidInputError for a
    URI of no known scheme, one that may not be used for this purpose, or one that holds credentials."""
    if (problem := credentials_problem(uri)) is not None:
        raise InvalidInputError(f"a {use}'s URI must not hold {problem} uri={redact(uri)}")
    scheme = _scheme(uri, use)
    authority, path, query = _split(uri, scheme, use)
    is_glob = use is FileSystemUse.SOURCE and not query
    if problems := option_problems(uri, is_glob=is_glob):
        raise _refused(uri, use, "; ".join(problems))
    options = dict(parse_qsl(query))
    path = path if scheme.is_literal else unquote(path)
    matched = scheme.authority.fullmatch(authority)
    if matched is None:
        raise InvalidInputError(f"{use} uri names no {scheme.names} uri={redact(uri)}; write {scheme.example}")
    try:
        if scheme.target is None:
            return fs.FileSystem.from_uri(f"{scheme.name}://{authority}/" + (query and f"?{query}"))[0], path
        target = scheme.target(matched, options, environment)
        keywords = {**_retries(scheme, use, environment), **secret, **target.keywords}
        return getattr(fs, scheme.filesystem)(**keywords), target.root + path
    except (ValueError, OSError, pa.ArrowException) as error:
        raise _refused(uri, use, first_line(error)) from error


def children(filesystem: fs.FileSystem, folder: str) -> Iterator[fs.FileInfo]:
    """Yield files and folders in a folder.

    Google's storage has no folders, and pyarrow lists only those that some program has made objects for. So everything
    below the folder is listed there."""
    is_flat = isinstance(filesystem, fs.GcsFileSystem)
    infos = filesystem.get_file_info(fs.FileSelector(folder, recursive=is_flat))
    if not is_flat:
        yield from infos
        return
    folders: set[str] = set()
    for info in infos:
        name, slash, _ = info.path.removeprefix(f"{folder}/").partition("/")
        if slash or info.type == fs.FileType.Directory:
            folders.add(f"{folder}/{name}")
        else:
            yield info
    yield from (fs.FileInfo(path, fs.FileType.Directory) for path in sorted(folders))


def _scheme(uri: str, use: FileSystemUse) -> Scheme:
    scheme = schemes.scheme_named(scheme_of(uri)) if "://" in uri else None
    if scheme is None:
        choices = schemes.examples(schemes.DEEP_STORES if use is FileSystemUse.DEEP_STORE else schemes.SCHEMES)
        raise _refused(uri, use, f"unknown scheme, or none; write {choices}")
    if use is FileSystemUse.DEEP_STORE and not scheme.is_deep_store:
        choices = schemes.examples(schemes.DEEP_STORES)
        raise _refused(uri, use, f"{scheme.name}:// is for sources alone; write {choices}")
    return scheme


def _split(uri: str, scheme: Scheme, use: FileSystemUse) -> tuple[str, str, str]:
    """Return authority, path and query. A question mark in a source's URI may be part of a glob. It begins options only
    if the storage is object storage and an equals sign follows, with no slash between them."""
    rest = uri.partition("://")[2]
    if use is FileSystemUse.DEEP_STORE:
        location, _, query = rest.partition("?")
    else:
        location, _, query = rest.rpartition("?")
        if not scheme.is_object_storage or "=" not in query or "/" in query.partition("=")[0]:
            location, query = rest, ""
    authority, slash, path = location.partition("/")
    return authority, slash + path, query


def _retries(scheme: Scheme, use: FileSystemUse, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return arguments for the library's own retries. Deep stores get none, or the fewest that it allows: `retrying`
    alone decides."""
    is_source = use is FileSystemUse.SOURCE
    if scheme.filesystem == "S3FileSystem":
        if is_source and ATTEMPTS_VARIABLE in environment:
            return {}
        return {"retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS if is_source else 1)}
    if scheme.filesystem == "GcsFileSystem":
        return {"retry_time_limit": _PATIENCE if is_source else _SHORTEST_PATIENCE}
    return {}


def _refused(uri: str, use: FileSystemUse, reason: str) -> InvalidInputError:
    return InvalidInputError(f"cannot open {use} uri={redact(uri)} reason={redact(reason)}")
