"""TEXT_MATCH in Lucene's notation: words, phrases, beginnings, and what of the notation is refused."""

import pytest

from merlot.functions.text_filter import holds, parse, words_of
from merlot.tree.errors import SqlValidationError

TEXT = "Distributed Systems, in Java: streams of rows (and a café). It's 日本語 tab_le 3.14"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("java", True),
        ("JAVA", True),
        ("jav", False),
        ("jav*", True),
        ("java AND rows", True),
        ("java AND python", False),
        ("java OR python", True),
        ("java python", True),
        ("java && python", False),
        ("python || rows", True),
        ("java AND NOT python", True),
        ("java AND NOT (python OR rows)", False),
        ("java AND NOT python AND rows", True),
        ('"distributed systems"', True),
        ('"systems distributed"', False),
        ('"systems in java"', True),
        ('"systems java"', False),
        ('(python OR "streams of") AND row*', True),
        ("python OR java AND nothing", False),
        ("CAFÉ", True),
        ("日本", True),
        ("本日", False),
        ("it's", True),
        ("s'it", False),
        ("tab_le", True),
        ("tab", False),
        ("3.14", True),
        ("14.3", False),
        ("and", True),
    ],
)
def test_a_text_keeps_to_a_query(query: str, expected: bool) -> None:
    assert holds(parse(query), TEXT) is expected


def test_words_are_runs_of_letters_digits_and_underscores_and_single_ideographs() -> None:
    assert words_of("Aé_1 b-c 日本 x日y") == ["aé_1", "b", "c", "日", "本", "x", "日", "y"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "is expected at 'the end'"),
        ("NOT java", "AND NOT"),
        ("java AND", "is expected at 'the end'"),
        ("java AND AND rows", "is expected at 'AND'"),
        ("java OR NOT rows", "AND NOT"),
        ("(java", ") is expected"),
        ("java)", "nothing more is expected"),
        ('"java', "cannot read"),
        ("title:java", "not known here"),
        ("java~2", "not known here"),
        ("java^3", "not known here"),
        ("+java", "not known here"),
        ("-java", "not known here"),
        ("/ja.a/", "not known here"),
        ("ja?a", "not known here"),
        ("*ava", "not known here"),
        ("j*a", "not known here"),
        ("[a TO b]", "not known here"),
        ("a.b*", "beginning of one word"),
        ("...", "no word"),
        ('""', "no word"),
        ("(" * 99 + "a" + ")" * 99, "too deep"),
        ("a " * 2000, "more than 1024"),
    ],
)
def test_a_text_that_is_no_query_is_refused(query: str, problem: str) -> None:
    with pytest.raises(SqlValidationError, match="text_match") as error:
        parse(query)
    assert problem in str(error.value)
