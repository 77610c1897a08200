"""Metastore sessions for the desired config: blocking calls in threads, one session per URL, quick to give up.

A namespace whose ZooKeeper is away holds up nobody else: after a failed call its next calls fail at once for a while. A
session that nobody used for long is closed. Every write is fenced: once another operator has come, this one writes
nothing. Only the passes over that namespace end. After a while its owner is looked up again, and an operator that still
is the owner takes a new fence (ADR 63).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from merlot.clock import Clock
from merlot.cluster.fence import Fence, Fenced, WriterSupersededError, take
from merlot.cluster.homes import is_home_of
from merlot.cluster.records import OperatorRecord
from merlot.errors import UnavailableError
from merlot.metastore.connect import connect
from merlot.metastore.protocol import Metastore
from merlot_operator import homes
from merlot_operator.config import Config, Home
from merlot_operator.kube.cache import Store
from merlot_operator.kube.kinds import DEPLOYMENTS
from merlot_operator.manifests.cluster import name_of_role
from merlot_operator.manifests.parts import CONTROLLER

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

THREADS = 8
PAUSE_S = 5.0
SUPERSEDED_S = 15.0
"""Seconds until a superseded operator looks up the owner of the namespace again."""
IDLE_S = 300.0
"""Seconds without use after which a session is closed: longer than the default pause between two looks at a Table."""


@dataclass(slots=True)
class _Session:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    metastore: Metastore | None = None
    failed_at: float = float("-inf")
    failure: str = ""
    num_users: int = 0
    used_at: float = 0.0


class Metastores:
    """Sessions by URL; namespaces may share a session."""

    def __init__(
        self, config: Config, store: Store, check_owned: Callable[[str], Awaitable[None]], clock: Clock
    ) -> None:
        """`check_owned` asks the API server for the owner; it raises WriterSupersededError for another operator."""
        self._config = config
        self._store = store
        self._check_owned = check_owned
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._fences: dict[str, Fence] = {}
        self._superseded: dict[str, tuple[float, str]] = {}
        """Time and error of the last write that another operator's fence refused, by namespace."""
        self._fencing: dict[str, asyncio.Lock] = {}
        self._shared: dict[str, frozenset[str]] = {}
        self._pool = ThreadPoolExecutor(THREADS, "metastore")

    async def call(self, namespace: str, function: Callable[[Metastore], T]) -> T:
        """Run a blocking function over the namespace's metastore. Raise UnavailableError if that is away, and what the
        function raises."""
        home = await self.home(namespace)
        fence = await self.fence(namespace)
        try:
            return await self._run(home.metastore, lambda store: function(Fenced(store, fence)))
        except WriterSupersededError as error:
            if self._fences.get(namespace) == fence:
                del self._fences[namespace]
                self._superseded[namespace] = (asyncio.get_running_loop().time(), str(error))
                _LOG.error("superseded namespace=%s cause=%s", namespace, error)
            raise

    async def check(self, namespace: str) -> None:
        """Raise WriterSupersededError if another operator has come. Otherwise this operator would learn that only by
        its next write."""
        await self.call(namespace, lambda store: store.multi([]))

    async def home(self, namespace: str) -> Home:
        """Return the namespace's home, which is decided once. Raise UnavailableError if it is not decided yet, and the
        metastore does not answer."""
        if namespace not in self._config.homes:
            live = self._store.get(DEPLOYMENTS, namespace, name_of_role(CONTROLLER))
            home = homes.of_controller(self._config, namespace, live) or await self._find_home(namespace)
            self._config.homes[namespace] = home
            _LOG.info("home namespace=%s metastore=%s deep_store=%s", namespace, home.metastore, home.deep_store)
        return self._config.homes[namespace]

    async def fence(self, namespace: str) -> Fence:
        """Return the fence that tells this operator's writes from those of an earlier one."""
        home = await self.home(namespace)
        async with self._fencing.setdefault(namespace, asyncio.Lock()):
            if namespace not in self._fences:
                await self._check_may_come(namespace)
                record = OperatorRecord(holder=socket.gethostname(), since_ms=self._clock.now_ms())
                shared = await self._settle(namespace, home)
                fence = await self._run(home.metastore, lambda store: take(store, namespace, record))
                # Checked again: an owner writes its mark before it takes a fence, so one of the two sees the other.
                await self._check_owned(namespace)
                # Both at once: the namespace may have been left meanwhile.
                self._shared[namespace], self._fences[namespace] = shared, fence
                self._superseded.pop(namespace, None)
            return self._fences[namespace]

    async def _check_may_come(self, namespace: str) -> None:
        since, text = self._superseded.get(namespace, (float("-inf"), ""))
        if asyncio.get_running_loop().time() - since < SUPERSEDED_S:
            raise WriterSupersededError(text)
        await self._check_owned(namespace)

    async def sharing(self, namespace: str) -> frozenset[str]:
        """Return the other namespaces whose tables are in the same chroot; looked up again if there were any."""
        await self.fence(namespace)
        if self._shared[namespace]:
            self._shared[namespace] = await self._settle(namespace, await self.home(namespace))
        return self._shared[namespace]

    async def _settle(self, namespace: str, home: Home) -> frozenset[str]:
        return await self._run(home.metastore, lambda store: homes.settle(store, self._config, namespace, home))

    def leave(self, namespace: str) -> None:
        """Forget a namespace in which nothing is declared any more: its home is decided anew."""
        for notes in (self._config.homes, self._fences, self._shared, self._superseded):
            notes.pop(namespace, None)

    async def close_idle(self) -> None:
        """Close sessions that nobody uses."""
        now = asyncio.get_running_loop().time()
        for url, session in list(self._sessions.items()):
            if session.metastore is not None and not session.num_users and now - session.used_at > IDLE_S:
                del self._sessions[url]
                await asyncio.to_thread(session.metastore.close)
                _LOG.info("disconnected metastore=%s", url)

    async def close(self) -> None:
        """Close all sessions."""
        for session in self._sessions.values():
            if session.metastore is not None:
                await asyncio.to_thread(session.metastore.close)
        self._pool.shutdown(wait=False)

    async def _find_home(self, namespace: str) -> Home:
        own, root = self._config.own_home(namespace), self._config.root_home(namespace)
        is_apart = own.metastore != root.metastore
        if is_apart and await self._run(root.metastore, lambda store: is_home_of(store, namespace)):
            return root
        has_folder = await self._run(own.metastore, lambda store: homes.has_folder(store, self._config, namespace))
        return own if has_folder else Home(own.metastore, root.deep_store)

    async def _run(self, url: str, function: Callable[[Metastore], T]) -> T:
        session = self._sessions.setdefault(url, _Session())
        loop = asyncio.get_running_loop()
        if loop.time() - session.failed_at < PAUSE_S:
            raise UnavailableError(session.failure)
        session.num_users += 1
        try:
            metastore = await self._connected(url, session)
            return await loop.run_in_executor(self._pool, function, metastore)
        except WriterSupersededError:
            raise
        except UnavailableError as error:
            session.failed_at, session.failure = loop.time(), str(error)
            raise
        finally:
            session.num_users -= 1
            session.used_at = loop.time()

    async def _connected(self, url: str, session: _Session) -> Metastore:
        async with session.lock:
            loop = asyncio.get_running_loop()
            if session.metastore is None:
                if loop.time() - session.failed_at < PAUSE_S:
                    raise UnavailableError(session.failure)
                try:
                    session.metastore = await loop.run_in_executor(self._pool, connect, url)
                except UnavailableError as error:
                    session.failed_at, session.failure = loop.time(), str(error)
                    raise
                _LOG.info("connected metastore=%s", url)
            return session.metastore
