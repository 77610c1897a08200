"""What might help: by what queries test, and by what segments say of their columns."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from merlot.advice.candidates import DERIVED, SORTED, STAR_TREE, Candidate, candidates
from merlot.advice.statistics import ColumnFacts, Statistics
from merlot.advice.workload import NormalizedQuery, Workload, workload
from merlot.spec.derived import Granularity
from merlot.spec.indexing import IndexingSpec
from merlot.spec.manifest import load_tables
from merlot.spec.star_tree import StarTreeSpec
from merlot.values.periods import DAY_MS
from merlot.values.types import TypeName

SCHEMA = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema:
    fields:
      - {name: country, type: STRING}
      - {name: user, type: LONG}
      - {name: url, type: STRING}
      - {name: tags, type: STRING, multiValue: true}
      - {name: at, type: TIMESTAMP, role: dateTime}
      - {name: flag, type: BOOLEAN}
      - {name: amount, type: DOUBLE, role: metric}
""")[0].spec.table_schema
FACTS = Statistics(
    num_docs=1_000_000,
    docs_each=500_000,
    columns={
        "country": ColumnFacts(type=TypeName.STRING, cardinality=200, stored_bytes=500_000),
        "user": ColumnFacts(type=TypeName.LONG, cardinality=500_000, min=0, max=999_999),
        "url": ColumnFacts(type=TypeName.STRING, cardinality=400_000, stored_bytes=50_000_000),
        "tags": ColumnFacts(type=TypeName.STRING, cardinality=1_000, multi_value=True),
        "at": ColumnFacts(type=TypeName.TIMESTAMP, cardinality=400_000, is_sorted=True, min=0, max=1000),
        "flag": ColumnFacts(type=TypeName.BOOLEAN, cardinality=2),
        "amount": ColumnFacts(type=TypeName.DOUBLE, cardinality=400_000, min=0.0, max=100.0),
    },
)


def asked(*texts: str, times_ms: Sequence[float] | None = None) -> Workload:
    logged = [
        NormalizedQuery(normal=text, texts=(text,), time_ms=time_ms)
        for text, time_ms in zip(texts, times_ms or [1.0] * len(texts), strict=True)
    ]
    return workload(logged, "t", SCHEMA, 1_700_000_000_000)


def found(
    *texts: str, indexing: IndexingSpec | None = None, times_ms: Sequence[float] | None = None
) -> list[Candidate]:
    return candidates(asked(*texts, times_ms=times_ms).questions, FACTS, indexing or IndexingSpec())


def indexes(every: Sequence[Candidate]) -> set[tuple[str, str]]:
    return {(one.kind, one.columns[0]) for one in every if one.kind not in (SORTED, STAR_TREE)}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("country = 'ch'", {("inverted", "country")}),
        ("country IN ('ch', 'at')", {("inverted", "country")}),
        ("tags = 'a'", {("inverted", "tags")}),
        ("user BETWEEN 1 AND 9", {("range", "user"), ("inverted", "user")}),
        ("user > 10", set()),
        ("user > 990000", {("range", "user"), ("inverted", "user")}),
        ("url LIKE '%shop%'", {("ngram", "url"), ("inverted", "url")}),
        ("REGEXP_LIKE(url, 'shop.*cart')", {("ngram", "url"), ("inverted", "url")}),
        ("TEXT_MATCH(url, 'shop')", {("text", "url")}),
        ("JSON_MATCH(url, '\"$.a\" = ''b''')", {("json_paths", "url")}),
        ("flag = true", set()),
        ("at > 990", set()),
        ("country <> 'ch'", set()),
        ("NOT country = 'ch'", set()),
        ("lower(country) = 'ch'", set()),
        ("country = 'ch' OR user = 7 AND flag", {("inverted", "country"), ("inverted", "user")}),
    ],
)
def test_each_test_has_the_indexes_that_answer_it(condition: str, expected: set[tuple[str, str]]) -> None:
    assert indexes(found(f"SELECT url FROM t WHERE {condition} LIMIT 3")) == expected


def test_what_the_table_has_is_not_proposed_again() -> None:
    indexing = IndexingSpec(inverted=("country",))
    assert indexes(found("SELECT url FROM t WHERE country = 'ch'", indexing=indexing)) == set()


def test_an_aggregation_over_few_values_has_a_tree_with_what_it_needs() -> None:
    (tree,) = [
        one.tree
        for one in found("SELECT country, AVG(amount), COUNT(*) FROM t WHERE flag = true GROUP BY country")
        if one.tree is not None
    ]
    assert tree.dimensions_split_order == ("country", "flag")
    assert tree.function_column_pairs == ("COUNT__*", "SUM__amount")


def test_trees_of_several_queries_are_proposed_together_too() -> None:
    every = found(
        "SELECT country, SUM(amount) FROM t GROUP BY country", "SELECT flag, MAX(amount) FROM t GROUP BY flag"
    )
    trees = {frozenset(one.columns): one for one in every if one.tree is not None}
    assert set(trees) == {frozenset({"country"}), frozenset({"flag"}), frozenset({"country", "flag"})}
    both = trees[frozenset({"country", "flag"})]
    assert both.helps == (0, 1)
    assert both.tree is not None
    assert both.tree.function_column_pairs == ("MAX__amount", "SUM__amount")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user, SUM(amount) FROM t GROUP BY user",
        "SELECT tags, SUM(amount) FROM t GROUP BY tags",
        "SELECT country, PERCENTILE(amount, 50) FROM t GROUP BY country",
        "SELECT country FROM t WHERE flag = true",
        "SELECT COUNT(*) FROM t",
    ],
)
def test_what_no_tree_can_answer_or_make_smaller_has_none(sql: str) -> None:
    assert [one for one in found(sql) if one.tree is not None] == []


def test_a_tree_that_the_table_has_is_not_proposed_again() -> None:
    tree = StarTreeSpec(dimensions_split_order=("country", "flag"), function_column_pairs=("SUM__amount",))
    every = found(
        "SELECT country, SUM(amount) FROM t GROUP BY country", indexing=IndexingSpec(star_tree_index_configs=(tree,))
    )
    assert [one for one in every if one.tree is not None] == []


def test_another_order_keeps_the_columns_of_the_present_one() -> None:
    every = found("SELECT url FROM t WHERE user = 7", indexing=IndexingSpec(sorted_columns=("at", "user")))
    assert [one.columns for one in every if one.kind == SORTED] == [("user", "at")]


def test_what_helps_queries_that_take_long_comes_first() -> None:
    texts = "SELECT url FROM t WHERE user = 7", "SELECT user FROM t WHERE country = 'ch'"
    for times_ms, expected in (([9.0, 1.0], "user"), ([1.0, 9.0], "country")):
        assert found(*texts, times_ms=times_ms)[0].columns == (expected,)


def test_each_candidate_changes_what_it_names() -> None:
    before = IndexingSpec(inverted=("country",), sorted_columns=("at",))
    for one in found("SELECT country, SUM(amount) FROM t WHERE user < 9 GROUP BY country", indexing=before):
        after = one.applied(before)
        changed = {name for name in type(before).model_fields if getattr(before, name) != getattr(after, name)}
        names = {SORTED: "sorted_columns", STAR_TREE: "star_tree_index_configs"}
        assert changed == {names.get(one.kind, one.kind)}


def test_queries_that_cannot_be_looked_at_are_named_with_the_reason() -> None:
    logged = [
        NormalizedQuery(normal="masked", texts=()),
        *(
            NormalizedQuery(normal=text, texts=(text,))
            for text in (
                "SELECT nope FROM t",
                "SELECT a.user FROM t a JOIN t b ON a.user = b.user",
                "EXPLAIN PLAN FOR SELECT user FROM t",
                "SELECT user FROM other",
                "SELEC",
            )
        ),
    ]
    told = workload(logged, "t", SCHEMA, 0)
    assert told.questions == ()
    assert len(told.unread) == len(logged)
    assert told.unread[0].why == "its log keeps no constants"
    assert "several stages" in told.unread[2].why


def test_each_text_of_an_entry_stands_for_its_part() -> None:
    texts = ("SELECT url FROM t WHERE user = 1", "SELECT url FROM t WHERE user = 2")
    logged = NormalizedQuery(normal="n", texts=texts, count=10, time_ms=4.0, num_segments=30)
    told = workload([logged], "t", SCHEMA, 0).questions
    assert [(one.count, one.time_ms, one.segments_each) for one in told] == [(5, 2.0, 3.0)] * 2


def test_times_that_queries_cut_are_columns_and_dimensions() -> None:
    known = replace(FACTS, columns={**FACTS.columns, "at": replace(FACTS.columns["at"], max=10 * DAY_MS)})
    sql = "SELECT DATETRUNC('DAY', at), SUM(amount) FROM t GROUP BY DATETRUNC('DAY', at)"
    every = candidates(asked(sql).questions, known, IndexingSpec())
    assert {one.kind: one.columns for one in every} == {DERIVED: ("$at$DAY",), STAR_TREE: ("$at$DAY",)}
    after = IndexingSpec()
    for one in every:
        after = one.applied(after)
    assert after.timestamp_granularities == {"at": (Granularity.DAY,)}
    assert candidates(asked(sql).questions, known, after) == []


def test_a_unit_that_makes_no_fewer_values_is_no_dimension() -> None:
    sql = "SELECT DATETRUNC('SECOND', at), SUM(amount) FROM t GROUP BY DATETRUNC('SECOND', at)"
    known = replace(FACTS, columns={**FACTS.columns, "at": replace(FACTS.columns["at"], max=10 * DAY_MS)})
    assert [one.kind for one in candidates(asked(sql).questions, known, IndexingSpec())] == [DERIVED]
