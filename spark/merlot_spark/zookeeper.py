"""A ZooKeeper of one process, out of the jars that pyspark brings: for tests, development and small installations.

`python -m merlot_spark.zookeeper --port 2181 --data DIR` serves until interrupted. On Linux it dies with the thread
that started it. With `--bind 0.0.0.0 --durable` it is the process itself and syncs what it logs: the way of a pod.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, Self

from merlot.errors import UnavailableError
from merlot.ports import free_port
from merlot_spark.jvm import java

JARS = ("zookeeper-3", "zookeeper-jute-3", "slf4j-api-2", "metrics-core-4", "snappy-java-1")
"""Prefixes of the jars. Without snappy-java ZooKeeper starts, and never serves."""

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120.0
MAX_SESSION_MS = 60_000
_PR_SET_PDEATHSIG = 1

_SMALL = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Survives a killed process, not a power cut; an fsync per write would make tests wait for the disk.
_QUICK = (*_SMALL, "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.forceSync=no")

_CONFIG = """tickTime=500
minSessionTimeout=500
maxSessionTimeout={max_session_ms}
dataDir={data}
clientPort={port}
clientPortAddress={bind}
admin.enableServer=false
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
4lw.commands.whitelist=*
maxClientCnxns=0
"""


class ZooKeeper:
    """A ZooKeeper over `data_dir`; a context manager that starts and stops it. `port` 0 takes a free one. Longer
    session timeouts are cut to `max_session_ms`. `host` is the address that it listens on."""

    def __init__(
        self, data_dir: Path, port: int = 0, *, max_session_ms: int = MAX_SESSION_MS, host: str = LOOPBACK
    ) -> None:
        self.data_dir = data_dir
        self.host = host
        self.port = port or free_port()
        self.max_session_ms = max_session_ms
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        """Return the address that clients connect to."""
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process and wait until it answers. Raise UnavailableError, with the end of its log, if it does
        not."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = _write_config(self.data_dir, self.host, self.port, self.max_session_ms)
        with (self.data_dir / "zookeeper.log").open("ab") as log:
            # The hook makes one system call through a library that is loaded already: safe beside other threads.
            hook = _die_with_parent()
            self._process = subprocess.Popen(_command(config, _QUICK), stdout=log, stderr=log, preexec_fn=hook)  # noqa: PLW1509
        try:
            self._await_answer()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the process; ZooKeeper's own shutdown is no gentler than a kill, since it logs before it answers."""
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def is_running(self) -> bool:
        """Return True if the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def restart(self) -> None:
        """Kill the process and start another over the same data and port."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Send SIGSTOP: connections stay open, and nothing answers once this has returned."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        if sys.platform.startswith("linux"):
            # A busy machine takes its time to stop every thread.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Send SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Wait until the process ends by itself; return its exit code."""
        return self._running().wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UnavailableError(f"zookeeper is not running port={self.port}")
        return self._process

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._running().poll() is not None:
                break
            if _ask(self.host, self.port, b"srvr").startswith(b"Zookeeper version"):
                return
            time.sleep(0.02)  # a starting process gives no event to wait for
        tail = (self.data_dir / "zookeeper.log").read_text(errors="replace")[-500:]
        raise UnavailableError(f"zookeeper did not start port={self.port} log={tail!r}")


def _write_config(data_dir: Path, bind: str, port: int, max_session_ms: int) -> Path:
    config = data_dir / "zoo.cfg"
    fields = {"data": data_dir / "data", "bind": bind, "port": port, "max_session_ms": max_session_ms}
    config.write_text(_CONFIG.format(**fields))
    return config


def _command(config: Path, options: Sequence[str]) -> list[str]:
    import pyspark

    folder = Path(pyspark.__file__).parent / "jars"
    jars = [str(next(folder.glob(f"{prefix}*.jar"))) for prefix in JARS]
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    return [str(java()), *options, "-cp", ":".join(jars), main, str(config)]


def _ask(host: str, port: int, word: bytes) -> bytes:
    """Return the answer to a four-letter word, or nothing."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1) as connection:
        connection.sendall(word)
        return connection.recv(4096)
    return b""


def _die_with_parent() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)

    def set_death_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return set_death_signal


def become(data_dir: Path, bind: str, port: int) -> NoReturn:
    """Replace this process by a ZooKeeper that syncs its log and writes its messages to standard error.

    Java chooses the heap, by the memory that the container may use."""
    data_dir.mkdir(parents=True, exist_ok=True)
    command = _command(
        _write_config(data_dir, bind, port, MAX_SESSION_MS), ["-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    )
    os.execv(command[0], command)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=2181)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bind", default=LOOPBACK, help="address to listen on, with --durable")
    parser.add_argument("--durable", action="store_true", help="sync every write, and run in place of this process")
    arguments = parser.parse_args()
    if arguments.durable:
        become(arguments.data, arguments.bind, arguments.port)
    with ZooKeeper(arguments.data, arguments.port) as server, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(f"zookeeper serves at {server.hosts}, data in {server.data_dir}\n")
        sys.stdout.flush()
        server.wait()


if __name__ == "__main__":
    main()
