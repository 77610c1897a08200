"""The shape of a table: what its manifest says that decides which rows a batch's segments hold, what their values are,
and what the segments are called. Pure.

A job builds by one manifest and publishes into a table that was applied from another. Where the two have one shape, the
same rows give the same segments; where they differ, rows would be counted twice, or read as something else. Indexes,
replication and all else that only steers the future are no part of it (`evolution` has those).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from merlot.errors import InvalidInputError
from merlot.spec.indexing import PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

Shape = Mapping[str, str]
"""Text by the path of a field in the manifest; equal texts have equal meanings."""

COLUMNS: Final = "spec.schema.fields"
LIMITED: Final = frozenset({TypeName.STRING, TypeName.BYTES, TypeName.JSON})
"""Types whose values have a length."""
ABSENT: Final = "(absent)"
HINT: Final = (
    "apply the manifest first, or build by the table's own: GET /tables/NAME/manifest, or a job without --table"
)
MAX_SHOWN: Final = 3
MAX_TEXT: Final = 120


class ShapeError(InvalidInputError):
    """Segments were built, or are to be built, by a manifest that differs from the applied table."""


def shape_of(spec: TableSpec) -> Shape:
    """The shape of a table. The order of columns belongs to it: files without a header go by it."""
    return {
        "spec.timeColumn": spec.time_column or ABSENT,
        "spec.pushType": str(spec.push_type),
        "spec.ingestion.daysPerSegment": str(spec.ingestion.days_per_segment),
        "spec.partitioning": _partitioning(spec.partitioning),
        "spec.upsert": ABSENT if spec.upsert is None else "set",
        "spec.schema.primaryKey": ", ".join(spec.table_schema.primary_key) or ABSENT,
        COLUMNS: ", ".join(spec.table_schema.names),
        **{f"{COLUMNS}[{field.name}]": _column(field) for field in spec.table_schema.fields},
    }


def differences(applied: Shape, other: Shape) -> list[str]:
    """Fields in which two shapes differ. What only one of them tells of is no difference: a column that one lacks is
    named by the list of columns, and another version of Merlot may know of fields that this one does not."""
    return [path for path, text in applied.items() if other.get(path, text) != text]


def check(applied: Shape, other: Shape, *, table: str, what: str) -> None:
    """ShapeError, which names the fields, unless the shapes are equal. `what`: whose shape `other` is."""
    paths = differences(applied, other)
    if not paths:
        return
    shown = [f"{path}: {_pair(path, applied, other)}" for path in paths[:MAX_SHOWN]]
    more = f" and {len(paths) - MAX_SHOWN} more" if len(paths) > MAX_SHOWN else ""
    raise ShapeError(
        f"{what} differs from the applied table table={table} fields={len(paths)}: {'; '.join(shown)}{more}; {HINT}"
    )


def _pair(path: str, applied: Shape, other: Shape) -> str:
    """Both values; of the lists of columns, what only one of them has, and of a column, what is not the same."""
    before, after = applied[path], other[path]
    if path.startswith(f"{COLUMNS}["):
        first_facts, second_facts = json.loads(before), json.loads(after)
        names = [name for name in {**first_facts, **second_facts} if first_facts.get(name) != second_facts.get(name)]
        before, after = (
            ", ".join(f"{name} {facts.get(name, 'none')}" for name in names) for facts in (first_facts, second_facts)
        )
    elif path == COLUMNS:
        first, second = before.split(", "), after.split(", ")
        if set(first) != set(second):
            before, after = _beyond(first, second), _beyond(second, first)
    return f"applied {before:.{MAX_TEXT}} and here {after:.{MAX_TEXT}}"


def _beyond(names: Sequence[str], others: Sequence[str]) -> str:
    """Names that are not among the others."""
    own = [name for name in names if name not in set(others)]
    return f"has also {', '.join(own)}" if own else "has no more"


def _partitioning(spec: PartitioningSpec | None) -> str:
    if spec is None:
        return ABSENT
    functions = {
        name: {**function.model_dump(mode="json"), "functionName": function.function_name.lower()}
        for name, function in spec.columns.items()
    }
    return _json({"columns": functions, "enforce": str(spec.enforce)})


def _column(field: FieldSpec) -> str:
    """All of a column that decides its values, defaults filled in. What is added one day has to be a path of its own:
    older versions compare the whole text."""
    facts: dict[str, object] = {"type": str(field.type), "role": str(field.role)}
    if field.multi_value:
        facts["multiValue"] = True
    if field.role is FieldRole.DATE_TIME:
        facts["format"] = field.format or "TIMESTAMP"
    value = field.default_value
    facts["defaultNullValue"] = value.hex() if isinstance(value, bytes) else str(value)
    if field.longest is not None and field.type in LIMITED:
        facts["maxLength"] = field.longest
    return _json(facts)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
