"""ClickHouse inside the process (chDB), asked ClickBench's queries: a peer that is measured where it is installed.

`make bench-clickbench` installs it, the extra `peers`: its 800 MB are nothing that tests need. Its answers are not
compared: averages of large whole numbers overflow there, and times are written otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.clickbench_queries import Query
from tests.bench.report import median_ms

SETTINGS = "SETTINGS max_threads = {threads}, output_format_json_quote_64bit_integers = 0, session_timezone = 'UTC'"
FORMAT = "JSONCompactEachRow"


class Chdb:
    """A MergeTree without an order, as DuckDB's table has none, filled from a Parquet file."""

    def __init__(self, rows: Path, threads: int) -> None:
        """Raises ImportError where chDB is not installed."""
        from chdb.session import Session

        self._session = Session()
        self._settings = SETTINGS.format(threads=threads)
        self._session.query("CREATE DATABASE bench")
        self._session.query(
            "CREATE TABLE bench.hits ENGINE = MergeTree ORDER BY tuple() AS "
            f"SELECT * FROM file('{rows}', Parquet) SETTINGS schema_inference_make_columns_nullable = 0"
        )

    def median_ms(self, query: Query, repeats: int) -> float:
        text = f"{_clickhouse(query.sql)} {self._settings}"
        return median_ms(lambda: self._session.query(text, FORMAT).bytes(), repeats)

    def close(self) -> None:
        self._session.close()


def opened(rows: Path, threads: int) -> Chdb | None:
    """None where it is not installed, and a line that says so."""
    try:
        return Chdb(rows, threads)
    except ImportError:
        print("chDB is not installed (pip install -e '.[peers]'): left out", file=sys.stderr)
        return None


def _clickhouse(text: str) -> str:
    """Where ClickHouse says it otherwise than Pinot."""
    text = (
        text.replace("FROM hits", "FROM bench.hits")
        .replace("REGEXP_REPLACE", "replaceRegexpOne")
        .replace("'$1'", r"'\\1'")
    )
    return text.replace("DATETRUNC('MINUTE', EventTime)", "toStartOfMinute(EventTime)").replace(r"\.", r"\\.")
