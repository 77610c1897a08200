"""Controllers that say what a test wants them to say, one for each namespace."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Controller:
    """Answers `GET /status` with what the test put into `tables`, and notes who shall be drained."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tables: dict[str, Any] = {}
        self.rollups: dict[str, Any] = {}
        self.tasks: dict[str, int] = {}
        self.spark_tasks: list[dict[str, str]] = []
        self.drains: list[str] = []
        self.is_up = True

    def status(self) -> bytes:
        """What it says of everything."""
        said = {"tables": self.tables, "rollups": self.rollups, "tasks": self.tasks, "sparkTasks": self.spark_tasks}
        return json.dumps(said).encode()


class Controllers:
    """One server for those of all namespaces: each has the path of its namespace."""

    def __init__(self) -> None:
        self._of: dict[str, Controller] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/{{namespace}}"

    def __enter__(self) -> Controllers:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextlib.contextmanager
    def one(self, namespace: str) -> Iterator[Controller]:
        """A controller without tables."""
        self._of[namespace] = Controller(self.url.format(namespace=namespace))
        try:
            yield self._of[namespace]
        finally:
            del self._of[namespace]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        known = self._of

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                controller = known.get(self.path.split("/")[1])
                if controller is None or not controller.is_up:
                    self._answer(503, b"{}", "")
                    return
                body = controller.status()
                etag = f'"{hash(body)}"'
                if self.headers.get("If-None-Match") == etag:
                    self._answer(304, b"", etag)
                else:
                    self._answer(200, body, etag)

            def do_POST(self) -> None:
                _, namespace, path = self.path.split("/", 2)
                if namespace in known:
                    known[namespace].drains.append(f"/{path}".removeprefix("/instances/"))
                self._answer(200, b"{}", "")

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # operators are killed
                    super().handle()

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self, code: int, body: bytes, etag: str) -> None:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if etag:
                    self.send_header("ETag", etag)
                self.end_headers()
                self.wfile.write(body)

        return Handler
