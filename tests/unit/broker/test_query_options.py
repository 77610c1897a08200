"""Options of a request and the deadline they make."""

import pytest

from merlot.broker.planning import options
from merlot.spec.table import QueryLimits
from merlot.sql.query_options import QueryOptionError
from merlot.tree.nodes import BoundQuery


def test_options_may_begin_with_a_semicolon() -> None:
    wanted = {"timeoutMs": "5000", "useMultistageEngine": "true"}
    assert options.parse(";timeoutMs=5000; useMultistageEngine = true;") == wanted
    assert options.parse("") == {}


@pytest.mark.parametrize("text", ["timeoutMs", "=5", "a=1;b"])
def test_option_that_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(QueryOptionError):
        options.parse(text)


def test_querys_own_timeout_is_at_most_the_tables() -> None:
    assert options.timeout_ms({"TIMEOUTMS": "7"}, 500) == 7
    assert options.timeout_ms({"timeoutMs": "500"}, 500) == 500
    assert options.timeout_ms({}, 500) == 500
    assert options.timeout_ms({}, None) == options.DEFAULT_TIMEOUT_MS
    assert options.timeout_ms({"timeoutMs": "501"}, 500) == 500
    assert options.timeout_ms({"timeoutMs": "86400000"}, None) == 86_400_000
    assert options.timeout_ms({"timeoutMs": "9" * 19}, None) == 86_400_000


LIMITS = QueryLimits(timeout_ms=500, max_bytes=1_000, max_groups=10)


def lines(limits: QueryLimits, **wanted: str) -> tuple[str, ...]:
    return options.wishes(BoundQuery("t", (), options=tuple(wanted.items())), limits).warnings


def test_option_above_a_limit_is_told_of() -> None:
    assert lines(LIMITS, timeoutMs="60000") == (
        "timeoutMs=60000 is above the table's limits.timeoutMs=500, which applies",
    )
    assert lines(LIMITS, numGroupsLimit="11", maxServerResponseSizeBytes="1001", maxQueryResponseSizeBytes="1001") == (
        "maxServerResponseSizeBytes=1001 is above the table's limits.maxBytes=1000, which applies",
        "maxQueryResponseSizeBytes=1001 is above the table's limits.maxBytes=1000, which applies",
        "numGroupsLimit=11 is above the table's limits.maxGroups=10, which applies",
    )
    assert not lines(LIMITS, timeoutMs="500", numGroupsLimit="10", maxQueryResponseSizeBytes="1000")
    assert not lines(QueryLimits(), timeoutMs="60000", numGroupsLimit="11", maxServerResponseSizeBytes="1001")
    assert lines(QueryLimits(), timeoutMs="86400001") == (
        "timeoutMs=86400001 is above the longest time of a query, 86400000 ms, which applies",
    )


def test_every_limit_that_an_option_may_pass_is_told_of() -> None:
    of_no_option = {"max_rows", "max_queries_per_second"}
    assert {limit.field for limit in options.LIMITED} == set(QueryLimits.model_fields) - of_no_option


def test_least_limits_of_several_tables_count() -> None:
    others = QueryLimits(timeout_ms=700, max_bytes=10)
    assert options.least([LIMITS, others]) == QueryLimits(timeout_ms=500, max_bytes=10, max_groups=10)
    assert options.least([]) == QueryLimits()


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5", "", "9" * 5_000, "٣", "²"])
def test_timeout_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(QueryOptionError, match="timeoutMs must be a whole number above 0") as caught:
        options.timeout_ms({"timeoutMs": value}, None)
    assert len(str(caught.value)) < 200


def test_options_of_pages_are_refused() -> None:
    with pytest.raises(QueryOptionError, match="too long"):
        options.parse("a=1;" * 10_000)
