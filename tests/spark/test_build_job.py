"""What a job tells when it fails: in a termination message, for people."""

import json
from pathlib import Path

from merlot.ingest.bad_rows import BadRow, BadRows
from merlot.ingest.batch import BadRowsError
from merlot_spark import build_job

TRACE = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: External scheduler cannot be instantiated
\tat org.apache.spark.SparkContext$.org$apache$spark$SparkContext$$createTaskScheduler(SparkContext.scala:3401)
Caused by: java.lang.reflect.InvocationTargetException
\tat java.base/java.lang.reflect.Constructor.newInstance(Constructor.java:481)
\t... 23 more
Caused by: io.vertx.core.impl.NoStackTraceTimeoutException: The timeout of 10000 ms has been exceeded
"""


def test_of_a_java_trace_the_error_and_its_last_cause_are_told() -> None:
    assert build_job.java_reason(TRACE) == (
        "org.apache.spark.SparkException: External scheduler cannot be instantiated; caused by "
        "io.vertx.core.impl.NoStackTraceTimeoutException: The timeout of 10000 ms has been exceeded"
    )
    assert build_job.java_reason("gone") == "gone"


def test_a_job_that_fails_for_bad_rows_names_their_columns_in_one_line() -> None:
    samples = (BadRow("amount: no LONG", (("amount", "abc"),)), BadRow("amount: no LONG", (("amount", "def"),)))
    bad = BadRows({"at: no TIMESTAMP": 1, "amount: no LONG": 7}, samples)
    error = BadRowsError("too many bad rows table=t\n8 bad rows left out:", bad)
    assert build_job._with_causes(error) == (
        'too many bad rows table=t; 7 × amount: no LONG {"amount": "abc"}; 1 × at: no TIMESTAMP'
    )


def test_a_report_fits_a_termination_message(tmp_path: Path) -> None:
    path = tmp_path / "report"
    samples = [{"reason": "not a number", "row": {"code": "x" * 900}} for _ in range(20)]
    build_job._write_report(path, {"error": "e" * 9000, "badRows": {"count": 20, "byReason": {}, "samples": samples}})
    assert len(path.read_bytes()) < 4096
    assert json.loads(path.read_text())["badRows"] == {"count": 20}
    build_job._write_report(path, {"rowsIn": 1, "badRows": {"count": 1, "byReason": {"r": 1}, "samples": samples}})
    assert json.loads(path.read_text()) == {"rowsIn": 1, "badRows": {"count": 1, "byReason": {"r": 1}}}
