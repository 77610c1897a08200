"""The typed tree of a query of several stages: relations over relations, with every name resolved.

The tree is immutable. Each relation in a FROM has an id that is unique in the statement, and its columns are called
`id.column`. Windows and subqueries are no expressions: an expression names their slot, a column that the block explains
in `slots`. `Block.exprs` yields the expressions of windows and the operands of subqueries too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from merlot.tree.nodes import Aggregate, Call, Column, Expr, OrderKey, Output
from merlot.tree.types import SqlType


class JoinKind(Enum):
    """Kinds of joins, by the words of SQL."""

    INNER = "INNER JOIN"
    LEFT = "LEFT JOIN"
    RIGHT = "RIGHT JOIN"
    FULL = "FULL JOIN"
    CROSS = "CROSS JOIN"
    SEMI = "SEMI JOIN"
    ANTI = "ANTI JOIN"
    ASOF = "ASOF JOIN"
    LEFT_ASOF = "ASOF LEFT JOIN"


class SetKind(Enum):
    """Set operations, by the word of SQL."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@dataclass(frozen=True, slots=True)
class Scan:
    """A table of the cluster."""

    id: str
    table: str
    """Table as written."""


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """A subquery in FROM; its columns are `id.c0`, `id.c1`, …"""

    id: str
    query: Query


@dataclass(frozen=True, slots=True)
class Named:
    """A reference in FROM to the query of WITH whose id is `common`; its columns are `id.c0`, …"""

    id: str
    common: str


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of constants; columns are named as in `DerivedTable`."""

    id: str
    rows: tuple[tuple[Expr, ...], ...]
    types: tuple[SqlType, ...]


@dataclass(frozen=True, slots=True)
class Unnest:
    """A row for each value of lists, which run in parallel. With `with_ordinality`, the last column is the value's
    position.

    The lists come from relations to the left. Columns are named as in `DerivedTable`."""

    id: str
    lists: tuple[Expr, ...]
    with_ordinality: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Two joined relations; without a condition it is a CROSS JOIN."""

    kind: JoinKind
    left: Relation
    right: Relation
    condition: Expr | None = None


Source = Scan | DerivedTable | Named | Values | Unnest
Relation = Source | Join


@dataclass(frozen=True, slots=True)
class Window:
    """A function OVER neighbouring rows; `frame` is the frame clause in canonical words, or empty."""

    function: str
    args: tuple[Expr, ...]
    type: SqlType
    partition_by: tuple[Expr, ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    frame: str = ""
    ignores_nulls: bool = False
    filter: Expr | None = None

    @property
    def has_distance(self) -> bool:
        """True if an end of the frame is a distance from the row's key."""
        return self.frame.startswith("RANGE") and any(letter.isdigit() for letter in self.frame)


GROUPING = "grouping"
"""Function of keys that tells which of them are missing in a group's set. Each key has a bit; the last key has the
lowest."""


class SubqueryKind(Enum):
    """Roles of a subquery inside an expression."""

    SCALAR = "scalar"
    EXISTS = "exists"
    IN = "in"
    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Subquery:
    """A subquery in an expression. IN, ANY and ALL compare `operands` with its columns."""

    kind: SubqueryKind
    query: Query
    type: SqlType
    operands: tuple[Expr, ...] = ()
    function: str = "equals"
    """Comparison of ANY and ALL."""


Slot = Window | Subquery


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """A SELECT."""

    source: Relation | None
    outputs: tuple[Output, ...]
    where: Expr | None = None
    group_by: tuple[Expr, ...] = ()
    grouping_sets: tuple[tuple[int, ...], ...] = ()
    """Positions of the keys in each set of GROUPING SETS, ROLLUP and CUBE; empty: all keys form the only set."""
    having: Expr | None = None
    qualify: Expr | None = None
    is_distinct: bool = False
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    slots: Mapping[str, Slot] = field(default_factory=dict)
    """Windows and subqueries by the columns `w0`, `q1`, … that stand for them in expressions."""

    @property
    def exprs(self) -> Iterator[Expr]:
        """All expressions of the block outside FROM, including those of windows and operands of subqueries."""
        yield from (output.expr for output in self.outputs)
        yield from (expr for expr in (self.where, self.having, self.qualify) if expr is not None)
        yield from self.group_by
        yield from (key.expr for key in self.order_by)
        for slot in self.slots.values():
            yield from slot_exprs(slot)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetOperation:
    """Rows of two queries, ordered by columns of the result."""

    kind: SetKind
    is_all: bool
    left: Query
    right: Query
    outputs: tuple[Output, ...]
    """Labels and types of the columns; the expressions are columns `c0`, `c1`, …"""
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0


Query = Block | SetOperation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statement:
    """A whole query of several stages."""

    query: Query
    common: tuple[tuple[str, Query], ...] = ()
    """Queries of WITH by id, each after the queries that it reads."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Tables as written, by the id of their scan."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The query's own names of relations, columns and queries of WITH, by their names in this tree."""
    options: tuple[tuple[str, str], ...] = ()
    explain: bool = False

    def option(self, name: str) -> str | None:
        """Return the value of a query option, by name without regard to case."""
        wanted = name.lower()
        return next((value for key, value in self.options if key.lower() == wanted), None)

    @property
    def null_handling(self) -> bool:
        """True if leaves see nulls (`enableNullHandling=true`). If not, they read default values."""
        return (self.option("enableNullHandling") or "").lower() == "true"


def slot_exprs(slot: Slot) -> Iterator[Expr]:
    """Yield the block's expressions that a window or subquery reads, but not those inside the subquery."""
    if isinstance(slot, Subquery):
        yield from slot.operands
        return
    yield from slot.args
    yield from slot.partition_by
    yield from (key.expr for key in slot.order_by)
    if slot.filter is not None:
        yield slot.filter


def columns_in(expr: Expr) -> Iterator[Column]:
    """Yield the columns that an expression names, including those in aggregates and their filters."""
    if isinstance(expr, Column):
        yield expr
    elif isinstance(expr, Call | Aggregate):
        for arg in expr.args:
            yield from columns_in(arg)
        if isinstance(expr, Aggregate) and expr.filter is not None:
            yield from columns_in(expr.filter)


def source_id(column: Column) -> str:
    """Return the id of a column's relation; empty for a slot."""
    owner, dot, _ = column.name.partition(".")
    return owner if dot else ""


def source_position(column: Column) -> int:
    """Return the position of a column in the output of its relation, which is a leaf or a subquery."""
    return int(column.name.partition(".c")[2])


def relations_in(relation: Relation | None) -> Iterator[Source]:
    """Yield the relations of a FROM, without its joins."""
    if isinstance(relation, Join):
        yield from relations_in(relation.left)
        yield from relations_in(relation.right)
    elif relation is not None:
        yield relation


def conditions_in(relation: Relation | None) -> Iterator[Expr]:
    """Yield the expressions of a FROM: conditions of its joins, and lists of UNNEST."""
    if isinstance(relation, Unnest):
        yield from relation.lists
    if isinstance(relation, Join):
        yield from conditions_in(relation.left)
        yield from conditions_in(relation.right)
        if relation.condition is not None:
            yield relation.condition


def queries_in(statement: Statement) -> Iterator[Query]:
    """Yield every query of a statement, subqueries included."""
    pending = [statement.query, *(query for _, query in statement.common)]
    while pending:
        query = pending.pop()
        yield query
        if isinstance(query, SetOperation):
            pending += [query.left, query.right]
            continue
        pending += [relation.query for relation in relations_in(query.source) if isinstance(relation, DerivedTable)]
        pending += [slot.query for slot in query.slots.values() if isinstance(slot, Subquery)]


def is_correlated(query: Query) -> bool:
    """Return True if the query reads columns of relations outside of it."""
    blocks = [block for block in queries_in(Statement(query=query)) if isinstance(block, Block)]
    own = {relation.id for block in blocks for relation in relations_in(block.source)}
    exprs = [expr for block in blocks for expr in (*block.exprs, *conditions_in(block.source))]
    return any(source_id(column) not in (*own, "") for expr in exprs for column in columns_in(expr))
