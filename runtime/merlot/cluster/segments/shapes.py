"""Whether segments that somebody publishes were built for the table as it is applied. Pure.

Who builds has a manifest of its own: what it sends is compared with the table here, since nobody else knows both. A
publisher that sends no shape is compared by what records say of columns.
"""

from __future__ import annotations

from merlot.cluster.segments.publish import PublishRequest
from merlot.spec import shape
from merlot.spec.evolution import can_widen
from merlot.spec.shape import ShapeError
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName


def check_shape(table: str, spec: TableSpec, request: PublishRequest) -> None:
    """ShapeError, which names the field, if the segments of a request would be read as something else, or have rows
    that other segments of the table have, too."""
    if request.shape is not None:
        shape.check(shape.shape_of(spec), request.shape, table=table, what="the manifest that segments were built by")
    seen: set[str] = set()
    for record in request.records:
        if record.columns not in seen:
            seen.add(record.columns)
            for field in spec.table_schema.fields:
                stored = record.column_types.get(field.name)
                if stored is not None and not (can_widen(stored[0], field.type) and stored[1] == field.multi_value):
                    raise ShapeError(
                        f"segment has a column that cannot be read as the applied table's table={table} "
                        f"segment={record.name} column={field.name} applied={_text(field.type, field.multi_value)} "
                        f"segment's={_text(*stored)}; build it by the table's own manifest (GET /tables/NAME/manifest)"
                    )


def _text(type_: TypeName, is_list: bool) -> str:
    return f"{type_}[]" if is_list else str(type_)
