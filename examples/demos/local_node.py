"""An embedded node beside a Spark driver: it runs on a thread of its own, and ends with the process.

The node owns that thread and its event loop. The same thread must call `start` and `stop`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.programs import postponed_signals
from merlot.security.door import Door

T = TypeVar("T")
HOST = "127.0.0.1"


def free_port(wanted: int) -> int:
    """Return the wanted port if it is free; else 0, for which the system chooses a port."""
    try:
        with socket.create_server((HOST, wanted)):
            return wanted
    except OSError:
        return 0


class LocalNode:
    """Node that keeps its data in a folder. Its tables may read streams of files below `streams`, or none if that is
    None. `door` knows who may ask."""

    def __init__(self, data_dir: Path, port: int, streams: Path | None = None, door: Door | None = None) -> None:
        folders = () if streams is None else (str(streams.absolute()),)
        config = NodeConfig(data_dir=data_dir, host=HOST, http_port=port, stream_folders=folders)
        self._node = EmbeddedNode(config, door=door)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="merlot-node", daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        """Return the URL at which the node answers."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start the node. Raise UnavailableError if another node has the folder or the port.

        Ctrl-C takes effect only after the start, which takes a fraction of a second."""
        with postponed_signals():
            self._thread.start()
            self.port = self._call(self._node.start())

    def stop(self) -> None:
        """Stop every role of the node, whether or not `start` was called and succeeded."""
        if self._thread.is_alive():
            try:
                self._call(self._node.stop())
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
