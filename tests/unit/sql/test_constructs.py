"""docs/sql.md lists the constructs of Calcite that `constructs.slt` shows to be answered, and those that it shows to be
refused."""

import re
from pathlib import Path

from tests.sql.slt_reader import Case, read_file

from merlot.sql.parse import parse_statement
from merlot.sql.unsupported_features import CONSTRUCTS
from merlot.tree.errors import UnsupportedSqlError

ROOT = Path(__file__).parents[3]


def cases(*, refused: bool) -> list[Case]:
    read = read_file(ROOT / "tests/sql/constructs.slt")
    return [case for case in read if (case.error is not None) == refused]


def listed(introduction: str) -> list[str]:
    """The code of the paragraph after the one that begins with `introduction`."""
    page = (ROOT / "docs/sql.md").read_text()
    section = page.partition("### Constructs of Calcite")[2]
    return re.findall("`([^`]+)`", section.partition(introduction)[2].split("\n\n")[1])


def feature_of(case: Case) -> str:
    assert case.error is not None
    return case.error[1].partition(": write")[0]


def test_the_page_lists_what_is_refused() -> None:
    assert set(listed("These are refused")) == {feature_of(case) for case in cases(refused=True)}


def test_the_page_lists_what_is_answered() -> None:
    texts = [case.sql for case in cases(refused=False)]
    for construct in listed("Of what Calcite"):
        words = re.findall(r"[A-Z]+|/\*\+|\{[a-z]+", construct)
        pattern = r"\b.*\b".join(map(re.escape, words)) if words[0].isalpha() else re.escape(words[0])
        assert any(re.search(pattern, text) for text in texts), construct


def test_each_construct_that_the_grammar_lacks_has_a_case() -> None:
    features = {feature.partition(": write")[0] for _, feature in CONSTRUCTS}
    assert features <= {feature_of(case) for case in cases(refused=True)}


def test_the_parser_shows_the_construct_that_it_refuses() -> None:
    num_shown = 0
    for case in cases(refused=True):
        try:
            parse_statement(case.sql)
        except UnsupportedSqlError as error:
            line, caret = error.excerpt.split("\n")
            assert line[caret.index("^")] != " ", case.sql
            num_shown += 1
    assert num_shown > 50
