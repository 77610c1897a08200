"""Spark's Python worker daemon, with the segment builder loaded and its kernels compiled before workers fork from it.

Saves each worker the second that numba and pyarrow take to load, the memory of another copy, and, where numba's cache
is cold, a compilation of its own. What was loaded stays shared, and is no longer looked through for garbage.
"""

import gc

from pyspark import daemon

from merlot_spark import executor

if __name__ == "__main__":
    executor.warm()
    gc.freeze()
    daemon.manager()
