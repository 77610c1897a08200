"""Logs in two forms, metrics in one registry."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from merlot.telemetry import SERVER_QUERIES, LogFormat, configure_logging, render_metrics


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_a_line_tells_when_how_bad_where_and_what() -> None:
    stream = io.StringIO()
    configure_logging("INFO", stream=stream)
    logging.getLogger("merlot.server.table_data_manager").info("segment loaded segment=%s", "a@1")
    logging.getLogger("merlot.server.table_data_manager").debug("not shown")
    moment, _, rest = stream.getvalue().partition(" INFO ")
    assert rest == "server.table_data_manager segment loaded segment=a@1\n"
    assert len(moment) == len("2026-01-31 12:00:00.123")


def test_json_logs_carry_facts_and_tracebacks_on_one_line() -> None:
    stream = io.StringIO()
    configure_logging("INFO", LogFormat.JSON, stream=stream, role="server")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("merlot.x").exception("it failed")
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["role"], entry["msg"]) == ("ERROR", "server", "it failed")
    assert "ValueError: broken" in entry["traceback"]


def test_an_error_that_comes_with_every_query_shows_its_traceback_once() -> None:
    stream = io.StringIO()
    configure_logging("INFO", stream=stream)
    for request in range(3):
        try:
            raise ValueError("100 % broken")
        except ValueError:
            logging.getLogger("merlot.x").exception("query failed by a bug request=%d", request)
    assert stream.getvalue().count("Traceback") == 1
    first, *_, second, third = stream.getvalue().splitlines()
    assert first.endswith("query failed by a bug request=0")
    assert second.endswith("query failed by a bug request=1 error=ValueError('100 % broken')")
    assert "request=2" in third


def test_metrics_are_rendered_for_prometheus() -> None:
    SERVER_QUERIES.labels("t_OFFLINE", 0).inc()
    assert 'merlot_server_queries_total{code="0",table="t_OFFLINE"}' in render_metrics().decode()
