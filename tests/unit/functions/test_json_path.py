"""JSON paths find what Jayway's documentation and tests say of the document that its README has."""

from __future__ import annotations

import pytest

from merlot.functions.json_path import ABSENT, parse_path
from merlot.functions.registry import BY_NAME
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Literal
from merlot.tree.types import STRING
from merlot.vectors.vector import constant

BOOKS = [
    {"category": "reference", "author": "Nigel Rees", "title": "Sayings of the Century", "price": 8.95},
    {"category": "fiction", "author": "Evelyn Waugh", "title": "Sword of Honour", "price": 12.99},
    {"category": "fiction", "author": "Herman Melville", "title": "Moby Dick", "isbn": "0-553-21311-3", "price": 8.99},
    {"category": "fiction", "author": "J. R. R. Tolkien", "title": "LotR", "isbn": "0-395-19395-8", "price": 22.99},
]
BICYCLE = {"color": "red", "price": 19.95}
STORE = {"store": {"book": BOOKS, "bicycle": BICYCLE}, "expensive": 10}
AUTHORS = [book["author"] for book in BOOKS]

FINDS = {
    "$": STORE,
    "$.store.book[*].author": AUTHORS,
    "$..author": AUTHORS,
    "$.store.*": [BOOKS, BICYCLE],
    "$.store..price": [8.95, 12.99, 8.99, 22.99, 19.95],
    "$..book[2]": [BOOKS[2]],
    "$..book[-2]": [BOOKS[-2]],
    "$..book[0,1]": BOOKS[:2],
    "$..book[:2]": BOOKS[:2],
    "$..book[1:2]": BOOKS[1:2],
    "$..book[-2:]": BOOKS[-2:],
    "$..book[2:]": BOOKS[2:],
    "$..book[?(@.isbn)]": BOOKS[2:],
    "$.store.book[?(@.price < 10)]": [BOOKS[0], BOOKS[2]],
    "$..book[?(@.price <= $['expensive'])]": [BOOKS[0], BOOKS[2]],
    "$..[?(@.color == 'red')]": [BICYCLE],
    "$.store.bicycle[?(@.color == 'red')].price": [19.95],
    "$.store.book[?(@.category == 'fiction' && !(@.price > 10 || @.isbn == null))].title": ["Moby Dick"],
    "$.store.book[?(@.author in ['Evelyn Waugh', 'Herman Melville'])]['price']": [12.99, 8.99],
    "$.store.book[?(@.isbn nin ['0-553-21311-3'])].price": [8.95, 12.99, 22.99],
    "$.store.book[?(@.title contains 'Century')].price": [8.95],
    "$.store.book[?(@.isbn != '0-553-21311-3')].price": [8.95, 12.99, 22.99],
    "$['store']['bicycle']": BICYCLE,
    "$.store.book.length()": 4,
    "$.store.book[0].title.length()": 22,
    "$.store.bicycle['color','price']": BICYCLE,
    "$.store.book[0:2]['title','isbn']": [{"title": BOOKS[0]["title"]}, {"title": BOOKS[1]["title"]}],
    "$['store','expensive']['bicycle']": [BICYCLE],
    "$.store.book[9]": ABSENT,
    "$.store.nothing": ABSENT,
    "$.store.book.title": ABSENT,
    "$..nothing": [],
    "$.expensive[*]": [],
}
REFUSED = [
    "",
    "store",
    "$.",
    "$store",
    "$.a[",
    "$.a[?(@.b]",
    "$.a[?(@.b ==)]",
    "$.a[?('x')]",
    "$.a[?(@.b =~ /x/)]",
    "$.a[?(@..b == 1)]",
    "$.a*",
    "$..a.length()",
    "$.a.length().b",
    "$.a.sum()",
    "$..a..b..c",
    "$" + "[0,0]" * 12,
    "$.a[?(" + "!" * 40 + "@.b)]",
    "$" + "[?(@" * 200,
    "$" + "[?(@.." * 150,
    "$" + "[?(@" * 4 + "[0]" + ")]" * 4,
    "$" + "." * 900,
    "$..[" + ",".join("0" * 240) + "]..[" + ",".join("0" * 240) + "]",
    "$..['a','b']" + "[0,1]" * 9,
    "$." + "a" * 2_000,
]


@pytest.mark.parametrize("path", FINDS)
def test_a_path_finds_what_it_finds_in_jayway(path: str) -> None:
    assert parse_path(path).value(STORE) == FINDS[path]


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(SqlValidationError, match="JSON path"):
        parse_path(path)


@pytest.mark.parametrize(
    ("path", "limit"),
    {
        "$..a..b..c": "2 times ..",
        "$" + "[0,0]" * 12: "1000 combinations",
        "$..[0,0]" + "[0,0]" * 9: "1000",
    }.items(),
)
def test_a_path_that_finds_too_much_is_refused_for_the_limit_that_it_exceeds(path: str, limit: str) -> None:
    with pytest.raises(SqlValidationError, match=f"limit={limit}"):
        parse_path(path)


@pytest.mark.parametrize(
    ("path", "most_repeats"),
    {
        "$.a[0]['b','c'].d": 1,
        "$[0,1,2]": 1,
        "$[0,1,0]": 2,
        "$[0,-1,-1]": 3,
        "$['a','b','a'].c": 2,
        "$['a','a']": 1,
        "$..[0,0,0]..[0,0]": 6,
        "$..a": 1,
    }.items(),
)
def test_the_bound_of_a_result_counts_values_that_a_path_finds_again(path: str, most_repeats: int) -> None:
    assert parse_path(path).most_repeats == most_repeats
    most_bytes = BY_NAME["jsonpatharray"].most_bytes
    assert most_bytes is not None
    text = "[" * 8 + "1" * 10_000 + "]" * 8
    assert most_bytes([constant(Literal(text, STRING)), constant(Literal(path, STRING))]) > 10_000 * most_repeats


@pytest.mark.parametrize(
    ("condition", "kept"),
    {
        "@ == 1": [1, 1.0, "1"],
        "@ === 1": [1, 1.0],
        "@ == '1'": [1, 1.0, "1"],
        "@ == true": [True],
        "@ == null": [None],
        "@ > 0": [1, 1.0],
        "@ > ''": ["1", "a"],
        "@ != 1": ["a", True, None, [1], {"a": 1}],
        "@ contains 1": [[1]],
        "@.a": [{"a": 1}],
        "@.b != 1": [1, 1.0, "1", "a", True, None, [1], {"a": 1}],
    }.items(),
)
def test_values_of_different_types_compare_as_in_jayway(condition: str, kept: list[object]) -> None:
    found = parse_path(f"$[?({condition})]").value([1, 1.0, "1", "a", True, None, [1], {"a": 1}])
    assert [(type(one), one) for one in found] == [(type(one), one) for one in kept]


def test_a_document_as_deep_as_it_can_be_read_is_walked() -> None:
    document: object = {"b": 1}
    for _ in range(5_000):
        document = {"a": [document]}
    assert parse_path("$..b").value(document) == [1]
