"""The typed tree that binding makes of a query of one stage. Broker and servers both plan from it.

The tree is immutable and hashable, so that plans can be cached by it. Function names are canonical: lower case, one
name per function (`plus`, `equals`, `datetrunc`), as in `functions.registry`. `tree_json` encodes trees without loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from merlot.tree.types import BOOLEAN, SqlType

Value = int | float | str | bool | bytes | Decimal | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. TIMESTAMP values are epoch milliseconds (int). NULL has value None, and type UNKNOWN until it is
    converted to another type."""

    value: Value
    type: SqlType


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table's schema (or a virtual one, `$segmentName`)."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function over expressions; `and`, `or`, `not`, comparisons, `in`, `between`, `like`, `case` included.

    Binding guarantees the following, so that execution need not check it:
    - Comparisons (`equals`, `less_than`, …) and `between` have operands of one type; a literal is never on the left.
      The subject may be an array. Then the literals have the type of its elements; a positive predicate asks for any
      element, and `not_equals` and `not_in` for all.
    - `in`, `not_in`: args[0] is tested against the literals args[1:], two or more, of its type, none NULL.
    - `between`: args[1] and args[2] are literals. `like`: args[1] is a literal whose escape character is a backslash.
    - `case`: args are when1, then1, …, else (always present), the results of the call's type.
    - `and`, `or`, `not` and `case` test predicates: comparisons or each other, never a bare boolean value.
    - `cast`: the target is the call's type. `datetrunc` has all five arguments: unit, value, input unit, zone, output
      unit.
    - Arithmetic takes operands of mixed numeric types; its own type says what to compute in.
    """

    function: str
    args: tuple[Expr, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregation; `count` with no args is COUNT(*). `filter` is its FILTER (WHERE …)."""

    function: str
    args: tuple[Expr, ...]
    type: SqlType
    filter: Expr | None = None


Expr = Literal | Column | Call | Aggregate


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer: its label (Pinot's, e.g. `count(*)`, or the alias) and its expression."""

    label: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A key of ORDER BY. Nulls sort as the largest values unless stated: last when ascending, first when descending."""

    expr: Expr
    ascending: bool = True
    nulls_last: bool = True


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A SELECT over one table, with every name resolved and every expression typed."""

    table: str
    """Table as written: `flights`, `flights_OFFLINE`; empty for a SELECT without FROM, whose outputs are all
    literals."""
    select: tuple[Output, ...]
    distinct: bool = False
    where: Expr | None = None
    group_by: tuple[Expr, ...] = ()
    """Distinct keys. A multi-value key puts a row into the group of each of its values, as DISTINCT does; the groups'
    keys have the element's type."""
    having: Expr | None = None
    order_by: tuple[OrderKey, ...] = ()
    limit: int = 10
    offset: int = 0
    options: tuple[tuple[str, str], ...] = field(default=())
    """Query options by SET, OPTION(…) or the request, with names as the user wrote them, sorted."""
    explain: bool = False

    def option(self, name: str) -> str | None:
        """Return the value of a query option, by name without regard to case."""
        wanted = name.lower()
        return next((value for key, value in self.options if key.lower() == wanted), None)

    @property
    def null_handling(self) -> bool:
        """True if SQL's three-valued logic is on (`enableNullHandling=true`). If it is off, nulls are default
        values."""
        return (self.option("enableNullHandling") or "").lower() == "true"


TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)
