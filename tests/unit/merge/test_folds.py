"""Sums of BIG_DECIMAL metrics with as many digits as ingestion admits."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from merlot.merge.columns import MergeColumn
from merlot.merge.folds import fold
from merlot.merge.plan import MetricAggregation
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.values.types import TypeName
from merlot.vectors.decimals import exactly, plain_text
from merlot.vectors.groups import KeyWords, group

FIELD = FieldSpec(name="amount", type=TypeName.BIG_DECIMAL, role=FieldRole.METRIC)


@pytest.mark.parametrize(
    "numbers",
    [
        ["1e5000", "-1", "0.25"],
        ["1", "1e-5000", "-2.5"],
        ["1e10000", "1e-10000", "-7"],
        ["-1e10000", "1e10000", "0"],
        ["-0.5", "0.5", "12.50"],
    ],
)
def test_sums_are_exact_whatever_the_number_of_digits(numbers: list[str]) -> None:
    texts = pa.array([plain_text(Decimal(number)) for number in numbers])
    keys = KeyWords(3)
    keys.add(np.array([0, 0, 1]), 2)
    column = MergeColumn(field=FIELD, num_rows=3, values=texts)
    folded = fold(column, FIELD, MetricAggregation(), group(keys))
    with exactly():
        first, second, third = map(Decimal, numbers)
        wanted = [plain_text(first + second), plain_text(third)]
    assert folded.values.to_pylist() == wanted
