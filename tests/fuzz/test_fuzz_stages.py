"""Trees of the queries in every `.slt` file, grafted onto one another: a node answers them, or says what is wrong."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fuzzing import CASE_S, Loud, cases
from slt_nodes import Remote
from slt_reader import read_file
from sqlglot import exp, parse_one

from merlot.functions.registry import FUNCTIONS
from merlot.sql.dialect import MerlotDialect

SLT = Path(__file__).parents[1] / "sql"
STAGED = ("joins", "subqueries", "windows", "set_operations", "aggregates", "collected")
EVERY = tuple(sorted(path.stem for path in SLT.glob("*.slt")))
ANSWERED_BY_A_BUG = {450, 500, 1000}
NAMES = [name for function in FUNCTIONS if not function.syntax for name in (function.name, *function.aliases)]
NUMBERS = ("0", "1", "2147483648", "9223372036854775807", "0.1", "1e308")


def corpus(files: tuple[str, ...]) -> list[exp.Expr]:
    """Trees of what the files ask, without the options before."""
    texts = [case.sql.rpartition(";")[2] for name in files for case in read_file(SLT / f"{name}.slt")]
    trees = []
    for text in texts:
        with contextlib.suppress(Exception):  # some texts are there to be refused
            trees.append(parse_one(text, dialect=MerlotDialect))
    return trees


class Grafts:
    """Trees with some of their nodes replaced by nodes of others, doubled, or gone."""

    def __init__(self, trees: list[exp.Expr]) -> None:
        self._trees = trees
        self._nodes: dict[type, list[exp.Expr]] = {}
        for tree in trees:
            for node in tree.walk():
                self._nodes.setdefault(type(node), []).append(node)
        self._kinds = sorted(self._nodes, key=lambda kind: kind.__name__)

    def grafted(self, rng: random.Random) -> str:
        tree = rng.choice(self._trees).copy()
        for _ in range(rng.choice((1, 1, 2, 3))):
            node = rng.choice(list(tree.walk()))
            kind = type(node) if rng.random() < 0.7 else rng.choice(self._kinds)
            if node.parent is None:
                continue
            if rng.random() < 0.15 and isinstance(node.parent.args.get(node.arg_key), list):
                node.pop()
            elif isinstance(node, _WRAPPED) and rng.random() < 0.2:
                node.replace(_wrapped(rng, node.copy()))
            else:
                node.replace(rng.choice(self._nodes[kind]).copy())
        nulls = "SET enableNullHandling = true; " if rng.random() < 0.3 else ""
        try:
            return nulls + tree.sql(dialect=MerlotDialect)
        except Exception:  # noqa: BLE001 - a tree that has no text is none of ours
            return self.grafted(rng)


_WRAPPED = (exp.Column, exp.Literal, exp.Anonymous, exp.Binary)


def _wrapped(rng: random.Random, node: exp.Expr) -> exp.Expr:
    """The node within another, or another in its place."""
    match rng.randrange(5):
        case 0:
            return exp.Anonymous(this=rng.choice(NAMES), expressions=[node])
        case 1:
            return exp.Not(this=exp.Paren(this=node))
        case 2:
            return exp.Cast(this=node, to=exp.DataType.build(rng.choice(("INT", "BOOLEAN", "TIMESTAMP", "DOUBLE"))))
        case 3:
            return exp.Anonymous(this=rng.choice(NAMES), expressions=[node, node.copy()])
    return rng.choice((exp.null(), exp.Literal(this="", is_string=True), exp.Literal.number(rng.choice(NUMBERS))))


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
