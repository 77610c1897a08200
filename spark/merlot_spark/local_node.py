"""An embedded node beside a Spark driver: it runs on a thread of its own, and is gone when the process is.

Owns that thread and its event loop. `start` and `stop` belong to one thread.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from merlot.embedded.node import Node, NodeConfig
from merlot.programs import postponed_signals

T = TypeVar("T")
HOST = "127.0.0.1"


def free_port(wanted: int) -> int:
    """Return the port if nobody listens on it, else 0: any free one."""
    try:
        with socket.create_server((HOST, wanted)):
            return wanted
    except OSError:
        return 0


class LocalNode:
    """A node over a folder. `streams` is the folder below which streams of files may be; None: nowhere."""

    def __init__(self, data_dir: Path, port: int, streams: Path | None = None) -> None:
        folders = () if streams is None else (str(streams.absolute()),)
        self._node = Node(NodeConfig(data_dir=data_dir, host=HOST, http_port=port, stream_folders=folders))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="merlot-node", daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        """Return the URL at which the node answers."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start the node. Raise UnavailableError if another node has the folder or the port.

        Ctrl-C waits until this is done, a fraction of a second."""
        with postponed_signals():
            self._thread.start()
            self.port = self._call(self._node.start())

    def stop(self) -> None:
        """End every role, whether or not `start` succeeded or was called."""
        if self._thread.is_alive():
            try:
                self._call(self._node.stop())
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
