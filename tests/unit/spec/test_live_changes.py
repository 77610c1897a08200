"""A live table changes in one field: the change is refused by the field, or reads what is stored as it was."""

from typing import Any

from tests.unit.spec import built_rows, variants

from merlot.spec import evolution
from merlot.values.types import TypeName


def test_a_change_of_a_live_table_is_refused_by_its_field_or_changes_no_row_that_is_there() -> None:
    for variant in variants.every():
        before, after = variants.base(variant.base).spec, variant.table.spec
        problems = evolution.compare(before, after)
        if problems:
            column = variant.position.partition("]")[0]  # of a wider type, the default has to be declared
            assert any(
                variant.position.startswith(one.path) or one.path.startswith((variant.position, column))
                for one in problems
            ), (variant.id, problems)
            continue
        files = [one.path for one in built_rows.segments_of(variants.base(variant.base))]
        now = built_rows.rows_under(files, after.table_schema)
        names = before.table_schema.names
        kinds = {field.name: field.type for field in after.table_schema.fields}
        expected = [
            tuple(
                (name, kind.replace(kind.removesuffix("[]"), kinds[name]), widened(value, kinds[name]))
                for name, kind, value in row
            )
            for row in built_rows.base_rows(variant.base)
        ]
        assert built_rows.cells_of(now, names) == built_rows.cells_of(expected, names), variant.id


def widened(value: Any, kind: TypeName) -> Any:
    """A number as a BIG_DECIMAL shows it."""
    return str(value) if kind is TypeName.BIG_DECIMAL and value is not None else value
