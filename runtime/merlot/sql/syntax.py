"""The syntax tree of a query: `parser` makes it and binding reads it. Names are not looked up, and nodes have no types.

Nodes have no parents. Columns and calls know the token that they were read from, so that errors of binding can show
their places. Nodes are not frozen, since a frozen dataclass takes three times as long to create, but nothing changes
them after parsing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, dataclass_transform

from merlot.tree import literals
from merlot.tree.nodes import Literal
from merlot.tree.types import STRING

T = TypeVar("T")


@dataclass_transform(eq_default=False)
def _node(cls: type[T]) -> type[T]:
    return dataclass(slots=True, eq=False)(cls)


class Node:
    """A node of the tree."""

    __slots__ = ()


N = TypeVar("N", bound=Node)


# Values


@_node
class Column(Node):
    """`name`, `t.name`; the qualifier is everything before the last dot."""

    name: str
    qualifier: str = ""
    is_quoted: bool = False
    token: int | None = None
    """Number of the token that the node was read from, the first if there are several; None if there is none."""


@_node
class Star(Node):
    """`*`, `t.*`"""

    qualifier: str = ""


@_node
class Number(Node):
    """A number without its sign, as written."""

    text: str


@_node
class Text(Node):
    """Value of `'text'`, without quotes."""

    value: str


@_node
class HexText(Node):
    """Digits of `X'00ff'`."""

    digits: str


@_node
class Boolean(Node):
    """TRUE or FALSE."""

    value: bool


@_node
class Null(Node):
    """NULL"""


@_node
class Constants(Node):
    """Constants of a long list: one node instead of a node for each."""

    text: str
    """The list as written between the parentheses."""
    values: tuple[int, ...] | tuple[str, ...] | tuple[Literal, ...]

    @property
    def literals(self) -> list[Literal]:
        """The values, with the types that they have when they are parsed one by one."""
        return [_typed(value) for value in self.values]

    @property
    def spelled(self) -> list[str]:
        """The values as written, without quotes."""
        if isinstance(self.values[0], str):
            return [str(value) for value in self.values]
        return [text.strip() for text in self.text.split(",")]


def _typed(value: int | str | Literal) -> Literal:
    if isinstance(value, Literal):
        return value
    return Literal(value, STRING) if isinstance(value, str) else literals.integer(value)


# Operators


@_node
class Paren(Node):
    """An expression in parentheses."""

    inner: Node


@_node
class Row(Node):
    """`(a, b)`, `()`"""

    items: Sequence[Node]


@_node
class Negative(Node):
    """`-a`"""

    operand: Node


@_node
class Operation(Node):
    """Arithmetic or `||`, by the name of the function: `plus`, `concat`."""

    function: str
    left: Node
    right: Node


@_node
class Comparison(Node):
    """`a = b`, by the name of the function: `equals`."""

    function: str
    left: Node
    right: Node


@_node
class Distinct(Node):
    """`a IS DISTINCT FROM b`, `a IS NOT DISTINCT FROM b`"""

    left: Node
    right: Node
    is_same: bool


@_node
class And(Node):
    """Conditions joined by AND."""

    parts: Sequence[Node]


@_node
class Or(Node):
    """Conditions joined by OR."""

    parts: Sequence[Node]


@_node
class Not(Node):
    """NOT, including that of NOT IN, NOT BETWEEN and IS NOT."""

    operand: Node


@_node
class In(Node):
    """`a IN (1, b)`"""

    subject: Node
    items: Sequence[Node]


@_node
class InQuery(Node):
    """`a IN (SELECT …)`"""

    subject: Node
    query: Query


@_node
class Between(Node):
    """`a BETWEEN low AND high`"""

    subject: Node
    low: Node
    high: Node
    is_symmetric: bool = False


@_node
class Like(Node):
    """`a [NOT] LIKE pattern [ESCAPE '!']`"""

    subject: Node
    pattern: Node
    escape: Node | None = None
    is_negated: bool = False


@_node
class IsNull(Node):
    """`a IS NULL`"""

    subject: Node


@_node
class IsTruth(Node):
    """`a IS TRUE`, `a IS FALSE`"""

    subject: Node
    truth: bool


@_node
class Quantified(Node):
    """`ANY (SELECT …)`, `ALL (SELECT …)`: the right side of a comparison."""

    is_all: bool
    query: Query


# Expressions with keywords of their own


@_node
class Case(Node):
    """CASE, perhaps with a subject: conditions with values, and the value of ELSE."""

    subject: Node | None
    branches: Sequence[tuple[Node, Node]]
    default: Node | None


@_node
class Cast(Node):
    """`CAST(a AS type)`; `type` has the type's words in upper case."""

    operand: Node
    type: str


@_node
class Extract(Node):
    """`EXTRACT(field FROM a)`"""

    field: str
    operand: Node


@_node
class Array(Node):
    """`ARRAY[a, b]`"""

    items: Sequence[Node]


@_node
class Element(Node):
    """`list[1]`"""

    subject: Node
    places: Sequence[Node]


@_node
class Call(Node):
    """`name(args)`, `name(DISTINCT args)`"""

    name: str
    args: Sequence[Node]
    is_distinct: bool = False
    token: int | None = None
    """Number of the name's token in the text; None if the node was not read from one."""


@_node
class Filter(Node):
    """`sum(a) FILTER (WHERE condition)`"""

    call: Node
    condition: Node


@_node
class WithinGroup(Node):
    """`listagg(a, ',') WITHIN GROUP (ORDER BY a)`"""

    call: Node
    order: Sequence[Ordered]


@_node
class NullsTreated(Node):
    """`lag(a) IGNORE NULLS`, or RESPECT NULLS."""

    call: Node
    is_ignoring: bool


@_node
class Window(Node):
    """`sum(a) OVER w`, `sum(a) OVER (PARTITION BY b)`"""

    call: Node
    definition: WindowDefinition


@_node
class WindowDefinition(Node):
    """Definition in the parentheses of OVER; `OVER w` has a name and nothing else."""

    name: str = ""
    partition_by: Sequence[Node] = ()
    order: Sequence[Ordered] = ()
    frame: Frame | None = None


@_node
class Frame(Node):
    """`ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES`"""

    kind: str
    start: Bound
    end: Bound
    exclude: str = ""


@_node
class Bound(Node):
    """An end of a frame: `CURRENT ROW`, `UNBOUNDED PRECEDING`, or `PRECEDING` and `FOLLOWING` with a distance."""

    side: str
    distance: Node | None = None


# Queries


@_node
class Alias(Node):
    """An expression of SELECT with a name."""

    value: Node
    name: str


@_node
class Ordered(Node):
    """A key of ORDER BY. Nulls are the largest values unless the text says where they go."""

    value: Node
    is_descending: bool
    nulls_first: bool


@_node
class Rollup(Node):
    """`ROLLUP (a, b)`"""

    keys: Sequence[Node]


@_node
class Cube(Node):
    """`CUBE (a, b)`"""

    keys: Sequence[Node]


@_node
class GroupingSets(Node):
    """`GROUPING SETS ((a, b), a, ())`"""

    sets: Sequence[Node]


@dataclass(slots=True, eq=False)
class Query(Node):
    """A query, with the clauses that every kind of query may have."""

    common: Sequence[Common] = field(default=(), kw_only=True)
    """Common table expressions, which WITH defines."""
    order: Sequence[Ordered] = field(default=(), kw_only=True)
    limit: int | None = field(default=None, kw_only=True)
    offset: int = field(default=0, kw_only=True)


@dataclass(slots=True, eq=False)
class Select(Query):
    """SELECT"""

    items: Sequence[Node]
    is_distinct: bool = False
    source: Relation | None = None
    joins: Sequence[Join] = ()
    where: Node | None = None
    group: Sequence[Node] = ()
    having: Node | None = None
    windows: Sequence[tuple[str, WindowDefinition]] = ()
    qualify: Node | None = None


@dataclass(slots=True, eq=False)
class SetOperation(Query):
    """Two queries joined by UNION, INTERSECT or EXCEPT."""

    kind: str
    is_all: bool
    left: Query
    right: Query


@dataclass(slots=True, eq=False)
class Subquery(Query):
    """A query in parentheses, also as an expression. Its clauses are those after the parentheses."""

    query: Query


@_node
class Exists(Node):
    """`EXISTS (SELECT …)`"""

    query: Query


@_node
class Common(Node):
    """`name (columns) AS (SELECT …)`"""

    name: str
    columns: Sequence[str]
    query: Query


@dataclass(slots=True, eq=False)
class Relation(Node):
    """An item of FROM, with its alias and the names of its columns."""

    alias: str = field(default="", kw_only=True)
    columns: Sequence[str] = field(default=(), kw_only=True)


@dataclass(slots=True, eq=False)
class Table(Relation):
    """A table by name, without the name of the only database."""

    name: str


@dataclass(slots=True, eq=False)
class Derived(Relation):
    """`(SELECT …)`; LATERAL sees the relations before it."""

    query: Query
    is_lateral: bool = False


@dataclass(slots=True, eq=False)
class Values(Relation):
    """`VALUES (1, 'a'), (2, 'b')`"""

    rows: Sequence[Sequence[Node]]


@dataclass(slots=True, eq=False)
class Unnest(Relation):
    """`UNNEST(list) WITH ORDINALITY`"""

    lists: Sequence[Node]
    with_ordinality: bool = False


@_node
class Join(Node):
    """A relation joined to those before it. `kind` is in upper case, without JOIN; it is empty for a comma."""

    relation: Relation
    kind: str
    on: Node | None = None
    using: Sequence[str] = ()
    match_condition: Node | None = None


def bare(node: Node) -> Node:
    """Return the expression without the parentheses around it."""
    while type(node) is Paren:
        node = node.inner
    return node


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below a node, in the order of their fields."""
    for name in _fields_of(type(node)):
        yield from _nodes_in(getattr(node, name))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, each before those below it."""
    pending = [node]
    while pending:
        parent = pending.pop()
        yield parent
        pending.extend(reversed(list(children(parent))))


def with_children(node: N, change: Callable[[Node], Node]) -> N:
    """Return a copy of the node in which `change` has replaced the nodes directly below it."""
    changed = {name: _changed(getattr(node, name), change) for name in _fields_of(type(node))}
    return replace(node, **changed)  # type: ignore[type-var]


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a copy of the tree in which `change` has replaced each node, after the nodes below it."""
    return change(with_children(node, lambda child: transform(child, change)))


def _changed(value: Any, change: Callable[[Node], Node]) -> Any:
    if isinstance(value, Node):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_changed(item, change) for item in value)
    return value


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _nodes_in(item)


def _fields_of(kind: type[Node]) -> Sequence[str]:
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    return names


_FIELDS: Final[dict[type[Node], Sequence[str]]] = {Constants: ()}
