"""What holds for every registered function, whatever it computes."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.contracts.functions.values import NOW_MS, value_of

from merlot.aggregates import registry as aggregates
from merlot.functions.evaluate import evaluate
from merlot.functions.function import Lists, ScalarFunction
from merlot.functions.instants import Moment
from merlot.functions.registry import FAMILIES, FUNCTIONS, find, of
from merlot.functions.source import ValueSource
from merlot.sql import syntax
from merlot.sql.bind import bind
from merlot.sql.parse import parse
from merlot.sql.views import BindContext
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.vector import Vector, constant

ROOT = Path(__file__).parents[3]
SQL = ROOT / "tests" / "sql"
MOMENTS = ROOT / "tests" / "unit" / "sql" / "test_instants.py"
each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
RISING = [function for function in FUNCTIONS if function.rising is not None]


def test_a_name_means_one_function() -> None:
    names = [canonical_key(name) for function in FUNCTIONS for name in (function.name, *function.aliases)]
    names += [name for function in aggregates.FUNCTIONS for name in (function.name, *function.aliases)]
    assert sorted(names) == sorted(set(names))


def test_every_name_of_a_function_can_be_called() -> None:
    for function in FUNCTIONS:
        for name in () if function.syntax else (function.name, *function.aliases):
            call = parse(f"SELECT {name}(1, 2)").select.items[0]
            assert isinstance(call, syntax.Call), name
            assert find(call.name) is function, name


def test_a_function_is_one_thing_under_a_canonical_name() -> None:
    for function in FUNCTIONS:
        codes = (function.apply, function.lazy, function.rewrite)
        assert sum(code is not None for code in codes) == 1, function.name
        names = [function.name, *function.aliases]
        assert function.syntax or names == [canonical_key(name) for name in names]
        asks_of_one = sum(not parameter.is_constant for parameter in function.parameters) < 2
        is_taken = function.lists is not Lists.REFUSED or function.syntax or not asks_of_one
        assert not function.is_predicate or is_taken, function.name


def test_every_function_has_sql_cases_and_examples() -> None:
    texts = "\n".join(path.read_text() for path in [*SQL.glob("*.slt"), MOMENTS]).replace("_", "").lower()
    called = set(re.findall(r"\b(\w+)\(", texts))
    assert [function.name for function in FUNCTIONS if not function.examples] == []
    assert [
        function.name
        for function in FUNCTIONS
        if not function.syntax and called.isdisjoint(name.lower() for name in (function.name, *function.aliases))
    ] == []


@each_function
def test_examples_answer_what_they_say(function) -> None:
    for sql, wanted in function.examples.items():
        answer = value_of(sql)
        assert type(answer) is type(wanted), sql
        assert answer == wanted, sql


class Rows:
    """The constants of a call as columns of three rows: the second may be null."""

    num_rows = 3

    def __init__(self, nulls: bool) -> None:
        self._nulls = nulls
        self.literals: list[Literal] = []

    def column_of(self, literal: Literal) -> Column:
        self.literals.append(literal)
        return Column(str(len(self.literals) - 1), literal.type)

    def column(self, name: str, type_: SqlType) -> Vector:
        vector = constant(self.literals[int(name)]).spread(self.num_rows)
        return Vector(type_, vector.data, np.array([False, True, False])) if self._nulls else vector

    def nulls(self, name: str) -> Any:
        return None


def with_columns(expr: Expr, rows: Rows) -> Expr:
    """The call with columns for its constants, where a column may stand."""
    if not isinstance(expr, Call):
        return expr
    parameters = of(expr).parameters
    args = []
    for position, arg in enumerate(expr.args):
        parameter = parameters[min(position, len(parameters) - 1)] if parameters else None
        is_free = parameter is not None and not parameter.is_constant and isinstance(arg, Literal)
        args.append(rows.column_of(arg) if is_free and arg.value is not None else with_columns(arg, rows))
    return Call(expr.function, tuple(args), expr.type)


def bound(sql: str) -> Expr:
    """The expression as it is written, with no call of constants computed."""
    return bind(parse(f"SELECT {sql}"), None, {}, context=BindContext(lambda call: call, Moment(NOW_MS))).select[0].expr


@each_function
@pytest.mark.parametrize("nulls", [False, True], ids=["without nulls", "with nulls"])
def test_a_column_gives_what_the_constant_gives(function, nulls) -> None:
    for sql in function.examples:
        check_columns(bound(sql), nulls)


def check_columns(unfolded: Expr, nulls: bool) -> None:
    rows = Rows(nulls)
    expr = with_columns(unfolded, rows)
    once = evaluate(unfolded, Rows(False)).to_arrow(3).to_pylist()
    vector = evaluate(expr, rows)
    answers = vector.to_arrow(3).to_pylist()
    if nulls and rows.literals and not any(of(call).sees_nulls for call in calls(expr)):
        assert str(answers) == str([once[0], None, once[0]])
    elif not nulls:
        assert str(answers) == str(once)
    assert vector.to_arrow(3).type == evaluate(unfolded, Rows(False)).to_arrow(3).type


@each_function
def test_a_column_beside_constants_gives_what_the_constant_gives(function) -> None:
    for sql in function.examples:
        unfolded = bound(sql)
        once = evaluate(unfolded, Rows(False)).to_arrow(3).to_pylist()
        args_of = unfolded.args if isinstance(unfolded, Call) and of(unfolded).parameters else ()
        for place, arg in enumerate(args_of):
            if isinstance(arg, Literal) and arg.value is not None and not of(unfolded).parameter(place).is_constant:
                rows = Rows(False)
                args = (*unfolded.args[:place], rows.column_of(arg), *unfolded.args[place + 1 :])
                answers = evaluate(Call(unfolded.function, args, unfolded.type), rows).to_arrow(3).to_pylist()
                assert str(answers) == str(once), (sql, place)


def calls(expr: Expr) -> list[Call]:
    return [expr, *(inner for arg in expr.args for inner in calls(arg))] if isinstance(expr, Call) else []


def test_every_module_of_a_family_is_in_the_registry() -> None:
    folder = ROOT / "runtime" / "merlot" / "functions"
    declared = sum(len(re.findall(r"= Family\(", path.read_text())) for path in folder.glob("*.py"))
    assert declared == len(FAMILIES)


SORTED = {
    TypeName.INT: np.array([-(2**31), -7, -6, -1, 0, 1, 2, 29, 30, 31, 2**31 - 1], np.int32),
    TypeName.LONG: np.array([-(2**63), -(10**15), -86_400_001, -1, 0, 1, 59, 86_400_000, 10**12, 2**62, 2**63 - 1]),
    TypeName.DOUBLE: np.array([-np.inf, -1e300, -2.5, -1.005, -0.5, 0.0, 0.4999, 0.5, 2.5, 1e15 + 0.5, np.inf]),
}


@pytest.mark.parametrize("function", RISING, ids=lambda function: function.name)
def test_what_rises_with_an_operand_never_falls(function) -> None:
    for sql, base in itertools.product(function.examples, SORTED):
        check_rises(function, bound(sql), base)


def check_rises(function: ScalarFunction, expr: Expr, base: TypeName) -> None:
    if not isinstance(expr, Call) or of(expr) is not function:
        return
    operand = function.rising(expr)
    if operand is None:
        return
    place = next(place for place, arg in enumerate(expr.args) if arg is operand)
    if base not in function.parameters[min(place, len(function.parameters) - 1)].kind.types:
        return
    type_ = SqlType(base)
    args = tuple(Column("x", type_) if arg is operand else arg for arg in expr.args)
    result = function.result if isinstance(function.result, SqlType) else function.result(args)
    values = pa.array(SORTED[base])
    for size in range(1, len(values)):
        pair = ValueSource(base, values.slice(size - 1, 2))
        try:
            low, high = evaluate(Call(expr.function, args, result), pair).spread(2).data.tolist()
        except QueryArithmeticError:
            continue
        assert low <= high, values.slice(size - 1, 2)
