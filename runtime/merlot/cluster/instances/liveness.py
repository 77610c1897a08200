"""Running processes: one ephemeral node per process, created again whenever it is gone or its session was lost."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping

from merlot.cluster import paths
from merlot.cluster.records import InstanceRecord, Role
from merlot.errors import ConflictError, CorruptionError, MerlotError, NotFoundError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore, MetastoreClosedError, SessionState

_LOG = logging.getLogger(__name__)

RETRY_S = 0.5


class Registration:
    """Ephemeral of an instance, kept alive until it is closed. A thread of its own makes the blocking calls."""

    def __init__(self, metastore: Metastore, record: InstanceRecord) -> None:
        self._metastore = metastore
        self._record = record
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_closed = False
        self._announce()
        self._thread = threading.Thread(target=self._run, name=f"registration-{record.id}", daemon=True)
        self._thread.start()
        # The ephemeral of a lost session may still exist when the new session begins, and disappear a little later.
        self._watches = (
            metastore.on_session(self._on_session),
            metastore.watch(paths.live(record.id), self._wanted.set),
        )

    @property
    def record(self) -> InstanceRecord:
        """The record that the ephemeral holds."""
        return self._record

    def update(self, record: InstanceRecord) -> None:
        """Change the record that the ephemeral holds."""
        with self._lock:
            self._record = record
            path = paths.live(record.id)
            node = self._metastore.get(path)
            if node is None:
                self._announce()
            else:
                self._metastore.put(path, record.to_bytes(), node.version)

    def close(self) -> None:
        """Unregister: from now on nobody sends work here. A later process of this instance keeps its own ephemeral."""
        for watch in self._watches:
            watch.cancel()
        path = paths.live(self._record.id)
        with self._lock:
            self._is_closed = True
            with contextlib.suppress(MerlotError):
                node = self._metastore.get(path)
                if node is not None and node.data == self._record.to_bytes():
                    self._metastore.delete(path, node.version)
        self._wanted.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=RETRY_S * 2)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._wanted.set()

    def _run(self) -> None:
        delay_s: float | None = None
        while True:
            self._wanted.wait(delay_s)
            self._wanted.clear()
            if self._is_closed:
                return
            try:
                self._restore()
                delay_s = None
            except MetastoreClosedError:
                return
            except MerlotError as error:
                _LOG.warning("instance not registered instance=%s cause=%s", self._record.id, error)
                delay_s = RETRY_S

    def _restore(self) -> None:
        with self._lock:
            if not self._is_closed and not self._is_registered():
                self._announce()

    def _is_registered(self) -> bool:
        """Return True if the node is this registration, or that of a later process of the instance, which must stay."""
        path = paths.live(self._record.id)
        node = self._metastore.get(path)
        if node is None or node.data == self._record.to_bytes():
            return node is not None
        with contextlib.suppress(CorruptionError):
            return InstanceRecord.from_bytes(node.data, path).started_ms > self._record.started_ms
        return False

    def _announce(self) -> None:
        """Replace whatever node there is: the ephemeral of this instance's former process may outlast it."""
        path = paths.live(self._record.id)
        for _ in range(3):
            with contextlib.suppress(NotFoundError):
                self._metastore.delete(path)
            with contextlib.suppress(ConflictError):
                return self._metastore.create(path, self._record.to_bytes(), ephemeral=True)
        raise ConflictError(f"two processes claim one instance instance={self._record.id}")


def register(metastore: Metastore, record: InstanceRecord) -> Registration:
    """Announce a running process; raise UnavailableError if the metastore is silent."""
    return Registration(metastore, record)


def live_instances(metastore: Metastore, role: Role | None = None) -> Mapping[InstanceId, InstanceRecord]:
    """Return the processes that are registered now, of one role or of all. Records that are unreadable, or of a role
    that this version lacks, are left out: nothing could be sent to these processes."""
    instance_paths = [paths.live(name) for name in metastore.children(paths.LIVE)]
    records = []
    for path, node in zip(instance_paths, metastore.get_many(instance_paths), strict=True):
        try:
            records += [] if node is None else [InstanceRecord.from_bytes(node.data, path)]
        except CorruptionError as error:
            _LOG.warning("instance left out cause=%s", error)
    return {record.id: record for record in records if role is None or record.role is role}
