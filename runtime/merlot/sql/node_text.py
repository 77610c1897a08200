"""Write a tree as text again: for errors that quote a part of a query, and for tests that read it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from merlot.sql import syntax
from merlot.sql.syntax import Node

_SIGNS: Final = {
    "plus": "+",
    "minus": "-",
    "times": "*",
    "divide": "/",
    "mod": "%",
    "concat": "||",
    "equals": "=",
    "not_equals": "<>",
    "less_than": "<",
    "less_than_or_equal": "<=",
    "greater_than": ">",
    "greater_than_or_equal": ">=",
}


def node_text(node: Node) -> str:
    """Return a text that is read as this tree."""
    return _WRITERS[type(node)](node)


def _list(nodes: Iterable[Node]) -> str:
    return ", ".join(map(node_text, nodes))


def _name(name: str, *, is_quoted: bool = True) -> str:
    return '"' + name.replace('"', '""') + '"' if is_quoted else name


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))


def _words(*words: str) -> str:
    """Join the words that are not empty with blanks."""
    return " ".join(filter(None, words))


def _column(node: syntax.Column) -> str:
    name = _name(node.name, is_quoted=node.is_quoted)
    return f"{node.qualifier}.{name}" if node.qualifier else name


def _operation(node: syntax.Operation | syntax.Comparison) -> str:
    return f"{node_text(node.left)} {_SIGNS[node.function]} {node_text(node.right)}"


def _negative(node: syntax.Negative) -> str:
    inner = node_text(node.operand)
    return f"- {inner}" if inner.startswith("-") else f"-{inner}"


def _distinct(node: syntax.Distinct) -> str:
    return f"{node_text(node.left)} IS {'NOT ' if node.is_same else ''}DISTINCT FROM {node_text(node.right)}"


def _not(node: syntax.Not) -> str:
    match node.operand:
        case syntax.IsNull(subject):
            return f"{node_text(subject)} IS NOT NULL"
        case syntax.IsTruth(subject, truth):
            return f"{node_text(subject)} IS NOT {str(truth).upper()}"
    return f"NOT {node_text(node.operand)}"


def _between(node: syntax.Between) -> str:
    word = "BETWEEN SYMMETRIC" if node.is_symmetric else "BETWEEN"
    return f"{node_text(node.subject)} {word} {node_text(node.low)} AND {node_text(node.high)}"


def _like(node: syntax.Like) -> str:
    escape = "" if node.escape is None else f" ESCAPE {node_text(node.escape)}"
    return f"{node_text(node.subject)} {'NOT ' if node.is_negated else ''}LIKE {node_text(node.pattern)}{escape}"


def _case(node: syntax.Case) -> str:
    branches = (f"WHEN {node_text(test)} THEN {node_text(value)}" for test, value in node.branches)
    subject = "" if node.subject is None else node_text(node.subject)
    default = "" if node.default is None else f"ELSE {node_text(node.default)}"
    return _words("CASE", subject, *branches, default, "END")


def _call(node: syntax.Call) -> str:
    return f"{node.name}({'DISTINCT ' if node.is_distinct else ''}{_list(node.args)})"


def _definition(node: syntax.WindowDefinition) -> str:
    return _words(
        _name(node.name) if node.name else "",
        f"PARTITION BY {_list(node.partition_by)}" if node.partition_by else "",
        f"ORDER BY {_list(node.order)}" if node.order else "",
        "" if node.frame is None else node_text(node.frame),
    )


def _frame(node: syntax.Frame) -> str:
    exclude = f"EXCLUDE {node.exclude}" if node.exclude else ""
    return _words(node.kind, "BETWEEN", node_text(node.start), "AND", node_text(node.end), exclude)


def _bound(node: syntax.Bound) -> str:
    return node.side if node.distance is None else f"{node_text(node.distance)} {node.side}"


def _ordered(node: syntax.Ordered) -> str:
    nulls = f"NULLS {'FIRST' if node.nulls_first else 'LAST'}"
    return _words(node_text(node.value), "DESC" if node.is_descending else "ASC", nulls)


def _common(node: syntax.Common) -> str:
    columns = f"({_names(node.columns)})" if node.columns else ""
    return f"{_name(node.name)}{columns} AS ({node_text(node.query)})"


def _with_clauses(node: syntax.Query, text: str) -> str:
    return _words(
        f"WITH {_list(node.common)}" if node.common else "",
        text,
        f"ORDER BY {_list(node.order)}" if node.order else "",
        "" if node.limit is None else f"LIMIT {node.limit}",
        f"OFFSET {node.offset}" if node.offset else "",
    )


def _select(node: syntax.Select) -> str:
    windows = ", ".join(f"{_name(name)} AS ({_definition(window)})" for name, window in node.windows)
    text = _words(
        "SELECT DISTINCT" if node.is_distinct else "SELECT",
        _list(node.items),
        "" if node.source is None else f"FROM {node_text(node.source)}",
        *map(node_text, node.joins),
        "" if node.where is None else f"WHERE {node_text(node.where)}",
        f"GROUP BY {_list(node.group)}" if node.group else "",
        "" if node.having is None else f"HAVING {node_text(node.having)}",
        f"WINDOW {windows}" if windows else "",
        "" if node.qualify is None else f"QUALIFY {node_text(node.qualify)}",
    )
    return _with_clauses(node, text)


def _set_operation(node: syntax.SetOperation) -> str:
    kind = f"{node.kind} ALL" if node.is_all else node.kind
    return _with_clauses(node, f"{node_text(node.left)} {kind} {node_text(node.right)}")


def _relation(node: syntax.Relation, text: str) -> str:
    columns = f"({_names(node.columns)})" if node.columns else ""
    return _words(text, f"AS {_name(node.alias)}{columns}" if node.alias else columns)


def _table(node: syntax.Table) -> str:
    return _relation(node, ".".join(map(_name, node.name.split("."))))


def _derived(node: syntax.Derived) -> str:
    return _relation(node, f"{'LATERAL ' if node.is_lateral else ''}({node_text(node.query)})")


def _values(node: syntax.Values) -> str:
    return _relation(node, f"(VALUES {', '.join(f'({_list(row)})' for row in node.rows)})")


def _unnest(node: syntax.Unnest) -> str:
    return _relation(node, f"UNNEST({_list(node.lists)}){' WITH ORDINALITY' if node.with_ordinality else ''}")


def _join(node: syntax.Join) -> str:
    if not node.kind:
        return f", {node_text(node.relation)}"
    return _words(
        f"{node.kind} JOIN {node_text(node.relation)}",
        "" if node.match_condition is None else f"MATCH_CONDITION({node_text(node.match_condition)})",
        "" if node.on is None else f"ON {node_text(node.on)}",
        f"USING ({_names(node.using)})" if node.using else "",
    )


def _window(node: syntax.Window) -> str:
    return f"{node_text(node.call)} OVER ({_definition(node.definition)})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _bracketed(before: str, nodes: Sequence[Node], after: str) -> str:
    return f"{before}{_list(nodes)}{after}"


_WRITERS: Final[dict[type[Node], Callable[[Any], str]]] = {
    syntax.Column: _column,
    syntax.Star: lambda node: f"{node.qualifier}.*" if node.qualifier else "*",
    syntax.Number: lambda node: node.text,
    syntax.Text: lambda node: _text(node.value),
    syntax.HexText: lambda node: f"X'{node.digits}'",
    syntax.Boolean: lambda node: str(node.value).upper(),
    syntax.Null: lambda _node: "NULL",
    syntax.Constants: lambda node: node.text,
    syntax.Paren: lambda node: f"({node_text(node.inner)})",
    syntax.Row: lambda node: _bracketed("(", node.items, ")"),
    syntax.Negative: _negative,
    syntax.Operation: _operation,
    syntax.Comparison: _operation,
    syntax.Distinct: _distinct,
    syntax.And: lambda node: " AND ".join(map(node_text, node.parts)),
    syntax.Or: lambda node: " OR ".join(map(node_text, node.parts)),
    syntax.Not: _not,
    syntax.In: lambda node: f"{node_text(node.subject)} IN ({_list(node.items)})",
    syntax.InQuery: lambda node: f"{node_text(node.subject)} IN ({node_text(node.query)})",
    syntax.Between: _between,
    syntax.Like: _like,
    syntax.IsNull: lambda node: f"{node_text(node.subject)} IS NULL",
    syntax.IsTruth: lambda node: f"{node_text(node.subject)} IS {str(node.truth).upper()}",
    syntax.Quantified: lambda node: f"{'ALL' if node.is_all else 'ANY'} ({node_text(node.query)})",
    syntax.Case: _case,
    syntax.Cast: lambda node: f"CAST({node_text(node.operand)} AS {node.type})",
    syntax.Extract: lambda node: f"EXTRACT({node.field} FROM {node_text(node.operand)})",
    syntax.Array: lambda node: _bracketed("ARRAY[", node.items, "]"),
    syntax.Element: lambda node: f"{node_text(node.subject)}[{_list(node.places)}]",
    syntax.Call: _call,
    syntax.Filter: lambda node: f"{node_text(node.call)} FILTER (WHERE {node_text(node.condition)})",
    syntax.WithinGroup: lambda node: f"{node_text(node.call)} WITHIN GROUP (ORDER BY {_list(node.order)})",
    syntax.NullsTreated: lambda node: f"{node_text(node.call)} {'IGNORE' if node.is_ignoring else 'RESPECT'} NULLS",
    syntax.Window: _window,
    syntax.WindowDefinition: _definition,
    syntax.Frame: _frame,
    syntax.Bound: _bound,
    syntax.Alias: lambda node: f"{node_text(node.value)} AS {_name(node.name)}",
    syntax.Ordered: _ordered,
    syntax.Rollup: lambda node: _bracketed("ROLLUP (", node.keys, ")"),
    syntax.Cube: lambda node: _bracketed("CUBE (", node.keys, ")"),
    syntax.GroupingSets: lambda node: _bracketed("GROUPING SETS (", node.sets, ")"),
    syntax.Select: _select,
    syntax.SetOperation: _set_operation,
    syntax.Subquery: lambda node: _with_clauses(node, f"({node_text(node.query)})"),
    syntax.Exists: lambda node: f"EXISTS ({node_text(node.query)})",
    syntax.Common: _common,
    syntax.Table: _table,
    syntax.Derived: _derived,
    syntax.Values: _values,
    syntax.Unnest: _unnest,
    syntax.Join: _join,
}
