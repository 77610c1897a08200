"""Rows that producers put into another partition of the stream than their table declares are counted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from merlot.server.realtime.partition_check import LOOKED_AT, misplaced
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionFunctionSpec
from merlot.spec.manifest import load_tables
from merlot.spec.table import TableSpec

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: t}}
spec:
  schema:
    fields: [{{name: id, type: {type}}}, {{name: other, type: INT}}]
  partitioning: {{columns: {{{columns}}}}}
"""


def table(type_: str, columns: str) -> TableSpec:
    [found] = load_tables(MANIFEST.format(type=type_, columns=columns))
    return found.spec


@pytest.mark.parametrize(
    ("type_", "values"),
    [("LONG", [*range(-50, 140), None]), ("INT", [*range(-50, 150)]), ("STRING", [*map(str, range(190)), "", None])],
)
@pytest.mark.parametrize(
    "function",
    [
        {"functionName": "Murmur", "numPartitions": 3},
        {"functionName": "Modulo", "numPartitions": 3},
        {"functionName": "Modulo", "numPartitions": 3, "functionConfig": {"partitionIdNormalizer": "ABS"}},
        {"functionName": "HashCode", "numPartitions": 3},
    ],
)
def test_a_row_is_where_its_function_says(type_: str, values: list[Any], function: dict[str, Any]) -> None:
    spec = table(type_, f"id: {function}")
    default = spec.table_schema.fields[0].default_value
    partition_of = partition_functions.get(PartitionFunctionSpec.model_validate(function))
    given = [str(default if value is None else value) for value in values]
    if function["functionName"] == "Modulo" and type_ == "STRING":
        values, given = values[:190], given[:190]
    rows = pa.table({"id": pa.array(values), "other": [0] * len(values)})
    for partition in range(4):
        wrong = sum(partition_of(text) != partition for text in given)
        assert misplaced(spec, rows, partition) == wrong


def test_of_several_columns_one_is_enough() -> None:
    spec = table("INT", "id: {functionName: Modulo, numPartitions: 2}, other: {functionName: Modulo, numPartitions: 2}")
    rows = pa.table({"id": [0, 0, 1, 1], "other": [0, 1, 0, 1]})
    assert misplaced(spec, rows, 0) == 1


def test_a_slow_function_is_asked_of_the_first_rows_and_refuses_what_it_cannot_read() -> None:
    spec = table("STRING", "id: {functionName: Modulo, numPartitions: 2}")
    assert misplaced(spec, pa.table({"id": ["1"] * (LOOKED_AT + 50)}), 0) == LOOKED_AT
    assert misplaced(spec, pa.table({"id": ["0", "x"]}), 0) == 1


def test_a_table_without_partitions_has_none_that_are_wrong() -> None:
    spec = table("INT", "id: {functionName: Modulo, numPartitions: 2}").model_copy(update={"partitioning": None})
    assert misplaced(spec, pa.table({"id": [1, 2]}), 0) == 0
