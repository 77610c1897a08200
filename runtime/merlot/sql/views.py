"""Bind what an identity sees of a table: predicates over its rows, columns that do not exist, and masks.

A row filter is bound over the whole table, in three-valued logic whatever a query's options say: otherwise an option
would show rows. A mask is an expression of its own column alone, so that no error about it names another. A view that
does not fit its table is refused as a whole. Pure; any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from merlot.errors import AccessDeniedError, InvalidInputError
from merlot.functions.conversion import cast_to
from merlot.functions.instants import Moment
from merlot.security.access import AccessView, RowFilter, UnitedFilter
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql.boolean_logic import conjunction, disjunction, without_null_verdict
from merlot.sql.budget import Budget
from merlot.sql.expressions import Binder, Fold
from merlot.sql.parse import parse_statement
from merlot.sql.scope import Scope
from merlot.sql.syntax import Alias, Node, Select, Star, Table
from merlot.tree.errors import SqlParseError, SqlValidationError
from merlot.tree.nodes import Call, Column, Expr
from merlot.tree.types import SqlType
from merlot.values.types import TypeName

_TABLE: Final = "t"
"""Name of the table in the queries that filters and masks are read from."""
_PARSED_TEXTS: Final = 1_024


class UnusableViewError(AccessDeniedError):
    """Raised if what an access document says of a table does not fit the table: the query is refused."""


@dataclass(frozen=True, slots=True)
class BindContext:
    """Inputs of binding, apart from the text and the table. `fold` computes calls of constants, `moment` is the time of
    the query."""

    fold: Fold
    moment: Moment | None = None
    budget: Budget | None = None


@dataclass(frozen=True, slots=True)
class VisibleColumns:
    """A table's columns as an identity sees them."""

    schema: TableSchema
    """The columns that exist for the identity."""
    masks: Mapping[str, Expr]
    """Expression by the column that it stands for."""

    def expression(self, field: FieldSpec, column: Column) -> Expr:
        """Return the mask of a column, or the column."""
        return self.masks.get(field.name, column)


def row_filter(view: AccessView, table: str, schema: TableSchema, context: BindContext) -> Expr:
    """Return the predicate of the rows that are seen, in three-valued logic. Raise UnusableViewError."""
    return conjunction([_refusing(table, _bound_filter, each, schema, context) for each in view.row_filters])


def visible_columns(
    view: AccessView, table: str, schema: TableSchema, context: BindContext, *, nulls: bool, prefix: str = ""
) -> VisibleColumns:
    """Return the columns that exist, and the masks. `nulls`: masks are in three-valued logic; `prefix` begins the names
    of the columns that masks read. Raise UnusableViewError."""
    masks = {}
    for field in schema.fields:
        text = view.masks.get(field.name.lower())
        if text is not None and field.name.lower() not in view.hidden:
            masks[field.name] = _refusing(table, _bound_mask, text, field, context, nulls=nulls)
    if prefix:
        masks = {name: _prefixed(mask, prefix) for name, mask in masks.items()}
    return VisibleColumns(without(schema, view.hidden), masks)


def without(schema: TableSchema, hidden: frozenset[str]) -> TableSchema:
    """Return the schema without columns, which are named in lower case. A key that has lost a column is none."""
    if not hidden:
        return schema
    fields = tuple(field for field in schema.fields if field.name.lower() not in hidden)
    is_key = not any(name.lower() in hidden for name in schema.primary_key)
    return TableSchema.model_construct(fields=fields, primary_key=schema.primary_key if is_key else ())


def check_view(view: AccessView, schema: TableSchema, *, fold: Fold = lambda call: call) -> list[str]:
    """Return the problems of a view of a table with this schema, a line each: predicates and masks that cannot be
    bound, and columns that the table does not have."""
    context = BindContext(fold, Moment(0))
    fields = {field.name.lower(): field for field in schema.fields}
    problems = [f"row filter cannot be bound: {problem}" for problem in _problems_of_filters(view, schema, context)]
    problems += [f"hidden column does not exist column={name}" for name in sorted(view.hidden - fields.keys())]
    for name, text in sorted(view.masks.items()):
        if name not in fields:
            problems.append(f"masked column does not exist column={name}")
        elif (problem := _problem(_bound_mask, text, fields[name], context, nulls=True)) is not None:
            problems.append(f"mask cannot be bound column={name}: {problem}")
    if fields.keys() <= view.hidden:
        problems.append("all columns are hidden: grant no right to query the table instead")
    return problems


def _problems_of_filters(view: AccessView, schema: TableSchema, context: BindContext) -> list[str]:
    problems = (_problem(_bound_filter, each, schema, context) for each in view.row_filters)
    return [problem for problem in problems if problem is not None]


def _problem(bind: Callable[..., Expr], *args: object, **settings: object) -> str | None:
    try:
        bind(*args, **settings)
    except InvalidInputError as error:
        return str(error)
    return None


def _refusing(table: str, bind: Callable[..., Expr], *args: object, **settings: object) -> Expr:
    """Bind, and refuse without the reason, which may name what the identity does not see: `check_view` tells it."""
    try:
        return bind(*args, **settings)
    except InvalidInputError as error:
        raise UnusableViewError(
            f"the access document's filters or masks do not fit the table table={table}: have its owner check them"
        ) from error


def _bound_filter(predicate: RowFilter, schema: TableSchema, context: BindContext) -> Expr:
    if isinstance(predicate, UnitedFilter):
        alternatives = ([_bound_filter(each, schema, context) for each in every] for every in predicate.alternatives)
        return disjunction(map(conjunction, alternatives))
    select = _parsed(f"SELECT 1 FROM {_TABLE} WHERE {predicate}")
    if select.where is None:
        raise SqlParseError("a row filter is a condition")
    scope = Scope(None, schema, has_virtual_columns=False)
    return without_null_verdict(_binder(scope, "a row filter", context, nulls=True).condition(select.where))


def _bound_mask(text: str, field: FieldSpec, context: BindContext, *, nulls: bool) -> Expr:
    node = _expression(_parsed(f"SELECT {text} FROM {_TABLE}"))
    own = TableSchema.model_construct(fields=(field,), primary_key=())
    bound = _binder(Scope(None, own, has_virtual_columns=False), "a mask", context, nulls=nulls).bind(node)
    type_ = SqlType(TypeName(field.type), field.multi_value)
    return cast_to(bound, type_) if bound.type.base is TypeName.UNKNOWN else bound


def _binder(scope: Scope, place: str, context: BindContext, *, nulls: bool) -> Binder:
    return Binder(
        scope,
        context.fold,
        context.moment,
        nulls=nulls,
        place=place,
        allows_aggregates=False,
        budget=context.budget or Budget(),
    )


def _expression(select: Select) -> Node:
    (node, *others) = select.items
    if others or select.where is not None or isinstance(node, Alias | Star):
        raise SqlParseError("a mask is one expression without a name")
    return node


@functools.lru_cache(maxsize=_PARSED_TEXTS)
def _parsed(sql: str) -> Select:
    """Return a SELECT without anything but its items, its table and its WHERE. Raise SqlParseError or
    SqlValidationError."""
    statement = parse_statement(sql)
    select = statement.tree
    if statement.has_stages or statement.options or statement.explain or not isinstance(select, Select):
        raise SqlValidationError("filters and masks have no subqueries, windows or options")
    clauses = (select.group, select.having, select.order, select.joins, select.windows, select.qualify, select.common)
    is_whole = isinstance(select.source, Table) and select.source.name == _TABLE and not select.source.alias
    if any(clauses) or not is_whole or select.limit is not None or select.offset or select.is_distinct:
        raise SqlValidationError("filters and masks have no further clauses")
    return select


def _prefixed(expr: Expr, prefix: str) -> Expr:
    if isinstance(expr, Column):
        return Column(f"{prefix}{expr.name}", expr.type)
    if isinstance(expr, Call):
        return Call(expr.function, tuple(_prefixed(arg, prefix) for arg in expr.args), expr.type)
    return expr
