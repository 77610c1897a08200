"""Spark's Python worker daemon, with the segment builder loaded before the workers fork from it.

Saves each worker the second that numba and pyarrow take to load, and the memory of another copy.
"""

from pyspark import daemon

import merlot_spark.executor

if __name__ == "__main__":
    assert merlot_spark.executor
    daemon.manager()
