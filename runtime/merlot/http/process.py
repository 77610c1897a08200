"""Pinot's endpoints about the process itself: its age, its machine and its loggers."""

from __future__ import annotations

import platform
import threading
import time
from typing import Final

from aiohttp import web

import merlot
from merlot import cores, memory
from merlot.http.described import ANY, OBJECT, PLAIN, TEXT, describe, record
from merlot.http.door import READING, of_any, of_cluster
from merlot.http.loggers import logger_routes
from merlot.security.access import Right

_STARTED_S: Final = time.time()
_STARTED_MONOTONIC_S: Final = time.monotonic()


def process_routes() -> list[web.RouteDef]:
    """Return the routes `/uptime`, `/start-time`, `/appconfigs` and `/loggers`."""
    return [
        web.get("/uptime", uptime),
        web.get("/start-time", start_time),
        web.get("/appconfigs", app_configs),
        *logger_routes(),
    ]


@describe(answer=TEXT, media_type=PLAIN, right=of_any(*READING))
async def uptime(_: web.Request) -> web.Response:
    """Seconds since the process began."""
    return web.Response(text=str(int(time.monotonic() - _STARTED_MONOTONIC_S)))


@describe(answer=TEXT, media_type=PLAIN, right=of_any(*READING))
async def start_time(_: web.Request) -> web.Response:
    """When the process began, in UTC."""
    return web.Response(text=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_STARTED_S)))


@describe(
    answer=record({"systemConfig": OBJECT, "jvmConfig": ANY, "runtimeConfig": OBJECT, "pinotConfig": OBJECT}),
    right=of_cluster(Right.ADMIN),
)
async def app_configs(_: web.Request) -> web.Response:
    """Machine, processors and memory, in bytes, that the process may use. Settings are not told: they name stores."""
    return web.json_response(
        {
            "systemConfig": {
                "arch": platform.machine(),
                "name": platform.system(),
                "version": platform.release(),
                "availableProcessors": cores.usable(),
                "totalPhysicalMemory": memory.total_bytes(),
            },
            "jvmConfig": None,
            "runtimeConfig": {
                "python": platform.python_version(),
                "merlot": merlot.__version__,
                "numCurrentThreads": threading.active_count(),
                "maxHeapSize": memory.total_bytes(),
                "currentHeapSize": memory.taken_bytes(),
            },
            "pinotConfig": {},
        }
    )
