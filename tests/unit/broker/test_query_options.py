"""Options of a request and the deadline they make."""

import pytest

from merlot.broker.planning import options
from merlot.sql.query_options import QueryOptionError


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
    assert options.timeout_ms({"timeoutMs": "86400000"}, None) == 86_400_000
    with pytest.raises(QueryOptionError, match="got=501 limit=500"):
        options.timeout_ms({"timeoutMs": "501"}, 500)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5", "", "86400001", "9" * 19, "9" * 5_000, "٣", "²"])
def test_timeout_that_is_no_number_of_a_day_is_refused(value: str) -> None:
    with pytest.raises(QueryOptionError, match="timeoutMs must be a whole number from 1 to 86400000") as caught:
        options.timeout_ms({"timeoutMs": value}, None)
    assert len(str(caught.value)) < 200


def test_options_of_pages_are_refused() -> None:
    with pytest.raises(QueryOptionError, match="too long"):
        options.parse("a=1;" * 10_000)
