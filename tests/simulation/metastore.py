"""A metastore in memory and in virtual time: sessions that end, calls that fail, watches that come late or twice, and
a store that comes back older or empty."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.simulation.timeline import Timeline, VirtualClock
from tests.support.faults import ProcessDied

from merlot.errors import ConflictError, NotFoundError
from merlot.metastore.protocol import (
    Create,
    Delete,
    MetastoreClosedError,
    MetastoreSilentError,
    Node,
    Op,
    Put,
    SessionState,
    check_size,
    parents,
    run_callback,
)

SESSION_MS: Final = 10_000
"""A session ends after this long in silence."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A node as it is stored."""

    data: bytes
    version: int
    owner: Session | None
    modified_ms: int | None


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup: everything but ephemerals."""

    nodes: dict[str, Stored]


class Store:
    """The nodes. `on_write` is told of every change: the session that made it, and the paths."""

    def __init__(self, clock: VirtualClock | None) -> None:
        self._clock = clock
        self._nodes: dict[str, Stored] = {"/": Stored(b"", 0, None, None)}
        self._children: dict[str, set[str]] = defaultdict(set)
        self.sessions: list[Session] = []
        self._lock = threading.RLock()
        self.on_write: Callable[[Session, frozenset[str]], None] = lambda session, paths: None

    def find(self, path: str) -> Stored | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def write(self, session: Session, ops: Sequence[Op]) -> None:
        """Apply all or none; ConflictError names the op that failed."""
        check_size(ops)
        with self._lock:
            self._tell(session, self._apply_all(session, ops))

    def _apply_all(self, session: Session, ops: Sequence[Op]) -> frozenset[str]:
        saved: dict[str, Stored | None] = {}
        try:
            for op in ops:
                self._apply(session, op, saved)
        except (ConflictError, NotFoundError) as error:
            for path, stored in saved.items():
                self._set(path, stored)
            raise ConflictError(f"{type(op).__name__} failed path={op.path} cause={error}") from error
        return frozenset(saved)

    def end(self, session: Session) -> None:
        """Remove a session's ephemerals."""
        gone = [path for path, stored in self._nodes.items() if stored.owner is session]
        for path in gone:
            self._set(path, None)
        self._tell(session, frozenset(gone))

    def backup(self) -> Copy:
        return Copy({path: stored for path, stored in self._nodes.items() if stored.owner is None})

    def restore(self, copy: Copy) -> None:
        """Be as the copy is; every session has to begin anew."""
        self._nodes = dict(copy.nodes)
        self._nodes.setdefault("/", Stored(b"", 0, None, None))
        self._children = defaultdict(set)
        for path in self._nodes:
            if path != "/":
                parent, _, name = path.rpartition("/")
                self._children[parent or "/"].add(name)
        for session in self.sessions:
            session.lose()

    def _apply(self, session: Session, op: Op, saved: dict[str, Stored | None]) -> None:
        found = self._nodes.get(op.path)
        if isinstance(op, Create):
            if found is not None:
                raise ConflictError("node exists")
            for parent in parents(op.path):
                if parent not in self._nodes:
                    saved.setdefault(parent, None)
                    self._set(parent, Stored(b"", 0, None, self._now_ms()))
            saved.setdefault(op.path, None)
            self._set(op.path, Stored(op.data, 0, session if op.ephemeral else None, self._now_ms()))
            return
        if found is None:
            raise NotFoundError("node is missing")
        if op.version is not None and found.version != op.version:
            raise ConflictError(f"version is {found.version} expected={op.version}")
        if isinstance(op, Put):
            saved.setdefault(op.path, found)
            self._set(op.path, Stored(op.data, found.version + 1, found.owner, self._now_ms()))
        if isinstance(op, Delete):
            if self._children.get(op.path):
                raise ConflictError("node has children")
            saved.setdefault(op.path, found)
            self._set(op.path, None)

    def _set(self, path: str, stored: Stored | None) -> None:
        parent, _, name = path.rpartition("/")
        if stored is None:
            self._nodes.pop(path, None)
            self._children[parent or "/"].discard(name)
        else:
            self._nodes[path] = stored
            self._children[parent or "/"].add(name)

    def _now_ms(self) -> int | None:
        return None if self._clock is None else self._clock.now_ms()

    def _tell(self, writer: Session, paths: frozenset[str]) -> None:
        parents_of = {path.rpartition("/")[0] or "/" for path in paths}
        for session in list(self.sessions):
            session.tell(paths, parents_of)
        self.on_write(writer, paths)


@dataclass
class Weather:
    """How calls of a session fare; shared by all of them, and calm in the end."""

    dice: random.Random
    lost_request: float = 0.0
    lost_answer: float = 0.0
    meeting: float = 0.0
    """Share of calls during which others act."""
    freeze: float = 0.0
    """Share of calls in which the process stands still for long."""
    freeze_amid_deletion: float = 0.0
    """Share of deletions of files before which the process stands still."""
    death: float = 0.0
    late_watch: float = 0.0
    lost_watch: float = 0.0

    def calm(self) -> None:
        self.lost_request = self.lost_answer = self.meeting = self.freeze = self.death = 0.0
        self.late_watch = self.lost_watch = self.freeze_amid_deletion = 0.0

    def chance(self, share: float) -> bool:
        return share > 0 and self.dice.random() < share


@dataclass(eq=False)
class _Watch:
    session: Session
    path: str
    of_children: bool
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.session.watches.pop(self, None)


@dataclass(eq=False)
class Session:
    """A process's connection. `process` is whom the timeline takes for busy while a call takes long."""

    store: Store
    timeline: Timeline
    weather: Weather
    process: object
    may_freeze: bool = True
    may_die: bool = True
    cut_until_ms: int = 0
    is_closed: bool = False
    is_dead: bool = False
    is_reliable: bool = False
    watches: dict[_Watch, None] = field(default_factory=dict)
    listeners: list[Callable[[SessionState], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store.sessions.append(self)

    def get(self, path: str) -> Node | None:
        self._reach()
        return self._node(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if paths:
            self._reach()
        return [self._node(path) for path in paths]

    def children(self, path: str) -> list[str]:
        self._reach()
        return self.store.children(path)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        self._write([Create(path, data, ephemeral)])

    def put(self, path: str, data: bytes, version: int) -> int:
        self._write([Put(path, data, version)])
        return version + 1

    def delete(self, path: str, version: int | None = None) -> None:
        self._write([Delete(path, version)])

    def multi(self, ops: Sequence[Op]) -> None:
        self._write(ops, is_multi=True)

    def watch(self, path: str, callback: Callable[[], None]) -> _Watch:
        return self._watch(path, callback, of_children=False)

    def watch_children(self, path: str, callback: Callable[[], None]) -> _Watch:
        return self._watch(path, callback, of_children=True)

    def on_session(self, callback: Callable[[SessionState], None]) -> _Watch:
        self.listeners.append(callback)
        return _Watch(self, "", False, lambda: None)

    def close(self) -> None:
        """End the session at once."""
        self.is_closed = True
        if self in self.store.sessions:
            self.store.sessions.remove(self)
            self.store.end(self)

    def die(self) -> None:
        """The process is gone; its ephemerals follow when the store has not heard of it for long enough."""
        self.is_dead = True
        self.watches.clear()
        self.timeline.after(SESSION_MS, self.close)

    def lose(self) -> None:
        """The session ended without its owner's doing: another begins at once, and every watch calls back."""
        self.store.end(self)
        for listener in list(self.listeners):
            listener(SessionState.LOST)
        self._come_back()

    def cut(self, duration_ms: int) -> None:
        """Have the store not hear this session for a while."""
        self.cut_until_ms = max(self.cut_until_ms, self.timeline.now_ms + duration_ms)
        is_lost = duration_ms >= SESSION_MS
        self.timeline.after(duration_ms, self.lose if is_lost else self._come_back)

    def tell(self, paths: frozenset[str], parents_of: set[str]) -> None:
        """Call back who watches these, sooner or later."""
        for watch in list(self.watches):
            if watch.path in (parents_of if watch.of_children else paths):
                self._call_back(watch)

    def _call_back(self, watch: _Watch) -> None:
        dice = self.weather.dice
        if self.weather.chance(self.weather.lost_watch):
            self.cut(dice.randrange(1_000, 60_000))  # only with its connection
            return
        if self.weather.chance(self.weather.late_watch):
            self._call(watch, dice.randrange(1_000, 60_000))
            if dice.random() < 0.5:
                return
        self._call(watch, dice.randrange(1, 200))

    def _call(self, watch: _Watch, delay_ms: int) -> None:
        self.timeline.after(delay_ms, partial(self._run, watch))

    def _run(self, watch: _Watch) -> None:
        if not watch.is_cancelled and not self.is_dead:
            run_callback(watch.callback)

    def _come_back(self) -> None:
        if self.is_dead or self.is_closed or self.cut_until_ms > self.timeline.now_ms:
            return
        for listener in list(self.listeners):
            listener(SessionState.CONNECTED)
        for watch in list(self.watches):
            self._call(watch, self.weather.dice.randrange(1, 500))

    def _watch(self, path: str, callback: Callable[[], None], *, of_children: bool) -> _Watch:
        watch = _Watch(self, path, of_children, callback)
        self.watches[watch] = None
        return watch

    def _node(self, path: str) -> Node | None:
        found = self.store.find(path)
        return None if found is None else Node(found.data, found.version, found.modified_ms)

    def _reach(self) -> None:
        """The way of a request to the store."""
        self._check_alive()
        if self.is_reliable:
            return
        weather = self.weather
        if self.may_freeze and weather.chance(weather.freeze):
            frozen_ms = weather.dice.choice((5_000, 60_000, 400_000, 900_000))
            self.timeline.meanwhile(self.process, frozen_ms)
            if frozen_ms >= SESSION_MS:
                self.lose()
        elif weather.chance(weather.meeting):
            self.timeline.meanwhile(self.process, weather.dice.randrange(1, 4_000))
        self._check_alive()
        if self.cut_until_ms > self.timeline.now_ms or weather.chance(weather.lost_request):
            raise MetastoreSilentError("metastore cannot answer")

    def _check_alive(self) -> None:
        if self.is_dead:
            raise ProcessDied
        if self.is_closed:
            raise MetastoreClosedError("session is closed")

    def _write(self, ops: Sequence[Op], *, is_multi: bool = False) -> None:
        self._reach()
        weather = self.weather
        dies = self.may_die and not self.is_reliable and weather.chance(weather.death)
        if dies and weather.dice.random() < 0.5:
            self.die()
            raise ProcessDied
        try:
            self.store.write(self, ops)
        except ConflictError as error:
            if not is_multi and isinstance(error.__cause__, NotFoundError):
                raise error.__cause__ from None
            raise
        if dies:
            self.die()
            raise ProcessDied
        if not self.is_reliable and weather.chance(weather.lost_answer):
            raise MetastoreSilentError("metastore did not answer")
