"""Trees of the queries in every `.slt` file, grafted onto one another: a node answers them, or says what is wrong."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.fuzz.fuzzing import CASE_S, Loud, cases
from tests.sql.slt_nodes import Remote
from tests.sql.slt_reader import read_file

from merlot.errors import InvalidInputError
from merlot.functions.registry import FUNCTIONS
from merlot.sql.node_text import node_text
from merlot.sql.parse import parse_statement
from merlot.sql.syntax import (
    Call,
    Cast,
    Column,
    Comparison,
    Node,
    Not,
    Null,
    Number,
    Operation,
    Paren,
    Text,
    transform,
    walk,
    with_children,
)

SLT = Path(__file__).parents[1] / "sql"
STAGED = ("joins", "subqueries", "windows", "set_operations", "aggregates", "collected")
EVERY = tuple(sorted(path.stem for path in SLT.glob("*.slt")))
ANSWERED_BY_A_BUG = {450, 500, 1000}
NAMES = [name for function in FUNCTIONS if not function.syntax for name in (function.name, *function.aliases)]
NUMBERS = ("0", "1", "2147483648", "9223372036854775807", "0.1", "1e308")


def corpus(files: tuple[str, ...]) -> list[Node]:
    """Trees of what the files ask, without the options before."""
    texts = [case.sql.rpartition(";")[2] for name in files for case in read_file(SLT / f"{name}.slt")]
    trees: list[Node] = []
    for text in texts:
        with contextlib.suppress(InvalidInputError):  # some texts are there to be refused
            trees.append(parse_statement(text).tree)
    return trees


class Grafts:
    """Trees with some of their nodes replaced by nodes of others, doubled, or gone."""

    def __init__(self, trees: list[Node]) -> None:
        self._trees = trees
        self._nodes: dict[type[Node], list[Node]] = {}
        for tree in trees:
            for node in walk(tree):
                self._nodes.setdefault(type(node), []).append(node)
        self._kinds = sorted(self._nodes, key=lambda kind: kind.__name__)

    def grafted(self, rng: random.Random) -> str:
        """A text, which may be one that nothing reads."""
        tree = rng.choice(self._trees)
        for _ in range(rng.choice((1, 1, 2, 3))):
            place = rng.randrange(1, max(2, sum(1 for _ in walk(tree))))
            numbers = itertools.count()
            tree = transform(tree, lambda node, at=place, count=numbers: self._changed(rng, node, next(count) == at))
        nulls = "SET enableNullHandling = true; " if rng.random() < 0.3 else ""
        try:
            return nulls + node_text(tree)
        except (AttributeError, KeyError, TypeError):  # a node stands where it cannot be written
            return self.grafted(rng)

    def _changed(self, rng: random.Random, node: Node, is_chosen: bool) -> Node:
        if not is_chosen:
            return node
        if rng.random() < 0.15:
            return without_one(rng, node)
        if isinstance(node, _WRAPPED) and rng.random() < 0.2:
            return _wrapped(rng, node)
        kind = type(node) if rng.random() < 0.7 else rng.choice(self._kinds)
        return rng.choice(self._nodes[kind])


def without_one(rng: random.Random, node: Node) -> Node:
    """The node without one of the nodes in a list of it."""
    lists = [name for name in type(node).__dataclass_fields__ if len_of(getattr(node, name)) > 1]  # type: ignore[attr-defined]
    if not lists:
        return node
    name = rng.choice(lists)
    items = list(getattr(node, name))
    items.pop(rng.randrange(len(items)))
    changed = with_children(node, lambda child: child)
    setattr(changed, name, items)
    return changed


def len_of(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else 0


_WRAPPED = (Column, Number, Text, Call, Operation, Comparison)


def _wrapped(rng: random.Random, node: Node) -> Node:
    """The node within another, or another in its place."""
    match rng.randrange(5):
        case 0:
            return Call(rng.choice(NAMES), [node])
        case 1:
            return Not(Paren(node))
        case 2:
            return Cast(node, rng.choice(("INT", "BOOLEAN", "TIMESTAMP", "DOUBLE")))
        case 3:
            return Call(rng.choice(NAMES), [node, node])
    return rng.choice((Null(), Text(""), Number(rng.choice(NUMBERS))))


@pytest.mark.parametrize("name", ["stages", "corpus"])
def test_no_graft_is_answered_by_a_bug_or_not_at_all(node: Remote, loud: Loud, name: str) -> None:
    grafts = Grafts(corpus(STAGED if name == "stages" else EVERY))
    problems: list[str] = []
    num_answered = 0
    with contextlib.closing(http.client.HTTPConnection(urlsplit(node.url).netloc, timeout=CASE_S)) as connection:
        for rng in cases(name, quick=150, every=750):
            sql = grafts.grafted(rng)
            connection.request("POST", "/query/sql", json.dumps({"sql": sql, "queryOptions": "timeoutMs=5000"}))
            answer = json.loads(connection.getresponse().read())
            codes = {entry["errorCode"] for entry in answer["exceptions"]}
            num_answered += not codes
            told = str(answer["exceptions"])
            if loud.said or ANSWERED_BY_A_BUG & codes or "INT64" in told or "stages failed" in told:
                problems.append(f"{sql!r}\n  {told[:300]}\n  {' '.join(loud.said)[-1500:]}")
                loud.said.clear()
    assert not problems, "\n".join(problems[:8])
    assert num_answered > 20
    assert node.query("SELECT COUNT(*) FROM things").rows
