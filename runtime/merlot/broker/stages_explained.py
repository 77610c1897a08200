"""EXPLAIN PLAN FOR a query of several stages: a tree of stages, with the servers' plan below each leaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from merlot.broker.leaves import TableAnswers
from merlot.broker.planning.explain import explain
from merlot.broker.planning.planner import PlannedStages
from merlot.broker.response import ResultRows
from merlot.query.plan.text import text_of
from merlot.query.stages.rewrites.rules import RewriteResult
from merlot.query.stages.rewriting import substituted
from merlot.tree.nodes import BoundQuery, Column, Expr, OrderKey
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    Named,
    Query,
    Relation,
    Scan,
    SetOperation,
    Slot,
    Statement,
    Subquery,
    Unnest,
    Window,
    queries_in,
    relations_in,
)

_NO_ID = -1
_Line = tuple[str, int, str | None]
"""Text of an operator, its depth, and the id of the scanned relation if it is a leaf."""


def explain_stages(stages: PlannedStages, asked: Mapping[str, TableAnswers]) -> ResultRows:
    """Return the plan, with the same columns as every other plan. `asked`: answers of leaves, by the scan's id."""
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
        servers_part = explain(plan, plan.tree, leaf.table, leaf.selection, leaf.gathered.partials)
        shift, number = number, number + sum(row[1] != _NO_ID for row in servers_part.rows.rows)
        for text, own, parent in servers_part.rows.rows:
            rows.append([text, own if own == _NO_ID else own + shift, parent if parent == _NO_ID else parent + shift])
    plan_rows = ResultRows(["Operator", "Operator_Id", "Parent_Id"], ["STRING", "INT", "INT"], rows)
    return with_rewrites(plan_rows, stages.bound.rewrites)


def with_rewrites(plan: ResultRows, rewrites: RewriteResult) -> ResultRows:
    """Add to a plan the statement as it was before rules changed it, below the names of the rules."""
    if not rewrites.rules:
        return plan
    rows = list(plan.rows)
    number = 1 + max(int(row[1]) for row in rows)
    rows.append([f"BEFORE_RULES({', '.join(rewrites.rules)})", number, 0])
    parents = [number]
    for operator, depth, _ in lines_of(rewrites.before, {}):
        del parents[depth:]
        number += 1
        rows.append([operator, number, parents[-1]])
        parents.append(number)
    return ResultRows(plan.column_names, plan.column_types, rows)


def _lines(stages: PlannedStages) -> Iterator[_Line]:
    statement = stages.bound.statement
    yield "BROKER_STAGES", 0, None
    yield from lines_of(statement, {id_: leaf.query for id_, leaf in stages.bound.leaves.items()})


def lines_of(statement: Statement, leaves: Mapping[str, BoundQuery]) -> Iterator[_Line]:
    """Yield the operators of a statement, from depth 1 on: the caller writes the root. `leaves`: bound queries of its
    scans, by id."""
    names = _names(statement, leaves)
    writer = _PlanWriter(names)
    for name, query in statement.common:
        yield f"STAGE_WITH(name:{names.get(name, name)})", 1, None
        yield from writer.query(query, 2)
    yield from writer.query(statement.query, 1)


def _names(statement: Statement, leaves: Mapping[str, BoundQuery]) -> Mapping[str, str]:
    """Return the query's names of columns and relations, by their names in the tree. A leaf's column that the query
    does not name has the text of its expression."""
    names = dict(statement.names)
    for id_, leaf in leaves.items():
        for number, output in enumerate(leaf.select):
            text = text_of(output.expr)
            names[f"{id_}.c{number}"] = names.get(f"{id_}.{text}", text)
    commons = dict(statement.common)
    blocks = (query for query in queries_in(statement) if isinstance(query, Block))
    for relation in (relation for block in blocks for relation in relations_in(block.source)):
        query = commons[relation.common] if isinstance(relation, Named) else getattr(relation, "query", None)
        for number, output in enumerate(() if query is None else query.outputs):
            # Behind its columns a query may output NULL tests for null handling. Output n0 tests the first column.
            tested = names.get(f"{relation.id}.c{output.label[1:]}", output.label)
            names.setdefault(f"{relation.id}.c{number}", f"{tested} IS NULL")
    return names


class _PlanWriter:
    """Writer of a statement's tree. `names`: the query's names, by those of columns and relations in the tree."""

    def __init__(self, names: Mapping[str, str], slots: Mapping[str, Slot] | None = None) -> None:
        self._names = names
        self._slots = slots or {}

    def query(self, query: Query, depth: int) -> Iterator[_Line]:
        if isinstance(query, SetOperation):
            labels = {f"c{number}": output.label for number, output in enumerate(query.outputs)}
            tail = _PlanWriter({**self._names, **labels})._tail(query)
            yield f"STAGE_{query.kind.value}(all:{str(query.is_all).lower()}{tail})", depth, None
            yield from self.query(query.left, depth + 1)
            yield from self.query(query.right, depth + 1)
            return
        writer = _PlanWriter(self._names, query.slots)
        yield f"STAGE_SELECT({', '.join(writer._facts(query))})", depth, None
        for slot in query.slots.values():
            if isinstance(slot, Subquery):
                yield f"STAGE_SUBQUERY(kind:{slot.kind.value})", depth + 1, None
                yield from self.query(slot.query, depth + 2)
        if query.source is not None:
            yield from writer._relation(query.source, depth + 1)

    def _facts(self, block: Block) -> Iterator[str]:
        yield f"columns:{len(block.outputs)}"
        windows = [slot for slot in block.slots.values() if isinstance(slot, Window)]
        if windows:
            yield f"windows:{len(windows)}"
        if block.is_distinct:
            yield "distinct:true"
        if block.where is not None:
            yield f"filter:{self._text(block.where)}"
        if block.group_by:
            yield f"groupBy:[{self._texts(block.group_by)}]"
        if block.having is not None:
            yield f"havingFilter:{self._text(block.having)}"
        if block.qualify is not None:
            yield f"qualify:{self._text(block.qualify)}"
        tail = self._tail(block)
        if tail:
            yield tail.removeprefix(", ")

    def _tail(self, query: Query) -> str:
        facts = [f"sort:[{', '.join(map(self._key, query.order_by))}]"] if query.order_by else []
        facts += [f"limit:{query.limit}"] if query.limit is not None else []
        facts += [f"offset:{query.offset}"] if query.offset else []
        return "".join(f", {fact}" for fact in facts)

    def _relation(self, relation: Relation, depth: int) -> Iterator[_Line]:
        if isinstance(relation, Join):
            condition = "" if relation.condition is None else f", on:{self._text(relation.condition)}"
            yield f"STAGE_JOIN(kind:{relation.kind.value.removesuffix(' JOIN')}{condition})", depth, None
            yield from self._relation(relation.left, depth + 1)
            yield from self._relation(relation.right, depth + 1)
        elif isinstance(relation, Scan):
            name = self._names.get(relation.id, relation.table)
            yield f"STAGE_LEAF(table:{relation.table}, relation:{name})", depth, relation.id
        elif isinstance(relation, DerivedTable):
            yield from self.query(relation.query, depth)
        elif isinstance(relation, Named):
            yield f"STAGE_OF_WITH(name:{self._names.get(relation.common, relation.common)})", depth, None
        elif isinstance(relation, Unnest):
            yield f"STAGE_UNNEST(lists:[{self._texts(relation.lists)}])", depth, None
        else:
            yield f"STAGE_VALUES(rows:{len(relation.rows)})", depth, None

    def _texts(self, exprs: tuple[Expr, ...]) -> str:
        return ", ".join(map(self._text, exprs))

    def _key(self, key: OrderKey) -> str:
        return f"{self._text(key.expr)} {'ASC' if key.ascending else 'DESC'}"

    def _text(self, expr: Expr) -> str:
        return text_of(substituted(expr, self._renamed))

    def _renamed(self, expr: Expr) -> Expr | None:
        """Return a column with the query's name, or with the text of the window or subquery that it stands for. None if
        `expr` is no column."""
        if not isinstance(expr, Column):
            return None
        slot = self._slots.get(expr.name)
        if slot is None:
            return Column(self._names.get(expr.name, expr.name), expr.type)
        return Column(self._window(slot) if isinstance(slot, Window) else f"{slot.kind.value} subquery", expr.type)

    def _window(self, window: Window) -> str:
        parts = [f"PARTITION BY {self._texts(window.partition_by)}"] if window.partition_by else []
        parts += [f"ORDER BY {', '.join(map(self._key, window.order_by))}"] if window.order_by else []
        parts += [window.frame] if window.frame else []
        return f"{window.function}({self._texts(window.args)}) OVER ({' '.join(parts)})"
