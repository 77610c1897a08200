"""The metastore of a cluster: ZooKeeper, and the only door to kazoo.

Calls wait for the connection and for the answer, at most `operation_timeout_s`, and then raise UnavailableError: kazoo
itself queues calls for ever while the store is silent. Watches are standing: one dispatcher thread arms them again
after each event and after each reconnect, always before it calls back, so that no change falls between. The owner of an
ephemeral creates it anew after a lost session (`on_session`).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, assert_never

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent

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
    run_callback,
    undamaged,
)
from merlot.security.tls import TlsFiles

_LOG = logging.getLogger(__name__)

PIPELINE = 500
"""Reads in flight at once: enough to fill the link, few enough not to fill ZooKeeper's queue."""

REARM_DELAY_S = 1.0
GIVE_UP_SESSIONS = 3.0
"""Silence, in session timeouts, after which a session is given up for a new one."""

_CONFLICTS = (BadVersionError, NodeExistsError, NotEmptyError, NoChildrenForEphemeralsError)
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}

RECONNECT_S = 1.0
"""Longest wait between attempts to connect. Kazoo's own doubles up to an hour: after an outage all clients would stay
disconnected for as long again."""


class ZooKeeperMetastore:
    """One session. `hosts` is `host:port,host:port/chroot`; the chroot is created with all its levels."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_s: float = 10.0,
        operation_timeout_s: float = 10.0,
        tls: TlsFiles | None = None,
    ) -> None:
        """With `tls` ZooKeeper has to be called by a name of its certificate, and may ask for that of this process.
        Kazoo reads the files at each connect."""
        self.hosts = hosts
        self._tls = _tls_options(tls)
        self._timeout_s = operation_timeout_s
        self._is_connected = threading.Event()
        self._is_closed = False
        retry = {"max_tries": -1, "delay": 0.1, "max_delay": RECONNECT_S}
        self._client = KazooClient(
            hosts=hosts, timeout=session_timeout_s, connection_retry=retry, logger=_LOG.getChild("kazoo"), **self._tls
        )
        self._dispatcher = _Dispatcher(self, give_up_s=session_timeout_s * GIVE_UP_SESSIONS)
        self._client.add_listener(self._on_state)
        try:
            self._client.start_async()
            with self._ready(hosts) as deadline:
                self._ensure_chroot(deadline)
        except BaseException:
            self.close()
            raise

    @property
    def session(self) -> tuple[int, bytes] | None:
        """Id and password of the session, as ZooKeeper gave them."""
        session: tuple[int, bytes] | None = self._client.client_id
        return session

    @property
    def is_connected(self) -> bool:
        """True if calls can be answered right now."""
        return self._is_connected.is_set()

    def get(self, path: str) -> Node | None:
        return undamaged(self.get_many([path])[0])

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes: list[Node | None] = []
        for start in range(0, len(paths), PIPELINE):
            window = paths[start : start + PIPELINE]
            with self._ready(window[0]) as deadline:
                answers = [self._client.get_async(path) for path in window]
                nodes.extend(_node(path, answer, deadline) for path, answer in zip(window, answers, strict=True))
        return nodes

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        data = sealed(data, path)
        check_size([Create(path, data, ephemeral)])
        with self._ready(path) as deadline:
            try:
                deadline.wait(self._client.create_async(path, data, ephemeral=ephemeral, makepath=True))
            except NoNodeError:
                self._ensure_chroot(deadline)
                deadline.wait(self._client.create_async(path, data, ephemeral=ephemeral, makepath=True))

    def put(self, path: str, data: bytes, version: int) -> int:
        data = sealed(data, path)
        check_size([Put(path, data, version)])
        with self._ready(path) as deadline:
            stat = deadline.wait(self._client.set_async(path, data, version))
        return int(stat.version)

    def delete(self, path: str, version: int | None = None) -> None:
        with self._ready(path) as deadline:
            deadline.wait(self._client.delete_async(path, -1 if version is None else version))

    def multi(self, ops: Sequence[Op]) -> None:
        check_size(ops)
        with self._ready(ops[0].path if ops else "/") as deadline:
            failed = self._commit(ops, deadline)
            if failed is not None and isinstance(failed.cause, NoNodeError) and isinstance(failed.op, Create):
                self._create_parents(ops, deadline)
                failed = self._commit(ops, deadline)
        if failed is not None:
            op = failed.op
            cause = type(failed.cause).__name__
            raise ConflictError(f"transaction failed op={type(op).__name__} path={op.path} cause={cause}")

    def children(self, path: str) -> list[str]:
        with self._ready(path) as deadline:
            try:
                return sorted(deadline.wait(self._client.get_children_async(path)))
            except NoNodeError:
                return []

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._dispatcher.add(_StandingWatch(self._dispatcher, path, callback, of_children=False))

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._dispatcher.add(_StandingWatch(self._dispatcher, path, callback, of_children=True))

    def on_session(self, callback: Callable[[SessionState], None]) -> Watch:
        return self._dispatcher.listen(callback)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._client.remove_listener(self._on_state)
        self._dispatcher.close()
        with contextlib.suppress(KazooException, KazooTimeoutError, OSError, AttributeError):
            # Kazoo's stop fails on the socket that a failed start never opened.
            self._client.stop()
        with contextlib.suppress(KazooException, OSError):
            self._client.close()

    def arm(self, watches: Sequence[_StandingWatch]) -> None:
        """Set watches at ZooKeeper, pipelined; raise UnavailableError. Called by the dispatcher."""
        if not watches:
            return
        with self._ready(watches[0].path) as deadline:
            children = [watch for watch in watches if watch.of_children]
            answers = [self._client.get_children_async(watch.path, watch=watch.fire) for watch in children]
            nodes = [watch for watch in watches if not watch.of_children]
            nodes += [watch for watch, answer in zip(children, answers, strict=True) if _is_missing(answer, deadline)]
            stats = [self._client.exists_async(watch.path, watch=watch.fire) for watch in nodes]
            for watch, answer in zip(nodes, stats, strict=True):
                if deadline.wait(answer) is not None and watch.of_children:
                    # The node was created between the two calls: the set of its children has to be watched after all.
                    _is_missing(self._client.get_children_async(watch.path, watch=watch.fire), deadline)

    def renew(self) -> None:
        """Give up the session for a new one. Called by the dispatcher after a long silence.

        The session is dead by then anyway, and a ZooKeeper restored from an old snapshot would refuse for ever a
        client that has seen a later transaction.
        """
        _LOG.warning("session given up after a long silence hosts=%s", self.hosts)
        with contextlib.suppress(KazooException, KazooTimeoutError, OSError, AttributeError):
            self._client.stop()
        self._client.start_async()

    def _commit(self, ops: Sequence[Op], deadline: _Deadline) -> _Failed | None:
        transaction = self._client.transaction()
        for op in ops:
            _add(transaction, op)
        for op, result in zip(ops, deadline.wait(transaction.commit_async()), strict=True):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                return _Failed(op, result)
        return None

    def _create_parents(self, ops: Sequence[Op], deadline: _Deadline) -> None:
        self._ensure_chroot(deadline)
        parents = {op.path.rpartition("/")[0] for op in ops if isinstance(op, Create)}
        for parent in sorted(filter(None, parents)):
            deadline.wait(self._client.ensure_path_async(parent))

    def _ensure_chroot(self, deadline: _Deadline) -> None:
        """Create the chroot with all its levels if it is missing: a ZooKeeper that lost its volume has none.

        A client cannot name nodes above its own chroot, and kazoo's `ensure_path` makes the last level only. So a
        client without a chroot makes them."""
        chroot = "/" + self.hosts.partition("/")[2].strip("/")
        if chroot == "/" or deadline.wait(self._client.exists_async("/")) is not None:
            return
        above = KazooClient(
            hosts=self.hosts.partition("/")[0], timeout=self._timeout_s, logger=_LOG.getChild("kazoo"), **self._tls
        )
        try:
            above.start(timeout=max(0.001, deadline.left_s()))
            deadline.wait(above.ensure_path_async(chroot))
        finally:
            above.stop()
            above.close()

    @contextmanager
    def _ready(self, path: str) -> Iterator[_Deadline]:
        """Wait for a connection, then yield a deadline for the calls inside; raise errors as the protocol's."""
        deadline = _Deadline(self._timeout_s)
        if self._is_closed:
            raise MetastoreClosedError(f"metastore is closed hosts={self.hosts}")
        if not self._is_connected.wait(deadline.left_s()):
            raise MetastoreSilentError(f"metastore is silent hosts={self.hosts} waited_s={self._timeout_s:g}")
        with _wrapped(path):
            yield deadline

    def _on_state(self, state: str) -> None:
        """Hand the state over; this runs on kazoo's connection thread."""
        if state == KazooState.CONNECTED:
            self._is_connected.set()
        else:
            self._is_connected.clear()
        self._dispatcher.post(_STATES[state])


def _tls_options(tls: TlsFiles | None) -> dict[str, Any]:
    if tls is None:
        return {}
    # Kazoo trusts the system's CAs besides the given one, so the name has to match as well.
    return {
        "use_ssl": True,
        "verify_certs": True,
        "check_hostname": True,
        "ca": str(tls.ca),
        "certfile": str(tls.cert),
        "keyfile": str(tls.key),
    }


@dataclass(frozen=True, slots=True)
class _Failed:
    op: Op
    cause: Exception


class _Deadline:
    """The time by which a call must be answered, shared by its requests."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def wait(self, answer: Any) -> Any:
        """Wait for the answer of an asynchronous kazoo call."""
        return answer.get(timeout=max(0.001, self.left_s()))


@contextmanager
def _wrapped(path: str) -> Iterator[None]:
    try:
        yield
    except NoNodeError as error:
        raise NotFoundError(f"node is missing path={path}") from error
    except _CONFLICTS as error:
        raise ConflictError(f"write is refused path={path} cause={type(error).__name__}") from error
    except (KazooException, KazooTimeoutError, OSError) as error:
        raise MetastoreSilentError(f"metastore cannot answer path={path} cause={type(error).__name__}") from error


def _node(path: str, answer: Any, deadline: _Deadline) -> Node | None:
    try:
        data, stat = deadline.wait(answer)
    except NoNodeError:
        return None
    try:
        return Node(opened(data, path), stat.version, stat.mtime)
    except CorruptionError as error:
        return Node(b"", stat.version, stat.mtime, damage=str(error))


def _is_missing(answer: Any, deadline: _Deadline) -> bool:
    try:
        deadline.wait(answer)
    except NoNodeError:
        return True
    return False


def _add(transaction: TransactionRequest, op: Op) -> None:
    match op:
        case Create(path, data, ephemeral):
            transaction.create(path, sealed(data, path), ephemeral=ephemeral)
        case Put(path, data, version):
            transaction.set_data(path, sealed(data, path), version)
        case Delete(path, version):
            transaction.delete(path, -1 if version is None else version)
        case Check(path, version):
            transaction.check(path, version)
        case _:
            assert_never(op)


class _StandingWatch:
    """A subscription that is armed again and again. `fire` runs on kazoo's thread, `callback` on the dispatcher's."""

    def __init__(self, dispatcher: _Dispatcher, path: str, callback: Callable[[], None], *, of_children: bool) -> None:
        self.path = path
        self.callback = callback
        self.of_children = of_children
        self._dispatcher = dispatcher

    def fire(self, event: WatchedEvent) -> None:
        # Events of the session reach every watch; the reconnect arms all watches.
        if event.type != EventType.NONE:
            self._dispatcher.post(self)

    def cancel(self) -> None:
        self._dispatcher.remove(self)


class _SessionListener:
    def __init__(self, dispatcher: _Dispatcher, callback: Callable[[SessionState], None]) -> None:
        self.callback = callback
        self._dispatcher = dispatcher

    def cancel(self) -> None:
        self._dispatcher.silence(self)


class _Dispatcher:
    """The thread that arms watches and calls back."""

    def __init__(self, store: ZooKeeperMetastore, *, give_up_s: float) -> None:
        self._store = store
        self._give_up_s = give_up_s
        self._lock = threading.Lock()
        self._watches: set[_StandingWatch] = set()
        self._listeners: list[_SessionListener] = []
        self._queue: queue.SimpleQueue[_StandingWatch | SessionState | None] = queue.SimpleQueue()
        self._put_back: list[_StandingWatch | SessionState | None] = []
        """At most one item, taken too early; used by the dispatcher's thread alone."""
        self._thread = threading.Thread(target=self._run, name="zookeeper-watches", daemon=True)
        self._thread.start()

    def post(self, item: _StandingWatch | SessionState) -> None:
        self._queue.put(item)

    def add(self, watch: _StandingWatch) -> Watch:
        with self._lock:
            self._watches.add(watch)
        try:
            self._store.arm([watch])
        except BaseException:
            self.remove(watch)
            raise
        return watch

    def remove(self, watch: _StandingWatch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def listen(self, callback: Callable[[SessionState], None]) -> Watch:
        listener = _SessionListener(self, callback)
        with self._lock:
            self._listeners.append(listener)
        return listener

    def silence(self, listener: _SessionListener) -> None:
        with self._lock:
            self._listeners = [other for other in self._listeners if other is not listener]

    def close(self) -> None:
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        unarmed: set[_StandingWatch] = set()
        silent_since: float | None = None
        while True:
            try:
                item = self._next(REARM_DELAY_S if unarmed or silent_since is not None else None)
            except queue.Empty:
                if silent_since is None:
                    unarmed = self._serve(unarmed)
                elif time.monotonic() - silent_since > self._give_up_s:
                    self._store.renew()
                    silent_since = time.monotonic()
                continue
            match item:
                case None:
                    return
                case SessionState.CONNECTED:
                    self._notify(item)
                    silent_since, unarmed = None, self._serve(self._active())
                case SessionState():
                    self._notify(item)
                    silent_since = time.monotonic() if silent_since is None else silent_since
                case _:
                    unarmed |= self._serve(self._with_waiting(item))

    def _next(self, timeout_s: float | None) -> _StandingWatch | SessionState | None:
        return self._put_back.pop() if self._put_back else self._queue.get(timeout=timeout_s)

    def _with_waiting(self, first: _StandingWatch) -> set[_StandingWatch]:
        """Return `first` and the fired watches that wait behind it. Stop at a change of the session, which must stay in
        order."""
        fired = {first}
        with contextlib.suppress(queue.Empty):
            for _ in range(self._queue.qsize()):
                item = self._queue.get_nowait()
                if not isinstance(item, _StandingWatch):
                    self._put_back.append(item)
                    break
                fired.add(item)
        return fired

    def _serve(self, watches: Iterable[_StandingWatch]) -> set[_StandingWatch]:
        """Arm the watches, then call back; return the watches to try again."""
        active = self._active() & set(watches)
        if not self._store.is_connected:
            return active  # the reconnect arms them all; waiting here would keep it from being seen
        try:
            self._store.arm(list(active))
        except UnavailableError as error:
            _LOG.warning("watches not armed num_watches=%d cause=%s", len(active), error)
            return active
        for watch in active:
            if watch in self._active():
                run_callback(watch.callback)
        return set()

    def _active(self) -> set[_StandingWatch]:
        with self._lock:
            return set(self._watches)

    def _notify(self, state: SessionState) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            run_callback(lambda call=listener.callback: call(state))  # type: ignore[misc]
