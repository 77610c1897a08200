"""Put a query of WITH where its name stands, if that is one place, and drop the queries that nobody reads. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from merlot.query.stages.rewrites.walks import blocks_of, map_queries
from merlot.query.stages.rewriting import map_sources
from merlot.tree.relations import Block, DerivedTable, Named, Query, Source, Statement, relations_in


def inline_with(statement: Statement) -> Statement:
    """Rewrite `WITH v AS (q) SELECT … FROM v` as `SELECT … FROM (q) AS v`, which can then be merged."""
    if not statement.common:
        return statement
    uses = _uses(statement)
    once = {id_: query for id_, query in statement.common if uses[id_] == 1}
    if not once and all(uses[id_] for id_, _ in statement.common):
        return statement

    def change(query: Query) -> Query:
        if not isinstance(query, Block) or query.source is None:
            return query
        source = map_sources(query.source, inlined_source)
        return query if source is query.source else replace(query, source=source)

    def inlined_source(source: Source) -> Source:
        if isinstance(source, Named) and source.common in once:
            return DerivedTable(source.id, once[source.common])
        return source

    inlined: list[tuple[str, Query]] = []
    for id_, query in statement.common:  # each after the queries that it reads
        rewritten = map_queries(Statement(query=query), change).query
        if uses[id_] == 1:
            once[id_] = rewritten
        elif uses[id_]:
            inlined.append((id_, rewritten))
    query = map_queries(statement, change).query
    return replace(statement, query=query, common=tuple(inlined))


def _uses(statement: Statement) -> Counter[str]:
    """Count the uses of each name of WITH, in queries that are read."""
    uses: Counter[str] = Counter()
    queries = dict(statement.common)
    pending = [statement.query]
    seen: set[str] = set()
    while pending:
        for block in blocks_of(pending.pop()):
            for relation in relations_in(block.source):
                if isinstance(relation, Named):
                    uses[relation.common] += 1
                    if relation.common not in seen:
                        seen.add(relation.common)
                        pending.append(queries[relation.common])
    return uses
