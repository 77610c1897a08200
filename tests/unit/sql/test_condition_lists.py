"""Conditions in a row are bound to what they are bound to one by one, and fail as these do."""

import random
from dataclasses import replace

import pytest

from merlot.errors import InvalidInputError
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.spec.schema import TableSchema
from merlot.sql import limits
from merlot.sql.parse import ParsedStatement, one_stage, parse_statement
from merlot.sql.syntax import Comparison, Node, Paren, transform
from merlot.tree.nodes import Call

TYPES = ("INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL", "STRING", "TIMESTAMP", "JSON", "BOOLEAN", "BYTES")
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            *({"name": f"c{type_}", "type": type_} for type_ in TYPES),
            *({"name": f"m{type_}", "type": type_, "multiValue": True} for type_ in ("INT", "STRING")),
        ]
    }
)
NUMBERS = (
    "0",
    "1",
    "-1",
    "007",
    "5.0",
    "5.5",
    "-0.0",
    "0.1",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9" * 18,
    "9" * 40,
)
TEXTS = ("''", "'x'", "'it''s'", "'7'", "' 7.0 '", "'2024-02-03'", "'true'", "'0a'")
NAMES = (*(f"c{type_}" for type_ in TYPES), "mINT", "mSTRING", "cint", "one", "alike")
TESTS = (
    "{0} = {1}",
    "{0} <> {1}",
    "{0} < {1}",
    "{0} >= {1}",
    "{0} IN ({1}, 3)",
    "({0} = {1} OR {0} = 4)",
    "NOT {0} = {1}",
)


def answer_of(statement: ParsedStatement, options: dict[str, str]) -> str:
    """What is bound and planned, or the error."""
    try:
        bound = bind(one_stage(statement), SCHEMA, options)
        return f"{bound!r} {plan(bound)!r}"
    except InvalidInputError as error:
        return f"{type(error).__name__} {error}"


def apart(node: Node) -> Node:
    """Comparisons in parentheses, which are bound one by one."""
    return Paren(node) if isinstance(node, Comparison) else node


def is_bound_alike(sql: str) -> bool:
    """Whether it binds, as one by one; both ways fail with one error otherwise."""
    read = parse_statement(sql)
    one_by_one = replace(read, tree=transform(read.tree, apart))
    found = {}
    for nulls in ("false", "true"):
        options = {"enableNullHandling": nulls}
        found[nulls] = answer_of(read, options)
        assert found[nulls] == answer_of(one_by_one, options), sql
    return found["false"].startswith("BoundQuery")


def random_filter(rng: random.Random, names: tuple[str, ...], depth: int = 0) -> str:
    tests = rng.choice((TESTS[:1], TESTS[1:2], TESTS[:4], TESTS))
    found = []
    for _ in range(rng.randint(2, 3) if depth else rng.randint(2, 40)):
        name = rng.choice(names)
        constants: tuple[str, ...] = TEXTS if name in ("cSTRING", "mSTRING", "cJSON") else NUMBERS
        if rng.random() < 0.05:
            constants = TEXTS + NUMBERS
        if depth < 2 and rng.random() < 0.1:
            found.append(rng.choice(("({})", "NOT ({})")).format(random_filter(rng, names, depth + 1)))
        else:
            found.append(rng.choice(tests).format(name, rng.choice(constants)))
    return rng.choice((" OR ", " AND ")).join(found)


def test_random_chains_bind_to_one_tree() -> None:
    rng = random.Random(3)
    num_bound = 0
    for _ in range(250):
        names = tuple(rng.choices(NAMES, k=rng.randint(1, 4)))
        sql = f"SELECT cINT AS alike, 7 AS one FROM t WHERE {random_filter(rng, names)}"
        num_bound += is_bound_alike(sql)
    assert 50 < num_bound < 245


@pytest.mark.parametrize(("word", "operator", "function"), [("OR", "=", "in"), ("AND", "<>", "not_in")])
def test_values_of_one_column_are_one_list(word: str, operator: str, function: str) -> None:
    count = limits.MAX_PREDICATES + 1
    conditions = f" {word} ".join(f"cINT {operator} {number} " for number in range(count))
    where = bind(one_stage(parse_statement(f"SELECT cINT FROM t WHERE {conditions}")), SCHEMA).where
    assert isinstance(where, Call)
    assert (where.function, len(where.args)) == (function, count + 1)
