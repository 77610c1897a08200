"""Pruning from manifest to answer: turned on while the node runs, exact counts, and no server where none is needed."""

import aiohttp
import pytest
import yaml
from tests.node.nodes import StartNode, ask, until_answer
from tests.support.sample import START_MS, orders_manifest, total_amount

from merlot.embedded.node import EmbeddedNode
from merlot.values.periods import DAY_MS

DAYS = list(range(6))


@pytest.fixture
async def node(start_with_orders: StartNode) -> EmbeddedNode:
    return await start_with_orders(orders_manifest(), DAYS)


async def turn_on(node: EmbeddedNode, *pruners: str) -> None:
    table = orders_manifest()
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    document["spec"]["routing"] = {"segmentPruners": list(pruners)}
    text = yaml.safe_dump({"apiVersion": table.api_version, "kind": table.kind, **document})
    async with aiohttp.ClientSession() as session, session.post(f"{node.url}/apply", data=text) as answer:
        assert answer.status == 200, await answer.text()


async def test_pruning_is_turned_on_without_a_restart(node: EmbeddedNode) -> None:
    low, high = START_MS + 2 * DAY_MS, START_MS + 3 * DAY_MS - 1
    sql = f"SELECT sum(amount) FROM orders WHERE at BETWEEN {low} AND {high}"
    before = await until_answer(node, sql, "totalDocs", 100 * len(DAYS))
    assert before["numSegmentsPrunedByBroker"] == 0
    await turn_on(node, "time")
    after = await until_answer(node, sql, "numSegmentsPrunedByBroker", len(DAYS) - 1)
    assert after["resultTable"]["rows"] == before["resultTable"]["rows"] == [[total_amount([2])]]
    assert after["totalDocs"] == 100 * len(DAYS)
    assert after["numSegmentsQueried"] == 1
    assert after["numServersQueried"] == after["numServersResponded"] == 1


async def test_a_truncated_time_prunes_as_the_time_does(node: EmbeddedNode) -> None:
    start_ms = START_MS + 2 * DAY_MS
    sql = f"SELECT sum(amount), count(*) FROM orders WHERE DATETRUNC('DAY', at) = {start_ms} AND at + 1 > {start_ms}"
    await until_answer(node, sql, "totalDocs", 100 * len(DAYS))
    await turn_on(node, "time")
    for _ in range(2):
        after = await until_answer(node, sql, "numSegmentsPrunedByBroker", len(DAYS) - 1)
        assert after["resultTable"]["rows"] == [[total_amount([2]), 100]]


NUM_ROWS_OF_NO_SERVER = {
    "SELECT count(*), sum(amount), max(id) FROM orders WHERE at < 5": 1,
    "SELECT count(*) FROM orders WHERE at < 5": 1,
    "SELECT city, count(*) FROM orders WHERE at < 5 GROUP BY city": 0,
    "SELECT DISTINCT city FROM orders WHERE at < 5": 0,
    "SELECT * FROM orders WHERE at < 5": 0,
    "SELECT id FROM orders WHERE at < 5 ORDER BY amount LIMIT 3": 0,
}


async def test_an_answer_without_servers_is_the_answer_of_servers(node: EmbeddedNode) -> None:
    before = {sql: await until_answer(node, sql, "totalDocs", 100 * len(DAYS)) for sql in NUM_ROWS_OF_NO_SERVER}
    await turn_on(node, "empty", "time", "range")
    for sql, num_rows in NUM_ROWS_OF_NO_SERVER.items():
        after = await until_answer(node, sql, "numSegmentsPrunedByBroker", len(DAYS))
        assert after["resultTable"] == before[sql]["resultTable"], sql
        assert len(after["resultTable"]["rows"]) == num_rows, sql
        assert after["totalDocs"] == 100 * len(DAYS)
        assert after["numSegmentsQueried"] == after["numDocsScanned"] == 0
        assert after["numServersQueried"] == after["numServersResponded"] == 1


async def test_explain_tells_which_pruner_removes_how_many_segments(node: EmbeddedNode) -> None:
    sql = f"SELECT count(*) FROM orders WHERE at < {START_MS + DAY_MS}"
    await until_answer(node, sql, "totalDocs", 100 * len(DAYS))
    await turn_on(node, "empty", "time")
    await until_answer(node, sql, "numSegmentsPrunedByBroker", len(DAYS) - 1)
    answer = await ask(node, f"EXPLAIN PLAN FOR {sql}")
    assert answer["exceptions"] == []
    assert answer["resultTable"]["dataSchema"]["columnNames"] == ["Operator", "Operator_Id", "Parent_Id"]
    assert answer["resultTable"]["rows"] == [
        ["BROKER_REDUCE(limit:10)", 1, 0],
        ["BROKER_PRUNE(pruner:empty,segmentsRemoved:0)", 2, 1],
        ["BROKER_PRUNE(pruner:time,segmentsRemoved:5)", 3, 2],
        ["SCATTER(servers:1,segments:1)", 4, 3],
        ["COMBINE_AGGREGATE", 5, 4],
        ["PLAN_START(numSegmentsForThisPlan:1,docs:100)", -1, -1],
        ["AGGREGATE_NO_SCAN(aggregations:count(*))", 6, 5],
        ["DOC_ID_SET", 7, 6],
        ["FILTER_MATCH_ENTIRE_SEGMENT", 8, 7],
    ]
    assert (answer["explainPlanNumMatchAllFilterSegments"], answer["numSegmentsQueried"]) == (1, 1)
    none = await ask(node, "EXPLAIN PLAN FOR SELECT SUM(amount) FROM orders WHERE at < 5")
    assert none["exceptions"] == []
    assert [row[0] for row in none["resultTable"]["rows"]][-2:] == [
        "SCATTER(servers:0,segments:0)",
        "COMBINE_AGGREGATE",
    ]


async def test_explain_tells_how_many_segments_each_predicate_is_answered_in_which_way(node: EmbeddedNode) -> None:
    sql = "SELECT SUM(amount) FROM orders WHERE amount > 3 AND id < 150 GROUP BY id HAVING SUM(amount) > 0"
    await until_answer(node, "SELECT count(*) FROM orders", "totalDocs", 100 * len(DAYS))
    answer = await ask(node, f"EXPLAIN PLAN FOR {sql} ORDER BY id DESC")
    assert answer["exceptions"] == []
    rows = answer["resultTable"]["rows"]
    assert rows[0] == ["BROKER_REDUCE(havingFilter:sum(amount) > '0.0', sort:[id DESC], limit:10)", 1, 0]
    starts = [row[0] for row in rows if row[1] == -1]
    parents = {row[2] for row in rows if row[0].startswith("GROUP_BY(")}
    combine = next(row[1] for row in rows if row[0] == "COMBINE_GROUP_BY")
    assert parents == {combine}
    pruned = sum(int(row[0].split(":")[-1].rstrip(")")) for row in rows if row[0].startswith("SERVER_PRUNE"))
    assert pruned + sum(int(start.split(":")[1].split(",")[0]) for start in starts) == len(DAYS)
    assert answer["explainPlanNumEmptyFilterSegments"] == sum(
        int(row[0].split(":")[-1].rstrip(")")) for row in rows if "pruner:filter" in row[0]
    )


async def test_a_query_of_subqueries_prunes_and_reads_what_the_query_of_the_table_does(node: EmbeddedNode) -> None:
    await until_answer(node, "SELECT count(*) FROM orders", "totalDocs", 100 * len(DAYS))
    await turn_on(node, "time")
    where = f"at >= {START_MS + 4 * DAY_MS}"
    await until_answer(node, f"SELECT count(*) FROM orders WHERE {where}", "numSegmentsPrunedByBroker", 4)
    tail = f"WHERE {where} GROUP BY city ORDER BY city LIMIT 5"
    texts = [
        f"SELECT city, count(*), sum(amount) FROM orders {tail}",
        f"SELECT city, count(*), sum(amount) FROM (SELECT * FROM orders) AS v {tail}",
        f"WITH v AS (SELECT * FROM (SELECT * FROM orders) AS w) SELECT city, count(*), sum(amount) FROM v {tail}",
        f"SELECT * FROM (SELECT city, count(*), sum(amount) FROM orders WHERE {where} GROUP BY 1) AS v ORDER BY 1",
    ]
    answers = [await ask(node, f"SET useMultistageEngine = true; {text}") for text in texts]
    counts = ("numSegmentsPrunedByBroker", "numSegmentsQueried", "numDocsScanned", "numEntriesScannedInFilter")
    for answer in answers:
        assert answer["exceptions"] == []
        assert answer["resultTable"]["rows"] == answers[0]["resultTable"]["rows"]
        for name in (*counts, "numEntriesScannedPostFilter", "totalDocs"):
            assert answer[name] == answers[0][name], name
    assert answers[0]["numSegmentsPrunedByBroker"] == 4
    assert len(answers[0]["resultTable"]["rows"]) == 4


async def test_explain_shows_a_query_before_rules_rewrote_it(node: EmbeddedNode) -> None:
    await until_answer(node, "SELECT count(*) FROM orders", "totalDocs", 100 * len(DAYS))
    answer = await ask(node, "EXPLAIN PLAN FOR SELECT city FROM (SELECT * FROM orders) AS v WHERE id < 5 LIMIT 3")
    assert answer["exceptions"] == []
    rows = answer["resultTable"]["rows"]
    at = next(place for place, row in enumerate(rows) if row[0].startswith("BEFORE_RULES"))
    assert rows[at][0] == "BEFORE_RULES(MergeDerived, AnswerDirectly)"
    assert [row[0] for row in rows[at + 1 :]] == [
        "STAGE_SELECT(columns:1, filter:v.id < '5', limit:3)",
        "STAGE_SELECT(columns:4)",
        "STAGE_LEAF(table:orders, relation:orders)",
    ]
    assert [row[2] for row in rows[at + 1 :]] == [row[1] for row in rows[at:-1]]
