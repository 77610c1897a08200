"""Options that Pinot knows, by name: their values, and what is said of others."""

import re
from pathlib import Path

import pytest

from merlot.sql import query_options
from merlot.sql.query_options import KNOWN, QueryOptionError
from merlot.tree.errors import UnsupportedSqlError

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("enableNullHandling", "yes", "must be true or false"),
        ("skipsegmentpruning", "1", "must be true or false"),
        ("DROPRESULTS", "", "must be true or false"),
        ("useStarTree", "tru", "must be true or false"),
        ("timeoutMs", "soon", "must be a whole number"),
        ("numReplicaGroupsToQuery", "1.5", "must be a whole number"),
        ("minSegmentGroupTrimSize", "٣", "must be a whole number"),
        ("maxServerResponseSizeBytes", "0", "must be a whole number above 0"),
        ("joinOverflowMode", "ignore", "must be THROW or BREAK"),
        ("inPredicateLookupAlgorithm", "hash", "must be DIVIDE_BINARY_SEARCH"),
        ("vectorDistanceThreshold", "near", "must be a number"),
        ("maxRowsInJoin", "9" * 5_000, "must be a whole number"),
        ("trace", "perhaps\nnot", "must be true or false"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_in_one_line(name: str, value: str, words: str) -> None:
    with pytest.raises(QueryOptionError, match=f"{name} {words}") as caught:
        query_options.check([(name, value)])
    assert caught.value.code == 150
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_values_are_read_without_regard_to_case() -> None:
    query_options.check(
        [("ENABLENULLHANDLING", "True"), ("skipSegmentPruning", "FALSE"), ("joinoverflowmode", "break")]
    )
    query_options.check([("minServerGroupTrimSize", "-1"), ("skipIndexes", "a=inverted&b=range"), ("nobody", "knows")])


@pytest.mark.parametrize(
    ("name", "harmless", "harmful"),
    [
        ("getCursor", "false", "true"),
        ("autorewriteaggregationtype", "FALSE", "True"),
        ("filteredAggregationsSkipEmptyGroups", "false", "true"),
        ("sampler", "", "tenth"),
        ("database", "default", "other"),
    ],
)
def test_what_would_answer_another_question_is_refused_by_its_name(name: str, harmless: str, harmful: str) -> None:
    query_options.check([(name, harmless)])
    with pytest.raises(UnsupportedSqlError, match=f"(?i)query option {name}={harmful}"):
        query_options.check([(name, harmful)])


def test_unknown_names_are_warned_of_with_the_nearest_that_there_is() -> None:
    assert query_options.warnings([(name, "1") for name in KNOWN]) == ()
    assert query_options.warnings([("timeoutMS", "1"), ("timeOut", "1"), ("zzz", "1")]) == (
        "unknown query option ignored name=timeOut; did you mean timeoutMs?",
        "unknown query option ignored name=zzz",
    )


def test_many_unknown_names_make_a_short_warning() -> None:
    lines = query_options.warnings([(f"{'x' * 5_000}{number}", "1") for number in range(8_000)])
    assert len(lines) == query_options.MAX_SHOWN + 1
    assert max(map(len, lines)) < 200
    assert query_options.warnings([("a\nb", "1")]) == ("unknown query option ignored name=a b",)
    assert lines[-1] == "unknown query options ignored number=7995"


def test_the_page_names_every_option_and_no_other() -> None:
    section = PAGE.read_text().partition("## Query options\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(option.name for option in KNOWN.values())
