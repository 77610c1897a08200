"""What a job tells when it fails: in a termination message, for people."""

import json
from pathlib import Path

from merlot.ingest.bad_rows import BadRow, BadRows
from merlot.ingest.batch import BadRowsError
from merlot_spark import build_job


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
