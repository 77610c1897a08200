"""Client of each namespace's controller: one `GET /status` for all tables, marks of servers that shall stop, and
retries of rollups.

An unchanged status costs a 304. One event loop.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from merlot.cluster.fence import FENCE_HEADER, Fence
from merlot.errors import InvalidInputError, UnavailableError
from merlot.ids import InstanceId
from merlot.security import own_credentials
from merlot.security.tls import ClientTls
from merlot_operator.config import Config
from merlot_operator.controllers.status_answer import max_bytes, parse

TIMEOUT_S = 30.0
MAX_CAUSE = 500


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A controller's answer; `problem` says why there is none."""

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rollups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    etag: str = ""
    problem: str | None = None
    spark_tasks: tuple[tuple[str, str], ...] = ()
    """Id and table of each task that needs a minion with Spark."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Errors of the tables that the controller cannot read, by name; `tables` lacks them."""

    @property
    def is_known(self) -> bool:
        """Return True if the controller answered the last request."""
        return self.problem is None


_UNKNOWN = ClusterStatus(problem="controller was not asked yet")


@dataclass(frozen=True, slots=True)
class StatusChanges:
    """Differences between a status and the one before."""

    tables: frozenset[str] = frozenset()
    rollups: frozenset[str] = frozenset()
    is_reachability: bool = False
    is_tasks: bool = False


class ClusterStatuses:
    """The last status of each namespace."""

    def __init__(self, config: Config, counts_of: Callable[[str], tuple[int, int]] = lambda _: (0, 0)) -> None:
        """`counts_of`: numbers of Tables and of pods in a namespace, which bound what its controller may answer."""
        self._config = config
        self._counts_of = counts_of
        self._session: aiohttp.ClientSession | None = None
        self._tls = ClientTls.of_environment()
        self._known: dict[str, ClusterStatus] = {}

    def of(self, namespace: str) -> ClusterStatus:
        """Return the last status."""
        return self._known.get(namespace, _UNKNOWN)

    def was_asked(self, namespace: str) -> bool:
        """Return True if the controller was asked, with or without success."""
        return namespace in self._known

    def forget(self, namespace: str) -> None:
        """Drop the status of a namespace that has no cluster any more."""
        self._known.pop(namespace, None)

    async def refresh(self, namespace: str) -> StatusChanges:
        """Ask the controller; return what changed. A controller that does not answer raises nothing."""
        before = self.of(namespace)
        try:
            after = await self._ask(namespace, before)
        except (aiohttp.ClientError, TimeoutError, ValueError, InvalidInputError) as error:
            cause = str(error)[:MAX_CAUSE] or type(error).__name__
            url = self._config.controller_of(namespace)
            after = ClusterStatus(
                before.tables,
                before.rollups,
                before.tasks,
                problem=f"controller does not answer at {url}: {cause}",
                spark_tasks=before.spark_tasks,
                unreadable=before.unreadable,
            )
        self._known[namespace] = after
        return _changes(before, after)

    async def drain(self, namespace: str, server: InstanceId, fence: Fence, *, leaving: bool) -> None:
        """Ask brokers to route around a server. Raise UnavailableError if the controller does not answer."""
        await self._post(namespace, f"/instances/{server}/drain" + ("?leaving=true" if leaving else ""), fence)

    async def undrain(self, namespace: str, server: InstanceId, fence: Fence) -> None:
        """Remove the mark of a server. Raise UnavailableError if the controller does not answer."""
        await self._post(namespace, f"/instances/{server}/undrain", fence)

    async def retry_rollup(self, namespace: str, name: str) -> None:
        """Retry a rollup's tasks that failed for good. Raise UnavailableError if the controller does not answer."""
        await self._post(namespace, f"/rollups/{name}/run")

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    async def _ask(self, namespace: str, before: ClusterStatus) -> ClusterStatus:
        headers = {**own_credentials.headers(), **({"If-None-Match": before.etag} if before.etag else {})}
        url = self._config.controller_of(namespace) + "/status"
        async with self._http().get(url, headers=headers, allow_redirects=False, ssl=self._ssl(url)) as response:
            if response.status == 304:
                return before
            response.raise_for_status()
            body = parse(await _read(response, *self._counts_of(namespace)))
            etag = response.headers.get("ETag", "")
            unreadable = {
                name: str(table["error"])[:MAX_CAUSE]
                for name, table in body["tables"].items()
                if table.get("error") is not None
            }
            return ClusterStatus(
                {name: table for name, table in body["tables"].items() if name not in unreadable},
                body.get("rollups") or {},
                _numbers(body.get("tasks")),
                etag,
                spark_tasks=tuple((str(task["id"]), str(task["table"])) for task in body.get("sparkTasks") or ()),
                unreadable=unreadable,
            )

    async def _post(self, namespace: str, path: str, fence: Fence | None = None) -> None:
        url = self._config.controller_of(namespace) + path
        try:
            headers = {**own_credentials.headers(), **({} if fence is None else {FENCE_HEADER: str(fence)})}
            async with self._http().post(url, headers=headers, allow_redirects=False, ssl=self._ssl(url)) as response:
                response.raise_for_status()
                if response.status >= 300:
                    raise UnavailableError(f"controller leads elsewhere url={url} status={response.status}")
        except (aiohttp.ClientError, TimeoutError, InvalidInputError) as error:
            raise UnavailableError(f"controller does not answer url={url} cause={error!r}") from error

    def _ssl(self, url: str) -> ssl.SSLContext | bool:
        """Return what the session takes as `ssl`; the files are read only for controllers that speak TLS."""
        return self._tls.context() if url.startswith("https://") else True

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        return self._session


async def _read(response: aiohttp.ClientResponse, num_tables: int, num_pods: int) -> bytes:
    limit, body = max_bytes(num_tables, num_pods), bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise ValueError(f"the answer has more than {limit} bytes tables={num_tables} pods={num_pods}")
    return bytes(body)


def _numbers(tasks: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: value for name, value in (tasks or {}).items() if isinstance(value, int)}


def _changes(before: ClusterStatus, after: ClusterStatus) -> StatusChanges:
    return StatusChanges(
        tables=_differing(before.tables, after.tables) | _differing(before.unreadable, after.unreadable),
        rollups=_differing(before.rollups, after.rollups),
        is_reachability=before.is_known != after.is_known,
        is_tasks=(before.tasks, before.spark_tasks) != (after.tasks, after.spark_tasks),
    )


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> frozenset[str]:
    if before is after:
        return frozenset()
    return frozenset(name for name in {*before, *after} if before.get(name) != after.get(name))
