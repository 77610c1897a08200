"""EXPLAIN PLAN FOR of a query of more than one stage: a tree of stages, and below each leaf what servers would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from merlot.broker.leaves import Asked
from merlot.broker.planning.explain import explain
from merlot.broker.planning.planner import PlannedStages
from merlot.broker.response import ResultRows
from merlot.query.plan.text import text_of
from merlot.tree.nodes import Expr, OrderKey
from merlot.tree.relations import (
    Block,
    Derived,
    Join,
    Named,
    Query,
    Relation,
    Scan,
    SetOperation,
    Subquery,
    Unnest,
    Window,
)

_NO_ID = -1
_Line = tuple[str, int, str | None]
"""An operator, its depth, and the relation whose leaf it is."""


def explain_stages(stages: PlannedStages, asked: Mapping[str, Asked]) -> ResultRows:
    """The plan, in the columns of any plan."""
    rows: list[list[str | int]] = []
    parents = [0]
    number = 0
    for operator, depth, scan in _lines(stages):
        del parents[depth + 1 :]
        number += 1
        rows.append([operator, number, parents[-1]])
        parents.append(number)
        if scan is None:
            continue
        plan, leaf = stages.leaves[scan], asked[scan]
        assert plan.tree is not None
        told = explain(plan, plan.tree, leaf.table, leaf.selection, leaf.gathered.partials)
        shift, number = number, number + sum(row[1] != _NO_ID for row in told.rows.rows)
        for text, own, parent in told.rows.rows:
            rows.append([text, own if own == _NO_ID else own + shift, parent if parent == _NO_ID else parent + shift])
    return ResultRows(["Operator", "Operator_Id", "Parent_Id"], ["STRING", "INT", "INT"], rows)


def _lines(stages: PlannedStages) -> Iterator[_Line]:
    statement = stages.bound.statement
    yield "BROKER_STAGES", 0, None
    for name, query in statement.common:
        yield f"STAGE_WITH(name:{name})", 1, None
        yield from _query(query, 2)
    yield from _query(statement.query, 1)


def _query(query: Query, depth: int) -> Iterator[_Line]:
    if isinstance(query, SetOperation):
        yield f"STAGE_{query.kind.value}(all:{str(query.is_all).lower()}{_tail(query)})", depth, None
        yield from _query(query.left, depth + 1)
        yield from _query(query.right, depth + 1)
        return
    yield f"STAGE_SELECT({', '.join(_facts(query))})", depth, None
    for slot in query.slots.values():
        if isinstance(slot, Subquery):
            yield f"STAGE_SUBQUERY(kind:{slot.kind.value})", depth + 1, None
            yield from _query(slot.query, depth + 2)
    if query.source is not None:
        yield from _relation(query.source, depth + 1)


def _facts(block: Block) -> Iterator[str]:
    yield f"columns:{len(block.outputs)}"
    windows = [slot for slot in block.slots.values() if isinstance(slot, Window)]
    if windows:
        yield f"windows:{len(windows)}"
    if block.is_distinct:
        yield "distinct:true"
    if block.where is not None:
        yield f"filter:{text_of(block.where)}"
    if block.group_by:
        yield f"groupBy:[{_texts(block.group_by)}]"
    if block.having is not None:
        yield f"havingFilter:{text_of(block.having)}"
    if block.qualify is not None:
        yield f"qualify:{text_of(block.qualify)}"
    tail = _tail(block)
    if tail:
        yield tail.removeprefix(", ")


def _tail(query: Query) -> str:
    facts = [f"sort:[{', '.join(map(_key, query.order_by))}]"] if query.order_by else []
    facts += [f"limit:{query.limit}"] if query.limit is not None else []
    facts += [f"offset:{query.offset}"] if query.offset else []
    return "".join(f", {fact}" for fact in facts)


def _relation(relation: Relation, depth: int) -> Iterator[_Line]:
    if isinstance(relation, Join):
        condition = "" if relation.condition is None else f", on:{text_of(relation.condition)}"
        yield f"STAGE_JOIN(kind:{relation.kind.value.removesuffix(' JOIN')}{condition})", depth, None
        yield from _relation(relation.left, depth + 1)
        yield from _relation(relation.right, depth + 1)
    elif isinstance(relation, Scan):
        yield f"STAGE_LEAF(table:{relation.table}, relation:{relation.id})", depth, relation.id
    elif isinstance(relation, Derived):
        yield from _query(relation.query, depth)
    elif isinstance(relation, Named):
        yield f"STAGE_OF_WITH(name:{relation.common})", depth, None
    elif isinstance(relation, Unnest):
        yield f"STAGE_UNNEST(lists:[{_texts(relation.lists)}])", depth, None
    else:
        yield f"STAGE_VALUES(rows:{len(relation.rows)})", depth, None


def _texts(exprs: tuple[Expr, ...]) -> str:
    return ", ".join(map(text_of, exprs))


def _key(key: OrderKey) -> str:
    return f"{text_of(key.expr)} {'ASC' if key.ascending else 'DESC'}"
