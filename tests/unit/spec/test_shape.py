"""Which fields of a manifest decide what a batch's rows become, and that a difference in any of them is named."""

from collections.abc import Iterator

import pytest
from tests.unit.spec import built_rows, shapes, variants
from tests.unit.spec.variants import Variant

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


def test_every_field_has_a_manifest_that_differs_in_it_alone() -> None:
    varied = {variant.place for variant in variants.every()}
    missing = {(model.__name__, name) for model, name in variants.places() - varied}
    assert not missing, f"add a base or a word to tests/unit/spec/variants.py for {sorted(missing)}"


def differing() -> Iterator[tuple[Variant, list[str]]]:
    """Variants and the paths that their shapes name."""
    for variant in variants.every():
        applied, other = (shape.shape_of(one.spec) for one in (variants.base(variant.base), variant.table))
        yield variant, shape.differences(applied, other)


def test_what_the_shape_leaves_out_changes_no_row_and_no_segment() -> None:
    expected = {name: built_rows.families(variants.base(name)) for name in variants.BASES}
    for variant, paths in differing():
        if not paths and built_rows.built(variant.table.model_dump_json(by_alias=True)) is not None:
            assert built_rows.families(variant.table) == expected[variant.base], variant.id


def test_a_difference_that_decides_rows_is_named_by_its_field() -> None:
    named = set()
    for variant, paths in differing():
        if not paths:
            continue
        assert any(variant.path.startswith(path) for path in paths), (variant.id, paths)
        model, name = variant.place
        named.add(variant.place)
        assert name in DECIDING.get(model, ()), variant.id
        applied, other = (shape.shape_of(one.spec) for one in (variants.base(variant.base), variant.table))
        with pytest.raises(shape.ShapeError) as raised:
            shape.check(applied, other, table="trips", what="the manifest")
        assert f"{paths[0]}: applied " in str(raised.value)
        assert "\n" not in str(raised.value)
    unnamed = {(model, name) for model, names in DECIDING.items() for name in names} - named
    assert unnamed == {(TableSpec, "table_schema"), (TableSpec, "ingestion")}, "these hold fields that are named"


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
