"""Spark's Python worker daemon, with the segment builder loaded and its kernels compiled before workers fork from it.

This saves each worker the second in which numba and pyarrow load, the memory of another copy, and, if numba's cache is
cold, a compilation of its own. Loaded objects stay shared, and are no longer scanned for garbage.
"""

import gc
import socket

from pyspark import daemon

from merlot_spark import executor

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run pyspark's worker, without a traceback if the JVM has hung up: it does so once a task has failed elsewhere,
    and has told the driver why."""
    try:
        return _worker(sock, authenticated)
    except (ConnectionError, EOFError):
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    executor.warm()
    gc.freeze()
    daemon.manager()
