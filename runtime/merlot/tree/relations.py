"""The typed tree of a query of more than one stage: relations over relations, every name resolved.

Immutable. Each relation in a FROM has an id that no other of the statement has, and its columns are called `id.column`.
Windows and subqueries are not expressions: an expression names their slot, a column that the block explains in `slots`.
So what reads expressions reads these, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from merlot.tree.nodes import Aggregate, Call, Column, Expr, OrderKey, Output
from merlot.tree.types import SqlType


class JoinKind(Enum):
    """How two relations meet, by the word of SQL."""

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
    """As written."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery in FROM; its columns are `id.c0`, `id.c1`, …"""

    id: str
    query: Query


@dataclass(frozen=True, slots=True)
class Named:
    """A query of WITH, by its name's id; its columns are `id.c0`, …"""

    id: str
    common: str


@dataclass(frozen=True, slots=True)
class Values:
    """Rows of constants; columns as of `Derived`."""

    id: str
    rows: tuple[tuple[Expr, ...], ...]
    types: tuple[SqlType, ...]


@dataclass(frozen=True, slots=True)
class Unnest:
    """A row for each value of lists, which stand beside each other; the last column is their place, if that is asked.

    The lists are of relations to its left. Columns as of `Derived`."""

    id: str
    lists: tuple[Expr, ...]
    has_places: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Two relations; no condition makes it a CROSS JOIN."""

    kind: JoinKind
    left: Relation
    right: Relation
    condition: Expr | None = None


Source = Scan | Derived | Named | Values | Unnest
Relation = Source | Join


@dataclass(frozen=True, slots=True)
class Window:
    """A function OVER rows near by; `frame` is the frame clause in canonical words, or empty."""

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
        """Whether the frame goes so far from a row's key as a number says."""
        return self.frame.startswith("RANGE") and any(letter.isdigit() for letter in self.frame)


GROUPING = "grouping"
"""The function of keys that tells which of them a group's set lacks: a bit each, the last one's the least."""


class SubqueryKind(Enum):
    """What a subquery inside an expression is for."""

    SCALAR = "scalar"
    EXISTS = "exists"
    IN = "in"
    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Subquery:
    """A subquery in an expression. `operands` are what IN, ANY and ALL compare with its columns."""

    kind: SubqueryKind
    query: Query
    type: SqlType
    operands: tuple[Expr, ...] = ()
    function: str = "equals"
    """The comparison of ANY and ALL."""


Slot = Window | Subquery


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """One SELECT."""

    source: Relation | None
    outputs: tuple[Output, ...]
    where: Expr | None = None
    group_by: tuple[Expr, ...] = ()
    grouping_sets: tuple[tuple[int, ...], ...] = ()
    """Places of the keys of each set of GROUPING SETS, ROLLUP and CUBE; none: one set of all keys."""
    having: Expr | None = None
    qualify: Expr | None = None
    is_distinct: bool = False
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    slots: Mapping[str, Slot] = field(default_factory=dict)
    """What columns called `w0`, `q1`, … of its expressions stand for."""

    @property
    def exprs(self) -> Iterator[Expr]:
        """All of its expressions, those of windows and operands of subqueries included."""
        yield from (output.expr for output in self.outputs)
        yield from (expr for expr in (self.where, self.having, self.qualify) if expr is not None)
        yield from self.group_by
        yield from (key.expr for key in self.order_by)
        for slot in self.slots.values():
            yield from slot_exprs(slot)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetOperation:
    """Rows of two queries; ordered by the places of its columns."""

    kind: SetKind
    is_all: bool
    left: Query
    right: Query
    outputs: tuple[Output, ...]
    """Labels and types; the expressions are columns `c0`, `c1`, …"""
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0


Query = Block | SetOperation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statement:
    """A query of more than one stage, whole."""

    query: Query
    common: tuple[tuple[str, Query], ...] = ()
    """Queries of WITH by id, each after those that it reads."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Tables as written, by the id of their scan."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Relations, their columns and queries of WITH as the query calls them, by what they are called here."""
    options: tuple[tuple[str, str], ...] = ()
    explain: bool = False

    def option(self, name: str) -> str | None:
        """Value of a query option, by name without regard to case."""
        wanted = name.lower()
        return next((value for key, value in self.options if key.lower() == wanted), None)

    @property
    def null_handling(self) -> bool:
        """Whether leaves see nulls (`enableNullHandling=true`); off, they read default values."""
        return (self.option("enableNullHandling") or "").lower() == "true"


def slot_exprs(slot: Slot) -> Iterator[Expr]:
    """Expressions of the block that a window or a subquery reads; not those inside the subquery."""
    if isinstance(slot, Subquery):
        yield from slot.operands
        return
    yield from slot.args
    yield from slot.partition_by
    yield from (key.expr for key in slot.order_by)
    if slot.filter is not None:
        yield slot.filter


def columns_in(expr: Expr) -> Iterator[Column]:
    """Columns that an expression names, aggregates and their filters included."""
    if isinstance(expr, Column):
        yield expr
    elif isinstance(expr, Call | Aggregate):
        for arg in expr.args:
            yield from columns_in(arg)
        if isinstance(expr, Aggregate) and expr.filter is not None:
            yield from columns_in(expr.filter)


def source_id(column: Column) -> str:
    """The relation that a column is of; empty for a slot."""
    owner, dot, _ = column.name.partition(".")
    return owner if dot else ""


def relations_in(relation: Relation | None) -> Iterator[Source]:
    """The relations of a FROM, joins left out."""
    if isinstance(relation, Join):
        yield from relations_in(relation.left)
        yield from relations_in(relation.right)
    elif relation is not None:
        yield relation


def conditions_in(relation: Relation | None) -> Iterator[Expr]:
    """Expressions of a FROM: conditions of its joins, and lists that are taken apart."""
    if isinstance(relation, Unnest):
        yield from relation.lists
    if isinstance(relation, Join):
        yield from conditions_in(relation.left)
        yield from conditions_in(relation.right)
        if relation.condition is not None:
            yield relation.condition


def queries_in(statement: Statement) -> Iterator[Query]:
    """Every query of a statement, subqueries included."""
    pending = [statement.query, *(query for _, query in statement.common)]
    while pending:
        query = pending.pop()
        yield query
        if isinstance(query, SetOperation):
            pending += [query.left, query.right]
            continue
        pending += [relation.query for relation in relations_in(query.source) if isinstance(relation, Derived)]
        pending += [slot.query for slot in query.slots.values() if isinstance(slot, Subquery)]


def is_correlated(query: Query) -> bool:
    """Whether it reads columns of relations that are not its own."""
    blocks = [block for block in queries_in(Statement(query=query)) if isinstance(block, Block)]
    own = {relation.id for block in blocks for relation in relations_in(block.source)}
    exprs = [expr for block in blocks for expr in (*block.exprs, *conditions_in(block.source))]
    return any(source_id(column) not in (*own, "") for expr in exprs for column in columns_in(expr))
