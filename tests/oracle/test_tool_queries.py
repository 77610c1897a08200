"""Queries in the form in which reporting tools write them: DuckDB's rows in both modes of null handling, and servers
are asked what a person would ask them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.oracle.tool_queries import TOOLS, ToolQuery, ToolSizes, leaves_of, tool_queries, tool_tables
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_layouts import InProcess, twelve_segments
from tests.sql.slt_oracle import Oracle
from tests.sql.slt_stages import bind_stages

from merlot.query.stages.leaves import cut
from merlot.sql.parse import parse_statement

QUERIES = [pytest.param(query, id=f"{query.tool}: {query.construct}") for query in tool_queries()]


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with twelve_segments(tool_tables(), tmp_path_factory.mktemp("tools")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(tool_tables())


def asked(query: ToolQuery, *, nulls: bool) -> str:
    """The text, with the option that these tools set for each connection."""
    return f"SET useMultistageEngine = true; SET enableNullHandling = {str(nulls).lower()}; {query.sql}"


def test_there_are_ten_queries_of_each_tool() -> None:
    assert set(Counter(query.tool for query in tool_queries())) == set(TOOLS)
    assert min(Counter(query.tool for query in tool_queries()).values()) >= 10


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_a_tool_has_the_rows_of_duckdb(query: ToolQuery, layout: InProcess, oracle: Oracle) -> None:
    for nulls in query.nulls:
        answer = layout.query(asked(query, nulls=nulls))
        got = normalize(answer.rows, answer.types)
        wanted = normalize(oracle.rows(query.duckdb, nulls=nulls), answer.types)
        if not query.is_ordered:
            got, wanted = sort_rows(got), sort_rows(wanted)
        assert wanted or "no row" in query.construct
        assert first_difference(got, wanted) is None


@pytest.mark.parametrize("query", QUERIES)
def test_servers_are_asked_what_a_person_would_ask_them(query: ToolQuery) -> None:
    schemas, sizes = {table.name: table.schema for table in tool_tables()}, ToolSizes()
    for nulls in query.nulls:
        made = cut(bind_stages(parse_statement(asked(query, nulls=nulls)), schemas), sizes=sizes)
        assert leaves_of(made) == query.leaves[nulls]
