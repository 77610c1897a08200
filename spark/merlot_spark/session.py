"""Spark session of Merlot's jobs: quiet, in UTC, with Arrow. A local session binds to the loopback address.

A session that exists already is never replaced. Not thread-safe: one session per process, as in Spark.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from merlot_spark import jvm

BATCH_ROWS = 50_000
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SHORT_JVM = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options by which the JVM compiles quickly rather than well: its CPU time in the flights job was 14 s instead of 25
s."""
SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
    # The shuffle carries parcels, which are compressed as they are made.
    "spark.shuffle.compress": "false",
}
KUBERNETES_TIMEOUTS: Mapping[str, str] = {
    "spark.kubernetes.driver.connectionTimeout": "60000",
    "spark.kubernetes.driver.requestTimeout": "60000",
}
"""Timeouts in milliseconds. With Spark's default of ten seconds, a slow answer of a busy API server ends the job."""
WARM_WORKERS: Mapping[str, str] = {"spark.python.daemon.module": "merlot_spark.worker_daemon"}
"""Setting for Python workers that fork from one daemon, which has loaded the segment builder. Used only where executors
are sure to have that module."""


REPEATING_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of pyspark that repeat an error as 9 KB of JSON, with the frames of the JVM's stack."""


def create_session(
    master: str = "local[2]", *, memory: str = "1g", is_short: bool = False, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session for build jobs. `local[N]` runs on this machine; any other master sets its own addresses.

    `is_short` is for local jobs of less than a minute or so: see SHORT_JVM."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name in REPEATING_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    chosen = dict(SETTINGS)
    if master.startswith(("local", "k8s:")):
        chosen |= WARM_WORKERS
    if master.startswith("k8s:"):
        chosen |= KUBERNETES_TIMEOUTS
    if master.startswith("local"):
        os.environ["JAVA_HOME"] = str(jvm.java_home())
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= LOCAL_SETTINGS
        chosen["spark.driver.memory"] = memory
        chosen["spark.driver.extraJavaOptions"] = (
            f"-Dlog4j2.configurationFile={_log4j()}{SHORT_JVM if is_short else ''}"
        )
        chosen["spark.sql.warehouse.dir"] = _warehouse()
    chosen |= settings or {}
    builder = SparkSession.builder.master(master).appName("merlot")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@functools.cache
def _warehouse() -> str:
    """Make a folder for tables that users of the session create, which is removed at the end of the process. Its name
    cannot be guessed: a folder of a fixed name might be another user's."""
    folder = tempfile.mkdtemp(prefix="merlot-warehouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _log4j() -> str:
    return Path(str(resources.files("merlot_spark") / "log4j2.properties")).as_uri()
