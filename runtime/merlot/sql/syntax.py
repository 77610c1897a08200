"""The syntax tree of a query: what `parser` makes and binding reads. Names are not looked up, nothing has a type.

Nodes have no parents and no places in the text. They are not frozen, since a frozen dataclass takes three times as
long to make; nobody changes one after it was parsed.
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
    """A piece of a query."""

    __slots__ = ()


N = TypeVar("N", bound=Node)


# Values


@_node
class Column(Node):
    """`name`, `t.name`; whatever stands before the last dot is the qualifier."""

    name: str
    qualifier: str = ""
    is_quoted: bool = False


@_node
class Star(Node):
    """`*`, `t.*`"""

    qualifier: str = ""


@_node
class Number(Node):
    """A number without its sign, as it is written."""

    text: str


@_node
class Text(Node):
    """`'text'`, without its quotes."""

    value: str


@_node
class HexText(Node):
    """`X'00ff'`, its digits."""

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
    """The values of a long list, in place of as many nodes."""

    text: str
    """As it is written between the parentheses."""
    values: tuple[int, ...] | tuple[str, ...] | tuple[Literal, ...]

    @property
    def literals(self) -> list[Literal]:
        """The values, typed as they are when they are parsed one by one."""
        return [_typed(value) for value in self.values]

    @property
    def spelled(self) -> list[str]:
        """The values as they are written, without quotes."""
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
    """Arithmetic, or `||`, by the name of its function: `plus`, `concat`."""

    function: str
    left: Node
    right: Node


@_node
class Comparison(Node):
    """`a = b`, by the name of its function: `equals`."""

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
    """NOT, also that of NOT IN, NOT BETWEEN and IS NOT."""

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


# Forms with words of their own


@_node
class Case(Node):
    """CASE, perhaps of a subject: conditions and values, and what else is answered."""

    subject: Node | None
    branches: Sequence[tuple[Node, Node]]
    default: Node | None


@_node
class Cast(Node):
    """`CAST(a AS type)`; the type's words in upper case."""

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
    """What stands in the parentheses of OVER; the name of a window alone has no parts."""

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
    """A key of ORDER BY. Nulls are the largest unless the text says where they go."""

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
    """A query, and the clauses that any may have."""

    common: Sequence[Common] = field(default=(), kw_only=True)
    """Queries of WITH."""
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
    """A query in parentheses, as an expression too; its clauses are those after the parentheses."""

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
    """An item of FROM with its alias and names for its columns."""

    alias: str = field(default="", kw_only=True)
    columns: Sequence[str] = field(default=(), kw_only=True)


@dataclass(slots=True, eq=False)
class Table(Relation):
    """A table by its name, without that of the only database."""

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
    has_places: bool = False


@_node
class Join(Node):
    """A relation joined to those before it; `kind` in upper case without JOIN, empty for a comma."""

    relation: Relation
    kind: str
    on: Node | None = None
    using: Sequence[str] = ()
    match_condition: Node | None = None


def bare(node: Node) -> Node:
    """The expression without the parentheses around it."""
    while type(node) is Paren:
        node = node.inner
    return node


def children(node: Node) -> Iterator[Node]:
    """The nodes right below a node, in the order of their fields."""
    for name in _fields_of(type(node)):
        yield from _nodes_in(getattr(node, name))


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, a node before those below."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(list(children(found))))


def with_children(node: N, change: Callable[[Node], Node]) -> N:
    """A node like this one, with the nodes right below it changed."""
    changed = {name: _changed(getattr(node, name), change) for name in _fields_of(type(node))}
    return replace(node, **changed)  # type: ignore[type-var]


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """The tree with each node changed after those below it; the given tree stays as it is."""
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
    found = _FIELDS.get(kind)
    if found is None:
        found = _FIELDS[kind] = tuple(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    return found


_FIELDS: Final[dict[type[Node], Sequence[str]]] = {Constants: ()}
