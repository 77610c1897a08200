"""JSON_MATCH by Pinot's rules: paths, elements of lists, values as text, and what its texts may say."""

import pytest

from merlot.functions.json_filter import holds, parse
from merlot.tree.errors import SqlValidationError
from merlot.vectors.errors import LimitExceededError

ADAM = """{"name": "adam", "age": 30, "score": 1.5, "is": true, "none": null, "empty": [],
    "skills": ["english", "java"],
    "addresses": [{"country": "us", "number": 1}, {"country": "ca", "number": 2}],
    "deep": [[1, 2], [3]], "it's": "ok"}"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\"$.name\" = 'adam'", True),
        ("\"name\" = 'adam'", True),
        ("name = 'adam'", True),
        ("\"$.name\" = 'Adam'", False),
        ("\"$.name\" <> 'eve'", True),
        ("\"$.name\" != 'adam'", False),
        ("\"$.nobody\" <> 'adam'", False),
        ("\"$.none\" <> 'adam'", False),
        ("\"$.skills[*]\" <> 'java'", True),
        ("\"$.skills[*]\" NOT IN ('java', 'english')", False),
        ("\"$.skills[*]\" NOT IN ('java')", True),
        ("\"$.skills[1]\" <> 'java'", False),
        ("\"$.nobody[*]\" NOT IN ('java')", False),
        ('"$.addresses[*].country" <> \'us\' AND "$.addresses[*].number" = 2', True),
        ('"$.addresses[*].country" <> \'us\' AND "$.addresses[*].number" = 1', False),
        ('"$.nobody" <> \'adam\' OR "$.age" NOT IN (31, 32)', True),
        ('"$.age" = 30', True),
        ("\"$.age\" = '30'", True),
        ('"$.age" = 30.0', False),
        ('"$.age" > 29 AND "$.age" <= 30', True),
        ('"$.age" BETWEEN 31 AND 40', False),
        ('"$.age" NOT BETWEEN 31 AND 40', True),
        ("\"$.name\" >= 'a' AND \"$.name\" < 'b'", True),
        ('"$.name" > 5', False),
        ('"$.is" = TRUE', True),
        ("\"$.is\" = 'true'", True),
        ('"$.is" > 0', False),
        ('"$.score" = 1.5', True),
        ("\"$.name\" IN ('eve', 'adam')", True),
        ("\"$.name\" NOT IN ('eve', 'adam')", False),
        ('"$.name" IS NOT NULL', True),
        ('"$.none" IS NULL', True),
        ('"$.addresses" IS NULL', True),
        ('"$.empty[*]" IS NOT NULL', False),
        ("\"$.skills[*]\" = 'java'", True),
        ("\"$.skills[1]\" = 'java'", True),
        ("\"$.skills[0]\" = 'java'", False),
        ("\"$.skills[7]\" = 'java'", False),
        ("\"$.skills\" = 'java'", False),
        ('"$.deep[*][*]" = 3', True),
        ('"$.deep[0][*]" = 3', False),
        ('"$.addresses[*].country" = \'us\' AND "$.addresses[*].number" = 1', True),
        ('"$.addresses[*].country" = \'us\' AND "$.addresses[*].number" = 2', False),
        ('"$.addresses[*].country" = \'us\' AND "$.addresses[1].number" = 2', False),
        ("\"$.addresses[*].country\" = 'us' AND \"$.skills[*]\" = 'java'", True),
        ('("$.addresses[*].country" = \'us\' OR "$.age" = 7) AND "$.addresses[*].number" = 1', True),
        ('("$.addresses[*].country" = \'us\' OR "$.name" = \'adam\') AND "$.addresses[*].number" = 2', True),
        ("\"$.it's\" = 'ok'", True),
        ("\"$.name\" = 'it''s'", False),
    ],
)
def test_a_value_keeps_to_a_filter(text: str, expected: bool) -> None:
    assert holds(parse(text), ADAM) is expected


@pytest.mark.parametrize(
    ("text", "value"), [("\"$\" = 'a'", '"a"'), ('"$[0]" = 1', "[1]"), ('"$[*].a" = 1', '[{"b": 1}, {"a": 1}]')]
)
def test_a_path_may_begin_at_the_root(text: str, value: str) -> None:
    assert holds(parse(text), value)


@pytest.mark.parametrize("value", ["", "null", "{", '{"name": "adam"', "[" * 5000])
def test_what_is_no_json_has_no_values(value: str) -> None:
    assert not holds(parse('"$.name" IS NOT NULL'), value)
    assert holds(parse('"$.name" IS NULL'), value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ends too soon"),
        ('"$.a"', "ends too soon"),
        ('"$.a" = ', "ends too soon"),
        ("'a' = 1", "a path in double quotes"),
        ('"$.a" = "b"', "a string in quotes or a number"),
        ('"$..a" = 1', "no path"),
        ('"$.a[x]" = 1', "no path"),
        ('"$.a" = 1 extra', "nothing more is expected"),
        ('("$.a" = 1', ") is expected"),
        ("\"$.a\" BETWEEN 1 AND 'x'", "two numbers or two strings"),
        ('"$.a" NOT BETWEEN 1 AND 2 AND "$.b" = 2', "stand alone"),
        ('"$.a" IS NULL OR "$.b" = 2', "stand alone"),
        ('"$.a" = 1; DROP', "cannot read"),
        ("(" * 99 + '"$.a" = 1' + ")" * 99, "too deep"),
        (" OR ".join(['"$.a" = 1'] * 65), "more than 64"),
        ('"$' + ".a" * 65 + '" = 1', "no path"),
    ],
)
def test_a_text_that_is_no_filter_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SqlValidationError, match="json_match") as error:
        parse(text)
    assert problem in str(error.value)


def test_combining_the_elements_of_many_lists_has_an_end() -> None:
    value = '{"a": %s, "b": %s, "c": %s}' % ((str([1] * 200),) * 3)
    with pytest.raises(LimitExceededError):
        holds(parse('"$.a[*]" = 1 AND "$.b[*]" = 1 AND "$.c[*]" = 1'), value)
