"""Askers who see a part of a table, on a whole node: rows, statistics, EXPLAIN, errors and answers in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.node.viewing_node import ViewingNode, viewing_node
from tests.sql.slt_data import things
from tests.support.viewers import Viewer

from merlot.broker.queries import SqlRequest
from merlot.broker.response import BrokerAnswer, ResultColumns
from merlot.security.access import AccessView

VIEW = AccessView(
    ("color = 'red'", "small < 10"), frozenset({"payload"}), {"name": "substr(name, 0, 2)", "note": "'***'"}
)
ASKER = Viewer({"things": VIEW})
MANAGER = Viewer({"things": VIEW}, manages=True)
SEEN = [row for row in things().rows.to_pylist() if row["color"] == "red" and row["small"] < 10]
IDS = [row["id"] for row in SEEN]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewingNode]:
    with viewing_node([things()], tmp_path_factory.mktemp("views")) as made:
        yield made


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT COUNT(*) FROM things", [[len(SEEN)]]),
        ("SELECT COUNT(*), MIN(id), MAX(id) FROM things", [[len(SEEN), float(min(IDS)), float(max(IDS))]]),
        ("SELECT DISTINCT color FROM things", [["red"]]),
        ("SELECT COUNT(*) FROM things WHERE color = 'blue'", [[0]]),
        ("SELECT COUNT(*) FROM things WHERE small > 15 OR NOT (color = 'red')", [[0]]),
        ("SELECT COUNT(*) FROM things WHERE note = '***'", [[len(SEEN)]]),
        ("SELECT note, COUNT(*) FROM things GROUP BY note", [["***", len(SEEN)]]),
        ("SELECT name, note FROM things ORDER BY id LIMIT 1", [[SEEN[0]["name"][:2], "***"]]),
        ("SELECT COUNT(*) FROM things WHERE CAST(CASE WHEN color = 'red' THEN '1' ELSE color END AS INT) = 1", None),
        ("SET useMultistageEngine = true; SELECT COUNT(*) FROM (SELECT * FROM things) x", [[len(SEEN)]]),
        ("SELECT COUNT(*) FROM things WHERE REGEXP_LIKE(name, '.{3,}') OR TEXT_MATCH(note, 'secret')", [[0]]),
        ("SELECT MAX(LENGTH(name)), DISTINCTCOUNT(note), DISTINCTCOUNTHLL(note) FROM things", [[2.0, 1, 1]]),
        (f"SELECT LISTAGG(note, ','), LASTWITHTIME(note, id, 'STRING') FROM things WHERE id = {IDS[0]}", [["***"] * 2]),
        ("SELECT ARRAYAGG(note, 'STRING', true), EXPR_MAX(note, id) FROM things", [[["***"], "***"]]),
    ],
)
def test_an_asker_sees_the_rows_and_values_of_the_view(node: ViewingNode, sql: str, rows: list[Any] | None) -> None:
    wanted = [[len(SEEN)]] if rows is None else rows
    answer = node.ask(sql, ASKER)
    assert not answer["exceptions"], answer["exceptions"]
    assert answer["resultTable"]["rows"] == wanted
    assert answer["rlsFiltersApplied"] is True
    hidden = ("totalDocs", "numEntriesScannedInFilter", "numSegmentsQueried", "numSegmentsProcessed")
    hidden = (*hidden, "numSegmentsMatched", "numSegmentsPrunedByBroker", "numSegmentsPrunedByServer")
    assert {name: answer[name] for name in hidden} == dict.fromkeys(hidden, 0)


def test_a_failing_predicate_tells_nothing_of_other_rows(node: ViewingNode) -> None:
    """`CAST` fails for rows that are not seen, which is no failure; for one that is seen, no value is quoted."""
    rest = "CASE WHEN color = 'red' THEN '7' ELSE note END"
    assert node.rows(f"SELECT COUNT(*) FROM things WHERE CAST({rest} AS INT) = 7", ASKER) == [[len(SEEN)]]
    (error,) = node.ask("SELECT COUNT(*) FROM things WHERE CAST(color AS INT) = 7", ASKER)["exceptions"]
    assert error["errorCode"] == 200
    assert "withheld" in error["message"]
    (error,) = node.ask("SELECT COUNT(*) FROM things WHERE CAST(color AS INT) = 7", MANAGER)["exceptions"]
    assert "withheld" not in error["message"]


def test_explain_has_no_text_of_the_filter_unless_the_asker_manages_the_table(node: ViewingNode) -> None:
    sql = "EXPLAIN PLAN FOR SELECT name FROM things WHERE id > 5"
    shown = str(node.rows(sql, ASKER))
    assert "ROW_FILTER(table:things,predicate:withheld)" in shown
    assert not any(word in shown for word in _WORDS)
    managed = str(node.rows(sql, MANAGER))
    assert all(word in managed for word in _WORDS)


_WORDS = ("'red'", "substr", "docs:", "segmentsRemoved")


class _Rows:
    """Takes an answer in pieces, with the facts that came with them."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.facts: set[tuple[bool, int, int]] = set()

    async def take(self, answer: BrokerAnswer, rows: ResultColumns) -> None:
        self.num_rows += rows.num_rows
        self.facts.add((answer.rls_filters_applied, answer.total_docs, answer.stats.num_segments_queried))


def test_pieces_of_an_answer_are_of_the_rows_that_are_seen(node: ViewingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.broker._queries._selections, "few_rows", 10)
    taker = _Rows()
    request = SqlRequest("SELECT id FROM things LIMIT 100000", by_column=True, taker=taker, views=ASKER)
    answer = node.run(node.broker.query(request))
    assert not answer.exceptions
    assert (taker.num_rows, taker.facts) == (len(SEEN), {(True, 0, 0)})


def test_answers_of_different_askers_are_never_mixed(node: ViewingNode) -> None:
    others = {color: Viewer({"things": AccessView((f"color = '{color}'",))}) for color in ("red", "blue", "white")}
    counts = {color: sum(row["color"] == color for row in things().rows.to_pylist()) for color in others}
    for number in range(4):
        for sql in ("SELECT COUNT(*) FROM things", f"SELECT COUNT(*) FROM things WHERE id >= {-number}"):
            assert {color: node.rows(sql, asker) for color, asker in others.items()} == {
                color: [[count]] for color, count in counts.items()
            }
            assert node.rows(sql) == [[things().rows.num_rows]]
