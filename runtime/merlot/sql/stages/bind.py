"""A parsed statement against the schemas of its tables: every SELECT as a `Block`, every relation with an id.

Expressions are bound as those of one stage, in three-valued logic: joins and subqueries make nulls, whatever the leaves
read. Result names are those of Pinot's multi-stage engine: an alias, a column's name, or `EXPR$0` by place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from merlot.functions.conversion import cast_to, common_type
from merlot.functions.instants import Moment
from merlot.spec.schema import TableSchema
from merlot.sql import query_options
from merlot.sql.bind import (
    bind_order_by,
    bind_where,
    is_distinct,
    limit_and_offset,
    merge_options,
    ordinal,
)
from merlot.sql.budget import Budget
from merlot.sql.dialect import CLAUSE_NAMES, SUPPORTED_CLAUSES
from merlot.sql.expressions import Binder, Fold, qualifier_of
from merlot.sql.parse import STAGE_CLAUSES, ParsedStatement, feature_name, table_name
from merlot.sql.stages.grouping import bind_grouping
from merlot.sql.stages.joins import asof_condition, join_kind
from merlot.sql.stages.rules import check_block
from merlot.sql.stages.scope import Source, StageScope
from merlot.sql.stages.slots import Slots
from merlot.tree.errors import SqlParseError, SqlValidationError, UnknownNameError, UnsupportedSqlError
from merlot.tree.nodes import Call, Column, Expr, OrderKey, Output
from merlot.tree.relations import (
    Block,
    Derived,
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
"""Tables, subqueries and names of WITH in a statement: each leaf is a request to servers."""
FindSchema = Callable[[str], TableSchema]
"""The schema of a table as written; raises NotFoundError."""

_SETS: Mapping[type[exp.Expr], SetKind] = {
    exp.Union: SetKind.UNION,
    exp.Intersect: SetKind.INTERSECT,
    exp.Except: SetKind.EXCEPT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """What binding goes by."""

    find_schema: FindSchema
    fold: Fold
    moment: Moment | None = None
    budget: Budget


def bind_statement(parsed: ParsedStatement, context: StageContext, options: Mapping[str, str]) -> Statement:
    """The typed tree; raises what `sql.bind.bind` raises, and what `find_schema` does."""
    merged = merge_options(options, parsed.options)
    query_options.check(merged)
    return _StatementBinder(context).statement(parsed, merged)


Commons = Mapping[str, tuple[str, Sequence[Output]]]
"""Queries of WITH that are in sight, by name in lower case: id, and what they put out."""


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
        """An id that nothing else of the statement has."""
        return f"{letter}{next(self._numbers)}"

    def query(self, node: exp.Expr, outer: StageScope | None) -> Query:
        """A query, with what its WITH names in sight."""
        self.context.budget.step()
        before = self._commons
        with_ = node.args.get("with_")
        if with_ is not None:
            self._bind_with(with_)
        try:
            if isinstance(node, exp.Select):
                return self._block(node, outer)
            if isinstance(node, exp.SetOperation):
                return self._set_operation(node, outer)
            if isinstance(node, exp.Subquery):
                return self._parenthesized(node, outer)
            raise UnsupportedSqlError(feature_name(node))
        finally:
            self._commons = before

    def _bind_with(self, with_: exp.With) -> None:
        if with_.args.get("recursive"):
            raise UnsupportedSqlError("WITH RECURSIVE: write each step as a query of WITH")
        known: set[str] = set()
        for entry in with_.expressions:
            if entry.alias.lower() in known:
                raise SqlValidationError(f"name is used twice in WITH name={entry.alias}")
            known.add(entry.alias.lower())
            query = self.query(entry.this, None)
            names = [column.name for column in entry.args["alias"].args.get("columns") or ()]
            common = self.new_id("with")
            self._names[common] = entry.alias
            self._common.append((common, query))
            outputs = _renamed(query.outputs, names, entry.alias)
            self._commons = {**self._commons, entry.alias.lower(): (common, outputs)}

    def _parenthesized(self, node: exp.Subquery, outer: StageScope | None) -> Query:
        inner = self.query(node.this, outer)
        if not any(node.args.get(name) for name in ("order", "limit", "offset")):
            return inner
        return self._ordered_again(node, inner)

    def _ordered_again(self, node: exp.Query, inner: Query) -> Block:
        """`(SELECT …) ORDER BY … LIMIT …`"""
        id_ = self.new_id("d")
        self._names |= {f"{id_}.c{number}": output.label for number, output in enumerate(inner.outputs)}
        outputs = tuple(
            Output(output.label, Column(f"{id_}.c{number}", output.expr.type))
            for number, output in enumerate(inner.outputs)
        )
        limit, offset = limit_and_offset(node, -1)
        return Block(
            source=Derived(id_, inner),
            outputs=outputs,
            order_by=_order_of_set(node.args.get("order"), outputs),
            limit=None if limit < 0 else limit,
            offset=offset,
        )

    def _set_operation(self, node: exp.SetOperation, outer: StageScope | None) -> SetOperation:
        read = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}
        for name, value in node.args.items():
            if value and name not in read:
                raise UnsupportedSqlError(f"{feature_name(node)} {name.strip('_').upper()}")
        left, right = self.query(node.this, outer), self.query(node.expression, outer)
        if len(left.outputs) != len(right.outputs):
            counts = f"left={len(left.outputs)} right={len(right.outputs)}"
            raise SqlValidationError(f"{feature_name(node)} of different numbers of columns {counts}")
        types = [
            _common(one.expr.type, two.expr.type, feature_name(node))
            for one, two in zip(left.outputs, right.outputs, strict=True)
        ]
        outputs = tuple(
            Output(output.label, Column(f"c{number}", type_))
            for number, (output, type_) in enumerate(zip(left.outputs, types, strict=True))
        )
        limit, offset = limit_and_offset(node, -1)
        return SetOperation(
            kind=_SETS[type(node)],
            is_all=not node.args.get("distinct"),
            left=self.cast_outputs(left, types),
            right=self.cast_outputs(right, types),
            outputs=outputs,
            order_by=_order_of_set(node.args.get("order"), outputs),
            limit=None if limit < 0 else limit,
            offset=offset,
        )

    def cast_outputs(self, query: Query, types: Sequence[SqlType]) -> Query:
        """The query with columns of these types."""
        if all(output.expr.type == type_ for output, type_ in zip(query.outputs, types, strict=True)):
            return query
        id_ = self.new_id("d")
        self._names |= {f"{id_}.c{number}": output.label for number, output in enumerate(query.outputs)}
        columns = [Column(f"{id_}.c{number}", output.expr.type) for number, output in enumerate(query.outputs)]
        outputs = tuple(
            Output(output.label, _as(column, type_))
            for output, column, type_ in zip(query.outputs, columns, types, strict=True)
        )
        return Block(source=Derived(id_, query), outputs=outputs)

    def _block(self, select: exp.Select, outer: StageScope | None) -> Block:
        _check_clauses(select)
        source, scope = self._from(select, outer)
        slots = Slots(self, _named_windows(select))
        binder = Binder(
            scope, self.context.fold, self.context.moment, nulls=True, budget=self.context.budget, stages=slots
        )
        outputs, aliases = self._outputs(select.expressions, binder, scope)
        scope = replace(scope, aliases=aliases)
        later = replace(binder, scope=scope, aliases_first=True)
        having, qualify = select.args.get("having"), select.args.get("qualify")
        limit, offset = limit_and_offset(select, -1)
        group_by, grouping_sets = bind_grouping(select.args.get("group"), outputs, later)
        block = Block(
            source=source,
            outputs=outputs,
            where=bind_where(select.args.get("where"), replace(binder, scope=scope)),
            group_by=group_by,
            grouping_sets=grouping_sets,
            having=None if having is None else replace(later, place="HAVING").condition(having.this),
            qualify=None if qualify is None else replace(later, place="QUALIFY").condition(qualify.this),
            is_distinct=is_distinct(select),
            order_by=bind_order_by(select.args.get("order"), outputs, later),
            limit=None if limit < 0 else limit,
            offset=offset,
            slots=slots.found,
        )
        check_block(block)
        return block

    def _outputs(
        self, nodes: Sequence[exp.Expr], binder: Binder, scope: StageScope
    ) -> tuple[tuple[Output, ...], dict[str, Expr]]:
        outputs: list[Output] = []
        aliases: dict[str, Expr] = {}
        for node in nodes:
            qualifier = qualifier_of(node) if isinstance(node, exp.Column) else ""
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                if isinstance(node, exp.Star) and any(node.args.values()):
                    raise UnsupportedSqlError("SELECT * with EXCEPT, REPLACE or RENAME")
                used = {output.label for output in outputs}
                for name, expr in scope.all_columns(qualifier):
                    outputs.append(Output(_unused(name, used), expr))
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            expr = binder.bind(inner)
            if isinstance(node, exp.Alias):
                aliases.setdefault(node.alias, expr)
            outputs.append(Output(_label(node, scope, len(outputs)), expr))
        if not outputs:
            raise SqlParseError("SELECT needs at least one expression")
        return tuple(outputs), aliases

    def _from(self, select: exp.Select, outer: StageScope | None) -> tuple[Relation | None, StageScope]:
        from_ = select.args.get("from_")
        if from_ is None:
            return None, StageScope(outer=outer)
        relation, scope = self._joined(*self._relation(from_.this, StageScope(outer=outer)), from_.this, outer)
        for join in select.args.get("joins") or ():
            right, right_source = self._relation(join.this, scope)
            if join.this.args.get("joins"):
                raise UnsupportedSqlError("JOIN in parentheses")
            relation, scope = self._join(relation, scope, join, right, right_source)
        return relation, scope

    def _joined(
        self, relation: Relation, source: Source, node: exp.Expr, outer: StageScope | None
    ) -> tuple[Relation, StageScope]:
        """A relation and the joins that the parser has hung on it."""
        scope = StageScope((source,), outer=outer)
        for join in node.args.get("joins") or ():
            right, right_source = self._relation(join.this, scope)
            relation, scope = self._join(relation, scope, join, right, right_source)
        return relation, scope

    def _join(
        self, left: Relation, scope: StageScope, join: exp.Join, right: Relation, source: Source
    ) -> tuple[Relation, StageScope]:
        kind = join_kind(join)
        if isinstance(right, Unnest) and (kind not in (JoinKind.INNER, JoinKind.CROSS) or join.args.get("on")):
            raise UnsupportedSqlError("UNNEST in another join than CROSS JOIN")
        if isinstance(join.this, exp.Lateral) and kind not in (JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT):
            raise UnsupportedSqlError(f"LATERAL in a {kind.value}")
        for known in scope.sources:
            if known.qualifiers & source.qualifiers:
                name = sorted(known.qualifiers & source.qualifiers)[0]
                raise SqlValidationError(f"relation name is used twice, give one an alias name={name}")
        both = StageScope((*scope.sources, source), scope.merged, outer=scope.outer)
        condition, merged = self._condition(join, scope, source, both, kind)
        match = join.args.get("match_condition")
        if match is not None:
            matched = self._binder(both, "MATCH_CONDITION").condition(match)
            condition = asof_condition(matched, condition, source.id)
        if condition is None and kind not in (JoinKind.INNER, JoinKind.CROSS):
            raise SqlValidationError(f"{kind.value} needs ON or USING")
        if condition is not None and kind is JoinKind.CROSS:
            raise SqlValidationError("CROSS JOIN takes no condition")
        after = scope if kind in (JoinKind.SEMI, JoinKind.ANTI) else replace(both, merged=merged)
        return Join(JoinKind.CROSS if condition is None else kind, left, right, condition), after

    def _condition(
        self, join: exp.Join, left: StageScope, source: Source, both: StageScope, kind: JoinKind
    ) -> tuple[Expr | None, dict[str, Expr]]:
        """What is asked of two rows, and the columns that are one from there on."""
        merged = dict(left.merged)
        on = join.args.get("on")
        if on is not None:
            return self._binder(both, "ON").condition(on), merged
        names = [column.name for column in join.args.get("using") or ()]
        if join.args.get("method") == "NATURAL":
            names = [name for name, _ in source.columns if left.find(name) is not None]
        equal: list[Expr] = []
        binder = self._binder(both, "USING")
        for name in names:
            found = source.find(name)
            if len(found) != 1:
                raise UnknownNameError(f"unknown column name={name}")
            mine, theirs = left.column(name), found[0]
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

    def _relation(self, node: exp.Expr, left: StageScope) -> tuple[Relation, Source]:
        """A relation of a FROM; `left` is what stands before it."""
        relation, source = self._read_relation(node, left)
        called = node.alias or (table_name(node) if isinstance(node, exp.Table) else "")
        self._names[source.id] = called
        self._names |= {column.name: f"{called}.{label}" if called else label for label, column in source.columns}
        return relation, source

    def _read_relation(self, node: exp.Expr, left: StageScope) -> tuple[Relation, Source]:
        self._num_relations += 1
        if self._num_relations > MAX_RELATIONS:
            raise SqlValidationError(f"too many tables and subqueries in FROM limit={MAX_RELATIONS}")
        alias = node.args.get("alias")
        columns = [column.name for column in alias.args.get("columns") or ()] if alias is not None else []
        if isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table | exp.Values):
                text = (
                    "a join in parentheses: write its tables one after another, or as (SELECT … FROM … JOIN …) AS name"
                )
                raise UnsupportedSqlError(text if node.this.args.get("joins") else "a table in parentheses")
            for name, value in node.args.items():
                if value and name not in ("this", "alias", "with_", "joins"):
                    raise UnsupportedSqlError(CLAUSE_NAMES.get(name, name.strip("_").upper()))
            id_ = self.new_id("d")
            query = self.query(node.this, None)
            return Derived(id_, query), _source(id_, node.alias, _renamed(query.outputs, columns, node.alias))
        if isinstance(node, exp.Lateral):
            return self._lateral(node, columns, left)
        if isinstance(node, exp.Values):
            return self._values(node, columns)
        if isinstance(node, exp.Unnest):
            return self._unnest(node, columns, left)
        written = table_name(node)
        common = self._commons.get(written.lower())
        if common is not None:
            id_ = self.new_id("n")
            outputs = _renamed(common[1], columns, written)
            return Named(id_, common[0]), _source(id_, node.alias or written, outputs)
        if columns:
            raise UnsupportedSqlError("names for a table's columns")
        return self._scan(written, node.alias)

    def _lateral(self, node: exp.Lateral, columns: Sequence[str], left: StageScope) -> tuple[Derived, Source]:
        """A subquery of which each row to its left has rows of its own."""
        if not isinstance(node.this, exp.Subquery) or node.args.get("view") or node.args.get("outer"):
            raise UnsupportedSqlError("LATERAL of anything but a subquery")
        id_ = self.new_id("d")
        query = self.query(node.this, left)
        return Derived(id_, query), _source(id_, node.alias, _renamed(query.outputs, columns, node.alias))

    def _scan(self, written: str, alias: str) -> tuple[Scan, Source]:
        schema = self.context.find_schema(written)
        id_ = self.new_id("t")
        self._tables[id_] = written
        columns = tuple(
            (one.name, Column(f"{id_}.{one.name}", SqlType(TypeName(one.type), one.multi_value)))
            for one in schema.fields
        )
        names = {alias} if alias else {written, written.removesuffix("_OFFLINE").removesuffix("_REALTIME")}
        qualifiers = frozenset(name.lower() for name in names)
        return Scan(id_, written), Source(id_, qualifiers, columns, is_table=True)

    def _values(self, node: exp.Values, columns: Sequence[str]) -> tuple[Values, Source]:
        binder = self._binder(StageScope(), "VALUES")
        rows = [tuple(map(binder.bind, one.expressions)) for one in node.expressions]
        if len({len(row) for row in rows}) != 1:
            raise SqlValidationError("rows of VALUES have different numbers of columns")
        types = [row.type for row in rows[0]]
        for row in rows[1:]:
            types = [_common(type_, one.type, "VALUES") for type_, one in zip(types, row, strict=True)]
        cast = tuple(tuple(_as(one, type_) for one, type_ in zip(row, types, strict=True)) for row in rows)
        id_ = self.new_id("v")
        outputs = [Output(f"EXPR${number}", Column(f"c{number}", type_)) for number, type_ in enumerate(types)]
        return Values(id_, cast, tuple(types)), _source(id_, node.alias, _renamed(outputs, columns, node.alias))

    def _unnest(self, node: exp.Unnest, columns: Sequence[str], left: StageScope) -> tuple[Unnest, Source]:
        """Values of lists, and their places from 1 on if there is WITH ORDINALITY."""
        binder = self._binder(left, "UNNEST")
        lists = tuple(map(binder.bind, node.expressions))
        for one in lists:
            if not one.type.is_array:
                raise SqlValidationError(f"UNNEST needs a list, not {one.type}")
        id_ = self.new_id("u")
        outputs = [Output(f"EXPR${number}", Column("", SqlType(one.type.base))) for number, one in enumerate(lists)]
        places = node.args.get("offset")
        if places:
            outputs.append(Output("ORDINALITY", Column("", INT)))
            columns = [*columns, places.name] if isinstance(places, exp.Identifier) else columns
        return Unnest(id_, lists, bool(places)), _source(id_, node.alias, _renamed(outputs, columns, "UNNEST"))


def _named_windows(select: exp.Select) -> dict[str, exp.Expr]:
    named: dict[str, exp.Expr] = {}
    for window in select.args.get("windows") or ():
        if named.setdefault(window.this.name.lower(), window) is not window:
            raise SqlValidationError(f"window name is used twice name={window.this.name}")
    return named


def _check_clauses(select: exp.Select) -> None:
    for name, value in select.args.items():
        if value and name not in SUPPORTED_CLAUSES and name not in STAGE_CLAUSES:
            raise UnsupportedSqlError(CLAUSE_NAMES.get(name, name.strip("_").upper()))
    if select.args.get("kind"):
        raise UnsupportedSqlError(f"SELECT AS {select.args['kind']}")


def _merged(kind: JoinKind, left: Expr, right: Column) -> Expr:
    """The one column of USING."""
    if kind is JoinKind.RIGHT:
        return right
    if kind is not JoinKind.FULL:
        return left
    common = _common(left.type, right.type, "USING")
    return Call("coalesce", (_as(left, common), _as(right, common)), common)


def _source(id_: str, alias: str, outputs: Sequence[Output]) -> Source:
    columns = tuple(
        (output.label, Column(f"{id_}.c{number}", output.expr.type)) for number, output in enumerate(outputs)
    )
    return Source(id_, frozenset({alias.lower()}) if alias else frozenset(), columns)


def _renamed(outputs: Sequence[Output], names: Sequence[str], what: str) -> Sequence[Output]:
    if not names:
        return outputs
    if len(names) != len(outputs):
        raise SqlValidationError(f"{what} has {len(outputs)} columns, but {len(names)} names")
    return [Output(name, output.expr) for name, output in zip(names, outputs, strict=True)]


def _label(node: exp.Expr, scope: StageScope, place: int) -> str:
    if isinstance(node, exp.Alias):
        return node.alias
    if not isinstance(node, exp.Column):
        return f"EXPR${place}"
    found = scope.column(node.name, qualifier_of(node))
    if not isinstance(found, Column):
        return node.name
    known = (name for source in scope.sources for name, column in source.columns if column == found)
    return next(known, node.name)


def _unused(name: str, used: set[str]) -> str:
    """As Calcite makes names of a star unique: `id`, `id0`, `id1`."""
    unused = name
    for number in itertools.count():
        if unused not in used:
            break
        unused = f"{name}{number}"
    used.add(unused)
    return unused


def _order_of_set(order: exp.Order | None, outputs: Sequence[Output]) -> tuple[OrderKey, ...]:
    """ORDER BY of a set operation: by place or by name."""
    keys: dict[Expr, OrderKey] = {}
    for node in order.expressions if order is not None else ():
        output = ordinal(node.this, outputs, "ORDER BY")
        if output is None and isinstance(node.this, exp.Column) and not node.this.table:
            name = node.this.name
            output = next((one for one in outputs if one.label == name), None) or next(
                (one for one in outputs if one.label.lower() == name.lower()), None
            )
        if output is None:
            raise SqlValidationError("ORDER BY of a set operation must name one of its columns")
        keys.setdefault(output.expr, OrderKey(output.expr, not node.args.get("desc"), not node.args.get("nulls_first")))
    return tuple(keys.values())


def _common(first: SqlType, second: SqlType, place: str) -> SqlType:
    if TypeName.UNKNOWN in (first.base, second.base):
        return second if first.base is TypeName.UNKNOWN else first
    found = common_type(first, second)
    if found is None:
        raise SqlValidationError(f"{place} cannot join {first} with {second}")
    return found


def _as(expr: Expr, type_: SqlType) -> Expr:
    return cast_to(expr, type_)
