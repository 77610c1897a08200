"""Client of the API server, over an aiohttp session with Kopf's logins: reads, server-side apply, status, deletions.

Errors are raised as the families of `merlot.errors`: 404 is NotFoundError, 409 ConflictError, any other 4xx
InvalidInputError. All others are UnavailableError, and so are 401, 408 and 429, which may pass. One event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import kopf

from merlot.errors import ConflictError, InvalidInputError, MerlotError, NotFoundError, UnavailableError
from merlot_operator.kube.kinds import EVENTS, FIELD_MANAGER, Object, ResourceKind, kind_of, name_of, namespace_of
from merlot_operator.kube.login import login

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

PAGE = 100
REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class ForbiddenError(InvalidInputError):
    """The API server forbids the request: by the operator's role, a quota, or because a namespace is being deleted."""


class TooManyRequestsError(UnavailableError):
    """The request is refused for now: the API server is busy, or a disruption budget does not let a pod go."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind as of one version."""

    items: list[dict[str, Any]]
    version: int


class Kube:
    """Client of the API server. `settings` are Kopf's, for the proxy."""

    def __init__(self, settings: kopf.OperatorSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._server = ""
        self._login = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self.num_writes = 0
        """Number of requests since the start that may change something."""

    async def close(self) -> None:
        """Close the session."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def get(self, kind: ResourceKind, namespace: str | None, name: str) -> dict[str, Any]:
        """Return an object. Raise NotFoundError if it does not exist."""
        return await self._request("GET", kind.path(namespace, name))

    async def list(self, kind: ResourceKind, namespace: str | None, selector: str = "") -> list[dict[str, Any]]:
        """Return all objects with these labels."""
        return (await self.list_all(kind, namespace, selector)).items

    async def list_all(
        self, kind: ResourceKind, namespace: str | None, selector: str = "", heard: Callable[[], None] = lambda: None
    ) -> Listing:
        """Return all objects as `list` does, page by page, calling `heard` after each page. `kind` and `apiVersion` are
        filled in."""
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        items: list[dict[str, Any]] = []
        while True:
            page = await self._request("GET", kind.path(namespace), query=query)
            heard()
            items.extend({"apiVersion": kind.api_version, "kind": kind.name, **item} for item in page["items"])
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return Listing(items, int(page["metadata"]["resourceVersion"]))

    async def probe(self, kind: ResourceKind, namespace: str | None) -> None:
        """Raise an error if objects of a kind cannot be listed."""
        await self._request("GET", kind.path(namespace), query={"limit": "1"})

    async def apply(self, body: Object) -> dict[str, Any]:
        """Apply an object server-side; fields that others own become the operator's."""
        path = kind_of(body).path(namespace_of(body), name_of(body))
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, body=body, query=query, content=_APPLY)

    async def apply_global(self, kind: ResourceKind, body: Object) -> dict[str, Any]:
        """Apply an object server-side that is in no namespace."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", kind.path(None, name_of(body)), body=body, query=query, content=_APPLY)

    async def patch(self, kind: ResourceKind, namespace: str, name: str, body: Object) -> dict[str, Any]:
        """Change an object by a merge patch."""
        return await self._request("PATCH", kind.path(namespace, name), body=body, content=_MERGE, query=_MANAGER)

    async def patch_status(self, kind: ResourceKind, namespace: str, name: str, status: Object) -> dict[str, Any]:
        """Change an object's status by a merge patch."""
        path = kind.path(namespace, name, "status")
        return await self._request("PATCH", path, body={"status": status}, content=_MERGE, query=_MANAGER)

    async def create(self, body: Object) -> dict[str, Any]:
        """Create an object. Raise ConflictError if it exists."""
        return await self._request("POST", kind_of(body).path(namespace_of(body)), body=body, query=_MANAGER)

    async def delete(self, body: Object, *, propagation: str = "Background") -> None:
        """Delete this very object, by its uid; do nothing if it is gone."""
        preconditions = {"uid": body["metadata"]["uid"]} if "uid" in body["metadata"] else {}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": preconditions,
        }
        path = kind_of(body).path(namespace_of(body), name_of(body))
        try:
            await self._request("DELETE", path, body=options)
        except NotFoundError:
            return
        except ConflictError:
            _LOG.info("object was replaced before it could be deleted object=%s", path)

    async def events_about(self, owner: Object, reason: str) -> Sequence[dict[str, Any]]:
        """Return the events about this very object that have one reason."""
        chosen = {"involvedObject.uid": owner["metadata"]["uid"], "reason": reason}
        query = {"fieldSelector": ",".join(f"{name}={value}" for name, value in chosen.items())}
        answer = await self._request("GET", EVENTS.path(namespace_of(owner)), query=query)
        items: Sequence[dict[str, Any]] = answer["items"]
        return items

    async def evict(self, pod: Object) -> None:
        """Evict this very pod, as a drain of its node would; do nothing if it is gone. Raise TooManyRequestsError if a
        disruption budget does not allow it now."""
        namespace, name = namespace_of(pod), name_of(pod)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}},
        }
        path = kind_of(pod).path(namespace, name, "eviction")
        try:
            await self._request("POST", path, body=body, query=_MANAGER)
        except NotFoundError:
            return
        except ConflictError:
            _LOG.info("pod was replaced before it could be evicted object=%s", path)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> dict[str, Any]:
        self.num_writes += method != "GET"
        session: aiohttp.ClientSession | None = None
        for attempt in range(2):
            session = await self._logged_in(refused=session)
            try:
                async with session.request(
                    method, self._server + path, json=body, params=query, headers={"Content-Type": content}
                ) as response:
                    if response.status == 401 and attempt == 0:
                        continue
                    if response.status >= 400:
                        raise await _error(response, f"{method} {path}")
                    document: dict[str, Any] = await response.json()
                    return document
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise UnavailableError(f"API server does not answer request={method} {path} cause={error!r}") from error
        raise UnavailableError(f"API server does not know the operator request={method} {path}")

    async def _logged_in(self, *, refused: aiohttp.ClientSession | None) -> aiohttp.ClientSession:
        """Return the session, or a new one if `refused` is the current one: a service account's token is replaced
        hourly. Others may have requests under way in the old session, so it is closed later."""
        async with self._login:
            if self._session is not None and self._session is not refused:
                return self._session
            info = await asyncio.to_thread(login, self._settings)
            if self._session is not None:
                task = asyncio.create_task(_close_later(self._session), name="close session")
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
            self._server = info.server.rstrip("/")
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=20, ssl=info.as_ssl_context()),
                headers={**info.as_http_headers(), "User-Agent": FIELD_MANAGER},
                proxy=info.proxy_url,
                trust_env=info.trust_env,
                timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S),
            )
            return self._session


_MANAGER = {"fieldManager": FIELD_MANAGER}


async def _close_later(session: aiohttp.ClientSession) -> None:
    try:
        await asyncio.sleep(REQUEST_TIMEOUT_S)
    finally:
        await session.close()


async def _error(response: aiohttp.ClientResponse, request: str) -> MerlotError:
    text = await response.text()
    try:
        document = await response.json()
        message = str(document.get("message", text))
    except (ValueError, aiohttp.ContentTypeError):
        message = text[:500]
    text = f"{message} ({response.status} {request})"
    match response.status:
        case 404:
            return NotFoundError(text)
        case 409:
            return ConflictError(text)
        case 403:
            return ForbiddenError(text)
        case 429:
            return TooManyRequestsError(text)
        case 401 | 408:
            return UnavailableError(text)
        case status if status < 500:
            return InvalidInputError(text)
        case _:
            return UnavailableError(text)


async def with_client(work: Callable[[Kube], Awaitable[T]]) -> T:
    """Run `work` with a client of its own, for a program that ends."""
    kube = Kube(kopf.OperatorSettings())
    try:
        return await work(kube)
    finally:
        await kube.close()
