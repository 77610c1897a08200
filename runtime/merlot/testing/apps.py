"""An aiohttp application on an event loop of its own, in a thread: its clients may block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from merlot.http.server import HttpServer

SHUTDOWN_S = 0.1
"""Nobody waits for requests that hang."""


@contextmanager
def serve_app(app: web.Application) -> Iterator[str]:
    """Its URL. Requests are limited as a role's are."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = HttpServer(app, shutdown_s=SHUTDOWN_S)
    try:
        yield f"http://127.0.0.1:{asyncio.run_coroutine_threadsafe(server.start('127.0.0.1', 0), loop).result()}"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
