"""The desired config's way to ZooKeeper: blocking calls in threads, one session per namespace, fast to give up.

A namespace whose ZooKeeper is away holds up nobody else: after a failed call its next ones fail at once for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from merlot.cluster.connect import connect
from merlot.cluster.metastore import Metastore
from merlot.errors import UnavailableError
from merlot_operator.config import Config

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

THREADS = 8
PAUSE_S = 5.0


@dataclass(slots=True)
class _Session:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    metastore: Metastore | None = None
    failed_at: float = float("-inf")
    failure: str = ""


class Metastores:
    """Sessions by URL: namespaces may share one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._sessions: dict[str, _Session] = {}
        self._pool = ThreadPoolExecutor(THREADS, "metastore")

    async def call(self, namespace: str, function: Callable[[Metastore], T]) -> T:
        """Run a blocking function over the namespace's metastore; raises UnavailableError and what it raises."""
        url = self._config.metastore_of(namespace)
        session = self._sessions.setdefault(url, _Session())
        loop = asyncio.get_running_loop()
        if loop.time() - session.failed_at < PAUSE_S:
            raise UnavailableError(session.failure)
        try:
            metastore = await self._connected(url, session)
            return await loop.run_in_executor(self._pool, function, metastore)
        except UnavailableError as error:
            session.failed_at, session.failure = loop.time(), str(error)
            raise

    async def close(self) -> None:
        """End all sessions."""
        for session in self._sessions.values():
            if session.metastore is not None:
                await asyncio.to_thread(session.metastore.close)
        self._pool.shutdown(wait=False)

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
