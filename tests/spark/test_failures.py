"""What goes wrong in Spark, its JVM and its Python workers is told with its cause, and to whoever must act."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from merlot.errors import (
    CorruptionError,
    InvalidInputError,
    MerlotError,
    NotFoundError,
    UnavailableError,
)
from merlot.ingest.bad_rows import BadRows
from merlot.ingest.batch import BadRowsError
from merlot_spark import failures

Batches = Iterator[pa.RecordBatch]

TRACE = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: External scheduler cannot be instantiated
\tat org.apache.spark.SparkContext$.org$apache$spark$SparkContext$$createTaskScheduler(SparkContext.scala:3401)
Caused by: java.lang.reflect.InvocationTargetException
\tat java.base/java.lang.reflect.Constructor.newInstance(Constructor.java:481)
\t... 23 more
Caused by: io.vertx.core.impl.NoStackTraceTimeoutException: The timeout of 10000 ms has been exceeded
"""


def test_of_a_java_trace_the_error_and_its_last_cause_are_told() -> None:
    assert failures.java_reason(TRACE) == (
        "org.apache.spark.SparkException: External scheduler cannot be instantiated; caused by "
        "io.vertx.core.impl.NoStackTraceTimeoutException: The timeout of 10000 ms has been exceeded"
    )
    assert failures.java_reason("gone") == "gone"


def cast_wrongly(_: Batches) -> Batches:
    yield pa.record_batch({"id": pa.array(["+5"]).cast(pa.int64())})


def raise_from_a_cause(_: Batches) -> Batches:
    try:
        pa.array(["+5"]).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise CorruptionError("file is torn file=x.mseg\nsecond line") from error
    yield pa.record_batch({})


def raise_a_family_of_its_own(_: Batches) -> Batches:
    raise BadRowsError("too many bad rows table=t", BadRows())
    yield


def raise_a_bug(_: Batches) -> Batches:
    raise KeyError("nope")
    yield


def raise_without_a_word(_: Batches) -> Batches:
    raise MemoryError
    yield


def die(_: Batches) -> Batches:
    os._exit(9)
    yield


@pytest.mark.parametrize(
    ("work", "family", "text"),
    [
        (cast_wrongly, InvalidInputError, r"^a value cannot be stored: ArrowInvalid: Failed to parse string: '\+5' as"),
        (raise_from_a_cause, CorruptionError, r"^file is torn file=x\.mseg$"),
        (raise_a_family_of_its_own, InvalidInputError, r"^too many bad rows table=t$"),
        (raise_a_bug, UnavailableError, r"^the Spark job failed: KeyError: 'nope'$"),
        (raise_without_a_word, UnavailableError, r"^the Spark job failed: MemoryError$"),
        (die, UnavailableError, r"^the Spark job failed: .*Python worker exited unexpectedly"),
    ],
)
def test_what_fails_in_a_python_worker_is_told_with_its_cause(
    spark: SparkSession, work: Callable[[Batches], Batches], family: type[MerlotError], text: str
) -> None:
    with pytest.raises(MerlotError, match=text) as told, failures.translated():
        spark.range(1).mapInArrow(work, "id long").collect()
    assert type(told.value) is family


def write_a_readme_beside(folder: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), folder / "1.parquet")
    (folder / "README.md").write_text("no Parquet at all")


def write_two_types(folder: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), folder / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([1 << 40], pa.int64())}), folder / "2.parquet")


def write_a_torn_file(folder: Path) -> None:
    pq.write_table(pa.table({"a": list(range(100_000))}), folder / "1.parquet")
    data = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(data[:200] + bytes(2000) + data[2200:])


@pytest.mark.parametrize(
    ("write", "family", "text"),
    [
        (write_a_readme_beside, InvalidInputError, r"README\.md.*; caused by .* is not a Parquet file"),
        (write_two_types, InvalidInputError, r"2\.parquet.* column \[a\]\. Expected Spark type int, .* INT64"),
        (write_a_torn_file, UnavailableError, r"1\.parquet.*; caused by java.io.IOException: FAILED_TO_UNCOMPRESS"),
    ],
)
def test_files_that_the_jvm_cannot_read_are_named_with_the_cause(
    spark: SparkSession, tmp_path: Path, write: Callable[[Path], None], family: type[MerlotError], text: str
) -> None:
    write(tmp_path)
    with pytest.raises(MerlotError, match=text) as told, failures.translated():
        spark.read.parquet(str(tmp_path)).collect()
    assert type(told.value) is family
    assert "\n" not in str(told.value)
    assert "SQLSTATE" not in str(told.value)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("text > 0", r"declared: The value 'abc' of the type \"STRING\" cannot be cast .*; in text > 0$"),
        ("1 / id > 0", r"declared: Division by zero.*; in 1 / id > 0$"),
    ],
)
def test_expressions_that_fail_on_a_value_are_told_with_the_value(
    spark: SparkSession, expression: str, text: str
) -> None:
    with pytest.raises(InvalidInputError, match=text), failures.translated():
        spark.range(1).selectExpr("id", "IF(id = 0, 'abc', '1') text").filter(expression).collect()


def test_what_is_ours_already_stays_what_it_is() -> None:
    with pytest.raises(NotFoundError, match="no source files"), failures.translated():
        raise NotFoundError("no source files uri=x")


KILLED = """
import os, signal, sys, time
from pyspark import TaskContext
from merlot.errors import MerlotError
from merlot_spark import failures
from merlot_spark.session import create_session

def work(batches):
    for batch in batches:
        if TaskContext.get().partitionId() == 0:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(100):
            time.sleep(0.05)
            yield batch

spark = create_session("local[2]", is_short=True)
try:
    with failures.translated():
        spark.range(0, 100_000, 1, 2).mapInArrow(work, "id long").count()
except MerlotError as error:
    print(error, file=sys.stderr)
spark.stop()
"""


@pytest.mark.slow("it starts a Spark of its own; whether the cause is told, a session that is there shows too")
def test_of_a_worker_that_is_killed_beside_another_only_the_cause_is_shown() -> None:
    answer = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=True)
    [line] = answer.stderr.splitlines()
    assert line.startswith("the Spark job failed: ")
    assert "Python worker exited unexpectedly" in line
