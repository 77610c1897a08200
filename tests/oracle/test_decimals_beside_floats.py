"""BIG_DECIMAL compares with FLOAT and DOUBLE, NaN and infinities included, as in Python: in one stage and above one."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.sql.slt_data import Dataset
from tests.sql.slt_layouts import InProcess, one_segment

from merlot.spec.schema import TableSchema

_NUMBERS = ("-1e18", "-2.25", "0", "0.1", "0.1000000000000000001", "9007199254740993", None)
_FLOATS = (math.nan, math.inf, -math.inf, -2.25, 0.0, -0.0, 0.1, 9007199254740992.0, 1.7e308, None)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "n", "type": "BIG_DECIMAL"},
            {"name": "d", "type": "DOUBLE"},
            {"name": "f", "type": "FLOAT"},
        ]
    }
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    pairs = list(itertools.product(_NUMBERS, _FLOATS))
    numbers = [None if number is None else format(Decimal(number), "f") for number, _ in pairs]
    floats = [number for _, number in pairs]
    single = [None if number is None or (abs(number) > 1e38 and math.isfinite(number)) else number for number in floats]
    columns = [pa.array(numbers), pa.array(floats, pa.float64()), pa.array(single, pa.float32())]
    table = pa.table(columns, names=["n", "d", "f"])
    pairs_table = Dataset(name="pairs", schema=_SCHEMA, rows=table)
    with one_segment([pairs_table], tmp_path_factory.mktemp("floats")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.mark.parametrize("nulls", ["true", "false"])
@pytest.mark.parametrize("source", ["pairs", "(SELECT * FROM pairs) AS z"])
def test_every_pair_compares_by_its_place_among_numbers(layout: InProcess, source: str, nulls: str) -> None:
    texts = [f"{left} {sign} {right}" for sign in _SIGNS for left, right in (("n", "d"), ("f", "n"))]
    answer = layout.query(
        f"SET enableNullHandling={nulls}; SELECT n, d, f, {', '.join(texts)} FROM {source} LIMIT 1000"
    )
    for number, double, single, *verdicts in answer.rows:
        wanted = []
        for compare in _SIGNS.values():
            wanted += [_verdict(compare, number, double), _verdict(compare, single, number)]
        assert verdicts == wanted, (number, double, single)


@pytest.mark.parametrize("nulls", ["true", "false"])
@pytest.mark.parametrize("literal", ["1e400", "CAST('-Infinity' AS DOUBLE)", "CAST('NaN' AS DOUBLE)"])
def test_a_constant_without_a_decimal_has_its_place_too(layout: InProcess, literal: str, nulls: str) -> None:
    value = {"1": math.inf, "C": -math.inf}.get(literal[0], 0.0) if "NaN" not in literal else math.nan
    for sign, compare in _SIGNS.items():
        options = f"SET enableNullHandling={nulls};"
        (row,) = layout.query(f"{options} SELECT COUNT(*) FROM pairs WHERE n {sign} {literal}").rows
        every = layout.query(f"{options} SELECT n FROM pairs LIMIT 1000").rows
        assert row == [sum(bool(_verdict(compare, number, value)) for (number,) in every)], sign


def _verdict(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool | None:
    return None if left is None or right is None else compare(_place(left), _place(right))


def _place(number: Any) -> tuple[int, Decimal]:
    """A number in the order of numbers; a double is the decimal that it is written as."""
    if isinstance(number, float) and not math.isfinite(number):
        return (2 if math.isnan(number) else 1 if number > 0 else -1), Decimal(0)
    return 0, Decimal(str(number))
