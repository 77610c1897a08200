"""Snapshots of a partition's valid docs on a server's own disk: a folder with a file per segment, and a list that says
which files are a checkpoint.

A file is written under another name and renamed, and never written to again. The list is written after all files that
it names, and files that it no longer names are deleted after it. A truncated or damaged file is detected by its
checksum.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from merlot.cluster.records import CheckpointRecord
from merlot.errors import CorruptionError
from merlot.store.deepstore import unavailable
from merlot.upsert.snapshots import SUFFIX

LIST: Final = "checkpoint.json"
_TEMPORARY: Final = ".tmp"


class LocalCheckpoint(BaseModel):
    """Contents of the list."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    sequence: int
    key: str
    state: CheckpointRecord
    files: Mapping[str, str]
    """Names of files, by the keys of their segments."""


class SnapshotFolder:
    """Folder of one partition's snapshots. Writes raise OutOfSpaceError if the disk is full, and UnavailableError
    if it fails otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Return True if the folder exists."""
        return self._path.exists()

    def path_of(self, name: str) -> Path:
        """Return where the file of this name is, or would be."""
        return self._path / name

    def put(self, name: str, content: Callable[[], bytes]) -> None:
        """Write a file, if it does not exist."""
        path = self.path_of(name)
        if not path.exists():
            self._write(path, content())

    def put_list(self, checkpoint: LocalCheckpoint) -> None:
        """Make these files the checkpoint, and delete the others."""
        body = checkpoint.model_dump_json().encode()
        self._write(self._path / LIST, json.dumps({"crc": zlib.crc32(body)}).encode() + b"\n" + body)
        named = {*checkpoint.files.values(), LIST}
        for file in self._files():
            if file.name not in named:
                file.unlink(missing_ok=True)

    def find(self) -> LocalCheckpoint | None:
        """Return the checkpoint; None if there is none. Raises CorruptionError if it cannot be read."""
        path = self._path / LIST
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptionError(f"list of snapshots cannot be read path={path} reason={error.strerror}") from error
        first, _, body = data.partition(b"\n")
        try:
            if json.loads(first)["crc"] != zlib.crc32(body):
                raise CorruptionError(f"list of snapshots has a wrong checksum path={path}")
            return LocalCheckpoint.model_validate_json(body)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise CorruptionError(f"list of snapshots cannot be read path={path}") from error

    def read(self, name: str) -> bytes:
        """Return a file's bytes; raise CorruptionError if it cannot be read."""
        path = self.path_of(name)
        try:
            return path.read_bytes()
        except OSError as error:
            raise CorruptionError(f"snapshot cannot be read path={path} reason={error.strerror}") from error

    def clear(self) -> int:
        """Delete everything; return the number of snapshots deleted."""
        number = sum(file.suffix == SUFFIX for file in self._files())
        shutil.rmtree(self._path, ignore_errors=True)
        return number

    def _files(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return list(self._path.iterdir())
        return []

    def _write(self, path: Path, content: bytes) -> None:
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise unavailable("write", str(path), error) from error
