"""Paths that tell of the process itself, as Pinot's brokers have them."""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web

_BEGAN_S: Final = time.time()
_BEGAN_MONOTONIC_S: Final = time.monotonic()


def process_routes() -> list[web.RouteDef]:
    """`/uptime` and `/start-time`."""
    return [web.get("/uptime", uptime), web.get("/start-time", start_time)]


async def uptime(_: web.Request) -> web.Response:
    """Seconds since the process began."""
    return web.Response(text=str(int(time.monotonic() - _BEGAN_MONOTONIC_S)))


async def start_time(_: web.Request) -> web.Response:
    """When the process began, in UTC."""
    return web.Response(text=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_BEGAN_S)))
