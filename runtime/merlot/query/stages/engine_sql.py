"""SQL that DuckDB, the engine, runs for a statement over leaves. It is made from the typed tree, never from a user's
text.

Names are our own ids; constants are literals of their type. Where the engine computes as we do, its own operator is
used; any other function calls `functions.evaluate` over Arrow (`EngineFunction`), so that an expression means the same
above a join as in a leaf. TIMESTAMP is BIGINT milliseconds, BIG_DECIMAL a DECIMAL with the digits of the leaf's
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from merlot.query.plan.expressions import has_aggregate
from merlot.query.stages.conjuncts import conjuncts, inner_conditions, only_source
from merlot.query.stages.engine_aggregates import is_native, native_text, row_of
from merlot.query.stages.engine_calls import ENGINE_TYPES, MAX_DIGITS, MAX_PLACES, EngineFunction, engine_type
from merlot.query.stages.failures import ARITHMETIC, COMPARISONS, RANKS, fenced, is_join_of_keys, may_fail
from merlot.query.stages.zeros import UNSIGNED_ZERO, with_one_zero
from merlot.sql.budget import Budget
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.literals import LONG_MAX
from merlot.tree.nodes import TRUE, Aggregate, Call, Column, Expr, Literal, OrderKey, Output
from merlot.tree.relations import (
    GROUPING,
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
    Slot,
    Statement,
    Subquery,
    SubqueryKind,
    Unnest,
    Values,
    Window,
    columns_in,
    is_correlated,
    source_id,
)
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, FLOAT, INT, LONG, SqlType
from merlot.values.types import TypeName

MAX_WRITTEN_CHARS: Final = 64 << 20
"""Most characters of all expressions that are written for a query, parts of others included: each reference to a
subquery writes its SQL again."""
_NUMBERS = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.TIMESTAMP})


@dataclass(frozen=True, slots=True)
class EngineQuery:
    """Query for the engine: its SQL, our functions that it calls, and the labels and types of its columns."""

    sql: str
    functions: tuple[EngineFunction, ...]
    labels: tuple[str, ...]
    types: tuple[SqlType, ...]


def engine_query(statement: Statement, budget: Budget | None = None) -> EngineQuery:
    """Return the engine's query. Raises UnsupportedSqlError for expressions without an engine form, SqlValidationError
    if its SQL is too long, and the errors of `budget`."""
    writer = _SqlWriter(dict(statement.common), budget or Budget())
    common = [f"{id_} AS ({writer.query(query)})" for id_, query in statement.common]
    prefix = f"WITH {', '.join(common)} " if common else ""
    outputs = statement.query.outputs
    return EngineQuery(
        prefix + writer.query(statement.query),
        tuple(writer.functions.values()),
        tuple(output.label for output in outputs),
        tuple(output.expr.type for output in outputs),
    )


@dataclass(slots=True)
class _SqlWriter:
    common: Mapping[str, Query]
    budget: Budget
    functions: dict[tuple[Call | Aggregate, tuple[SqlType, ...]], EngineFunction] = field(default_factory=dict)
    num_chars: int = 0

    def counted(self, text: str) -> str:
        """Count the characters of an expression that is written. Raise SqlValidationError if there are too many."""
        self.budget.step()
        self.num_chars += len(text)
        if self.num_chars > MAX_WRITTEN_CHARS:
            raise SqlValidationError("query repeats its subqueries too often, use the result of each in fewer places")
        return text

    def query(self, query: Query) -> str:
        return self._set_operation(query) if isinstance(query, SetOperation) else self._block(query)

    def _set_operation(self, query: SetOperation) -> str:
        word = f"{query.kind.value} ALL" if query.is_all else query.kind.value
        columns = ", ".join(f"c{number}" for number in range(len(query.outputs)))
        shown = columns if query.is_all and query.kind is SetKind.UNION else ", ".join(map(_shown, query.outputs))
        left, right = (f"SELECT {shown} FROM ({self.query(side)}) AS s" for side in (query.left, query.right))
        rows = f"({left}) {word} ({right})"
        if not query.order_by and query.limit is None and not query.offset:
            return rows
        expressions = _Expressions(self, {})
        tail = self._tail(expressions, query.order_by, query.limit, query.offset)
        return f"SELECT {columns} FROM ({rows}) AS s{tail}"

    def _block(self, block: Block) -> str:
        block = with_one_zero(block)
        over_rows = _Expressions(self, block.slots)
        over_rows.fences = fenced(block, self.common)
        expressions = _Expressions(self, block.slots, frozenset(block.group_by)) if block.group_by else over_rows
        write = expressions.write
        outputs = ", ".join(f"{write(output.expr)} AS c{number}" for number, output in enumerate(block.outputs))
        text = f"SELECT {'DISTINCT ' if block.is_distinct else ''}{outputs}"
        if block.source is not None:
            text += f" FROM {self._relation(block.source, over_rows)}"
        if block.where is not None:
            text += f" WHERE {over_rows.condition(block.where, inner_conditions(block.source))}"
        if block.grouping_sets:
            text += f" GROUP BY GROUPING SETS ({', '.join(_sets(block, write))})"
        elif block.group_by:
            # Each key is in parentheses: a bare number would be a position. If all keys are constant, TRUE stands
            # for them: from no rows it makes no group, whereas () would make one.
            keys = [f"({write(key)})" for key in block.group_by if not _is_constant(key)]
            text += f" GROUP BY {', '.join(keys) or 'TRUE'}"
        if block.having is not None:
            text += f" HAVING {expressions.having(block.having)}"
        if block.qualify is not None:
            text += f" QUALIFY {write(block.qualify)}"
        return text + self._tail(expressions, block.order_by, block.limit, block.offset)

    def _tail(self, expressions: _Expressions, order_by: Sequence[OrderKey], limit: int | None, offset: int) -> str:
        text = ""
        keys = [key for key in order_by if not _is_constant(key.expr)]
        if keys:
            text += f" ORDER BY {', '.join(map(expressions.key, keys))}"
        if limit is not None:
            text += f" LIMIT {limit:d}"
        return text + (f" OFFSET {offset:d}" if offset else "")

    def _relation(self, relation: Relation, expressions: _Expressions) -> str:
        if isinstance(relation, Scan):
            return relation.id
        if isinstance(relation, DerivedTable):
            rows = self.query(relation.query)
            return f"({_fence(rows) if relation.id in expressions.fences else rows}) AS {relation.id}"
        if isinstance(relation, Named):
            rows = f"({_fence(relation.common)})" if relation.id in expressions.fences else relation.common
            return f"{rows} AS {relation.id}"
        if isinstance(relation, Values):
            rows = ", ".join(f"({', '.join(map(expressions.write, row))})" for row in relation.rows)
            names = ", ".join(f"c{number}" for number in range(len(relation.types)))
            return f"(VALUES {rows}) AS {relation.id}({names})"
        if isinstance(relation, Unnest):
            return _unnested(relation, list(map(expressions.write, relation.lists)))
        left = self._relation(relation.left, expressions)
        right = self._relation(relation.right, expressions)
        if isinstance(relation.right, Join):
            right = f"({right})"
        kind = relation.kind
        if relation.condition is None and kind in (JoinKind.INNER, JoinKind.CROSS):
            return f"{left} CROSS JOIN {right}"
        condition = "TRUE" if relation.condition is None else expressions.condition(relation.condition)
        return f"{left} {kind.value} {right} ON {condition}"

    def function(self, call: Call | Aggregate, arguments: tuple[SqlType, ...]) -> EngineFunction:
        """Return our function that computes a call over its columns."""
        function = self.functions.get((call, arguments))
        if function is None:
            function = EngineFunction(f"f{len(self.functions)}", call, arguments)
            self.functions[call, arguments] = function
        return function


def _shown(output: Output) -> str:
    """Return a column of a set operation in the form in which equal values compare equal: -0.0 is written as 0.0."""
    name, type_ = output.expr.name if isinstance(output.expr, Column) else "", output.expr.type
    return f"({_unsigned(name, type_)}) AS {name}" if type_ in (FLOAT, DOUBLE) else name


def _unsigned(text: str, type_: SqlType) -> str:
    return f"{text} + CAST(0 AS {ENGINE_TYPES[type_.base]})"


def _unsigned_zero(writer: _Expressions, call: Call) -> str:
    return f"({_unsigned(writer.write(call.args[0]), call.type)})"


def _fence(rows: str) -> str:
    """Return a query whose rows the engine computes before it applies conditions: it pushes none below a LIMIT."""
    return f"SELECT * FROM {rows if rows.isidentifier() else f'({rows})'} AS s LIMIT {LONG_MAX}"


def _sets(block: Block, write: Callable[[Expr], str]) -> list[str]:
    keys = block.group_by
    return [f"({', '.join(f'({write(keys[number])})' for number in numbers)})" for numbers in block.grouping_sets]


def _unnested(relation: Unnest, lists: Sequence[str]) -> str:
    """Return a subquery that unnests lists side by side. The engine pads shorter lists with NULL."""
    columns = [f"unnest({values}) AS c{number}" for number, values in enumerate(lists)]
    if relation.with_ordinality:
        length = f"greatest({', '.join(f'coalesce(len({values}), 0)' for values in lists)})"
        columns.append(f"unnest(CAST(generate_series(1, {length}) AS INTEGER[])) AS c{len(lists)}")
    return f"(SELECT {', '.join(columns)}) AS {relation.id}"


class _Expressions:
    """Writer of the expressions of one block."""

    def __init__(self, writer: _SqlWriter, slots: Mapping[str, Slot], keys: frozenset[Expr] = frozenset()) -> None:
        """keys: keys of the groups that expressions are over; each is written by itself wherever it occurs."""
        self._writer = writer
        self._slots = slots
        self._keys = keys
        self.fences: frozenset[str] = frozenset()
        """Relations of FROM whose rows are computed before any condition is applied."""
        self._written: dict[int | str, tuple[Expr, str]] = {}
        """Texts of slots by name, and of other expressions by `id`, with the expression, so that no other gets its
        id."""

    def write(self, expr: Expr) -> str:
        """Return an expression as the engine's SQL."""
        if isinstance(expr, Literal):
            return _literal(expr)
        if isinstance(expr, Column) and expr.name not in self._slots:
            return expr.name
        key: int | str = expr.name if isinstance(expr, Column) else id(expr)
        if key not in self._written:
            self._written[key] = expr, self._text(expr)
        return self._writer.counted(self._written[key][1])

    def _text(self, expr: Column | Call | Aggregate) -> str:
        if isinstance(expr, Column):
            return self._slot(self._slots[expr.name])
        return self._aggregate(expr) if isinstance(expr, Aggregate) else self._call(expr)

    def condition(self, expr: Expr, others: Sequence[Expr] = ()) -> str:
        """Return a condition of WHERE or ON.

        Each part that reads several relations, or a slot, is a conjunct of its own, since the engine joins by it. A
        part that may fail is computed only for rows for which the safe parts, and `others` (conditions that hold
        anyway), are not false."""
        parts = conjuncts(expr)
        safe = [part for part in (*parts, *others) if not may_fail(part) and not _has_slot(part)]
        joined = [part for part in parts if not only_source(part)]
        risky = [part for part in joined if may_fail(part) and not is_join_of_keys(part) and not _has_slot(part)]
        risky_ids = set(map(id, risky))
        texts = [self.write(part) for part in joined if id(part) not in risky_ids]
        if risky:
            texts.append(self._guarded("and", safe, risky))
        owned: dict[str, list[Expr]] = {}
        for part in parts:
            if source := only_source(part):
                owned.setdefault(source, []).append(part)
        for own in owned.values():
            sure, unsafe = [part for part in own if not may_fail(part)], list(filter(may_fail, own))
            texts += [self._guarded("and", sure, unsafe)] if sure and unsafe else map(self.write, own)
        return " AND ".join(texts)

    def having(self, expr: Expr) -> str:
        """Return a condition of HAVING. If a part read only keys, the engine would push it below the grouping, where it
        may fail for a row that WHERE drops. A count in the part prevents the push."""
        texts = [(self.write(part), may_fail(part) and not has_aggregate(part)) for part in conjuncts(expr)]
        return " AND ".join(f"(CASE WHEN count(*) > 0 THEN {text} END)" if fails else text for text, fails in texts)

    def _guarded(self, word: str, safe: Sequence[Expr], unsafe: Sequence[Expr]) -> str:
        """Return AND or OR. Operands that may fail are computed only if the others do not decide the result."""
        first = f"({f' {word.upper()} '.join(map(self.write, safe))})"
        if not unsafe:
            return first
        if len(unsafe) > 1 and not any(map(_has_slot, unsafe)):
            # One operand may decide the result where another fails.
            rest = self._own_call(Call(word, tuple(unsafe), BOOLEAN), with_failures=True)
        else:
            rest = f" {word.upper()} ".join(map(self.write, unsafe))
        every = f"({f' {word.upper()} '.join([*map(self.write, safe), rest])})"
        if not safe:
            return every
        is_decided, verdict = (first, "TRUE") if word == "or" else (f"(NOT {first})", "FALSE")
        return f"(CASE WHEN {is_decided} THEN {verdict} ELSE {every} END)"

    def key(self, key: OrderKey) -> str:
        """Return a key of ORDER BY."""
        direction = "ASC" if key.ascending else "DESC"
        return f"{self.write(key.expr)} {direction} NULLS {'LAST' if key.nulls_last else 'FIRST'}"

    def _call(self, call: Call) -> str:
        name, args = call.function, call.args
        if name == "case" and call.type.is_array and not any(map(self._is_own_decimal, args)):
            return _case(self, call)
        if call.type.is_array or any(arg.type.is_array or self._is_own_decimal(arg) for arg in args):
            return self._own_call(call)
        if name in ("and", "or"):
            return self._guarded(name, [arg for arg in args if not may_fail(arg)], list(filter(may_fail, args)))
        if name == "not":
            return f"(NOT {self.write(args[0])})"
        if name in ("equals", "not_equals") and args[1] == TRUE:
            # The engine turns EXISTS and IN into joins only if they are not operands.
            return self.write(args[0]) if name == "equals" else f"(NOT {self.write(args[0])})"
        if name in COMPARISONS:
            return f"({self.write(args[0])} {COMPARISONS[name]} {self.write(args[1])})"
        native = _NATIVE.get(name)
        written = None if native is None else native(self, call)
        return self._own_call(call) if written is None else written

    def _own_call(self, call: Call, *, with_failures: bool = False) -> str:
        """Return a call of our function, over the largest parts that the engine computes.

        with_failures: only over parts that cannot fail."""
        columns: dict[Expr, Column] = {}
        inner = self._inner(call, columns, is_top=True, with_failures=with_failures)
        assert isinstance(inner, Call)
        if not columns:  # without an argument, the function would not get the number of rows
            columns[Literal(0, INT)] = Column("x0", INT)
        function = self._writer.function(inner, tuple(column.type for column in columns.values()))
        arguments = ", ".join(_argument(self.write(expr), expr.type) for expr in columns)
        text = f"{function.name}({arguments})"
        return text if call.type != BIG_DECIMAL else f"CAST({text} AS DECIMAL({MAX_DIGITS}, {MAX_PLACES}))"

    def _inner(
        self, expr: Expr, columns: dict[Expr, Column], *, is_top: bool = False, with_failures: bool = False
    ) -> Expr:
        if isinstance(expr, Literal):
            return expr
        is_key = bool(self._keys) and expr in self._keys
        is_part = is_top or (not is_key and self._is_own(expr, with_failures=with_failures))
        if is_part and isinstance(expr, Call):
            args = tuple(self._inner(arg, columns, with_failures=with_failures) for arg in expr.args)
            return Call(expr.function, args, expr.type)
        return columns.setdefault(expr, Column(f"x{len(columns)}", expr.type))

    def _is_own(self, expr: Expr, *, with_failures: bool) -> bool:
        """Return whether our function around a call computes the call, too."""
        return isinstance(expr, Call) and (not self._is_native(expr) or (with_failures and may_fail(expr)))

    def _is_native(self, call: Call) -> bool:
        """Return whether the engine computes a call by itself, whatever computes its arguments."""
        if call.type.is_array or any(arg.type.is_array or self._is_own_decimal(arg) for arg in call.args):
            return False
        if call.function in COMPARISONS or call.function in ("and", "or", "not"):
            return True
        native = _NATIVE.get(call.function)
        return native is not None and native(self, call) is not None

    def _is_own_decimal(self, expr: Expr) -> bool:
        """Return True if an expression is a BIG_DECIMAL that one of our functions computes. The call that takes it is
        then ours too, so that it gets all of its digits."""
        return isinstance(expr, Call) and expr.type == BIG_DECIMAL and not self._is_native(expr)

    def _aggregate(self, aggregate: Aggregate) -> str:
        condition = "" if aggregate.filter is None else f" FILTER (WHERE {self.write(aggregate.filter)})"
        takes_own_decimal = any(map(self._is_own_decimal, aggregate.args)) and aggregate.type != BIG_DECIMAL
        if is_native(aggregate.function, aggregate.args) and not takes_own_decimal:
            args = [self.write(arg) for arg in aggregate.args]
            text, after = native_text(aggregate.function, aggregate.args, args, aggregate.type)
            return after(f"{text}{condition}")
        return self._own_aggregate(aggregate, condition)

    def _own_aggregate(self, aggregate: Aggregate, condition: str) -> str:
        """Return a call of our aggregate over a list of each group's rows."""
        columns: dict[Expr, Column] = {}
        args = tuple(self._inner(arg, columns) for arg in aggregate.args)
        if not columns:  # constants do not tell the number of rows
            columns[Literal(0, INT)] = Column("x0", INT)
        types = tuple(column.type for column in columns.values())
        function = self._writer.function(replace(aggregate, args=args, filter=None), types)
        values = [f"CAST({_argument(self.write(expr), expr.type)} AS {engine_type(expr.type)})" for expr in columns]
        return f"{function.name}(list({row_of(values)}){condition})"

    def _slot(self, slot: Slot) -> str:
        return self._window(slot) if isinstance(slot, Window) else self._subquery(slot)

    def _window(self, window: Window) -> str:
        parts = []
        if window.partition_by:
            parts.append(f"PARTITION BY {', '.join(map(self.write, window.partition_by))}")
        if window.order_by:
            parts.append(f"ORDER BY {', '.join(self._window_key(window, key) for key in window.order_by)}")
        if window.frame:
            parts.append(window.frame)
        args = [self.write(arg) for arg in window.args]
        condition = "" if window.filter is None else f" FILTER (WHERE {self.write(window.filter)})"
        if window.function in _PLAIN_WINDOWS:
            nulls = " IGNORE NULLS" if window.ignores_nulls else ""
            return f"{window.function}({', '.join(args)}{nulls}) OVER ({' '.join(parts)})"
        text, after = native_text(window.function, window.args, args, window.type)
        return after(f"{text}{condition} OVER ({' '.join(parts)})")

    def _window_key(self, window: Window, key: OrderKey) -> str:
        """Return a key of a window's ORDER BY. If a frame adds a distance to it, a whole number is widened, so that it
        does not overflow."""
        if not window.has_distance or key.expr.type in (FLOAT, DOUBLE):
            return self.key(key)
        direction, nulls = "ASC" if key.ascending else "DESC", "LAST" if key.nulls_last else "FIRST"
        return f"CAST({self.write(key.expr)} AS HUGEINT) {direction} NULLS {nulls}"

    def _subquery(self, subquery: Subquery) -> str:
        text = self._writer.query(subquery.query)
        operands = ", ".join(map(self.write, subquery.operands))
        match subquery.kind:
            case SubqueryKind.SCALAR:
                return f"({text})"
            case SubqueryKind.EXISTS:
                return f"(EXISTS ({text}))"
            case SubqueryKind.IN:
                if len(subquery.operands) > 1 and is_correlated(subquery.query):
                    return self._row_in(subquery, text)
                return f"(({operands}) IN ({text}))"
            case SubqueryKind.ALL | SubqueryKind.ANY:
                word = "ALL" if subquery.kind is SubqueryKind.ALL else "ANY"
                return f"({operands} {COMPARISONS[subquery.function]} {word} ({text}))"

    def _row_in(self, subquery: Subquery, text: str) -> str:
        """Return an IN of several columns as comparisons of each column. The engine's own IN cannot be correlated, and
        takes NULLs within its ROWs to be equal."""
        pairs = [f"{self.write(operand)} = s.c{number}" for number, operand in enumerate(subquery.operands)]
        is_equal = f"({' AND '.join(pairs)})"
        verdict = f"CASE WHEN bool_or({is_equal}) THEN true WHEN bool_or({is_equal} IS NULL) THEN NULL ELSE false END"
        return f"(SELECT {verdict} FROM ({text}) AS s)"


_PLAIN_WINDOWS = frozenset(
    {
        *("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"),
        *("lag", "lead", "first_value", "last_value"),
    }
)


def _has_slot(expr: Expr) -> bool:
    return any(not source_id(column) for column in columns_in(expr))


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, Literal)


def _argument(text: str, type_: SqlType) -> str:
    """Return an argument of our function. Decimals are passed as text."""
    return f"CAST({text} AS VARCHAR)" if type_ == BIG_DECIMAL else text


def _literal(literal: Literal) -> str:
    value, base = literal.value, literal.type.base
    type_ = engine_type(literal.type)
    if value is None:
        return "NULL" if base in (TypeName.UNKNOWN, TypeName.BIG_DECIMAL) else f"CAST(NULL AS {type_})"
    if base is TypeName.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if base is TypeName.BIG_DECIMAL:
        return decimal_literal(Decimal(str(value)))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"CAST('{value!r}' AS {type_})"
    return f"CAST({value!r} AS {type_})" if isinstance(value, int) else f"CAST('{value!r}' AS {type_})"


def _text(value: str) -> str:
    """Return a string literal. The engine ends a literal at a zero byte, so such a byte is written as chr(0)."""
    quoted = value.replace("'", "''")
    if "\0" in quoted:
        pieces = " || chr(0) || ".join(f"'{piece}'" for piece in quoted.split("\0"))
        return f"({pieces})"
    return f"'{quoted}'"


def decimal_literal(value: Decimal) -> str:
    """Return a number as a DECIMAL of its digits."""
    text = format(value, "f")
    whole, _, fraction = text.lstrip("-").partition(".")
    digits = max(len(whole.lstrip("0")) + len(fraction), 1)
    if digits > MAX_DIGITS:
        raise UnsupportedSqlError(f"a BIG_DECIMAL of {digits} digits above a join, a window or a subquery")
    return f"CAST('{text}' AS DECIMAL({digits}, {len(fraction)}))"


def _between(writer: _Expressions, call: Call) -> str:
    subject, low, high = map(writer.write, call.args)
    return f"({subject} BETWEEN {low} AND {high})"


def _membership(writer: _Expressions, call: Call) -> str:
    subject, *candidates = map(writer.write, call.args)
    return f"({subject} {'IN' if call.function == 'in' else 'NOT IN'} ({', '.join(candidates)}))"


def _grouping(writer: _Expressions, call: Call) -> str:
    return f"CAST(GROUPING({', '.join(map(writer.write, call.args))}) AS INTEGER)"


def _null_test(writer: _Expressions, call: Call) -> str:
    return f"({writer.write(call.args[0])} IS {'NULL' if call.function == 'is_null' else 'NOT NULL'})"


def _case(writer: _Expressions, call: Call) -> str:
    *branches, otherwise = map(writer.write, call.args)
    tests = zip(branches[::2], branches[1::2], strict=True)
    parts = " ".join(f"WHEN {test} THEN {result}" for test, result in tests)
    return f"(CASE {parts} ELSE {otherwise} END)"


def _coalesce(writer: _Expressions, call: Call) -> str | None:
    if any(arg.type != call.type for arg in call.args):
        return None
    return f"coalesce({', '.join(map(writer.write, call.args))})"


def _exact_function(writer: _Expressions, call: Call) -> str | None:
    """Return ABS, GREATEST or LEAST of exact numbers, which have the digits of their arguments."""
    if call.type != BIG_DECIMAL or not all(arg.type.base in _EXACT or _is_constant(arg) for arg in call.args):
        return None
    return f"{call.function}({', '.join(_exactly(writer, arg) for arg in call.args)})"


def _arithmetic(writer: _Expressions, call: Call) -> str | None:
    sign = ARITHMETIC[call.function]
    left, right = call.args
    if call.type == LONG or call.type == DOUBLE:
        if not all(arg.type.base in _NUMBERS or arg.type == BIG_DECIMAL for arg in call.args):
            return None
        type_ = ENGINE_TYPES[call.type.base]
        return f"(CAST({writer.write(left)} AS {type_}) {sign} CAST({writer.write(right)} AS {type_}))"
    if call.type == BIG_DECIMAL and all(arg.type.base in _EXACT or _is_constant(arg) for arg in call.args):
        return f"({_exactly(writer, left)} {sign} {_exactly(writer, right)})"
    return None


def _exactly(writer: _Expressions, expr: Expr) -> str:
    """Return an operand of exact arithmetic. A constant DOUBLE is taken as the number that its digits name."""
    if isinstance(expr, Literal) and isinstance(expr.value, float) and math.isfinite(expr.value):
        return decimal_literal(Decimal(repr(expr.value)))
    return writer.write(expr)


def _negate(writer: _Expressions, call: Call) -> str | None:
    argument = call.args[0]
    if argument.type == call.type and call.type in (LONG, DOUBLE, BIG_DECIMAL):
        return f"(- {writer.write(argument)})"
    return None


def _cast(writer: _Expressions, call: Call) -> str | None:
    """Return a cast that the engine computes as we do; None for other casts, which our functions compute."""
    source, target = call.args[0].type.base, call.type.base
    text = writer.write(call.args[0])
    if source is TypeName.BOOLEAN or target is TypeName.BOOLEAN:
        if (source, target) == (TypeName.LONG, TypeName.BOOLEAN):
            return f"({text} <> 0)"
        return None
    if {source, target} == {TypeName.STRING, TypeName.JSON} or {source, target} == {TypeName.LONG, TypeName.TIMESTAMP}:
        return text
    if source is TypeName.BIG_DECIMAL and target is TypeName.DOUBLE:
        return f"CAST({text} AS DOUBLE)"
    if source in (TypeName.INT, TypeName.LONG) and target is TypeName.BIG_DECIMAL:
        return f"CAST({text} AS DECIMAL(19, 0))"
    if (source, target) in _NARROWED or (
        source in RANKS and target in RANKS and target is not TypeName.BIG_DECIMAL and RANKS[source] < RANKS[target]
    ):
        return f"CAST({text} AS {ENGINE_TYPES[target]})"
    return None


_EXACT = frozenset({TypeName.INT, TypeName.LONG, TypeName.BIG_DECIMAL})
_NARROWED = frozenset({(TypeName.LONG, TypeName.INT), (TypeName.DOUBLE, TypeName.FLOAT)})
_NATIVE: Mapping[str, Callable[[_Expressions, Call], str | None]] = {
    "between": _between,
    "in": _membership,
    "not_in": _membership,
    GROUPING: _grouping,
    "is_null": _null_test,
    "is_not_null": _null_test,
    "case": _case,
    "coalesce": _coalesce,
    "negate": _negate,
    "cast": _cast,
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    UNSIGNED_ZERO: _unsigned_zero,
    **dict.fromkeys(("abs", "greatest", "least"), _exact_function),
}
