"""Spark's Python worker daemon, with the segment builder loaded and its kernels compiled before workers fork from it.

Saves each worker the second that numba and pyarrow take to load, the memory of another copy, and, where numba's cache
is cold, a compilation of its own.
"""

from pyspark import daemon

from merlot_spark import executor

if __name__ == "__main__":
    executor.warm()
    daemon.manager()
