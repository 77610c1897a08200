"""A function of a column with a dictionary is worked out once for each distinct text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from merlot.functions.evaluate import attempt, evaluate
from merlot.functions.source import Coded
from merlot.spec.schema import TableSchema
from merlot.sql.bind import bind
from merlot.sql.parse import parse
from merlot.sql.views import BindContext
from merlot.tree.nodes import Expr
from merlot.tree.types import STRING, SqlType
from merlot.vectors.vector import Vector

TEXTS = ["3", "x", "7"]
TIMES = 300
IDS = np.array([0, 2, 2, 0, 1] * TIMES, np.uint8)


class Rows:
    """A column that is known by its distinct values alone."""

    num_rows = 5 * TIMES

    def __init__(self, nulls: list[bool] | None = None) -> None:
        self._nulls = None if nulls is None else np.array(nulls * TIMES)

    def coded(self, name: str) -> Coded | None:
        return Coded(Vector(STRING, pa.array(TEXTS)), IDS, self._nulls) if name == "s" else None

    def column(self, name: str, type_: SqlType) -> Vector:
        assert name != "s", "its rows were looked up"
        return Vector(type_, pa.array(["a"] * self.num_rows))

    def nulls(self, name: str) -> None:
        return None


def bound(sql: str) -> Expr:
    fields = [{"name": name, "type": "STRING"} for name in ("s", "t")]
    schema = TableSchema.model_validate({"fields": fields})
    return bind(parse(f"SELECT {sql} FROM x"), schema, {}, context=BindContext(lambda call: call)).select[0].expr


def test_rows_of_a_coded_column_are_not_looked_up() -> None:
    answer = evaluate(bound("CONCAT(UPPER(s), '!')"), Rows()).to_arrow(5 * TIMES)[:5]
    assert answer.to_pylist() == ["3!", "7!", "7!", "3!", "X!"]


def test_nulls_are_those_of_the_rows_and_hide_failures() -> None:
    cast = bound("LENGTH(REPEAT(s, 2)) + CAST(CONCAT(s, '0') AS INT)")
    failed = attempt(cast, Rows()).failure
    assert failed is not None
    assert failed.rows[:5].tolist() == [False, False, False, False, True]
    answer = evaluate(cast, Rows([False, True, False, False, True])).to_arrow(5 * TIMES)[-5:]
    assert answer.to_pylist() == [32, None, 72, 32, None]


def test_calls_of_several_columns_are_worked_out_by_row() -> None:
    with pytest.raises(AssertionError, match="looked up"):
        evaluate(bound("CONCAT(s, t)"), Rows())
