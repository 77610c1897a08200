"""Local segment files of a server: fetched whole and verified, reused after a restart, set aside when corrupt.

`{data}/segments/{table}/{name}@{crc}.mseg`; `{data}/quarantine/` keeps the last few corrupt files for an investigation.
All calls block; calls for different segments may run at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator
from enum import StrEnum
from pathlib import Path

from merlot import telemetry
from merlot.cluster.records import SegmentRecord
from merlot.errors import CorruptionError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey, TableName
from merlot.segment.contents import check_contents
from merlot.segment.immutable import ImmutableSegment, file_of
from merlot.segment.layout import SIDECAR_SUFFIX
from merlot.segment.sidecar.sidecar import sidecar_name
from merlot.server.tuning import FileTuning
from merlot.store.deepstore import SUFFIX, DeepStore, patience_s, unavailable
from merlot.store.retry import OutOfSpaceError

_LOG = logging.getLogger(__name__)

MAX_QUARANTINED = 16
TURN_S = 0.01
"""Seconds for which the load of a small file waits for the load before it."""


class LoadSource(StrEnum):
    """Place that a segment was loaded from."""

    DISK = "disk"
    DEEP_STORE = "deep_store"


class LocalSegmentFiles:
    """Files below one directory, which belongs to one server."""

    def __init__(self, directory: Path, tuning: FileTuning | None = None) -> None:
        self.tuning = tuning or FileTuning()
        self._segments = directory / "segments"
        self._quarantine = directory / "quarantine"
        # It contains rows of all tables: other accounts on the machine may not read them.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._segments.mkdir(exist_ok=True)
        self._folders: dict[TableName, str] = {}
        """Folders of tables, by name: one text for all segments of a table."""
        self._doubted = {file.name.rpartition(".")[0] for file in self._quarantine.glob("*")}
        """Segments (`table.key`) that were set aside. Their checksums may be right, and the damage that a query met may
        still be there: before such a segment is served again, every value of it is read."""
        self._turn = threading.Lock()

    def path_of(self, table: TableName, key: str) -> Path:
        """Return where the file of this version is, or would be."""
        return self._segments / table / f"{key}{SUFFIX}"

    def open_local(self, table: TableName, record: SegmentRecord) -> ImmutableSegment | None:
        """Return the segment if its file is here and every byte of it is right; a corrupt file is set aside."""
        try:
            if self._is_small(table, record):
                folder = self._folders.setdefault(table, str(self._segments / table))
                with self._in_turn():
                    return ImmutableSegment.checked(folder, record.key, _read(file_of(folder, record.key)))
            return self._open(self.path_of(table, record.key_text), table, record)
        except NotFoundError:
            return None
        except CorruptionError as error:
            self.quarantine(table, record.key_text, str(error))
            return None

    def fetch(self, table: TableName, record: SegmentRecord, store: DeepStore) -> ImmutableSegment:
        """Fetch a segment from the deep store, verify it, and open it.

        Raises NotFoundError, CorruptionError (the deep store's copy itself is wrong), OutOfSpaceError,
        UnavailableError."""
        folder = self._folders.setdefault(table, str(self._segments / table))
        _make_room(folder, record.size_bytes + self.tuning.spare_bytes)
        size_bytes, deadline = record.size_bytes, time.monotonic() + patience_s(record.size_bytes)
        if self._is_small(table, record):
            with self._in_turn():
                content, segment = store.read(
                    record.url,
                    lambda content: (content, ImmutableSegment.checked(folder, record.key, content)),
                    expected_size=size_bytes,
                    deadline=deadline,
                )
                _write(file_of(folder, record.key), content)
            return segment
        path = self.path_of(table, record.key_text)
        opened: list[ImmutableSegment] = []
        store.fetch(
            record.url,
            path,
            expected_size=size_bytes,
            verify=lambda copy: opened.append(self._open(copy, table, record)),
            deadline=deadline,
        )
        # The mapping follows the file when it is renamed.
        return opened[-1]

    def sidecar_path(self, table: TableName, key: SegmentKey, config: str) -> Path:
        """Return where the sidecar of this version and configuration is, or would be."""
        return self._segments / table / sidecar_name(key, config)

    def sidecars(self, table: TableName) -> dict[str, list[Path]]:
        """Return the sidecars that are here, by `name@crc`. Raises UnavailableError."""
        sidecars_of: dict[str, list[Path]] = {}
        folder = self._segments / table
        try:
            for file in folder.iterdir():
                if file.name.endswith(SIDECAR_SUFFIX):
                    sidecars_of.setdefault(file.name.rsplit(".", 2)[0], []).append(file)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise _cannot("list", folder, error) from error
        return sidecars_of

    def make_room(self, table: TableName) -> None:
        """Raise OutOfSpaceError unless `tuning.spare_bytes` are free for a file to be made."""
        _make_room(str(self._segments / table), self.tuning.spare_bytes)

    def quarantine(self, table: TableName, key: str, reason: str) -> None:
        """Set a corrupt file aside, so that it is fetched again and nobody opens it. Raises UnavailableError."""
        path = self.path_of(table, key)
        _LOG.error("segment file is corrupt, set aside table=%s segment=%s reason=%s", table, key, reason)
        telemetry.SERVER_QUARANTINED.labels(table).inc()
        self._doubted.add(f"{table}.{key}")
        try:
            self._quarantine.mkdir(parents=True, exist_ok=True)
            path.rename(self._quarantine / f"{table}.{key}.{time.time_ns()}")
            for old in sorted(self._quarantine.iterdir(), key=lambda file: file.stat().st_mtime_ns)[:-MAX_QUARANTINED]:
                old.unlink()
        except OSError:
            delete_file(path)

    def adopt(self, table: TableName, key: SegmentKey, path: Path) -> None:
        """Take over a file that this server has made itself, instead of fetching it. Raises OutOfSpaceError,
        UnavailableError."""
        folder = self._segments / table
        _make_room(str(folder), self.tuning.spare_bytes)
        try:
            path.rename(self.path_of(table, str(key)))
        except OSError as error:
            raise UnavailableError(f"cannot keep segment file path={path} reason={error.strerror}") from error

    def remove(self, table: TableName, keys: Collection[str]) -> None:
        """Delete files; readers that have a file open can still read it. Raises UnavailableError."""
        for key in keys:
            delete_file(self.path_of(table, key))

    def sweep(self, table: TableName, keep: Collection[str], sidecars: Collection[Path] = ()) -> None:
        """Delete what a former process left behind: unfinished files, versions that are not in `keep`, and sidecars
        that are not among `sidecars`. Raises UnavailableError."""
        directory = self._segments / table
        names = {*(f"{key}{SUFFIX}" for key in keep), *(path.name for path in sidecars)}
        try:
            for file in directory.iterdir():
                if file.name not in names:
                    delete_file(file)
            if not names:
                directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            raise _cannot("delete", directory, error) from error

    def tables(self) -> list[TableName]:
        """Return the tables that have files here."""
        return [TableName(path.name) for path in self._segments.iterdir() if path.is_dir()]

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Read one small file after the other: on a fast disk, threads that each make a dozen short calls spend more
        than half of their time on handing the GIL over. If a store takes longer than a turn, it is read by several
        threads at once."""
        has_turn = self._turn.acquire(timeout=TURN_S)
        try:
            yield
        finally:
            if has_turn:
                self._turn.release()

    def _is_small(self, table: TableName, record: SegmentRecord) -> bool:
        """Return True if the segment's file is opened only when it is first read."""
        return record.size_bytes <= self.tuning.small_bytes and f"{table}.{record.key_text}" not in self._doubted

    def _open(self, path: Path, table: TableName, record: SegmentRecord) -> ImmutableSegment:
        """Open and verify a file. Raises CorruptionError also if it is a sound file of another segment."""
        segment = ImmutableSegment.open(path, verify=True)
        if segment.key != record.key:
            segment.close()
            raise CorruptionError(f"segment is another one path={path} expected={record.key} got={segment.key}")
        segment.check_columns()
        if f"{table}.{record.key_text}" in self._doubted:
            check_contents(segment)
        return segment


def _make_room(directory: str, needed_bytes: int) -> None:
    """Make the folder; raise OutOfSpaceError unless `needed_bytes` are free."""
    try:
        try:
            disk = os.statvfs(directory)
        except FileNotFoundError:
            Path(directory).mkdir(parents=True, exist_ok=True)
            disk = os.statvfs(directory)
    except OSError as error:
        raise UnavailableError(f"cannot write segment files path={directory} reason={error.strerror}") from error
    free = disk.f_bavail * disk.f_frsize
    if free < needed_bytes:
        raise OutOfSpaceError(f"no space left on the disk free={free} needed={needed_bytes} path={directory}")


def delete_file(path: Path) -> None:
    """Delete a file if it is there. Raises UnavailableError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot("delete", path, error) from error


def _cannot(action: str, path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(f"cannot {action} segment files path={path} reason={error.strerror}")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError as error:
        raise NotFoundError(f"no segment file path={path}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read segment file path={path} reason={error.strerror}") from error


def _write(path: str, content: bytes) -> None:
    """Write a whole file or none, as far as crashes of processes go. What a crash of the machine leaves of it is
    checked at the next start, and fetched again if necessary: waiting for the disk, twice for each small file, took
    most of a load's time."""
    folder, _, name = path.rpartition("/")
    partial = f"{folder}/.{name}.{secrets.token_hex(4)}.tmp"
    try:
        with open(partial, "wb") as file:  # buffered: a raw file may take a part, on a full disk say, without an error
            file.write(content)
        os.rename(partial, path)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise unavailable("write", path, error) from error
