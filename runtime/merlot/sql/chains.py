"""Many conditions of a filter, joined by AND or by OR: read and bound without nodes for those that compare a column
with a constant.

A tenth of the time, of which `a = 1 OR a = 2 OR …` takes most in nodes of the syntax tree and in looking up one column
ten thousand times. What is bound is what the nodes would be bound to, its order included. Pure and safe on any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp

from merlot.sql import predicates
from merlot.sql.budget import Budget
from merlot.sql.logic import conjunction, disjunction
from merlot.tree import literals
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import BOOLEAN, STRING, SqlType
from merlot.values.types import TypeName

MIN_CONDITIONS: Final = 16
"""Of fewer, nodes are made."""

Comparison = tuple[str, type[exp.Expr], str]
"""`column = constant`: a name without quotes, the node that it is, and the constant as it is written."""
Part = exp.Expr | Comparison

_FUNCTIONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "equals",
    exp.NEQ: "not_equals",
    exp.LT: "less_than",
    exp.LTE: "less_than_or_equal",
    exp.GT: "greater_than",
    exp.GTE: "greater_than_or_equal",
}
_PLAIN_DIGITS: Final = 18
"""So many digits are a LONG, with or without a sign."""


class Chain(exp.Expression):
    """Conditions in place of nodes within nodes: `this` is AND or OR, `parts` a tuple of `Part`, in the order of the
    text, `expressions` a node for each column that is compared."""

    arg_types = {"this": True, "parts": True, "expressions": True}  # noqa: RUF012 (sqlglot's own idiom)


def joined(kind: type[exp.Connector], parts: Sequence[Part], *, is_labelled: bool) -> exp.Expr:
    """Conditions as one node, which has no label if it is a chain."""
    if is_labelled or len(parts) < MIN_CONDITIONS:
        left = node_of(parts[0])
        for part in parts[1:]:
            left = kind(this=left, expression=node_of(part))
        return left
    names = dict.fromkeys(part[0] for part in parts if isinstance(part, tuple))
    return Chain(this=kind, parts=tuple(parts), expressions=[_column(name) for name in names])


def node_of(part: Part) -> exp.Expr:
    """The node that the dialect's parser makes of a condition."""
    if not isinstance(part, tuple):
        return part
    name, kind, written = part
    return kind(this=_column(name), expression=_constant(written))


def _column(name: str) -> exp.Expr:
    return exp.Column(this=exp.Identifier(this=name, quoted=False))


def _constant(written: str) -> exp.Expr:
    if written[0] == "'":
        return exp.Literal(this=unquoted(written), is_string=True)
    if written[0] == "-":
        return exp.Neg(this=exp.Literal(this=written[1:], is_string=False))
    return exp.Literal(this=written, is_string=False)


def unquoted(written: str) -> str:
    """What a text between quotes says."""
    return written[1:-1].replace("''", "'")


def bound(
    chain: Chain,
    *,
    bind: Callable[[exp.Expr], Expr],
    condition: Callable[[exp.Expr], Expr],
    nulls: bool,
    budget: Budget,
) -> Expr:
    """A chain as the predicate that it is; raises what its conditions raise, the first one's error first."""
    is_any = chain.this is exp.Or
    binder = _ChainBinder(exp.EQ if is_any else exp.NEQ, "in" if is_any else "not_in", nulls)
    columns = {column.name: column for column in chain.expressions}
    subjects: dict[str, Expr] = {}
    known: dict[Expr, Expr] = {}
    for part in chain.args["parts"]:
        if not isinstance(part, tuple):
            binder.add(condition(part))
            continue
        budget.step()
        subject = subjects.get(part[0])
        if subject is None:
            found = bind(columns[part[0]])
            subject = subjects[part[0]] = known.setdefault(found, found)  # two names may be of one column
        binder.compare(part, subject)
    return (disjunction if is_any else conjunction)(binder.predicates())


class _ChainBinder:
    """Collects values that one column is asked for one after the other, which are one list in the end.

    A list ends where another condition may be of its column: `logic` merges all that are, in order."""

    def __init__(self, listing: type[exp.Expr], function: str, nulls: bool) -> None:
        self._listing = listing
        self._function = function
        self._single = _FUNCTIONS[listing]
        self._nulls = nulls
        self._found: list[Expr | tuple[Expr, dict[int | str, None]]] = []
        self._open: dict[int, dict[int | str, None]] = {}
        """By the `id` of the subject."""

    def add(self, predicate: Expr) -> None:
        """A condition of any columns."""
        self._open.clear()
        self._found.append(predicate)

    def compare(self, comparison: Comparison, subject: Expr) -> None:
        """A comparison of a column, or of what its name stands for: one object for all that are equal."""
        _, kind, written = comparison
        value = _plain_value(written, subject) if kind is self._listing else None
        if value is None:
            self._open.pop(id(subject), None)
            constant = _literal(written)
            self._found.append(predicates.compare(_FUNCTIONS[kind], subject, constant, nulls=self._nulls))
            return
        values = self._open.get(id(subject))
        if values is None:
            values = self._open[id(subject)] = {}
            self._found.append((subject, values))
        values[value] = None

    def predicates(self) -> list[Expr]:
        """All conditions, a list's where its first value stood."""
        return [self._listed(*one) if isinstance(one, tuple) else one for one in self._found]

    def _listed(self, subject: Expr, values: dict[int | str, None]) -> Expr:
        element = SqlType(subject.type.base)
        constants = (Literal(value, element) for value in values)
        return Call(self._single if len(values) == 1 else self._function, (subject, *constants), BOOLEAN)


def _plain_value(written: str, subject: Expr) -> int | str | None:
    """The value, if it is one that the subject may have as it is written."""
    base = subject.type.base
    if isinstance(subject, Literal):
        return None
    if base is TypeName.STRING:
        return unquoted(written) if written[0] == "'" else None
    span = literals.INTEGER_RANGES.get(base)
    if span is None or len(written) > _PLAIN_DIGITS or not written.lstrip("-").isdigit():
        return None
    value = int(written)
    return value if span[0] <= value <= span[1] else None


def _literal(written: str) -> Literal:
    return Literal(unquoted(written), STRING) if written[0] == "'" else literals.number(written)
