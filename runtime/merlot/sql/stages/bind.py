"""Bind a parsed statement to the schemas of its tables: every SELECT becomes a `Block`, every relation gets an id.

Expressions are bound as in queries of one stage, in three-valued logic: joins and subqueries produce nulls, whatever
the leaves read. Result columns are named as by Pinot's multi-stage engine: an alias, a column's name, or `EXPR$0` by
position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from merlot.functions.conversion import cast_to, common_type
from merlot.functions.instants import Moment
from merlot.security.access import AccessView
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql import limits, query_options, syntax
from merlot.sql.bind import bind_order_by, bind_where, merge_options, ordinal
from merlot.sql.budget import Budget
from merlot.sql.expressions import Binder, Fold
from merlot.sql.parse import ParsedStatement
from merlot.sql.stages.grouping import bind_grouping
from merlot.sql.stages.joins import asof_condition, join_kind
from merlot.sql.stages.rules import check_block
from merlot.sql.stages.scope import ScopeRelation, StageScope
from merlot.sql.stages.slots import Slots
from merlot.sql.unsupported_features import feature_name
from merlot.sql.views import BindContext, VisibleColumns, visible_columns
from merlot.tree.errors import SqlValidationError, UnknownNameError, UnsupportedSqlError
from merlot.tree.nodes import Call, Column, Expr, OrderKey, Output
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    JoinKind,
    Named,
    Query,
    Relation,
    Scan,
    SetKind,
    SetOperation,
    Statement,
    Unnest,
    Values,
)
from merlot.tree.types import INT, SqlType
from merlot.values.types import TypeName

MAX_RELATIONS = 100
"""Most tables, subqueries and uses of WITH's names in a statement: each leaf is a request to servers."""
FindSchema = Callable[[str], TableSchema]
"""Returns the schema of a table by its name as written. Raises NotFoundError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """Inputs of binding, apart from the statement."""

    find_schema: FindSchema
    views: Mapping[str, AccessView] = field(default_factory=dict)
    """Views of the tables that the asker does not see whole, by name as written; read after the schema."""
    fold: Fold
    moment: Moment | None = None
    budget: Budget


def bind_statement(parsed: ParsedStatement, context: StageContext, options: Mapping[str, str]) -> Statement:
    """Return the typed tree. Raise the errors of `sql.bind.bind` and of `find_schema`."""
    merged = merge_options(options, parsed.options)
    query_options.check(merged)
    return _StatementBinder(context).statement(parsed, merged)


Commons = Mapping[str, tuple[str, Sequence[Output]]]
"""Queries of WITH that can be named, by name in lower case: id and output columns."""


class _StatementBinder:
    def __init__(self, context: StageContext) -> None:
        self.context = context
        self._numbers = itertools.count()
        self._num_relations = 0
        self._tables: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._common: list[tuple[str, Query]] = []
        self._commons: Commons = {}

    def statement(self, parsed: ParsedStatement, options: tuple[tuple[str, str], ...]) -> Statement:
        query = self.query(parsed.tree, None)
        return Statement(
            query=query,
            common=tuple(self._common),
            tables=self._tables,
            names=self._names,
            options=options,
            explain=parsed.explain,
        )

    def new_id(self, letter: str) -> str:
        """Return an id that is new in the statement."""
        return f"{letter}{next(self._numbers)}"

    def query(self, node: syntax.Query, outer: StageScope | None) -> Query:
        """Bind a query, which may name the queries of its WITH."""
        self.context.budget.step()
        before = self._commons
        self._bind_with(node.common)
        try:
            if isinstance(node, syntax.Select):
                return self._block(node, outer)
            if isinstance(node, syntax.SetOperation):
                return self._set_operation(node, outer)
            assert isinstance(node, syntax.Subquery)
            return self._parenthesized(node, outer)
        finally:
            self._commons = before

    def _bind_with(self, common: Sequence[syntax.Common]) -> None:
        names: set[str] = set()
        for entry in common:
            if entry.name.lower() in names:
                raise SqlValidationError(f"name is used twice in WITH name={entry.name}")
            names.add(entry.name.lower())
            query = self.query(entry.query, None)
            id_ = self.new_id("with")
            self._names[id_] = entry.name
            self._common.append((id_, query))
            outputs = _renamed(query.outputs, entry.columns, entry.name)
            self._commons = {**self._commons, entry.name.lower(): (id_, outputs)}

    def _parenthesized(self, node: syntax.Subquery, outer: StageScope | None) -> Query:
        inner = self.query(node.query, outer)
        if not node.order and node.limit is None and not node.offset:
            return inner
        return self._ordered_again(node, inner)

    def _ordered_again(self, node: syntax.Subquery, inner: Query) -> Block:
        """Bind `(SELECT …) ORDER BY … LIMIT …`."""
        id_ = self.new_id("d")
        self._names |= {f"{id_}.c{number}": output.label for number, output in enumerate(inner.outputs)}
        outputs = tuple(
            Output(output.label, Column(f"{id_}.c{number}", output.expr.type))
            for number, output in enumerate(inner.outputs)
        )
        return Block(
            source=DerivedTable(id_, inner),
            outputs=outputs,
            order_by=_order_of_set(node.order, outputs),
            limit=node.limit,
            offset=node.offset,
        )

    def _set_operation(self, node: syntax.SetOperation, outer: StageScope | None) -> SetOperation:
        left, right = self.query(node.left, outer), self.query(node.right, outer)
        if len(left.outputs) != len(right.outputs):
            counts = f"left={len(left.outputs)} right={len(right.outputs)}"
            raise SqlValidationError(f"{node.kind} of different numbers of columns {counts}")
        types = [
            _common(left_output.expr.type, right_output.expr.type, node.kind)
            for left_output, right_output in zip(left.outputs, right.outputs, strict=True)
        ]
        outputs = tuple(
            Output(output.label, Column(f"c{number}", type_))
            for number, (output, type_) in enumerate(zip(left.outputs, types, strict=True))
        )
        return SetOperation(
            kind=SetKind[node.kind],
            is_all=node.is_all,
            left=self.cast_outputs(left, types),
            right=self.cast_outputs(right, types),
            outputs=outputs,
            order_by=_order_of_set(node.order, outputs),
            limit=node.limit,
            offset=node.offset,
        )

    def cast_outputs(self, query: Query, types: Sequence[SqlType]) -> Query:
        """Return the query with its columns cast to these types."""
        if all(output.expr.type == type_ for output, type_ in zip(query.outputs, types, strict=True)):
            return query
        id_ = self.new_id("d")
        self._names |= {f"{id_}.c{number}": output.label for number, output in enumerate(query.outputs)}
        columns = [Column(f"{id_}.c{number}", output.expr.type) for number, output in enumerate(query.outputs)]
        outputs = tuple(
            Output(output.label, _as(column, type_))
            for output, column, type_ in zip(query.outputs, columns, types, strict=True)
        )
        return Block(source=DerivedTable(id_, query), outputs=outputs)

    def _block(self, select: syntax.Select, outer: StageScope | None) -> Block:
        source, scope = self._from(select, outer)
        slots = Slots(self, _named_windows(select))
        binder = Binder(
            scope, self.context.fold, self.context.moment, nulls=True, budget=self.context.budget, stages=slots
        )
        outputs, aliases = self._outputs(select.items, binder, scope)
        scope = replace(scope, aliases=aliases)
        later = replace(binder, scope=scope, aliases_first=True)
        having, qualify = select.having, select.qualify
        group_by, grouping_sets = bind_grouping(select.group, outputs, later)
        block = Block(
            source=source,
            outputs=outputs,
            where=bind_where(select.where, replace(binder, scope=scope)),
            group_by=group_by,
            grouping_sets=grouping_sets,
            having=None if having is None else replace(later, place="HAVING").condition(having),
            qualify=None if qualify is None else replace(later, place="QUALIFY").condition(qualify),
            is_distinct=select.is_distinct,
            order_by=bind_order_by(select.order, outputs, later),
            limit=select.limit,
            offset=select.offset,
            slots=slots.found,
        )
        check_block(block)
        return block

    def _outputs(
        self, nodes: Sequence[syntax.Node], binder: Binder, scope: StageScope
    ) -> tuple[tuple[Output, ...], dict[str, Expr]]:
        outputs: list[Output] = []
        aliases: dict[str, Expr] = {}
        labels = _UsedLabels()
        for node in nodes:
            if isinstance(node, syntax.Star):
                for name, expr in scope.all_columns(node.qualifier):
                    self.context.budget.step()
                    outputs.append(Output(labels.unused(name), expr))
                if len(outputs) > limits.MAX_ITEMS:
                    raise SqlValidationError(f"too many columns in SELECT got={len(outputs)} limit={limits.MAX_ITEMS}")
                continue
            expr = binder.bind(node.value if isinstance(node, syntax.Alias) else node)
            if isinstance(node, syntax.Alias):
                aliases.setdefault(node.name, expr)
            label = _label(node, scope, len(outputs))
            labels.used.add(label)
            outputs.append(Output(label, expr))
        return tuple(outputs), aliases

    def _from(self, select: syntax.Select, outer: StageScope | None) -> tuple[Relation | None, StageScope]:
        if select.source is None:
            return None, StageScope(outer=outer)
        relation, source = self._relation(select.source, StageScope(outer=outer))
        scope = StageScope((source,), outer=outer)
        for join in select.joins:
            right, right_source = self._relation(join.relation, scope)
            relation, scope = self._join(relation, scope, join, right, right_source)
        return relation, scope

    def _join(
        self, left: Relation, scope: StageScope, join: syntax.Join, right: Relation, source: ScopeRelation
    ) -> tuple[Relation, StageScope]:
        kind = join_kind(join)
        if isinstance(right, Unnest) and (kind not in (JoinKind.INNER, JoinKind.CROSS) or join.on is not None):
            raise UnsupportedSqlError("UNNEST in another join than CROSS JOIN")
        if _is_lateral(join.relation) and kind not in (JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT):
            raise UnsupportedSqlError(f"LATERAL in a {kind.value}")
        for earlier in scope.sources:
            if earlier.qualifiers & source.qualifiers:
                name = sorted(earlier.qualifiers & source.qualifiers)[0]
                raise SqlValidationError(f"relation name is used twice, give one an alias name={name}")
        both = StageScope((*scope.sources, source), scope.merged, outer=scope.outer)
        condition, merged = self._condition(join, scope, source, both, kind)
        if join.match_condition is not None:
            matched = self._binder(both, "MATCH_CONDITION").condition(join.match_condition)
            condition = asof_condition(matched, condition, source.id)
        if condition is None and kind not in (JoinKind.INNER, JoinKind.CROSS):
            raise SqlValidationError(f"{kind.value} needs ON or USING")
        if condition is not None and kind is JoinKind.CROSS:
            raise SqlValidationError("CROSS JOIN takes no condition")
        after = scope if kind in (JoinKind.SEMI, JoinKind.ANTI) else replace(both, merged=merged)
        return Join(JoinKind.CROSS if condition is None else kind, left, right, condition), after

    def _condition(
        self, join: syntax.Join, left: StageScope, source: ScopeRelation, both: StageScope, kind: JoinKind
    ) -> tuple[Expr | None, dict[str, Expr]]:
        """Return the join's condition, and the merged columns of USING and NATURAL."""
        merged = dict(left.merged)
        if join.on is not None:
            return self._binder(both, "ON").condition(join.on), merged
        own = replace(left, outer=None)
        names = list(join.using)
        if join.kind.startswith("NATURAL"):
            names = [name for name, _ in source.columns if own.find(name) is not None]
        equal: list[Expr] = []
        binder = self._binder(both, "USING")
        for name in names:
            matches = source.find(name)
            if len(matches) != 1:
                raise UnknownNameError(f"unknown column name={name}")
            mine, theirs = own.column(name), matches[0]
            equal.append(binder.equal(mine, theirs))
            merged[name.lower()] = _merged(kind, mine, theirs)
        if not equal:
            return None, merged
        return equal[0] if len(equal) == 1 else Call("and", tuple(equal), equal[0].type), merged

    def _binder(self, scope: StageScope, place: str) -> Binder:
        return Binder(
            scope,
            self.context.fold,
            self.context.moment,
            nulls=True,
            place=place,
            allows_aggregates=False,
            budget=self.context.budget,
        )

    def _relation(self, node: syntax.Relation, left: StageScope) -> tuple[Relation, ScopeRelation]:
        """Bind a relation of FROM; `left` has the relations before it."""
        relation, source = self._read_relation(node, left)
        called = node.alias or (node.name if isinstance(node, syntax.Table) else "")
        self._names[source.id] = called
        self._names |= {column.name: f"{called}.{label}" if called else label for label, column in source.columns}
        return relation, source

    def _read_relation(self, node: syntax.Relation, left: StageScope) -> tuple[Relation, ScopeRelation]:
        self._num_relations += 1
        if self._num_relations > MAX_RELATIONS:
            raise SqlValidationError(f"too many tables and subqueries in FROM limit={MAX_RELATIONS}")
        match node:
            case syntax.Derived():
                return self._derived(node, left)
            case syntax.Values():
                return self._values(node)
            case syntax.Unnest():
                return self._unnest(node, left)
            case syntax.Table():
                return self._table(node)
        raise UnsupportedSqlError(feature_name(node))

    def _derived(self, node: syntax.Derived, left: StageScope) -> tuple[DerivedTable, ScopeRelation]:
        """Bind a subquery. With LATERAL, it is evaluated for each row of the relations to its left."""
        id_ = self.new_id("d")
        query = self.query(node.query, left if node.is_lateral else None)
        return DerivedTable(id_, query), _source(id_, node.alias, _renamed(query.outputs, node.columns, node.alias))

    def _table(self, node: syntax.Table) -> tuple[Relation, ScopeRelation]:
        common = self._commons.get(node.name.lower())
        if common is not None:
            id_ = self.new_id("n")
            outputs = _renamed(common[1], node.columns, node.name)
            return Named(id_, common[0]), _source(id_, node.alias or node.name, outputs)
        if node.columns:
            raise UnsupportedSqlError("names for a table's columns")
        return self._scan(node.name, node.alias)

    def _scan(self, written: str, alias: str) -> tuple[Relation, ScopeRelation]:
        schema = self.context.find_schema(written)
        id_ = self.new_id("t")
        self._tables[id_] = written
        names = {alias} if alias else {written, written.removesuffix("_OFFLINE").removesuffix("_REALTIME")}
        qualifiers = frozenset(name.lower() for name in names)
        view = self.context.views.get(written)
        if view is None:
            columns = tuple((field.name, _column(id_, field)) for field in schema.fields)
            return Scan(id_, written), ScopeRelation(id_, qualifiers, columns, is_table=True)
        binding = BindContext(self.context.fold, self.context.moment, self.context.budget)
        visible = visible_columns(view, written, schema, binding, nulls=True, prefix=f"{id_}.")
        if visible.masks:
            return self._masked_scan(Scan(id_, written), qualifiers, visible)
        columns = tuple((field.name, _column(id_, field)) for field in visible.schema.fields)
        return Scan(id_, written), ScopeRelation(id_, qualifiers, columns)

    def _masked_scan(
        self, scan: Scan, qualifiers: frozenset[str], visible: VisibleColumns
    ) -> tuple[DerivedTable, ScopeRelation]:
        """Return a subquery that selects the columns which exist, and masks in their places."""
        id_ = self.new_id("d")
        outputs = tuple(
            Output(field.name, visible.expression(field, _column(scan.id, field))) for field in visible.schema.fields
        )
        self._names |= {f"{scan.id}.{field.name}": field.name for field in visible.schema.fields}
        columns = _numbered(id_, outputs)
        return DerivedTable(id_, Block(source=scan, outputs=outputs)), ScopeRelation(id_, qualifiers, columns)

    def _values(self, node: syntax.Values) -> tuple[Values, ScopeRelation]:
        binder = self._binder(StageScope(), "VALUES")
        rows = [tuple(map(binder.bind, row)) for row in node.rows]
        if len({len(row) for row in rows}) != 1:
            raise SqlValidationError("rows of VALUES have different numbers of columns")
        types = [row.type for row in rows[0]]
        for row in rows[1:]:
            types = [_common(type_, value.type, "VALUES") for type_, value in zip(types, row, strict=True)]
        cast = tuple(tuple(_as(value, type_) for value, type_ in zip(row, types, strict=True)) for row in rows)
        id_ = self.new_id("v")
        outputs = [Output(f"EXPR${number}", Column(f"c{number}", type_)) for number, type_ in enumerate(types)]
        return Values(id_, cast, tuple(types)), _source(id_, node.alias, _renamed(outputs, node.columns, node.alias))

    def _unnest(self, node: syntax.Unnest, left: StageScope) -> tuple[Unnest, ScopeRelation]:
        """Bind UNNEST: values of lists, and with WITH ORDINALITY their positions from 1 on."""
        binder = self._binder(left, "UNNEST")
        lists = tuple(map(binder.bind, node.lists))
        for expr in lists:
            if not expr.type.is_array:
                raise SqlValidationError(f"UNNEST needs a list, not {expr.type}")
        id_ = self.new_id("u")
        outputs = [Output(f"EXPR${number}", Column("", SqlType(expr.type.base))) for number, expr in enumerate(lists)]
        if node.with_ordinality:
            outputs.append(Output("ORDINALITY", Column("", INT)))
        return Unnest(id_, lists, node.with_ordinality), _source(
            id_, node.alias, _renamed(outputs, node.columns, "UNNEST")
        )


def _is_lateral(node: syntax.Relation) -> bool:
    return isinstance(node, syntax.Derived) and node.is_lateral


def _named_windows(select: syntax.Select) -> dict[str, syntax.WindowDefinition]:
    named: dict[str, syntax.WindowDefinition] = {}
    for name, definition in select.windows:
        if named.setdefault(name.lower(), definition) is not definition:
            raise SqlValidationError(f"window name is used twice name={name}")
    return named


def _merged(kind: JoinKind, left: Expr, right: Column) -> Expr:
    """Return the merged column of USING."""
    if kind is JoinKind.RIGHT:
        return right
    if kind is not JoinKind.FULL:
        return left
    common = _common(left.type, right.type, "USING")
    return Call("coalesce", (_as(left, common), _as(right, common)), common)


def _source(id_: str, alias: str, outputs: Sequence[Output]) -> ScopeRelation:
    return ScopeRelation(id_, frozenset({alias.lower()}) if alias else frozenset(), _numbered(id_, outputs))


def _numbered(id_: str, outputs: Sequence[Output]) -> tuple[tuple[str, Column], ...]:
    """Return the columns of a relation by name: `id.c0`, `id.c1`, …"""
    return tuple((output.label, Column(f"{id_}.c{number}", output.expr.type)) for number, output in enumerate(outputs))


def _column(id_: str, field: FieldSpec) -> Column:
    return Column(f"{id_}.{field.name}", SqlType(TypeName(field.type), field.multi_value))


def _renamed(outputs: Sequence[Output], names: Sequence[str], what: str) -> Sequence[Output]:
    if not names:
        return outputs
    if len(names) != len(outputs):
        raise SqlValidationError(f"{what} has {len(outputs)} columns, but {len(names)} names")
    return [Output(name, output.expr) for name, output in zip(names, outputs, strict=True)]


def _label(node: syntax.Node, scope: StageScope, position: int) -> str:
    if isinstance(node, syntax.Alias):
        return node.name
    if not isinstance(node, syntax.Column):
        return f"EXPR${position}"
    column = scope.column(node.name, node.qualifier)
    if not isinstance(column, Column):
        return node.name
    names = (name for source in scope.sources for name, candidate in source.columns if candidate == column)
    return next(names, node.name)


class _UsedLabels:
    """Labels of a SELECT's columns so far."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self._numbers: dict[str, int] = {}
        """First number that has not been tried, by name."""

    def unused(self, name: str) -> str:
        """Make a name of a star's column unique as Calcite does: `id`, `id0`, `id1`. Use it up."""
        unused = name
        while unused in self.used:
            number = self._numbers.get(name, 0)
            self._numbers[name] = number + 1
            unused = f"{name}{number}"
        self.used.add(unused)
        return unused


def _order_of_set(order: Sequence[syntax.Ordered], outputs: Sequence[Output]) -> tuple[OrderKey, ...]:
    """Bind ORDER BY of a set operation: by position or by name."""
    keys: dict[Expr, OrderKey] = {}
    for node in order:
        output = ordinal(node.value, outputs, "ORDER BY")
        if output is None and isinstance(node.value, syntax.Column) and not node.value.qualifier:
            output = _output_named(node.value.name, outputs)
        if output is None:
            raise SqlValidationError("ORDER BY of a set operation must name one of its columns")
        keys.setdefault(output.expr, OrderKey(output.expr, not node.is_descending, not node.nulls_first))
    return tuple(keys.values())


def _output_named(name: str, outputs: Sequence[Output]) -> Output | None:
    """Return the output with a name: with the exact name if there is one, otherwise without regard to case."""
    exact = next((output for output in outputs if output.label == name), None)
    return exact or next((output for output in outputs if output.label.lower() == name.lower()), None)


def _common(first: SqlType, second: SqlType, place: str) -> SqlType:
    if TypeName.UNKNOWN in (first.base, second.base):
        return second if first.base is TypeName.UNKNOWN else first
    common = common_type(first, second)
    if common is None:
        raise SqlValidationError(f"{place} cannot join {first} with {second}")
    return common


def _as(expr: Expr, type_: SqlType) -> Expr:
    return cast_to(expr, type_)
