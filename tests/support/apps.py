"""Run an aiohttp application on its own event loop in a thread, so that its clients may block."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from merlot.http.server import HttpServer
from merlot.security.tls import Certificates
from merlot.uris import http_url

SHUTDOWN_S = 0.1
"""Seconds that a shutdown waits for requests: nobody needs the ones that hang."""

CUT_SHORT = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"schema"'
"""An answer whose connection ends in the middle of its body."""


@contextmanager
def serve_bytes(answer: bytes) -> Iterator[str]:
    """Answer one request with these bytes, whatever they are, and yield the URL."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@contextmanager
def serve_app(app: web.Application, certificates: Certificates | None = None) -> Iterator[str]:
    """Serve the application, over TLS if there are certificates, and yield its URL. Requests are limited as those of a
    role."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = HttpServer(app, shutdown_s=SHUTDOWN_S, certificates=certificates)
    try:
        port = asyncio.run_coroutine_threadsafe(server.start("127.0.0.1", 0), loop).result()
        yield http_url("127.0.0.1", port, tls=certificates is not None)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
