"""The log of queries: one entry per normal form, bounded, with constants only where they are wanted."""

import pytest

from merlot.broker.query_errors import named
from merlot.broker.query_log import MOST_CHARS, MOST_PENDING, QueryLog
from merlot.broker.response import BrokerAnswer
from merlot.broker.settings import BrokerSettings
from merlot.codes import QueryErrorCode
from merlot.query.answer.result import QueryStats
from merlot.sql.normal_form import normal_form
from merlot.testing.clock import FakeClock
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS


def answered(*tables: str, docs: int = 10) -> BrokerAnswer:
    stats = QueryStats(num_docs_scanned=docs, num_entries_scanned_in_filter=2 * docs, num_segments_processed=3)
    return BrokerAnswer(request_id="1", client_request_id=None, broker_id="b", stats=stats, tables=tables)


def a_log(clock: FakeClock | None = None, **settings: int) -> QueryLog:
    return QueryLog(clock or FakeClock(), BrokerSettings(**settings))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t WHERE b = 7 AND c='x''y'", "SELECT a FROM t WHERE b = ? AND c=?"),
        ("SELECT  a\n FROM t -- why\n WHERE b IN (1, -2,3) LIMIT 5;", "SELECT a FROM t WHERE b IN (?) LIMIT ?"),
        ("""SELECT "7" , c2 FROM t /* 'n' */ WHERE x > 1.5e3""", """SELECT "7" , c2 FROM t WHERE x > ?"""),
        ("SELECT a FROM t WHERE b IN (1)", "SELECT a FROM t WHERE b IN (?)"),
        ("SELECT 'it''s -- no comment' FROM t", "SELECT ? FROM t"),
    ],
)
def test_a_normal_form_has_no_constants(sql: str, expected: str) -> None:
    assert normal_form(sql) == expected


async def test_queries_that_differ_in_constants_are_one_entry() -> None:
    log = a_log(query_log_samples=2)
    for number in (1, 2, 3):
        log.observe(f"SELECT a FROM t WHERE b = {number}", "", answered("t"), 0.002)
    log.observe("SELECT a FROM t", "", answered("t"), 0.5)
    log.observe("SELECT a FROM u", "", answered("u"), 0.5)
    first, second = log.report("t")["queries"]
    assert (first["query"], first["count"], first["timeMs"]) == ("SELECT a FROM t", 1, 500.0)
    assert (second["query"], second["count"], second["timeMs"]) == ("SELECT a FROM t WHERE b = ?", 3, 6.0)
    assert (second["numDocsScanned"], second["numEntriesScannedInFilter"], second["numSegmentsProcessed"]) == (
        30,
        60,
        9,
    )
    assert second["samples"] == ["SELECT a FROM t WHERE b = 2", "SELECT a FROM t WHERE b = 3"]


async def test_options_that_only_tell_who_asks_make_no_other_entry() -> None:
    log = a_log()
    for number in range(3):
        options = f"clientQueryId=q{number};enableNullHandling=true;timeoutMs={number + 1}"
        log.observe("SELECT a FROM t", options, answered("t"), 0.1)
    (entry,) = log.report("t")["queries"]
    assert (entry["count"], entry["options"]) == (3, "enableNullHandling=true")


async def test_without_samples_no_constant_is_kept() -> None:
    log = a_log(query_log_samples=0)
    log.observe("SELECT a FROM t WHERE b = 'secret'", "", answered("t"), 0.1)
    assert "secret" not in repr(log.report("t"))
    assert log.report("t")["queries"][0]["samples"] == []


async def test_a_log_of_no_forms_keeps_nothing() -> None:
    log = a_log(query_log_forms=0)
    log.observe("SELECT a FROM t", "", answered("t"), 0.1)
    assert log.report("t")["queries"] == []


async def test_failed_and_very_long_queries_are_left_out() -> None:
    log = a_log()
    failed = answered("t")
    failed.exceptions = (named(QueryErrorCode.INTERNAL, "no"),)
    log.observe("SELECT a FROM t", "", failed, 0.1)
    log.observe("SELECT a FROM t" + " " * MOST_CHARS, "", answered("t"), 0.1)
    assert log.report("t")["queries"] == []


async def test_queries_beyond_a_burst_are_counted_by_those_that_were_looked_at() -> None:
    log = a_log()
    for _ in range(4 * MOST_PENDING):
        log.observe("SELECT a FROM t", "", answered("t"), 0.001)
    (entry,) = log.report("t")["queries"]
    assert entry["count"] == 4 * MOST_PENDING
    assert entry["timeMs"] == pytest.approx(4 * MOST_PENDING)


async def test_the_forms_that_were_asked_longest_ago_go_first() -> None:
    log = a_log(query_log_forms=2)
    for name in ("a", "b", "a", "c"):
        log.observe(f"SELECT {name} FROM t", "", answered("t"), 0.1)
        log.report("t")
    assert {one["query"] for one in log.report("t")["queries"]} == {"SELECT a FROM t", "SELECT c FROM t"}


async def test_a_day_is_kept_beside_the_one_that_runs_and_then_goes() -> None:
    clock = FakeClock()
    log = a_log(clock)
    seen = []
    for day in range(3):
        log.observe(f"SELECT d{day} FROM t", "", answered("t"), 0.1)
        seen.append({one["query"] for one in log.report("t")["queries"]})
        clock.advance(DAY_MS / 1000)
    assert [len(one) for one in seen] == [1, 2, 2]
    assert "SELECT d0 FROM t" not in seen[-1]


async def test_queries_are_sorted_in_by_themselves() -> None:
    log = a_log()
    log.observe("SELECT a FROM t", "", answered("t"), 0.1)
    await until(lambda: log._pending == [])
    log.close()
