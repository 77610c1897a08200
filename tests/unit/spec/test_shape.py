"""Which fields of a manifest decide what a batch's rows become, and that a difference in any of them is named."""

import pytest
from tests.unit.spec import shapes

from merlot.spec import shape
from merlot.spec.indexing import PartitionFunctionSpec, PartitioningSpec
from merlot.spec.ingestion import IngestionSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import TableSpec

DECIDING = {
    TableSpec: {"table_schema", "time_column", "push_type", "partitioning", "ingestion", "upsert"},
    TableSchema: {"fields", "primary_key"},
    FieldSpec: {"name", "type", "role", "multi_value", "format", "default_null_value", "max_length"},
    IngestionSpec: {"days_per_segment"},
    PartitioningSpec: {"columns", "enforce"},
    PartitionFunctionSpec: {"function_name", "num_partitions", "function_config"},
}
STEERING = {
    TableSpec: {
        *("replication", "retention", "indexing", "routing", "limits", "tenants", "deep_store", "deletion_policy"),
        *("suspend", "null_handling"),
    },
    TableSchema: set(),
    FieldSpec: {"granularity", "description"},
    IngestionSpec: {"batch", "stream", "time_boundary", "max_rows_per_segment"},
    PartitioningSpec: set(),
    PartitionFunctionSpec: set(),
}


@pytest.mark.parametrize("model", DECIDING, ids=lambda model: model.__name__)
def test_every_field_of_a_manifest_is_part_of_the_shape_or_is_not_by_decision(model: type[TableSpec]) -> None:
    assert DECIDING[model] | STEERING[model] == set(model.model_fields)
    assert not DECIDING[model] & STEERING[model]


@pytest.mark.parametrize("case", shapes.DIFFERENT, ids=lambda case: case.path)
def test_a_difference_in_a_field_that_decides_rows_is_named(case: shapes.Case) -> None:
    applied, other = shape.shape_of(shapes.table().spec), shape.shape_of(shapes.table(*case.edits).spec)
    assert case.path in shape.differences(applied, other)
    with pytest.raises(shape.ShapeError) as raised:
        shape.check(applied, other, table="trips", what="the manifest")
    assert f"{case.path}: applied " in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("edit", shapes.EQUAL, ids=lambda edit: edit[1].strip())
def test_what_only_steers_the_table_is_no_difference(edit: tuple[str, str]) -> None:
    applied, other = shape.shape_of(shapes.table().spec), shape.shape_of(shapes.table(edit).spec)
    assert applied == other
    shape.check(applied, other, table="trips", what="the manifest")


def test_the_error_shows_what_only_one_of_two_lists_of_columns_has() -> None:
    applied = shape.shape_of(shapes.table().spec)
    other = shape.shape_of(shapes.table(("name: rides", "name: miles")).spec)
    with pytest.raises(shape.ShapeError, match="applied has also rides and here has also miles"):
        shape.check(applied, other, table="trips", what="the manifest")


def test_the_error_shows_what_is_not_the_same_of_a_column() -> None:
    applied = shape.shape_of(shapes.table().spec)
    other = shape.shape_of(shapes.table((shapes.RIDES, f"{shapes.RIDES}, role: metric")).spec)
    facts = "defaultNullValue {}, role {}"
    expected = f"applied {facts.format(-(2**63), 'dimension')} and here {facts.format(0, 'metric')};"
    with pytest.raises(shape.ShapeError, match=expected):
        shape.check(applied, other, table="trips", what="the manifest")
