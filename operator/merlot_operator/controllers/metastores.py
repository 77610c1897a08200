"""The desired config's way to ZooKeeper: blocking calls in threads, one session per URL, fast to give up.

A namespace whose ZooKeeper is away holds up nobody else: after a failed call its next ones fail at once for a while. A
session that nobody used for long is closed. Every write is fenced: where another operator has come since, this one
writes nothing. That ends nothing but the namespace's passes: after a while it is looked whose the namespace is, and an
operator that is the owner still comes anew (ADR 63).
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
from merlot.cluster.fence import Fence, Fenced, SupersededError, take
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
"""Until an operator that another one has superseded looks whose the namespace is."""
IDLE_S = 300.0
"""A session that was not used for so long is closed: longer than any pause between two looks at a Table."""


@dataclass(slots=True)
class _Session:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    metastore: Metastore | None = None
    failed_at: float = float("-inf")
    failure: str = ""
    num_users: int = 0
    used_at: float = 0.0


class Metastores:
    """Sessions by URL: namespaces may share one."""

    def __init__(
        self, config: Config, store: Store, check_owned: Callable[[str], Awaitable[None]], clock: Clock
    ) -> None:
        """check_owned: asks the API server whose a namespace is; raises UnavailableError if it is another one's."""
        self._config = config
        self._store = store
        self._check_owned = check_owned
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._fences: dict[str, Fence] = {}
        self._superseded: dict[str, tuple[float, str]] = {}
        """By namespace: when another operator was seen to have come, and what was seen."""
        self._fencing: dict[str, asyncio.Lock] = {}
        self._shared: dict[str, frozenset[str]] = {}
        self._pool = ThreadPoolExecutor(THREADS, "metastore")

    async def call(self, namespace: str, function: Callable[[Metastore], T]) -> T:
        """Run a blocking function over the namespace's metastore; raises UnavailableError and what it raises."""
        home = await self.home(namespace)
        fence = await self.fence(namespace)
        try:
            return await self._run(home.metastore, lambda store: function(Fenced(store, fence)))
        except SupersededError as error:
            if self._fences.get(namespace) == fence:
                del self._fences[namespace]
                self._superseded[namespace] = (asyncio.get_running_loop().time(), str(error))
                _LOG.error("superseded namespace=%s cause=%s", namespace, error)
            raise

    async def check(self, namespace: str) -> None:
        """Raise SupersededError if another operator has come, which this one learns by its next write otherwise."""
        await self.call(namespace, lambda store: store.multi([]))

    async def home(self, namespace: str) -> Home:
        """Where the namespace's state is, which is decided once; raises UnavailableError while nobody can tell."""
        if namespace not in self._config.homes:
            live = self._store.get(DEPLOYMENTS, namespace, name_of_role(CONTROLLER))
            home = homes.of_controller(self._config, namespace, live) or await self._find_home(namespace)
            self._config.homes[namespace] = home
            _LOG.info("home namespace=%s metastore=%s deep_store=%s", namespace, home.metastore, home.deep_store)
        return self._config.homes[namespace]

    async def fence(self, namespace: str) -> Fence:
        """What tells this operator's writes from those of one before."""
        home = await self.home(namespace)
        async with self._fencing.setdefault(namespace, asyncio.Lock()):
            if namespace not in self._fences:
                await self._check_may_come(namespace)
                record = OperatorRecord(holder=socket.gethostname(), since_ms=self._clock.now_ms())
                self._shared[namespace] = await self._settle(namespace, home)
                fence = await self._run(home.metastore, lambda store: take(store, namespace, record))
                # Again: the next owner marks the namespace first and comes then, so of two one sees the other.
                await self._check_owned(namespace)
                self._fences[namespace] = fence
                self._superseded.pop(namespace, None)
            return self._fences[namespace]

    async def _check_may_come(self, namespace: str) -> None:
        since, text = self._superseded.get(namespace, (float("-inf"), ""))
        if asyncio.get_running_loop().time() - since < SUPERSEDED_S:
            raise SupersededError(text)
        await self._check_owned(namespace)

    async def sharing(self, namespace: str) -> frozenset[str]:
        """Other namespaces whose tables are in the same chroot, as it is now if there were any."""
        await self.fence(namespace)
        if self._shared[namespace]:
            self._shared[namespace] = await self._settle(namespace, await self.home(namespace))
        return self._shared[namespace]

    async def _settle(self, namespace: str, home: Home) -> frozenset[str]:
        return await self._run(home.metastore, lambda store: homes.settle(store, self._config, namespace, home))

    def leave(self, namespace: str) -> None:
        """Nothing is declared there any more: where it will be is decided anew."""
        for known in (self._config.homes, self._fences, self._shared, self._superseded):
            known.pop(namespace, None)

    async def close_idle(self) -> None:
        """End sessions that nobody uses."""
        now = asyncio.get_running_loop().time()
        for url, session in list(self._sessions.items()):
            if session.metastore is not None and not session.num_users and now - session.used_at > IDLE_S:
                del self._sessions[url]
                await asyncio.to_thread(session.metastore.close)
                _LOG.info("disconnected metastore=%s", url)

    async def close(self) -> None:
        """End all sessions."""
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
        except SupersededError:
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
