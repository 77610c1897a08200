"""Refuse requests that web pages send without the knowledge of their user.

A browser sends the requests of any page to any address, the developer's own machine included, and only hides the
answers from the page. A page whose name is bound to 127.0.0.1 after it was loaded (DNS rebinding) reads the answers
too; the name in `Host` gives it away. Programs other than browsers send neither `Origin` nor `Sec-Fetch-Site`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
"""Content types that a form of any page can send without a preflight request."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names by which clients may address a process; None allows any name, as proxies and Services may have any name for
    it."""

    names: frozenset[str] | None = None

    def admits(self, host: str) -> bool:
        """Return True if a `Host` header names this process. An address always does: no page can rebind one."""
        if self.names is None:
            return True
        name = _name_of(host)
        return name in self.names or name.endswith(".localhost") or _is_address(name)


HOSTS: Final = web.AppKey("hosts", Hosts)


def hosts_of(bind: str, advertised: str) -> Hosts:
    """Return the names of a process that listens on the address `bind` and is known to others as `advertised`.

    A process that only its own machine reaches has few names, so that any other name is a page's."""
    return Hosts(frozenset({"localhost", advertised.lower()}) if _is_loopback(bind) else None)


def refusal(method: str, headers: Mapping[str, str], hosts: Hosts) -> str | None:
    """Return why a request is refused, None if it is not. `headers` finds names in any case."""
    host = headers.get("Host", "")
    if not hosts.admits(host):
        return (
            f"this process has another name: ask localhost, or start it with the name (--advertise, --host) host={host}"
        )
    if method in _READING:
        return None
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
    if site is not None:
        return None if site in ("same-origin", "none") else f"a page of another origin asks origin={origin}"
    if origin is not None:
        own_hosts = {host.lower(), headers.get("X-Forwarded-Host", host).lower()}
        is_own = urlsplit(origin).netloc.lower() in own_hosts
        return (
            None if is_own else f"a page of another origin asks; a proxy must pass Host on origin={origin} host={host}"
        )
    content_type = headers.get("Content-Type", "").lower()
    if headers.get("User-Agent", "").startswith("Mozilla/") and content_type.startswith(_FORMS):
        return f"a form of a page asks: send application/json contentType={content_type}"
    return None


def _name_of(host: str) -> str:
    """Return the name in a `Host` header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(bind: str) -> bool:
    return bind == "localhost" or (_is_address(bind) and ipaddress.ip_address(bind).is_loopback)
