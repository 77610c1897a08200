"""Spark's Python worker daemon, with the segment builder loaded and its kernels compiled before workers fork from it.

Saves each worker the second that numba and pyarrow take to load, the memory of another copy, and, where numba's cache
is cold, a compilation of its own. What was loaded stays shared, and is no longer looked through for garbage.
"""

import gc
import socket

from pyspark import daemon

from merlot_spark import executor

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """pyspark's worker, without a traceback if the JVM has hung up: it does so once a task has failed elsewhere, and
    has told the driver why."""
    try:
        return _worker(sock, authenticated)
    except (ConnectionError, EOFError):
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    executor.warm()
    gc.freeze()
    daemon.manager()
