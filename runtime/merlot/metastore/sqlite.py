"""The metastore of an embedded node: one SQLite file, one process, ZooKeeper's semantics.

A process owns the file through an exclusive lock beside it; a second process gets a clear error. Sessions of one
process share the connection, each with its own ephemerals. All calls run under one lock; callbacks run on one
dispatcher thread.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, assert_never

from merlot.errors import ConflictError, CorruptionError, NotFoundError, UnavailableError
from merlot.metastore.checksums import opened, sealed
from merlot.metastore.protocol import (
    Check,
    Create,
    Delete,
    MetastoreClosedError,
    MetastoreSilentError,
    Node,
    Op,
    Put,
    SessionState,
    Watch,
    check_size,
    parents,
    run_callback,
    undamaged,
)

_TABLES = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL, session INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS children ON nodes (parent, path);
"""
_PERSISTENT = 0
PRIVATE = 0o600
"""Mode of the file: it holds the whole shared state, and a reader of the folder need not be the user of the node."""

_DAMAGE = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
"""Codes of errors that no retry would mend; the first is of statements that do not fit the file's tables."""

SYNCHRONOUS = "FULL"
"""Acknowledged writes survive a power cut: a published segment may exist nowhere else."""


class SqliteMetastore:
    """A session on the store in the file `path`."""

    def __init__(self, path: str | Path) -> None:
        self._attach(_Database(Path(path)))

    @classmethod
    def _on(cls, database: _Database) -> Self:
        session = cls.__new__(cls)
        session._attach(database)
        return session

    def _attach(self, database: _Database) -> None:
        self._database = database
        self._session = database.open_session()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._is_closed = False

    def session(self) -> SqliteMetastore:
        """Return another session on the same file, with ephemerals of its own."""
        return SqliteMetastore._on(self._database)

    def get(self, path: str) -> Node | None:
        return undamaged(self.get_many([path])[0])

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        with self._cursor() as cursor:
            return [_read(cursor, path) for path in paths]

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self.multi([Create(path, data, ephemeral)])

    def put(self, path: str, data: bytes, version: int) -> int:
        check_size([Put(path, data, version)])
        with self._transaction() as (cursor, changes):
            if _read(cursor, path) is None:
                raise NotFoundError(f"node is missing path={path}")
            _apply(cursor, Put(path, data, version), self._session, changes)
        return version + 1

    def delete(self, path: str, version: int | None = None) -> None:
        with self._transaction() as (cursor, changes):
            if _read(cursor, path) is None:
                raise NotFoundError(f"node is missing path={path}")
            _apply(cursor, Delete(path, version), self._session, changes)

    def multi(self, ops: Sequence[Op]) -> None:
        check_size(ops)
        with self._transaction() as (cursor, changes):
            for op in ops:
                _apply(cursor, op, self._session, changes)

    def children(self, path: str) -> list[str]:
        with self._cursor() as cursor:
            rows = cursor.execute("SELECT path FROM nodes WHERE parent = ? ORDER BY path", (path,)).fetchall()
        return [row[0].rpartition("/")[2] for row in rows]

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._database.notifier.add(path, callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._database.notifier.add(_children_of(path), callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        self._listeners.append(callback)
        return _Listener(self._listeners, callback)

    def close(self) -> None:
        if self._is_closed:
            return
        with self._transaction() as (cursor, changes):
            _drop_session(cursor, self._session, changes)
        self._is_closed = True
        self._database.close_session()

    @contextmanager
    def _cursor(self) -> Iterator[sqlite3.Cursor]:
        if self._is_closed:
            raise MetastoreClosedError(f"metastore is closed path={self._database.path}")
        with self._database.cursor() as cursor:
            yield cursor

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Cursor, set[str]]]:
        """Yield the cursor and a set for the keys that change; their watchers are called after the commit."""
        changes: set[str] = set()
        with self._cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor, changes
                cursor.execute("COMMIT")
            except BaseException:
                # A full disk may fail the commit too, and may have rolled back already.
                if cursor.connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise
        self._database.notifier.notify(changes)


class _Database:
    """The locked file with its one connection; lives as long as a session does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock_file = _lock(path)
        self._lock = threading.RLock()
        self._num_sessions = 0
        self._last_session = _PERSISTENT
        try:
            self._connection = self._open()
        except BaseException:
            os.close(self._lock_file)
            raise
        self.notifier = _Notifier()

    def _open(self) -> sqlite3.Connection:
        _make_private(self.path)
        with _wrapped(self.path):
            connection = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                connection.executescript(_TABLES)
                _check(connection, self.path)
                connection.execute("DELETE FROM nodes WHERE session != ?", (_PERSISTENT,))
            except BaseException:
                connection.close()
                raise
            return connection

    def open_session(self) -> int:
        with self._lock:
            self._num_sessions += 1
            self._last_session += 1
            return self._last_session

    def close_session(self) -> None:
        with self._lock:
            self._num_sessions -= 1
            if self._num_sessions:
                return
            self._connection.close()
            os.close(self._lock_file)
        self.notifier.close()

    @contextmanager
    def cursor(self) -> Iterator[sqlite3.Cursor]:
        with self._lock, _wrapped(self.path):
            cursor = self._connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise CorruptionError if the index of children and the table disagree, or if a record was stored as persistent
    and is marked ephemeral now. No checksum of a record that is read could show either: a missing row is not read, and
    the next statement deletes ephemerals."""
    [(verdict,)] = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise CorruptionError(f"metastore file is damaged path={path} cause={verdict!r}")
    ephemerals = "SELECT path, CAST(data AS BLOB), version FROM nodes WHERE session != ?"
    for name, data, version in connection.execute(ephemerals, (_PERSISTENT,)).fetchall():
        opened(data, name, _facts(version, is_ephemeral=True))


def _facts(version: int, *, is_ephemeral: bool) -> str:
    """Return what the checksum of a record covers besides the record."""
    return f"{version} {'ephemeral' if is_ephemeral else 'persistent'}"


def _make_private(path: Path) -> None:
    """Create the file for its owner alone: SQLite gives the files beside it the same mode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        with suppress(PermissionError):
            os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int:
    lock_path = path.with_name(path.name + ".lock")
    descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise UnavailableError(f"another node has this directory open path={path} pid={holder or '?'}") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


@contextmanager
def _wrapped(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGE:
            raise CorruptionError(f"metastore file is damaged path={path} cause={error}") from error
        raise MetastoreSilentError(f"metastore cannot be used path={path} cause={error}") from error
    except sqlite3.DatabaseError as error:
        raise CorruptionError(f"metastore file is damaged path={path} cause={error}") from error


def _read(cursor: sqlite3.Cursor, path: str) -> Node | None:
    # A bit that flips in a row may make its bytes a text.
    row = cursor.execute("SELECT CAST(data AS BLOB), version, session FROM nodes WHERE path = ?", (path,)).fetchone()
    if row is None:
        return None
    data, version, session = row
    try:
        return Node(opened(data, path, _facts(version, is_ephemeral=session != _PERSISTENT)), version)
    except CorruptionError as error:
        return Node(b"", version, damage=str(error))


def _apply(cursor: sqlite3.Cursor, op: Op, session: int, changes: set[str]) -> None:
    match op:
        case Create():
            _create(cursor, op, session, changes)
        case Put(path, data, version):
            _expect(cursor, op, path, version)
            [(owner,)] = cursor.execute("SELECT session FROM nodes WHERE path = ?", (path,)).fetchall()
            stored = sealed(data, path, _facts(version + 1, is_ephemeral=owner != _PERSISTENT))
            cursor.execute("UPDATE nodes SET data = ?, version = ? WHERE path = ?", (stored, version + 1, path))
            changes.add(path)
        case Delete(path, version):
            _expect(cursor, op, path, version)
            if cursor.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone():
                raise ConflictError(f"node has children op=Delete path={path}")
            _remove(cursor, path, changes)
        case Check(path, version):
            _expect(cursor, op, path, version)
        case _:
            assert_never(op)


def _create(cursor: sqlite3.Cursor, op: Create, session: int, changes: set[str]) -> None:
    for parent in parents(op.path):
        row = cursor.execute("SELECT session FROM nodes WHERE path = ?", (parent,)).fetchone()
        if row is None:
            _insert(cursor, Create(parent, b""), _PERSISTENT, changes)
        elif row[0] != _PERSISTENT:
            raise ConflictError(f"ephemeral cannot have children op=Create path={op.path}")
    if _read(cursor, op.path) is not None:
        raise ConflictError(f"node exists op=Create path={op.path}")
    _insert(cursor, op, session if op.ephemeral else _PERSISTENT, changes)


def _insert(cursor: sqlite3.Cursor, op: Create, session: int, changes: set[str]) -> None:
    parent = op.path.rpartition("/")[0] or "/"
    stored = sealed(op.data, op.path, _facts(0, is_ephemeral=session != _PERSISTENT))
    cursor.execute("INSERT INTO nodes VALUES (?, ?, ?, 0, ?)", (op.path, parent, stored, session))
    changes.update((op.path, _children_of(parent)))


def _remove(cursor: sqlite3.Cursor, path: str, changes: set[str]) -> None:
    cursor.execute("DELETE FROM nodes WHERE path = ?", (path,))
    changes.update((path, _children_of(path.rpartition("/")[0] or "/")))


def _drop_session(cursor: sqlite3.Cursor, session: int, changes: set[str]) -> None:
    for (path,) in cursor.execute("SELECT path FROM nodes WHERE session = ?", (session,)).fetchall():
        _remove(cursor, path, changes)


def _expect(cursor: sqlite3.Cursor, op: Op, path: str, version: int | None) -> None:
    node = _read(cursor, path)
    name = type(op).__name__
    if node is None:
        raise ConflictError(f"node is missing op={name} path={path}")
    if version is not None and node.version != version:
        raise ConflictError(f"version is stale op={name} path={path} expected={version} got={node.version}")


def _children_of(path: str) -> str:
    """Return the key of the set of a node's children. No path ends in a slash, so the two kinds of keys do not meet."""
    return path.rstrip("/") + "/"


class _Subscription:
    def __init__(self, owner: _Notifier, key: str, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.key = key
        self.is_pending = False
        self._owner = owner

    def cancel(self) -> None:
        self._owner.remove(self)


class _Listener:
    """A listener that is only there to be cancelled: SQLite's session is never suspended or lost."""

    def __init__(
        self, listeners: list[Callable[[SessionState], None]], callback: Callable[[SessionState], None]
    ) -> None:
        self._listeners = listeners
        self._callback = callback

    def cancel(self) -> None:
        with suppress(ValueError):
            self._listeners.remove(self._callback)


class _Notifier:
    """Thread that calls subscribers back, one at a time, and merges changes that pile up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[str, list[_Subscription]] = {}
        self._queue: queue.SimpleQueue[_Subscription | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metastore-watches", daemon=True)
        self._thread.start()

    def add(self, key: str, callback: Callable[[], None]) -> Watch:
        subscription = _Subscription(self, key, callback)
        with self._lock:
            self._subscriptions.setdefault(key, []).append(subscription)
        return subscription

    def remove(self, subscription: _Subscription) -> None:
        with self._lock:
            remaining = [other for other in self._subscriptions.get(subscription.key, []) if other is not subscription]
            if remaining:
                self._subscriptions[subscription.key] = remaining
            else:
                self._subscriptions.pop(subscription.key, None)

    def notify(self, keys: set[str]) -> None:
        with self._lock:
            for subscription in (waiting for key in keys for waiting in self._subscriptions.get(key, [])):
                if not subscription.is_pending:
                    subscription.is_pending = True
                    self._queue.put(subscription)

    def close(self) -> None:
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (subscription := self._queue.get()) is not None:
            with self._lock:
                subscription.is_pending = False
                is_active = subscription in self._subscriptions.get(subscription.key, [])
            if is_active:
                run_callback(subscription.callback)
