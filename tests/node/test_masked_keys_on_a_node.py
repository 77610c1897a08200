"""Joins, groups, filters and extremes of masked columns, on a whole node: what rules and shortcuts read is the mask.

Leaves that wait for the keys of others, groups below joins, answers by dictionaries and zone maps: each is asked as
somebody who sees masks of the columns in question, and answers as DuckDB does over views.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.budget import count, seed
from tests.node.viewing_node import ViewingNode, viewing_node
from tests.oracle.stage_generator import StageGenerator
from tests.oracle.viewed_tables import SeenTable, oracle_of, viewer
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import edges, things
from tests.sql.slt_oracle import Oracle

from merlot.broker import stages

USED = [things(), edges()]
QUERIES = count("MERLOT_MASKED_KEYS", quick=10, every=60, fuzz=1_000)
THINGS = SeenTable(
    ("signed > -50",) * 2,
    frozenset({"payload"}),
    {
        "id": ("CAST(id + 1 AS INT)",) * 2,
        "small": ("small % 5",) * 2,
        "color": ("CASE WHEN color = 'red' THEN color ELSE 'other' END",) * 2,
        "name": ("substr(name, 0, 2)", "substr(name, 1, 2)"),
    },
)
EDGES = SeenTable(("few > 5",) * 2, frozenset({"yes"}), {"id": ("CAST(id + 2 AS INT)",) * 2, "few": ("few % 2",) * 2})
IDENTITIES = {
    "rows": {"edges": SeenTable(EDGES.row_filter)},
    "masked keys of both": {"things": THINGS, "edges": EDGES},
    "masked keys of the smaller one": {"things": SeenTable(), "edges": EDGES},
    "masked keys of the larger one": {"things": THINGS, "edges": SeenTable(EDGES.row_filter)},
}
JOINED = "things a JOIN edges b ON a.id = b.id"
SQL = (
    f"SELECT a.id, b.id FROM {JOINED} WHERE b.id < 10",
    "SELECT a.id, b.few FROM things a LEFT JOIN edges b ON a.id = b.id WHERE b.id < 10",
    "SELECT a.id, b.id FROM things a JOIN edges b ON a.id = b.id + 3 WHERE b.id < 20",
    f"SELECT b.few, SUM(a.small), COUNT(DISTINCT a.color), MIN(a.id), MAX(a.id) FROM {JOINED} GROUP BY b.few",
    f"SELECT a.id, MAX(b.few) FROM {JOINED} GROUP BY a.id",
    "SELECT a.name, COUNT(*) FROM things a JOIN things b ON a.name = b.name AND a.id = b.id GROUP BY a.name",
    "SELECT SUM(a.small) FROM things a JOIN (SELECT id, COUNT(*) n FROM edges GROUP BY id) b ON a.id = b.id",
    "SELECT a.few, COUNT(*) FROM edges a LEFT JOIN things b ON a.id = b.id AND b.small = 2 GROUP BY a.few",
    "SELECT COUNT(*) FROM things a JOIN edges b USING (id)",
    "SELECT id FROM things WHERE id IN (SELECT id FROM edges WHERE id < 9)",
    "SELECT id FROM things WHERE id NOT IN (SELECT id FROM edges) AND id < 40",
    "SELECT a.id FROM things a WHERE EXISTS (SELECT 1 FROM edges e WHERE e.id = a.id AND e.few = 0)",
    "SELECT (SELECT MAX(id) FROM edges) m, COUNT(*) FROM things",
    "SELECT id FROM edges INTERSECT SELECT id FROM things",
    "SELECT color, ROW_NUMBER() OVER (PARTITION BY color ORDER BY id) r, id FROM things WHERE id < 30",
    "SELECT MIN(id), MAX(id), COUNT(*), MIN(small), MAX(small) FROM things",
    "SELECT MIN(few), MAX(few), COUNT(DISTINCT few) FROM edges",
    "SELECT COUNT(DISTINCT color), COUNT(DISTINCT small) FROM things",
    "SELECT DISTINCT name FROM things",
    "SELECT COUNT(*) FROM things WHERE color = 'blue'",
    "SELECT COUNT(*) FROM things WHERE color LIKE 'b%'",
    "SELECT COUNT(*) FROM things WHERE color >= 'p'",
    "SELECT COUNT(*) FILTER (WHERE small > 4), MAX(id) FILTER (WHERE id <= 100) FROM things",
    "SELECT small, COUNT(*) FROM things GROUP BY small HAVING COUNT(*) > 3",
    "SELECT CASE WHEN small > 10 THEN 1 ELSE 0 END, COUNT(*) FROM things GROUP BY 1",
    "SELECT id FROM things WHERE id = 1",
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewingNode]:
    with viewing_node(USED, tmp_path_factory.mktemp("masked")) as made:
        yield made


def difference(node: ViewingNode, sql: str, name: str, oracle: Oracle) -> str | None:
    answer = node.ask(f"SET enableNullHandling = true; {sql}", viewer(IDENTITIES[name]))
    if answer["exceptions"]:
        return f"{sql}\n    {answer['exceptions'][0]['message']}"
    types = answer["resultTable"]["dataSchema"]["columnDataTypes"]
    got = sort_rows(normalize(answer["resultTable"]["rows"], types))
    found = first_difference(got, sort_rows(normalize(oracle.rows(sql, nulls=True), types)))
    return None if found is None else f"{sql}\n    {found}"


@pytest.mark.parametrize("name", IDENTITIES)
def test_queries_of_masked_columns_read_the_masks(node: ViewingNode, name: str) -> None:
    oracle = oracle_of(USED, IDENTITIES[name])
    texts = [f"{sql} LIMIT 10000" for sql in SQL]
    assert [found for sql in texts if (found := difference(node, sql, name, oracle)) is not None] == []


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", IDENTITIES)
def test_random_stages_read_the_masks(node: ViewingNode, name: str) -> None:
    oracle, generator = oracle_of(USED, IDENTITIES[name]), StageGenerator(seed(31))
    problems = [found for _ in range(QUERIES) if (found := difference(node, generator.query(), name, oracle))]
    assert not problems, f"{len(problems)} of {QUERIES}, MERLOT_SEED={seed(31)}\n" + "\n".join(problems[:5])


@pytest.mark.parametrize("name", IDENTITIES)
def test_keys_filter_other_leaves_only_where_neither_is_masked(
    node: ViewingNode, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A masked key is computed above the leaf, whose own column is another one."""
    narrowed = stages.narrowed
    seen: list[tuple[Any, ...]] = []

    def seen_narrowed(*given: Any) -> Any:
        seen.append(given)
        return narrowed(*given)

    monkeypatch.setattr(stages, "narrowed", seen_narrowed)
    oracle = oracle_of(USED, IDENTITIES[name])
    assert difference(node, f"SELECT a.id FROM {JOINED} WHERE b.few > 0", name, oracle) is None
    assert bool(seen) is (name == "rows")
